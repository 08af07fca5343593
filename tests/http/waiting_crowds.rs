//! Random crowds of waiting requests: none too many passes, none overtakes, none starves.

use std::time::Duration;

use proptest::prelude::*;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tower::ServiceExt;
use tower_ratelimit::response::Refusal;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, Policy, RateLimitLayer, SlidingLog, SlidingSlots,
    SlidingWindow, TokenBucket, key,
};

use crate::arrivals::{Arrivals, behind, request, send, store};
use crate::exchange::{Received, cost};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
struct Visit {
    after: Duration,
    user: u32,
    cost: u32,
    goes_away_after: Option<Duration>,
}

fn visit() -> impl Strategy<Value = Visit> {
    let gap = prop_oneof![Just(0), 1..50_u64, 100..900_u64];
    let leaving = proptest::option::weighted(0.2, 0..3_000_u64);
    (gap, 0..2_u32, 0..4_u32, leaving).prop_map(|(gap, user, cost, leaving)| Visit {
        after: Duration::from_millis(gap),
        user,
        cost,
        goes_away_after: leaving.map(Duration::from_millis),
    })
}

/// Each algorithm with the most that it admits in a second or less (see `docs/choosing.md`), and whether waits behind
/// costs above 1 are known in advance.
fn algorithm() -> impl Strategy<Value = (Algorithm, u32, bool)> {
    (1..6_u32, 1..6_u32, 0..8).prop_map(|(limit, burst, which)| match which {
        0 => (FixedWindow::per_second(limit).into(), 2 * limit, true),
        1 => (AnchoredWindow::per_second(limit).into(), 2 * limit, true),
        2 => {
            let log = SlidingLog::per_second(u16::try_from(limit).unwrap());
            (log.into(), limit, false)
        }
        3 => (SlidingWindow::per_second(limit).into(), 2 * limit, false),
        4 => (SlidingSlots::per_second(limit).into(), limit, false),
        5 => (
            Gcra::per_second(limit).burst(burst).into(),
            burst + limit,
            true,
        ),
        6 => {
            let bucket = TokenBucket::per_second(limit).by_interval();
            (bucket.into(), 2 * limit, true)
        }
        _ => {
            let bucket = TokenBucket::per_second(limit).burst(burst);
            (bucket.into(), burst + limit, true)
        }
    })
}

struct Sent {
    number: u32,
    visit: Visit,
    at: Duration,
    answer: JoinHandle<Option<(Received, Instant)>>,
}

async fn crowd(algorithm: Algorithm, most: u32, patience: Duration, visits: Vec<Visit>) {
    let start = Instant::now();
    let arrivals = Arrivals::new();
    let patient = Policy::new("a", algorithm)
        .wait_up_to(patience)
        .wait_places(8);
    let policy = patient.key(key::header("x-user")).cost(cost);
    let layer = RateLimitLayer::builder().policy(policy).store(store());
    let layer = layer.build().unwrap();
    let service = behind(&layer, &arrivals);
    let mut sent = Vec::new();
    for (number, visit) in (0..).zip(visits) {
        sleep(visit.after).await;
        let at = start.elapsed();
        let mut request = request(visit.user, number);
        request.headers_mut().insert("x-cost", visit.cost.into());
        let asked = send(&service, request).await;
        let abort = asked.abort_handle();
        let answer = tokio::spawn(async move { Some((asked.await.ok()?, Instant::now())) });
        if let Some(time) = visit.goes_away_after {
            tokio::spawn(async move {
                sleep(time).await;
                abort.abort();
            });
        }
        sent.push(Sent {
            number,
            visit,
            at,
            answer,
        });
    }
    // No request waits for longer than allowed, plus the delay of timers.
    sleep_until(Instant::now() + patience + SECOND / 10).await;
    let mut answered = Vec::new();
    for mut sent in sent {
        assert!(sent.answer.is_finished(), "{} starves", sent.number);
        if let Some((answer, at)) = (&mut sent.answer).await.unwrap() {
            answered.push((sent, answer, at - start));
        }
    }
    let log = arrivals.log();
    for user in 0..2 {
        let of_user: Vec<_> = answered
            .iter()
            .filter(|(sent, ..)| sent.visit.user == user && sent.visit.cost > 0)
            .collect();
        let went: Vec<_> = of_user
            .iter()
            .filter_map(|(sent, ..)| log.iter().find(|(number, _)| *number == sent.number))
            .collect();
        assert!(went.is_sorted_by_key(|(_, at)| *at), "overtaken: {went:?}");
        assert!(log.is_sorted_by_key(|(_, at)| *at));
        for (index, (_, from)) in went.iter().enumerate() {
            let within = went[index..]
                .iter()
                .take_while(|(_, at)| *at < *from + SECOND);
            let units = within.map(|(number, _)| {
                let sent = of_user.iter().find(|(sent, ..)| sent.number == *number);
                sent.unwrap().0.visit.cost
            });
            assert!(units.sum::<u32>() <= most, "too many after {from:?}");
        }
        for (sent, answer, at) in &of_user {
            let waited = at.saturating_sub(sent.at);
            if log.iter().any(|(number, _)| *number == sent.number) {
                assert!(answer.status.is_success());
                continue;
            }
            let Some(Refusal::Denied(decision)) = &answer.refusal else {
                panic!("{answer:?}");
            };
            // The clocks of the store and of tokio are one, and no other request is charged. So a refusal comes at
            // once, unless other requests have gone away.
            let told = decision.retry_after();
            assert!(told.is_none() || told > Some(Duration::ZERO));
            assert!(waited.is_zero(), "{} was kept for {waited:?}", sent.number);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn a_random_crowd_never_admits_too_many_and_no_request_is_overtaken_or_starves(
        (algorithm, most, foresees_costs) in algorithm(),
        patience in prop_oneof![1..400_u64, 400..5_000_u64],
        mut visits in proptest::collection::vec(visit(), 1..40),
    ) {
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let patience = Duration::from_millis(patience);
        for visit in visits.iter_mut().filter(|_| !foresees_costs) {
            visit.cost = visit.cost.min(1);
        }
        runtime.block_on(crowd(algorithm, most, patience, visits));
    }
}

/// The real clock and real threads: in any order, all requests that stay get their turn, and nothing is left behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_request_that_stays_gets_its_turn_on_many_threads() {
    let bucket = TokenBucket::per_second(2_000).burst(1);
    let patient = Policy::new("a", bucket).wait_up_to(60 * SECOND);
    let shared = Policy::new("b", Gcra::per_second(5_000).burst(1)).wait_up_to(60 * SECOND);
    let layer = RateLimitLayer::builder()
        .policy(patient.wait_places(1_000).key(key::header("x-user")))
        .policy(shared.wait_places(1_000).key(key::global()))
        .build()
        .unwrap();
    let arrivals = Arrivals::new();
    let service = behind(&layer, &arrivals);
    let mut sent = Vec::new();
    for number in 0..600 {
        let service = service.clone();
        let one = tokio::spawn(service.oneshot(request(number % 7, number)));
        if number % 5 == 0 {
            let abort = one.abort_handle();
            tokio::spawn(async move {
                sleep(Duration::from_micros(u64::from(number) * 37 % 5_000)).await;
                abort.abort();
            });
        }
        sent.push((number, one));
    }
    for (number, one) in sent {
        match one.await {
            Ok(answer) => assert!(answer.unwrap().status().is_success(), "{number}"),
            Err(gone) => assert!(gone.is_cancelled() && number % 5 == 0, "{gone}"),
        }
    }
    assert!(arrivals.log().len() >= 480);
}
