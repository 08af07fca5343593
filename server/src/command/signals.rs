//! The signals that the process gets.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::systemd;
use crate::certificate::Certificate;
use crate::limits::Limits;
use crate::ratelimit::RateLimits;
use crate::token::Token;

/// What is read again at a signal.
#[derive(Clone)]
pub(super) struct Files {
    pub(super) limits: Limits,
    pub(super) rate_limits: Option<RateLimits>,
    pub(super) certificates: Vec<Certificate>,
    pub(super) token: Option<Token>,
}

impl Files {
    /// Reads the files again that change on their own.
    pub(super) fn follow(&self) {
        for certificate in &self.certificates {
            tokio::spawn(certificate.clone().follow());
        }
        if let Some(token) = &self.token {
            tokio::spawn(token.clone().follow());
        }
        if let Some(rate_limits) = &self.rate_limits {
            tokio::spawn(rate_limits.clone().follow());
        }
    }

    /// It reads from the disk. The log and the status have the mistakes.
    fn reload(&self) {
        self.limits.reload();
        self.rate_limits.iter().for_each(RateLimits::reload);
        self.certificates.iter().for_each(Certificate::look);
        self.token.iter().for_each(Token::reload);
    }
}

/// `SIGTERM` and `SIGINT` stop the server, and `SIGHUP` makes it read its files again.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal to stop, and reads these files meanwhile, at each signal to do so.
    pub(super) async fn stop(&mut self, files: &Files) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => {
                    systemd::reloading();
                    let files = files.clone();
                    let _ = tokio::task::spawn_blocking(move || files.reload()).await;
                    systemd::ready();
                }
            }
        }
    }
}
