//! What a service manager such as systemd hands over, and what it is notified of.

use std::env;
use std::io;

use listenfd::ListenFd;
use sd_notify::NotifyState;
use tokio::net::{TcpListener, UnixListener};
use tokio::time::sleep;

use crate::socket::Socket;

/// The sockets that the service manager has opened (`LISTEN_FDS`).
pub(super) struct Handed {
    sockets: ListenFd,
    names: Vec<String>,
}

impl Handed {
    /// Reads the variables of the process, before it has threads.
    pub(super) fn from_env() -> Self {
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        Self {
            sockets: ListenFd::from_env(),
            names: names.split(':').map(str::to_owned).collect(),
        }
    }

    /// Returns the socket of this name, which is `FileDescriptorName=` of its unit.
    pub(super) fn take(&mut self, name: &str) -> Result<Socket, String> {
        let number = self.names.iter().position(|it| it == name);
        let number = number.filter(|number| *number < self.sockets.len());
        let Some(number) = number else {
            let count = self.sockets.len();
            let names: Vec<_> = self.names.iter().take(count).map(String::as_str).collect();
            return Err(match &*names {
                [] => "no socket was handed over; start the program by a socket unit".to_owned(),
                names => format!(
                    "no socket of this name was handed over; there are: {}",
                    names.join(", ")
                ),
            });
        };
        let text = |error: io::Error| error.to_string();
        let taken = if let Ok(tcp) = self.sockets.take_tcp_listener(number) {
            tcp.map(|tcp| {
                tcp.set_nonblocking(true)?;
                TcpListener::from_std(tcp).map(Socket::Tcp)
            })
        } else {
            let unix = self.sockets.take_unix_listener(number).map_err(text)?;
            unix.map(|unix| {
                unix.set_nonblocking(true)?;
                UnixListener::from_std(unix).map(Socket::Unix)
            })
        };
        taken
            .ok_or("another listener has this socket")?
            .map_err(text)
    }
}

/// The server accepts connections, and has read its files again.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

pub(super) fn reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        tell(&[NotifyState::Reloading, now]);
    }
}

pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Tells the service manager that the process lives, twice in each period in which it wants to hear it.
pub(super) async fn watchdog() {
    let Some(period) = sd_notify::watchdog_enabled() else {
        return;
    };
    loop {
        tell(&[NotifyState::Watchdog]);
        sleep(period / 2).await;
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("the service manager cannot be told: {error}");
    }
}
