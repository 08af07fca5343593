use std::path::PathBuf;
use std::time::Duration;

use ratelimitd::phase::Phase;
use ratelimitd::server::{Answers, Bounds, Server};
use ratelimitd::socket::Socket;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

/// A server at a Unix socket of this process.
pub struct Served {
    runtime: Runtime,
    path: PathBuf,
    _phase: watch::Sender<Phase>,
}

impl Served {
    /// Serves these answers; the name is the socket's.
    pub fn new(name: &str, answers: Answers) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("it can be built");
        let file = format!("ratelimitd-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let _ = std::fs::remove_file(&path);
        let phase = watch::Sender::new(Phase::Ready);
        let server = Server::new(Bounds::default(), phase.subscribe());
        runtime.block_on(async {
            let listener = UnixListener::bind(&path).expect("the path is free");
            tokio::spawn(server.serve(Socket::Unix(listener), answers));
        });
        Self {
            runtime,
            path,
            _phase: phase,
        }
    }

    /// Sends these bytes on a connection of their own, in so many writes, and returns what comes back before its end.
    pub fn exchange(&self, parts: &[&[u8]]) -> Vec<u8> {
        let mut answer = Vec::new();
        self.runtime.block_on(async {
            let mut stream = UnixStream::connect(&self.path)
                .await
                .expect("the server is there");
            for part in parts {
                // The server may close the connection before it has taken all.
                let _ = stream.write_all(part).await;
                tokio::task::yield_now().await;
            }
            let _ = stream.shutdown().await;
            let end = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer));
            assert!(end.await.is_ok(), "the connection stays open");
        });
        answer
    }
}

/// Returns the status of an answer of HTTP/1, and its body.
pub fn status(answer: &[u8]) -> (u16, &[u8]) {
    let text = String::from_utf8_lossy(answer);
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no answer: {text:?}"));
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n");
    (status, head.map_or(&[], |end| &answer[end + 4..]))
}
