//! Servers on free ports, which end with the test.

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::sync::mpsc;

use axum::Router;
use tokio::sync::oneshot;

/// A server in a thread of its own, until it is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    stop: Option<oneshot::Sender<()>>,
}

impl Server {
    pub(crate) fn of(app: Router) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                let service = app.into_make_service_with_connect_info::<SocketAddr>();
                tokio::select! {
                    served = axum::serve(listener, service) => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        let address = told.recv().unwrap();
        Self {
            url: format!("http://{address}/"),
            stop: Some(stop),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

/// The output of a run of the program.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ratelimit-loadtest"))
}

/// Runs the program with these arguments.
pub(crate) fn run(words: &[&str]) -> Run {
    Run::of(program().args(words).output().unwrap())
}

impl Run {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Returns the number behind a word at the start of a line.
    pub(crate) fn number(&self, word: &str) -> u64 {
        let line = self.stdout.lines().find_map(|line| line.strip_prefix(word));
        let line = line.unwrap_or_else(|| panic!("{word}: {}", self.stdout));
        line.split(' ').next().unwrap().parse().unwrap()
    }
}
