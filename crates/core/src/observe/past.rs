//! The counts from before a reload.
//!
//! A reload builds a limiter with new counters, and a request that began before the reload is counted by the
//! old ones. So the counters of all earlier limiters are read together, until no request uses them any more;
//! then they are added up for good.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::time::Instant;

use super::counters::{Counters, Metered, Totals};
use super::rows::Sums;

/// The counts of consecutive limiters, which share it.
pub(crate) struct Past {
    since: SystemTime,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    /// The requests of all limiters that have ended.
    requests: Sums,
    policies: Vec<(Arc<str>, Sums)>,
    /// The counters that may still count, the newest last.
    alive: Vec<Arc<Counters>>,
}

impl Past {
    /// Creates it for the first counters.
    pub(crate) fn of(first: &Arc<Counters>, since: SystemTime) -> Self {
        let counts = Counts {
            alive: vec![Arc::clone(first)],
            ..Counts::default()
        };
        Self {
            since,
            counts: Mutex::new(counts),
        }
    }

    /// Returns when counting began.
    pub(crate) fn since(&self) -> SystemTime {
        self.since
    }

    /// Continues with these counters. Policies that they do not have are dropped.
    pub(crate) fn go_on_with(&self, next: &Arc<Counters>) {
        let mut counts = self.counts();
        // Here too: otherwise a service whose counters are never read would keep those of each reload.
        counts.settle();
        let is_known = |name: &Arc<str>| position(next.policies(), name).is_some();
        counts.policies.retain(|(name, _)| is_known(name));
        counts.alive.push(Arc::clone(next));
    }

    /// Reads these counters together with all earlier and later ones.
    pub(crate) fn read(&self, counters: &Arc<Counters>, now: Instant) -> Totals {
        let mut counts = self.counts();
        counts.settle();
        let mut counted = counters.read(now);
        counts.add_to(&mut counted, counters, now);
        counted
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the index of the policy with this name.
fn position(policies: &[Metered], name: &Arc<str>) -> Option<usize> {
    policies.iter().position(|policy| policy.name() == name)
}

impl Counts {
    /// Adds up the counters that no request and no limiter uses any more.
    fn settle(&mut self) {
        let mut ended = Vec::new();
        self.alive.retain_mut(|counters| {
            // Exclusive, so that all that was counted is visible.
            let is_over = Arc::get_mut(counters).is_some();
            if is_over {
                ended.push(Arc::clone(counters));
            }
            !is_over
        });
        for counters in ended {
            let Totals { requests, policies } = counters.read(Instant::now());
            self.requests += &requests;
            for (policy, (sums, _)) in counters.policies().iter().zip(policies) {
                let name = policy.name();
                match self.policies.iter_mut().find(|(known, _)| known == name) {
                    Some((_, known)) => *known += &sums,
                    None => self.policies.push((Arc::clone(name), sums)),
                }
            }
        }
    }

    /// Adds what counters other than `of` have counted of its policies.
    fn add_to(&self, counted: &mut Totals, of: &Arc<Counters>, now: Instant) {
        let policies = of.policies();
        counted.requests += &self.requests;
        for (policy, (sums, _)) in policies.iter().zip(&mut counted.policies) {
            let mut known = self.policies.iter();
            if let Some((_, before)) = known.find(|(name, _)| name == policy.name()) {
                *sums += before;
            }
        }
        for counters in self.alive.iter().filter(|other| !Arc::ptr_eq(other, of)) {
            let others = counters.read(now);
            counted.requests += &others.requests;
            for (other, (more, more_waiting)) in counters.policies().iter().zip(others.policies) {
                let index = position(policies, other.name());
                let known = index.and_then(|index| counted.policies.get_mut(index));
                if let Some((sums, waiting)) = known {
                    *sums += &more;
                    if let (Some(waiting), Some(more)) = (waiting, more_waiting) {
                        waiting.length += more.length;
                        waiting.longest_wait = waiting.longest_wait.max(more.longest_wait);
                    }
                }
            }
        }
    }
}
