//! The figures of `examples/leases.rs` are those of a server.

use std::time::Duration;

use self::leases::work;
use super::LIFE;
use crate::support::redis::{Server, free_port};

#[expect(dead_code, reason = "its `main`")]
#[path = "../../../examples/leases.rs"]
mod leases;

const MOMENT: Duration = Duration::from_millis(50);

/// Each process decided by itself: four million times a second, and no line said that the server was away.
#[tokio::test]
async fn without_a_server_there_are_no_figures() {
    let server = Server::start(&[]);
    let away = format!("127.0.0.1:{}/", free_port());
    for life in [Duration::ZERO, LIFE] {
        let [decisions, ..] = work(&server.url(), life, 10, MOMENT).await.unwrap();
        assert!(decisions > 0);
        let url = format!("redis://:secret@{away}");
        let error = work(&url, life, 10, MOMENT).await.unwrap_err().to_string();
        assert!(
            error.contains(&away) && !error.contains("secret"),
            "{error}"
        );
    }
}
