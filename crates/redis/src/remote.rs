use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::LAYOUT;
use super::failure::failure;
use super::link::Link;
use super::promise::timed_out;
use super::reconnecting::CONNECTING;
use super::slots::{slot_of, tag_in};
use tower_ratelimit_core::__internal::{KeyPart, Probe, Remote};
use tower_ratelimit_core::error::StoreError;
use tower_ratelimit_core::key::Key;

/// A server, or a cluster of servers, for the watch over it.
pub(super) struct RedisRemote {
    link: Arc<Link>,
    prefix: Arc<str>,
}

impl RedisRemote {
    pub(super) fn new(link: Arc<Link>, prefix: Arc<str>) -> Self {
        Self { link, prefix }
    }
}

/// Checks that a server accepts what a decision needs: a script that may write.
pub(super) async fn try_out(link: &Link, prefix: &str, tag: &str) -> Result<(), StoreError> {
    let answer = link.send(question(prefix, tag), link.deadline());
    answer.await.map(drop).map_err(failure)
}

fn question(prefix: &str, tag: &str) -> Cmd {
    let mut probe = redis::cmd("EVAL");
    probe
        .arg("redis.call('SET', KEYS[1], '', 'PX', 1000) return redis.call('DEL', KEYS[1])")
        .arg(1)
        .arg(format!("{prefix}:{LAYOUT}:{{{tag}}}"));
    probe
}

impl Remote for RedisRemote {
    fn place(&self, key: &Key) -> KeyPart {
        let slot = if self.link.is_divided() {
            slot_of(key.root().name().as_str().as_bytes())
        } else {
            0
        };
        let part = self.link.part(slot);
        KeyPart { part, slot }
    }

    fn is_divided(&self) -> bool {
        self.link.is_divided()
    }

    fn are_parts_guessed(&self) -> bool {
        self.link.is_guessed()
    }

    fn deadline(&self) -> Duration {
        self.link.patience()
    }

    fn probe(&self, slot: u16) -> Probe {
        let (link, prefix) = (Arc::clone(&self.link), Arc::clone(&self.prefix));
        let background = link.background.clone();
        let probe = async move {
            // A new connection takes longer than a call may.
            let connected = timeout(CONNECTING, link.connect()).await;
            connected
                .unwrap_or_else(|_| Err(timed_out()))
                .map_err(failure)?;
            let tag = if link.is_divided() {
                tag_in(slot)
            } else {
                String::from("probe")
            };
            try_out(&link, &prefix, &tag).await
        };
        Box::pin(async move {
            background
                .run(probe)
                .await
                .unwrap_or_else(|error| Err(failure(error.into())))
        })
    }

    /// Returns the store's own, which never stops.
    fn runtime(&self) -> Option<Handle> {
        self.link.background.runtime().ok()
    }

    /// Returns the time to connect and to ask, and the time to connect once more.
    fn longest_probe(&self) -> Duration {
        CONNECTING.saturating_mul(2) + self.link.patience()
    }
}
