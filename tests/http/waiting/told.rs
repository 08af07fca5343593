//! The law of waits, over drawn policies: a request that is refused while others wait, and comes back after the wait that
//! it was told, passes. It would not pass sooner, if all that wait go on, and ask about the same keys.

use std::time::Duration;

use http::{Request, StatusCode};
use proptest::prelude::*;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tower_ratelimit::policy::Http;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, Policy, SlidingLog, SlidingSlots, SlidingWindow,
    TokenBucket, key,
};

use super::{SECOND, layer, told};
use crate::arrivals::{Arrivals, TICK, behind, request, send};
use crate::exchange::{Received, cost};

fn algorithm() -> impl Strategy<Value = Algorithm> {
    let period = prop_oneof![Just(300), Just(1_000), Just(2_500)];
    (1..5_u16, 1..5_u32, period, 0..9).prop_map(|(limit, burst, period, which)| {
        let per = Duration::from_millis(period);
        let number = u32::from(limit);
        match which {
            0 => FixedWindow::new(number, per).unwrap().into(),
            1 => AnchoredWindow::new(number, per).unwrap().into(),
            2 => SlidingLog::new(number, per).unwrap().into(),
            3 => SlidingWindow::new(number, per).unwrap().into(),
            4 => SlidingSlots::new(number, per).unwrap().into(),
            5 => Gcra::new(number, per).unwrap().burst(burst).into(),
            6 => TokenBucket::new(number, per).unwrap().by_interval().into(),
            7 => TokenBucket::new(number, per)
                .unwrap()
                .burst(burst)
                .by_interval()
                .into(),
            _ => TokenBucket::new(number, per).unwrap().burst(burst).into(),
        }
    })
}

#[derive(Clone, Debug)]
struct Rule {
    algorithm: Algorithm,
    patience: Option<Duration>,
    is_by_cost: bool,
    is_by_user: bool,
    reserve: u32,
}

fn rule() -> impl Strategy<Value = Rule> {
    let patience = proptest::option::weighted(0.75, 1..6_000_u64);
    let flags = (any::<bool>(), any::<bool>(), 0..3_u32);
    (algorithm(), patience, flags).prop_map(|(algorithm, patience, flags)| {
        let (is_by_cost, is_by_user, reserve) = flags;
        let most = algorithm.limit().unwrap_or(1) - 1;
        Rule {
            algorithm,
            patience: patience.map(Duration::from_millis),
            is_by_cost,
            is_by_user,
            reserve: most.min(reserve),
        }
    })
}

impl Rule {
    fn policy(&self, name: &str) -> Policy<Http> {
        let mut policy = Policy::new(name, self.algorithm).reserve(self.reserve);
        if let Some(longest) = self.patience {
            policy = policy.wait_up_to(longest);
        }
        let policy = if self.is_by_user {
            policy.key(key::header("x-user"))
        } else {
            policy.key(key::global())
        };
        let policy = policy.low_priority(|head| head.headers().contains_key("x-low"));
        if self.is_by_cost {
            policy.cost(cost)
        } else {
            policy
        }
    }
}

#[derive(Clone, Debug)]
struct Visit {
    after: Duration,
    user: u32,
    cost: u32,
    is_low: bool,
}

impl Visit {
    fn request(&self, number: u32) -> Request<()> {
        let mut request = request(self.user, number);
        request.headers_mut().insert("x-cost", self.cost.into());
        if self.is_low {
            request.headers_mut().insert("x-low", 1.into());
        }
        request
    }
}

fn visit() -> impl Strategy<Value = Visit> {
    let gap = prop_oneof![Just(0), 1..50_u64, 100..900_u64];
    (gap, 0..2_u32, 1..4_u32, any::<bool>()).prop_map(|(gap, user, cost, is_low)| Visit {
        after: Duration::from_millis(gap),
        user,
        cost,
        is_low,
    })
}

/// What came of a visit after the wait that another one was told.
struct Return {
    answer: Received,
    waited: Duration,
    /// Whether all requests that waited before it went on.
    have_all_gone_on: bool,
}

/// Sends these visits, and then nothing until `early` before the end of the wait that the last one was told. `None` if it
/// is not told to come back.
async fn comes_back(rules: &[Rule], visits: &[Visit], early: Duration) -> Option<Return> {
    let policies = rules.iter().zip(["a", "b", "c"]);
    let layer = layer(policies.map(|(rule, name)| rule.policy(name)));
    let service = behind(&layer, &Arrivals::new());
    let mut waiting = Vec::new();
    for (number, visit) in (0..).zip(visits) {
        sleep(visit.after).await;
        waiting.retain(|sent: &JoinHandle<_>| !sent.is_finished());
        waiting.push(send(&service, visit.request(number)).await);
    }
    let (at, visit) = (Instant::now(), visits.last()?);
    let sent = waiting.pop()?;
    // A request that waits is told nothing.
    if !sent.is_finished() {
        return None;
    }
    let answer = sent.await.unwrap();
    if answer.status == StatusCode::OK {
        return None;
    }
    let wait = told(&answer)?;
    sleep_until(at + wait.saturating_sub(early)).await;
    let again = Instant::now();
    let answer = send(&service, visit.request(9_999)).await.await.unwrap();
    let waited = again.elapsed();
    let mut have_all_gone_on = true;
    for sent in waiting {
        have_all_gone_on &= sent.await.unwrap().status == StatusCode::OK;
    }
    Some(Return {
        answer,
        waited,
        have_all_gone_on,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn the_wait_of_a_refused_request_counts_all_that_wait_under_all_of_its_policies(
        rules in proptest::collection::vec(rule(), 1..=3),
        mut visits in proptest::collection::vec(visit(), 1..14),
        are_alike in any::<bool>(),
    ) {
        for visit in visits.iter_mut().filter(|_| are_alike) {
            (visit.user, visit.is_low) = (0, false);
        }
        let run = |early| {
            let mut runtime = Builder::new_current_thread();
            let runtime = runtime.enable_time().start_paused(true).build().unwrap();
            runtime.block_on(comes_back(&rules, &visits, early))
        };
        // A timer is up to a millisecond late, for each request before this one.
        let late = 20 * TICK;
        if let Some(returned) = run(Duration::ZERO) {
            prop_assert_eq!(returned.answer.status, StatusCode::OK);
            prop_assert!(returned.waited <= late, "it waited for {:?} more", returned.waited);
            let is_alike = |visit: &Visit| visit.user == visits[0].user && !visit.is_low;
            let is_exact = returned.have_all_gone_on && visits.iter().all(is_alike);
            let early = SECOND / 20;
            if let Some(sooner) = run(early).filter(|_| is_exact) {
                let is_refused = sooner.answer.status != StatusCode::OK;
                prop_assert!(is_refused || sooner.waited + late >= early, "it passed sooner");
            }
        }
    }
}
