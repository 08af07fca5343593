//! The calls that settle the real cost of requests.

use std::sync::Arc;

use redis::{RedisResult, Value};
use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::batcher::apart;
use super::calls::{Calls, Forgetting, Names};
use super::failure::{failure, failure_of, interrupted};
use super::script::Call;
use super::settler::Waiting;
use crate::algorithm::Limit;
use crate::clock::Micros;
use crate::error::StoreError;
use crate::store::{Amendment, Charge};

/// The task that makes the calls. It exists before the task is spawned: a runtime that ends may never poll
/// it.
struct UnderWay {
    calls: Arc<Calls>,
    has_begun: bool,
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
    // A request may be denied in between, and whatever the result, the server may have executed it.
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
        let under_way = UnderWay {
            calls: Arc::clone(calls),
            has_begun: false,
            is_over: false,
        };
        // Without a thread the task is dropped, and with it the settlements are told.
        let _ = calls.link.background.spawn(make_calls(under_way));
    }
    let mut settled = Ok(true);
    for told in answers {
        let answer = told.await.unwrap_or_else(|_| Err(interrupted()));
        settled = answer.and(settled);
    }
    settled
}

async fn make_calls(mut under_way: UnderWay) {
    loop {
        // Includes settlements of the same moment.
        yield_now().await;
        let together = under_way.take();
        if together.is_empty() {
            return;
        }
        let answers = under_way.calls.settle_together(&together).await;
        for (Waiting { answer, .. }, settled) in together.into_iter().zip(answers) {
            let _ = answer.send(settled.map(drop).map_err(failure));
        }
    }
}

impl Calls {
    async fn settle_together(&self, together: &[Waiting]) -> Vec<RedisResult<Value>> {
        let until = self.link.deadline();
        let call = self.call_to_settle(together);
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

/// The part of a policy that the script needs, whose numbers go into a call once for each limit.
#[derive(PartialEq)]
struct Rule {
    policy: usize,
    limit: Option<Limit>,
}

impl Calls {
    fn call_to_settle(&self, together: &[Waiting]) -> Call {
        let (mut rules, mut policies) = (Vec::<Rule>::new(), Call::default());
        let (mut settlements, mut names) = (Call::default(), Names::default());
        for settlement in together {
            let charge = &settlement.charge;
            let Some(policy) = self.policies.get(charge.policy) else {
                continue;
            };
            let Some(lua) = policy.rule(charge) else {
                continue;
            };
            let rule = Rule {
                policy: charge.policy,
                limit: charge.limit,
            };
            let known = rules.iter().position(|known| *known == rule);
            let place = known.unwrap_or_else(|| {
                rules.push(rule);
                policies.argument(lua.name);
                for number in lua.numbers_at(|| self.now()) {
                    policies.argument(number);
                }
                policies.argument(lua.hours_at(|| self.now()));
                rules.len() - 1
            });
            settlements.key(names.name(&self.prefix, &charge.key, &policy.suffix));
            settlements.argument(place + 1);
            settlements.argument(settlement.amount);
            settlements.argument(settlement.until.get());
        }
        let mut call = self.call(rules.len());
        call.add(&policies);
        call.add(&settlements);
        call
    }
}

impl UnderWay {
    fn take(&mut self) -> Vec<Waiting> {
        let together = self.calls.settler.take(self.has_begun);
        self.has_begun = true;
        self.is_over = together.is_empty();
        together
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.is_over {
            self.calls.settler.let_go(self.has_begun);
        }
    }
}
