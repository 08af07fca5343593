//! A server whose answers take more than half of the deadline.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, Pipeline, RedisFuture, Value};
use tokio::sync::{Mutex, mpsc};
use tokio::task::yield_now;
use tokio::time::{advance, pause, resume};
use tower_ratelimit::RedisStore;
use tower_ratelimit::store::Lease;

use super::{LIFE, LIMIT, poll_once};
use crate::scene::{daily, limiter};

/// So long that it does not pass by itself.
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
            // The clock of the store's own runtime, in which this runs.
            pause();
            advance(TRIP).await;
            resume();
            for _ in 0..9 {
                // Requests whose time is over see it before the answer.
                yield_now().await;
            }
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
#[tokio::test]
async fn a_request_that_has_waited_for_the_answer_to_another_has_time_for_its_own() {
    let (called, mut calls) = mpsc::unbounded_channel();
    let (answer, answers) = mpsc::unbounded_channel();
    let answers = Arc::new(Mutex::new(answers));
    let store = RedisStore::builder().deadline(DEADLINE);
    let store = store.lease(Lease::up_to(LIFE));
    let store = store.over(Far { called, answers }).unwrap();
    let node = limiter(&store, [daily("a", LIMIT)]);
    // Each is handed over to the store when it is first polled, and so before the first answer.
    let mut asked = [(); 3].map(|()| Box::pin(node.check("ann", 1).into_future()));
    for one in &mut asked {
        assert!(poll_once(one.as_mut()).is_none());
    }
    for _ in 0..3 {
        calls.recv().await.unwrap();
        answer.send(()).unwrap();
    }
    for told in join_all(asked).await {
        let told = told.unwrap();
        assert!(told.is_allowed() && !told.is_degraded(), "{told:?}");
    }
}
