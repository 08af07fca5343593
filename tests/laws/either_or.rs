//! Either–or: of several policies, the first that has room is charged.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Limiter, ManualClock, MemoryStore, Micros, Policy,
    Quota, SlidingWindow, TokenBucket,
};

use crate::property::{check, seeds};
use crate::support::driver::micros;
use crate::support::model::{Model, Rule, decide_first_of};
use crate::support::{buckets, windows};

/// New Year 2024, midnight UTC, in microseconds.
const START: u64 = 1_704_067_200_000_000;

#[derive(Clone, Copy, Debug)]
struct Drawn {
    kind: u8,
    limit: u32,
    seconds: u64,
}

impl Drawn {
    fn algorithm(self) -> Algorithm {
        let period = std::time::Duration::from_secs(self.seconds);
        let quota = Quota::new(self.limit, period).expect("a period in range");
        match self.kind {
            0 => FixedWindow::of(quota).into(),
            1 => AnchoredWindow::of(quota).into(),
            2 => SlidingWindow::of(quota).into(),
            _ => TokenBucket::of(quota).burst(self.limit).into(),
        }
    }

    fn model(self) -> Model {
        let (limit, period) = (self.limit, self.seconds * 1_000_000);
        let rule: Arc<dyn Rule> = match self.kind {
            0 => Arc::new(windows::FixedWindow { limit, period }),
            1 => Arc::new(windows::AnchoredWindow { limit, period }),
            2 => Arc::new(windows::SlidingWindow { limit, period }),
            _ => Arc::new(buckets::Bucket {
                limit,
                period,
                burst: limit,
            }),
        };
        Model::new(rule)
    }
}

#[derive(Clone, Debug)]
struct Case {
    members: Vec<Drawn>,
    always: Vec<Drawn>,
    /// The order in which the members are declared as policies, by a rotation.
    rotation: usize,
    /// The time since the request before, and the cost.
    requests: Vec<(u64, u32)>,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let numbers = (0_u8..4, 1_u32..6, 1_u64..9);
    numbers.prop_map(|(kind, limit, seconds)| Drawn {
        kind,
        limit,
        seconds,
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let gap = prop_oneof![Just(0), 1_u64..4_000_000, Just(1_000_000)];
    let requests = vec((gap, 1_u32..5), 1..40);
    let cases = (vec(drawn(), 2..5), vec(drawn(), 0..3), 0_usize..4, requests);
    cases.prop_map(|(members, always, rotation, requests)| Case {
        members,
        always,
        rotation,
        requests,
    })
}

/// The model names the payer, and the wait is the shortest after which the request passes: both at the same time, by
/// another limiter that plays the same past, which is what a client does who comes back.
#[test]
fn the_first_member_with_room_pays_and_a_wait_is_the_shortest_that_works() {
    check(seeds!(either_or), cases(), &|case| {
        let clock = ManualClock::new();
        let named = |prefix: &str, drawn: &[Drawn]| -> Vec<Policy> {
            let each = drawn.iter().enumerate();
            let each = each.map(|(place, drawn)| (format!("{prefix}{place}"), drawn.algorithm()));
            each.map(|(name, algorithm)| Policy::new(name, algorithm))
                .collect()
        };
        let mut declared = named("member", &case.members);
        let order: Vec<String> = declared.iter().map(|it| it.name().to_owned()).collect();
        let rotation = case.rotation % declared.len();
        declared.rotate_left(rotation);
        let limiter = Limiter::builder()
            .policies(declared)
            .policies(named("always", &case.always))
            .first_of("spend", order.clone())
            .store(MemoryStore::new().clock(clock.clone()))
            .build_local()
            .unwrap();
        let models =
            |drawn: &[Drawn]| -> Vec<Model> { drawn.iter().map(|it| it.model()).collect() };
        let (mut members, mut always) = (models(&case.members), models(&case.always));
        let mut at = START;
        for &(gap, cost) in &case.requests {
            at += gap;
            clock.set_micros(Micros::new(at));
            let expected = decide_first_of(&mut always, &mut members, at, cost);
            let peeked = limiter.peek("ann", cost).now();
            let decision = limiter.check("ann", cost).now();
            prop_assert_eq!(peeked.is_allowed(), decision.is_allowed());
            prop_assert_eq!(peeked.retry_after(), decision.retry_after());
            prop_assert_eq!(peeked.payer("spend"), decision.payer("spend"));
            prop_assert_eq!(decision.policies().len(), case.always.len() + 1);
            let told = match decision.payer("spend") {
                Some(payer) => Ok(order.iter().position(|name| name == payer).unwrap()),
                None => Err(decision.retry_after().map(micros)),
            };
            prop_assert_eq!(told, expected, "{:?} at {}", cost, at);
        }
        Ok(())
    });
}
