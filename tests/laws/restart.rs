//! The state that outlives a restart.

use proptest::prelude::*;
use tower_ratelimit::{LocalLimiter, ManualClock, MemoryStore, Micros};

use crate::case::Case;
use crate::laws::Holds;
use crate::subject::Subject;
use crate::support::driver::{Seen, limiter_over};

/// More than the requests of a case: under a log, each is an entry.
const MAX_KEYS: usize = 64;

/// Restarts before every request, before or after time goes on, change nothing.
pub(crate) fn a_restart_forgets_nothing(subject: &Subject, case: &Case) -> Holds {
    let clock = ManualClock::new();
    let open = |store: &MemoryStore| limiter_over(store, [("a", subject.algorithm)]);
    let mut store = MemoryStore::new().clock(clock.clone()).max_keys(MAX_KEYS);
    let mut limiter = open(&store);
    let restart = |store: &mut MemoryStore, limiter: &mut LocalLimiter| {
        *store = store.restore(&store.snapshot()).expect("it was just taken");
        *limiter = open(store);
    };
    let mut model = subject.model();
    let mut walk = case.walk();
    for number in 0.. {
        let Some(asked) = walk.ask() else { break };
        if number % 3 == 1 {
            restart(&mut store, &mut limiter);
        }
        clock.set_micros(Micros::new(asked.at));
        if number % 3 == 2 {
            restart(&mut store, &mut limiter);
        }
        if number % 4 == 3 {
            limiter.settle("key", asked.cost).now();
            model.settle(asked.at, asked.cost);
        }
        let decision = limiter.check("key", asked.cost).now();
        let (_, outcome) = decision.binding().expect("one policy was asked");
        let seen = Seen::from(outcome);
        prop_assert_eq!(seen, model.decide(asked.at, asked.cost), "{:?}", asked);
        walk.told(seen);
    }
    Ok(())
}
