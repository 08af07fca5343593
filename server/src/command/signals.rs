//! The signals that the process gets.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::limits::Limits;

/// `SIGTERM` and `SIGINT` stop the server, and `SIGHUP` makes it read its file again.
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

    /// Waits for the next signal to stop, and reloads these limits meanwhile, as often as it is told to.
    pub(super) async fn stop(&mut self, limits: &Limits) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => {
                    let limits = limits.clone();
                    // It reads from the disk. The log and the status have the mistakes.
                    let _ = tokio::task::spawn_blocking(move || limits.reload()).await;
                }
            }
        }
    }
}
