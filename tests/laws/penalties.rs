//! Penalties: this many refusals within the time block the key, and nothing else does, in every store.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tower_ratelimit::policy::Penalty;
use tower_ratelimit::{Algorithm, AnchoredWindow, FixedWindow, Policy, Quota, SlidingLog};

use crate::factors::{Memory, Scaled, Shared};
use crate::property::{check_at, seeds};

const SECOND: u64 = 1_000_000;

#[derive(Clone, Debug)]
struct Case {
    algorithm: Algorithm,
    rules: Rules,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
struct Rules {
    refusals: u32,
    /// In seconds, as all times.
    within: u64,
    block: u64,
    times: u32,
    most: u64,
    memory: u64,
    is_extended: bool,
}

impl Rules {
    fn penalty(self) -> Penalty {
        let seconds = Duration::from_secs;
        let penalty = Penalty::after(self.refusals, seconds(self.within))
            .block(seconds(self.block))
            .times(self.times)
            .up_to(seconds(self.most))
            .forget_after(seconds(self.memory));
        if self.is_extended {
            penalty.extended_by_refusals()
        } else {
            penalty
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// After a pause in seconds, at a cost.
    Asks(u64, u32),
    Pardons,
    GivesBack,
}

/// The slow way: all refusals and all blocks since the last `unblock`.
#[derive(Default)]
struct Model {
    refusals: Vec<u64>,
    blocks: Vec<(u64, u64)>,
    /// The number of blocks that count.
    level: u32,
}

impl Model {
    fn blocked_for(&self, now: u64) -> Option<u64> {
        let (_, until) = self.blocks.last()?;
        (*until > now).then(|| until - now)
    }

    /// Returns the number of refusals that count.
    fn counting(&self, now: u64, rules: &Rules) -> usize {
        let counts = |then: &&u64| now - **then < rules.within * SECOND;
        self.refusals.iter().filter(counts).count()
    }

    fn length(level: u32, rules: &Rules) -> u64 {
        let long = (0..level).fold(rules.block, |long, _| {
            (long * u64::from(rules.times)).min(rules.most)
        });
        long * SECOND
    }

    fn refuse(&mut self, now: u64, rules: &Rules) {
        if self.blocked_for(now).is_some() {
            if rules.is_extended {
                let until = now + Self::length(self.level - 1, rules);
                let (_, end) = self.blocks.last_mut().unwrap();
                *end = until.max(*end);
            }
            return;
        }
        self.refusals.push(now);
        if self.counting(now, rules) < rules.refusals as usize {
            return;
        }
        let forgotten = |until: u64| until + rules.memory * SECOND <= now;
        if self
            .blocks
            .last()
            .is_some_and(|(_, until)| forgotten(*until))
        {
            self.level = 0;
        }
        let until = now + Self::length(self.level, rules);
        self.level += 1;
        self.blocks.push((now, until));
        self.refusals.clear();
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let rules = (
        1_u32..5,
        1_u64..60,
        1_u64..40,
        1_u32..4,
        0_u64..200,
        0_u64..100,
        any::<bool>(),
    );
    let rules = rules.prop_map(
        |(refusals, within, block, times, more, memory, is_extended)| Rules {
            refusals,
            within,
            block,
            times,
            most: block + more,
            memory,
            is_extended,
        },
    );
    // A limit of 0 refuses all requests, and the others refuse a client that waits too rarely.
    let algorithms = select(vec![
        Algorithm::from(FixedWindow::per_minute(0)),
        FixedWindow::of(Quota::new(2, Duration::from_secs(600)).unwrap()).into(),
        AnchoredWindow::of(Quota::new(3, Duration::from_secs(300)).unwrap()).into(),
        SlidingLog::of(Quota::new(1, Duration::from_secs(600)).unwrap())
            .unwrap()
            .into(),
    ]);
    let pause = prop_oneof![2 => Just(0_u64), 4 => 0_u64..20, 1 => 0_u64..400];
    let cost = prop_oneof![6 => Just(1_u32), 1 => Just(0_u32), 1 => 1_u32..4];
    let step = prop_oneof![
        12 => (pause, cost).prop_map(|(pause, cost)| Step::Asks(pause, cost)),
        1 => Just(Step::Pardons),
        1 => Just(Step::GivesBack),
    ];
    (algorithms, rules, vec(step, 1..40)).prop_map(|(algorithm, mut rules, steps)| {
        if algorithm.limit() != Some(0) {
            rules.refusals = rules.refusals.max(3);
        }
        Case {
            algorithm,
            rules,
            steps,
        }
    })
}

fn so_many_refusals_block<D: Scaled>(case: &Case) -> Result<(), TestCaseError> {
    let policy = Policy::new("penalized", case.algorithm);
    let driver = D::over(policy.penalty(case.rules.penalty()));
    // The same requests without a penalty.
    let plain = D::over(Policy::new("plain", case.algorithm));
    let mut model = Model::default();
    let mut at = 1_600_000_000 * SECOND;
    for step in &case.steps {
        let (pause, cost) = match *step {
            Step::Asks(pause, cost) => (pause, cost),
            Step::Pardons => {
                driver.pardon(at);
                model = Model::default();
                prop_assert_eq!(driver.refusals(at), Some(0));
                continue;
            }
            Step::GivesBack => {
                driver.give_back(at, 1);
                plain.give_back(at, 1);
                continue;
            }
        };
        at += pause * SECOND;
        let seen = driver.decide(at, cost);
        let is_blocked = model.blocked_for(at).is_some();
        let own = plain.decide(at, if is_blocked { 0 } else { cost });
        if cost > 0 && (is_blocked || !own.allowed) {
            model.refuse(at, &case.rules);
        }
        let counting = u32::try_from(model.counting(at, &case.rules)).unwrap();
        prop_assert_eq!(driver.refusals(at), Some(counting));
        let left = model.blocked_for(at);
        match left {
            None => prop_assert_eq!(&seen, &own),
            Some(left) => {
                prop_assert!(!seen.allowed && seen.remaining == 0);
                prop_assert!(seen.retry_after >= Some(left));
                if !is_blocked {
                    prop_assert_eq!(
                        seen.retry_after,
                        Some(left.max(own.retry_after.unwrap_or(0)))
                    );
                }
            }
        }
    }
    Ok(())
}

/// A block of a second is remembered for thirty seconds after its end. A refusal meanwhile that does not block changes nothing about that.
fn remembered_for_its_time<D: Scaled>() {
    let case = Case {
        algorithm: FixedWindow::per_minute(0).into(),
        rules: Rules {
            refusals: 2,
            within: 10,
            block: 1,
            times: 2,
            most: 60,
            memory: 30,
            is_extended: false,
        },
        steps: [0, 0, 25, 8].map(|pause| Step::Asks(pause, 1)).into(),
    };
    so_many_refusals_block::<D>(&case).unwrap();
}

macro_rules! mount {
    ($($(#[$when:meta])* $store:ident: $driver:ty;)+) => {$(
        $(#[$when])*
        mod $store {
            use super::*;

            #[test]
            fn the_number_of_refusals_within_the_time_blocks_and_nothing_else_does() {
                let price = <$driver as Scaled>::PRICE;
                check_at(seeds!(penalties), price, cases(), &so_many_refusals_block::<$driver>);
            }

            #[test]
            fn a_refusal_that_does_not_block_lets_no_block_be_remembered_for_longer() {
                remembered_for_its_time::<$driver>();
            }
        }
    )+};
}
mount! {
    memory: Memory;
    shared: Shared;
    #[cfg(feature = "redis")]
    redis: crate::redis::Redis;
}
