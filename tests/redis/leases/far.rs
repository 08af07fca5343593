//! A server whose answers take more than half of the deadline.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, Pipeline, RedisFuture, Value};
use tokio::sync::{Mutex, mpsc};
use tokio::task::{JoinSet, spawn_blocking, yield_now};
use tokio::time::{Instant, advance};
use tower_ratelimit::RedisStore;
use tower_ratelimit::store::Lease;

use super::{LIFE, LIMIT};
use crate::scene::{daily, limiter};

/// So long that it does not pass in the store's own thread, whose clock is real.
const DEADLINE: Duration = Duration::from_secs(50);
const TRIP: Duration = Duration::from_secs(30);

/// Tells of each call, allows each of its requests with one charge when the test lets it, and grants no unit.
#[derive(Clone)]
struct Far {
    called: mpsc::UnboundedSender<()>,
    answers: Arc<Mutex<mpsc::UnboundedReceiver<()>>>,
}

impl ConnectionLike for Far {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let keys = match command.args_iter().nth(2) {
            Some(Arg::Simple(keys)) => std::str::from_utf8(keys).unwrap().parse().unwrap(),
            _ => 0,
        };
        let text = vec!["1790000000000000;1;0;0;0;0;1790000000000000 1 0"; keys].join("\n");
        Box::pin(async move {
            self.called.send(()).unwrap();
            self.answers.lock().await.recv().await.unwrap();
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

/// Lets time pass, and the requests see it.
async fn pass(time: Duration) {
    advance(time).await;
    for _ in 0..9 {
        yield_now().await;
    }
}

/// A request that came while a question was on its way had the rest of its deadline for its own, which was too little.
#[tokio::test(start_paused = true)]
async fn a_request_that_has_waited_for_the_answer_to_another_has_time_for_its_own() {
    // A paused clock moves by itself while all tasks wait, unless there is a blocking one.
    let (_stands_still, blocks) = channel::<()>();
    spawn_blocking(move || blocks.recv());
    let (called, mut calls) = mpsc::unbounded_channel();
    let (answer, answers) = mpsc::unbounded_channel();
    let answers = Arc::new(Mutex::new(answers));
    let store = RedisStore::builder().deadline(DEADLINE);
    let store = store.lease(Lease::up_to(LIFE));
    let store = store.over(Far { called, answers }).unwrap();
    let node = limiter(&store, [daily("a", LIMIT)]);
    let begun = Instant::now();
    let mut asked = JoinSet::new();
    // The last one comes when half of the first trip is over.
    for _ in 0..3 {
        let node = node.clone();
        asked.spawn(async move { node.check("ann", 1).await.unwrap() });
        pass(TRIP / 4).await;
    }
    pass(TRIP / 4).await;
    calls.recv().await.unwrap();
    answer.send(()).unwrap();
    for _ in 1..3 {
        calls.recv().await.unwrap();
        pass(TRIP).await;
        answer.send(()).unwrap();
    }
    for told in asked.join_all().await {
        assert!(told.is_allowed() && !told.is_degraded(), "{told:?}");
    }
    assert!(begun.elapsed() <= 2 * DEADLINE, "{:?}", begun.elapsed());
}
