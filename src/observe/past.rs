//! What was counted before a reload.
//!
//! A reload makes new counters, and a request that has begun before it is counted by the old ones. These are read with
//! the new ones until no request has them any more, and are then added up for good.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

use super::counters::{Counted, Counters, Metered};
use super::rows::Sums;

/// The counts before those of a limiter.
pub(crate) struct Past {
    since: SystemTime,
    requests: Sums,
    policies: Vec<(Arc<str>, Sums)>,
    /// Those that may count on.
    alive: Vec<Arc<Counters>>,
}

impl Past {
    /// Nothing was counted before.
    pub(crate) fn new() -> Self {
        Self {
            since: SystemTime::now(),
            requests: Sums::default(),
            policies: Vec::new(),
            alive: Vec::new(),
        }
    }

    /// Since when is counted.
    pub(crate) fn since(&self) -> SystemTime {
        self.since
    }

    /// This past, and what these have counted since.
    #[cfg(feature = "config")]
    pub(crate) fn before(&self, now: Arc<Counters>) -> Self {
        let mut alive = self.alive.clone();
        alive.push(now);
        Self {
            since: self.since,
            requests: self.requests,
            policies: self.policies.clone(),
            alive,
        }
    }

    /// Reads these counters, which go on from this past.
    pub(crate) fn read(&mut self, counters: &Counters, now: Instant) -> Counted {
        self.settle(counters.policies());
        let mut counted = counters.read(now);
        self.add_to(&mut counted, counters.policies(), now);
        counted
    }

    /// Adds up those that no request has any more. Policies that are gone are forgotten.
    fn settle(&mut self, policies: &[Metered]) {
        if self.alive.is_empty() {
            return;
        }
        let is_known = |name: &Arc<str>| policies.iter().any(|policy| policy.name() == name);
        self.policies.retain(|(name, _)| is_known(name));
        let mut ended = Vec::new();
        self.alive.retain_mut(|counters| {
            // Exclusive, so that all that was counted is seen.
            let is_over = Arc::get_mut(counters).is_some();
            if is_over {
                ended.push(Arc::clone(counters));
            }
            !is_over
        });
        for counters in ended {
            let Counted { requests, policies } = counters.read(Instant::now());
            self.requests += &requests;
            for (policy, (sums, _)) in counters.policies().iter().zip(policies) {
                let name = policy.name();
                match self.policies.iter_mut().find(|(known, _)| known == name) {
                    Some((_, known)) => *known += &sums,
                    None if is_known(name) => self.policies.push((Arc::clone(name), sums)),
                    None => {}
                }
            }
        }
    }

    fn add_to(&self, counted: &mut Counted, policies: &[Metered], now: Instant) {
        counted.requests += &self.requests;
        for (policy, (sums, _)) in policies.iter().zip(&mut counted.policies) {
            let mut known = self.policies.iter();
            if let Some((_, before)) = known.find(|(name, _)| name == policy.name()) {
                *sums += before;
            }
        }
        for counters in &self.alive {
            let before = counters.read(now);
            counted.requests += &before.requests;
            let of_each = counters.policies().iter().zip(before.policies);
            for (gone, (more, more_waiting)) in of_each {
                let index = policies
                    .iter()
                    .position(|policy| policy.name() == gone.name());
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
