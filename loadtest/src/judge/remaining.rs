//! Checks that `remaining` is true: with n remaining, n more requests pass.
//!
//! Time alone never lowers it. So between two answers it falls at most by the number of requests that can have been
//! charged, and no request is refused before that many have been charged.

use std::sync::Arc;

use super::finding::{Check, Finding};
use super::waits::Known;
use crate::exchange::{Exchange, Verdict};
use crate::info::Name;

/// The last promise of each policy to one key.
#[derive(Debug, Default)]
pub(super) struct Remaining {
    promises: Vec<(Name, Promise)>,
    costs_one: bool,
}

/// The number of requests that can be charged before one is refused, counted from the beginning of the run.
#[derive(Clone, Debug)]
struct Promise {
    until: i128,
    answer: Arc<Exchange>,
    remaining: i64,
}

/// The promises before a request was sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Promises(Vec<(Name, Promise)>);

impl Remaining {
    /// A server announces a policy or two. Further names are not followed.
    const NAMES: usize = 8;

    /// `costs_one` says whether a request is known to cost one unit.
    pub(super) fn new(costs_one: bool) -> Self {
        Self {
            promises: Vec::new(),
            costs_one,
        }
    }

    pub(super) fn opened(&mut self) -> Promises {
        Promises(self.promises.clone())
    }

    pub(super) fn closed(
        &mut self,
        answer: &Arc<Exchange>,
        promises: Promises,
        known: Known,
        refusals_between: impl Fn(&Exchange) -> bool,
    ) -> Option<Finding> {
        self.learn_cost(answer);
        let mut finding = None;
        if self.costs_one {
            for (name, promise) in promises.0 {
                let Some(left) = self.left(answer, &name) else {
                    continue;
                };
                if i128::from(left) + i128::from(known.charged) >= promise.until {
                    continue;
                }
                // Each promise is reported once.
                self.promises.retain(|(other, _)| *other != name);
                let announced = answer.info.remaining(&name);
                let fell = announced.is_some_and(|left| left < promise.remaining);
                let between = known.charged - charged_until(&promise);
                let what = if answer.verdict == Verdict::Limited {
                    String::from("a request is refused")
                } else {
                    format!("{left} remain")
                };
                let check = if fell && refusals_between(&promise.answer) {
                    Check::RefusalsCharge
                } else {
                    Check::Remaining
                };
                let text = format!(
                    "{name} told {} remaining, at most {between} can have been charged since, and {what}",
                    promise.remaining,
                );
                finding = Some(Finding::new(check, text, &[&promise.answer, answer]));
                break;
            }
        }
        self.learn(answer, known);
        finding
    }

    /// Returns the remaining requests of a policy by this answer; `None` if the answer does not say.
    fn left(&self, answer: &Exchange, name: &Name) -> Option<i64> {
        let left = answer.info.remaining(name);
        if answer.verdict != Verdict::Limited {
            return left;
        }
        // A refusal with several policies says which one is exhausted.
        let service_limits = answer.info.service_limits.iter();
        let listed =
            service_limits.filter(|service_limit| service_limit.name.family == name.family);
        let is_it = match (left, listed.count()) {
            (Some(left), listed) => left <= 0 || listed == 1,
            (None, 0) => {
                let names = self.promises.iter();
                names
                    .filter(|(other, _)| other.family == name.family)
                    .count()
                    == 1
            }
            (None, _) => false,
        };
        is_it.then_some(0)
    }

    /// Learns that a request costs one unit, if one unit is missing from the limit after a request.
    fn learn_cost(&mut self, answer: &Exchange) {
        if self.costs_one || answer.verdict != Verdict::Allowed {
            return;
        }
        self.costs_one = answer.info.service_limits.iter().any(|service_limit| {
            let policy = answer.info.policy(&service_limit.name);
            let quota = policy.and_then(|policy| i64::try_from(policy.quota).ok());
            quota.is_some_and(|quota| quota > 0 && quota - service_limit.remaining <= 1)
        });
    }

    fn learn(&mut self, answer: &Arc<Exchange>, known: Known) {
        let own = u64::from(answer.verdict == Verdict::Allowed);
        let before = i128::from(known.charged_before + own);
        for service_limit in &answer.info.service_limits {
            let promise = Promise {
                until: before + i128::from(service_limit.remaining),
                answer: Arc::clone(answer),
                remaining: service_limit.remaining,
            };
            let mut promises = self.promises.iter_mut();
            if let Some((_, known)) = promises.find(|(name, _)| *name == service_limit.name) {
                if known.until < promise.until {
                    *known = promise;
                }
            } else if self.promises.len() < Self::NAMES {
                self.promises.push((service_limit.name.clone(), promise));
            }
        }
    }
}

/// Returns the number of requests that were certainly charged when the promise was made.
fn charged_until(promise: &Promise) -> u64 {
    let charged = promise.until - i128::from(promise.remaining);
    u64::try_from(charged).unwrap_or(0)
}
