//! A server whose answers take more than half of the deadline.

use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, Pipeline, RedisFuture, Value};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower_ratelimit::RedisStore;
use tower_ratelimit::store::Lease;

use super::{LIFE, LIMIT};
use crate::scene::{daily, limiter};

const DEADLINE: Duration = Duration::from_millis(100);
const TRIP: Duration = Duration::from_millis(60);

/// Allows each request with one charge, after a trip, and grants no unit.
#[derive(Clone)]
struct Far;

impl ConnectionLike for Far {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let keys = match command.args_iter().nth(2) {
            Some(Arg::Simple(keys)) => std::str::from_utf8(keys).unwrap().parse().unwrap(),
            _ => 0,
        };
        let text = vec!["1790000000000000;1;0;0;0;0;1790000000000000 1 0"; keys].join("\n");
        Box::pin(async move {
            sleep(TRIP).await;
            Ok(Value::BulkString(text.into_bytes()))
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        unreachable!("no pipeline is sent")
    }

    fn get_db(&self) -> i64 {
        0
    }
}

/// A request that came while a question was on its way had the rest of its deadline for its own, which was too little.
#[tokio::test(start_paused = true)]
async fn a_request_that_has_waited_for_the_answer_to_another_has_time_for_its_own() {
    let store = RedisStore::builder().deadline(DEADLINE);
    let store = store.lease(Lease::up_to(LIFE)).over(Far).unwrap();
    let node = limiter(&store, [daily("a", LIMIT)]);
    let begun = Instant::now();
    let mut asked = JoinSet::new();
    for after in [0, 1, 30] {
        let node = node.clone();
        asked.spawn(async move {
            sleep(Duration::from_millis(after)).await;
            node.check("ann", 1).await.unwrap()
        });
    }
    for told in asked.join_all().await {
        assert!(told.is_allowed() && !told.is_degraded(), "{told:?}");
    }
    assert!(begun.elapsed() <= 2 * DEADLINE, "{:?}", begun.elapsed());
}
