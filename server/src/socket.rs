//! Sockets that accept connections.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream as Blocking;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::either::Either;

/// The peer of a connection over a Unix socket is on this machine.
const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Returns whether this is the peer of a connection over a Unix socket. No port of TCP is 0.
pub(crate) fn is_unix(peer: SocketAddr) -> bool {
    peer == HERE
}

/// The most connections that are accepted as a socket closes. More than have been waiting would be those of a flood, which
/// would never end.
const BACKLOG: usize = 1_024;

/// After this time a program is busy that accepts no connection.
const BUSY: Duration = Duration::from_secs(1);

/// A connection over TCP or a Unix socket.
pub(crate) type Stream = Either<TcpStream, UnixStream>;

/// A socket that accepts connections.
#[derive(Debug)]
pub enum Socket {
    /// A port.
    Tcp(TcpListener),
    /// A Unix socket that another program has opened.
    Unix(UnixListener),
    /// A Unix socket at a path.
    At(UnixListener, Left),
}

/// The path of a Unix socket, which goes away with this value, unless another program has put one of its own there.
#[derive(Debug)]
pub struct Left {
    path: PathBuf,
    file: Option<(u64, u64)>,
}

impl Left {
    fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            file: file(path),
        }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        if self.file.is_some() && self.file == file(&self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns which file has this path, by its device and its number there.
fn file(path: &Path) -> Option<(u64, u64)> {
    let its = fs::symlink_metadata(path).ok()?;
    Some((its.dev(), its.ino()))
}

impl Socket {
    /// Opens a Unix socket at this path. One that a program has left behind there is replaced.
    ///
    /// # Errors
    ///
    /// When the path has another file, when a program accepts connections there, and when the folder cannot be written.
    pub fn at(path: &Path) -> io::Result<Self> {
        let opened = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_behind(path) => {
                fs::remove_file(path)?;
                UnixListener::bind(path)
            }
            opened => opened,
        };
        Ok(Self::At(opened?, Left::at(path)))
    }

    pub(crate) async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Small frames of a stream are passed at once.
                let _ = stream.set_nodelay(true);
                Ok((Either::Left(stream), peer))
            }
            Self::Unix(listener) | Self::At(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok((Either::Right(stream), HERE))
            }
        }
    }

    /// Returns the connections that nothing has accepted yet. They would be reset when the socket closes.
    pub(crate) fn close(self) -> Vec<(Stream, SocketAddr)> {
        let closed: io::Result<Vec<_>> = match self {
            Self::Tcp(listener) => listener.into_std().map(|listener| {
                let accepted = std::iter::from_fn(|| listener.accept().ok()).take(BACKLOG);
                let streams = accepted.filter_map(|(stream, peer)| {
                    stream.set_nonblocking(true).ok()?;
                    let _ = stream.set_nodelay(true);
                    Some((Either::Left(TcpStream::from_std(stream).ok()?), peer))
                });
                streams.collect()
            }),
            Self::Unix(listener) | Self::At(listener, _) => listener.into_std().map(|listener| {
                let accepted = std::iter::from_fn(|| listener.accept().ok()).take(BACKLOG);
                let streams = accepted.filter_map(|(stream, _)| {
                    stream.set_nonblocking(true).ok()?;
                    Some((Either::Right(UnixStream::from_std(stream).ok()?), HERE))
                });
                streams.collect()
            }),
        };
        closed.unwrap_or_default()
    }

    /// Returns where clients find this path.
    pub(crate) fn url(&self, is_over_tls: bool, path: &str) -> String {
        let scheme = if is_over_tls { "https" } else { "http" };
        match self {
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("{scheme}://{address}{path}"),
                Err(error) => format!("{scheme}, at an unknown address: {error}"),
            },
            Self::Unix(_) => format!("a Unix socket, by {scheme}"),
            Self::At(_, at) => format!("unix:{}, by {scheme}", at.path.display()),
        }
    }
}

/// Returns whether there is a socket on which no program accepts connections.
fn is_left_behind(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    is_socket && is_refused(path)
}

/// Returns whether a connection is refused. One to a program that is busy with others has no end: it is not.
fn is_refused(path: &Path) -> bool {
    let (tell, told) = mpsc::channel();
    let path = path.to_owned();
    thread::spawn(move || tell.send(Blocking::connect(path)));
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    let connected = told.recv_timeout(BUSY);
    connected.is_ok_and(|connected| connected.is_err_and(refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_socket_of_another_program_stays() {
        let path = std::env::temp_dir().join(format!("ratelimitd-left-{}", std::process::id()));
        let first = Socket::at(&path).unwrap();
        // As when two programs find one that was left behind at once.
        fs::rename(&path, path.with_extension("away")).unwrap();
        let second = Socket::at(&path).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
        fs::remove_file(path.with_extension("away")).unwrap();
    }
}
