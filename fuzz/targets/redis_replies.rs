//! Replies of Redis to the scripts: a decision whose numbers hold together, or an error.
//!
//! The first line says how the store is opened and under which algorithm, such as `plain gcra 10/minute`; each other line is a reply:
//! text, a number after `:`, an error after `-`, or another type in the bytes of the protocol, after `*`.

#![no_main]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, RedisFuture, RedisResult, Value};
use tokio::runtime::{Builder, Runtime};
use tower_ratelimit::store::Lease;
use tower_ratelimit::{
    Algorithm, Decision, Limiter, OnStoreFailure, Policy, RedisStore, StoreError,
};
use tower_ratelimit_fuzz::line;

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_time().build().expect("it can be built");
}

fuzz_target!(|text: &[u8]| {
    let (first, replies) = line(text);
    let Ok(first) = std::str::from_utf8(first) else {
        return;
    };
    let Some((way, algorithm)) = first.split_once(' ') else {
        return;
    };
    let Ok(algorithm) = algorithm.parse::<Algorithm>() else {
        return;
    };
    let replies = replies
        .split(|byte| *byte == b'\n')
        .take(16)
        .map(|reply| self::reply(reply));
    let server = Server {
        replies: Arc::new(Mutex::new(replies.collect())),
    };
    let builder = RedisStore::builder().deadline(Duration::from_secs(10));
    let builder = match way {
        "leased" => builder.lease(Lease::up_to(Duration::from_secs(1))),
        "counted" => builder.nodes_live(),
        _ => builder,
    };
    let store = match way {
        "cluster" => builder.over_cluster(server.clone()),
        _ => builder.over(server.clone()),
    };
    let policy = Policy::new("a", algorithm).on_store_failure(OnStoreFailure::Refuse);
    let limiter = Limiter::builder()
        .policy(policy)
        .store(store.expect("the options are good"))
        .build();
    // Units of some algorithms cannot be leased.
    let Ok(limiter) = limiter else { return };
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            while !server.is_done() {
                decided(limiter.check("ann", 2).await);
                decided(limiter.peek("ann", 1).await);
                decided(
                    limiter
                        .acquire_up_to("ann", 3)
                        .await
                        .map(|(units, decision)| {
                            assert!(units <= 3);
                            decision
                        }),
                );
                let _ = limiter.settle("ann", 1).await;
                let _ = limiter.refund("ann", 1).await;
                let _ = limiter.inspect("ann").await;
                let _ = limiter.block("ann", Duration::from_secs(1)).await;
                let _ = limiter.unblock("ann").await;
                let _ = limiter.reset("ann").await;
            }
        });
    });
});

fn decided(decision: Result<Decision, StoreError>) {
    let Ok(decision) = decision else { return };
    for (_, outcome) in decision.policies() {
        assert!(outcome.remaining() <= outcome.limit(), "{outcome:?}");
        assert!(
            !outcome.is_allowed() || outcome.retry_after().is_none(),
            "{outcome:?}"
        );
    }
}

/// A connection to a server that says these, one after the other, and then nothing.
#[derive(Clone)]
struct Server {
    replies: Arc<Mutex<VecDeque<RedisResult<Value>>>>,
}

impl Server {
    fn is_done(&self) -> bool {
        self.replies.lock().expect("nothing panics").is_empty()
    }

    fn next(&self) -> RedisResult<Value> {
        let next = self.replies.lock().expect("nothing panics").pop_front();
        next.unwrap_or(Ok(Value::Nil))
    }
}

impl ConnectionLike for Server {
    fn req_packed_command<'a>(&'a mut self, _: &'a Cmd) -> RedisFuture<'a, Value> {
        let next = self.next();
        Box::pin(async move { next })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        let next: RedisResult<Vec<Value>> = (0..count).map(|_| self.next()).collect();
        Box::pin(async move { next })
    }

    fn get_db(&self) -> i64 {
        0
    }
}

fn reply(text: &[u8]) -> RedisResult<Value> {
    match text.first() {
        Some(b':' | b'-' | b'*') => {
            let ended = [text, b"\r\n"].concat();
            let value = redis::parse_redis_value(&ended)?;
            match value {
                Value::ServerError(error) => Err(RedisError::from(error)),
                value => Ok(value),
            }
        }
        _ => Ok(Value::BulkString(text.to_vec())),
    }
}
