//! Counts the nodes that run.
//!
//! Each node notes in a sorted set, once a second and by the server's clock, that it runs. Who has noted nothing for three
//! seconds is gone. While the server is away, the last count stays.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisResult};
use tokio::time::sleep;

use super::LAYOUT;
use super::link::Link;
use tower_ratelimit_core::store::NodeCount;

/// How often a node says that it runs.
const EVERY: Duration = Duration::from_secs(1);

/// An entry of the future is that of a clock which has stepped back, as by a failover: its node makes another one.
const SCRIPT: &str = "\
    local time = redis.call('TIME')\n\
    local now = time[1] * 1000 + math.floor(time[2] / 1000)\n\
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 3000)\n\
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')\n\
    redis.call('ZADD', KEYS[1], now, ARGV[1])\n\
    redis.call('PEXPIRE', KEYS[1], 3000)\n\
    return redis.call('ZCOUNT', KEYS[1], '-inf', '+inf')";

/// This process, among all that use the server. Containers have equal process numbers, and a fork has its parent's memory.
fn this_node() -> String {
    static NUMBER: LazyLock<u64> = LazyLock::new(|| ahash::RandomState::new().hash_one(()));
    format!("{:x}-{:016x}", process::id(), *NUMBER)
}

/// Counts the nodes that share a store.
#[derive(Debug)]
pub(super) struct Counting {
    nodes: NodeCount,
    /// What the count is at least.
    least: u32,
    has_begun: AtomicBool,
}

impl Counting {
    pub(super) fn new(nodes: NodeCount) -> Self {
        Self {
            least: nodes.get(),
            nodes,
            has_begun: AtomicBool::new(false),
        }
    }

    /// Begins to count, unless it has begun.
    pub(super) fn begin(&self, link: &Arc<Link>, prefix: &Arc<str>) {
        if self.has_begun.swap(true, Ordering::Relaxed) {
            return;
        }
        let (nodes, least) = (self.nodes.clone(), self.least);
        let counting = count(Arc::downgrade(link), Arc::clone(prefix), nodes, least);
        if link.background.spawn(counting).is_err() {
            // Without a thread nothing counts, and the next backend tries again.
            self.has_begun.store(false, Ordering::Relaxed);
        }
    }
}

/// Counts the nodes, this one among them, as long as the store is there.
async fn count(link: Weak<Link>, prefix: Arc<str>, nodes: NodeCount, least: u32) {
    while let Some(link) = link.upgrade() {
        if let Ok(count) = note(&link, &prefix).await {
            // It is 1 at least.
            let _ = nodes.set(count.max(least));
        }
        drop(link);
        sleep(EVERY).await;
    }
}

/// Notes that this node runs, and returns how many do.
async fn note(link: &Link, prefix: &str) -> RedisResult<u32> {
    let answer = link.send(command(prefix), link.deadline()).await?;
    Ok(u32::from_redis_value(answer)?)
}

fn command(prefix: &str) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command
        .arg(SCRIPT)
        .arg(1)
        .arg(format!("{prefix}:{LAYOUT}:{{nodes}}"))
        .arg(this_node());
    command
}
