//! The calls that settle what requests have really cost.

use std::sync::Arc;

use redis::{RedisResult, Value};
use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::batcher::apart;
use super::calls::{Calls, Forgetting, Names};
use super::failure::{failure, failure_of, interrupted};
use super::settler::{Settler, Waiting};
use crate::clock::Micros;
use crate::error::StoreError;
use crate::store::{Amendment, Charge};

/// The task that makes the calls.
struct UnderWay<'a> {
    settler: &'a Settler,
    is_over: bool,
}

/// Settles what was charged, in a call that others share if one server has all keys.
pub(super) async fn settle(
    calls: &Arc<Calls>,
    charges: &[Charge],
    amendment: Amendment,
) -> Result<bool, StoreError> {
    if calls.link.is_divided() {
        return calls.change_each(charges, amendment).await;
    }
    calls.epochs.advance(charges);
    // A request may be denied in between, and whatever comes of this it may have been done.
    let _forgetting = Forgetting(calls, charges);
    let (mut waiting, mut answers) = (Vec::new(), Vec::new());
    for charge in charges {
        let (amount, until) = match amendment {
            Amendment::TakeBack(taken) => (-i64::from(charge.cost), taken.until()),
            _ => (i64::from(charge.cost), Micros::ZERO),
        };
        let (answer, told) = oneshot::channel();
        let charge = *charge;
        answers.push(told);
        waiting.push(Waiting {
            charge,
            amount,
            until,
            answer,
        });
    }
    if calls.settler.add(waiting) {
        tokio::spawn(make_calls(Arc::clone(calls)));
    }
    let mut settled = Ok(true);
    for told in answers {
        let answer = told.await.unwrap_or_else(|_| Err(interrupted()));
        settled = answer.and(settled);
    }
    settled
}

async fn make_calls(calls: Arc<Calls>) {
    let mut under_way = UnderWay {
        settler: &calls.settler,
        is_over: false,
    };
    loop {
        // Settlements of the same moment come along.
        yield_now().await;
        let together = calls.settler.take();
        if together.is_empty() {
            under_way.is_over = true;
            return;
        }
        let answers = calls.settle_together(&together).await;
        for (Waiting { answer, .. }, settled) in together.into_iter().zip(answers) {
            let _ = answer.send(settled.map(drop).map_err(failure));
        }
    }
}

impl Calls {
    async fn settle_together(&self, together: &[Waiting]) -> Vec<RedisResult<Value>> {
        let until = self.link.deadline();
        let mut call = self.call("settle");
        let mut names = Names::default();
        for settlement in together {
            let more = settlement.until.get();
            self.put(
                &mut call,
                &mut names,
                &settlement.charge,
                settlement.amount,
                more,
            );
        }
        let first = together.first().map(|first| first.charge.key);
        let waiting = first.map(|key| self.watch.waiting(&key));
        let answer = self.settler.script.run(&self.link, &call, until).await;
        let answers = apart(answer, together.len());
        if let Some(waiting) = waiting {
            waiting.end(failure_of(&answers).as_ref());
        }
        answers
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.settler.let_go();
        }
    }
}
