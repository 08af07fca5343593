//! Simultaneous requests share calls, and are decided as if they were alone.

use std::future::poll_fn;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, JoinSet, yield_now};
use tower_ratelimit::algorithm::Limit;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::key::IntoKey;
use tower_ratelimit::store::{Backend, Charge, Store};
use tower_ratelimit::{Decision, Limiter, ManualClock, Policy, StoreError};

use crate::scene::{
    MINUTE, PATIENCE, daily, every, limiter, patient, scripts_run, store, story, until, used,
};
use crate::stand_in::{ScriptedReply, StandIn, keys};
use crate::support::redis::{SLOTS, Server};

/// The most requests that share a call.
const MOST: usize = 32;

/// With this many calls in flight, the next one has to be full.
const FEW: usize = 8;

type CheckResult = Result<Decision, StoreError>;

/// Sends requests for these keys at once, in this order.
fn ask(limiter: &Limiter, keys: impl IntoIterator<Item = u32>) -> Vec<JoinHandle<CheckResult>> {
    let checks = keys
        .into_iter()
        .map(|key| limiter.check(key, 1).into_future());
    checks.map(tokio::spawn).collect()
}

async fn answers(asked: Vec<JoinHandle<CheckResult>>) -> Vec<CheckResult> {
    let mut answers = Vec::new();
    for asked in asked {
        answers.push(asked.await.unwrap());
    }
    answers
}

#[track_caller]
fn failed(error: &StoreError, kind: StoreErrorKind, said: &str) {
    let told = story(error);
    assert!(error.kind() == kind && told.contains(said), "{told}");
}

/// A connection is there, and the script is known.
async fn warm(limiter: &Limiter) {
    let _ = limiter.check("warm", 1).await.unwrap();
}

/// After some failures a server is left alone until it answers a probe.
async fn is_back(limiter: &Limiter) {
    let failed = Instant::now();
    while let Err(error) = limiter.check("back", 1).await {
        assert!(failed.elapsed() < PATIENCE, "{}", story(&error));
        yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_the_limit_of_requests_that_ask_at_once_is_admitted() {
    let server = Server::start(&[]);
    let store = store(&server);
    for policy in every(40, 60 * MINUTE) {
        let name = policy.name().to_owned();
        // As many as the limit; a queue has one more beside its places.
        let limiters = [limiter(&store, [policy.clone()]), limiter(&store, [policy])];
        let mut tasks = JoinSet::new();
        for number in 0..128 {
            let limiter = limiters[number % 2].clone();
            tasks.spawn(async move { limiter.check("ann", 1).await.unwrap().is_allowed() });
        }
        let admitted = tasks
            .join_all()
            .await
            .into_iter()
            .filter(|allowed| *allowed);
        assert_eq!(admitted.count(), 40, "{name}");
    }
}

#[tokio::test]
async fn requests_of_one_moment_share_a_call_and_are_decided_in_the_order_in_which_they_came() {
    let server = Server::start(&[]);
    let limiter = limiter(&store(&server), [daily("a", 10), daily("b", 20)]);
    warm(&limiter).await;
    let (before, _) = scripts_run(&server);
    let told = answers(ask(&limiter, [7; MOST])).await;
    for (number, told) in (1..).zip(told) {
        let told = told.unwrap();
        assert_eq!(told.is_allowed(), number <= 10, "{number}");
        assert_eq!(used(&told), [number.min(10); 2]);
    }
    assert_eq!(scripts_run(&server).0, before + 1);
}

/// Law 11, in one call: each request is decided under its own limit.
#[tokio::test]
async fn requests_of_different_limits_share_a_call() {
    let server = Server::start(&[]);
    let store = store(&server);
    for policy in every(8, 60 * MINUTE) {
        let name = policy.name().to_owned();
        let backend = store.open(&[policy.into()]).unwrap();
        let charge = |key: u32| Charge::new(0, key.into_key(), 1);
        let warm = backend.decide(&[charge(0)]).wait().await.unwrap();
        assert!(warm.is_allowed());
        let (before, _) = scripts_run(&server);
        let limits = [None, Some(2), Some(5), Some(9)];
        let charges = (0..32).map(|number: usize| {
            let limit = limits[number % 4].map(|limit| Limit::new(limit, limit));
            limit.map_or(charge(7), |limit| charge(7).under(limit))
        });
        let asked: Vec<_> = charges
            .map(|charge| tokio::spawn(backend.decide(&[charge]).wait()))
            .collect();
        let mut used = 0;
        for (number, asked) in asked.into_iter().enumerate() {
            let limit = limits[number % 4].unwrap_or(8);
            let told = asked.await.unwrap().unwrap();
            let (_, told) = told.iter().next().unwrap();
            assert_eq!(told.is_allowed(), used < limit, "{name}: {number}");
            assert_eq!(told.limit(), limit, "{name}");
            used += u32::from(told.is_allowed());
        }
        assert_eq!(used, 9, "{name}");
        assert_eq!(scripts_run(&server).0, before + 1, "{name}");
    }
}

#[tokio::test]
async fn each_request_of_a_shared_call_is_charged_what_it_asks_whatever_the_others_ask() {
    let server = Server::start(&[]);
    let policies = [daily("a", 10), daily("b", 20).soft()];
    let limiter = limiter(&store(&server), policies);
    warm(&limiter).await;
    let (before, _) = scripts_run(&server);
    let costs = [1, 1, 2, 3, 3, 3, 1, 11, 2, 2];
    let checks = (0_u32..).zip(costs);
    let checks = checks.map(|(key, cost)| tokio::spawn(limiter.check(key, cost).into_future()));
    let told = answers(checks.collect()).await;
    for ((key, cost), told) in (0_u32..).zip(costs).zip(told) {
        let told = told.unwrap();
        assert_eq!(told.is_allowed(), cost <= 10, "{key}");
        let charged = if cost <= 10 { cost } else { 0 };
        assert_eq!(used(&told), [charged; 2], "{key}");
    }
    assert_eq!(scripts_run(&server).0, before + 1);
}

#[tokio::test]
async fn while_few_calls_are_under_way_no_request_waits_and_then_until_a_call_is_full() {
    let server = StandIn::start(|_| ScriptedReply::Silence);
    let limiter = limiter(&patient().open(server.url()).unwrap(), [daily("a", 5)]);
    let mut asked = Vec::new();
    for number in 1..=FEW {
        asked.extend(ask(&limiter, [7]));
        until("a call", || server.scripts().len() == number).await;
    }
    asked.extend(ask(&limiter, [7; MOST]));
    until("a full call", || server.scripts().len() == FEW + 1).await;
    let scripts = server.scripts();
    let requests: Vec<usize> = scripts.iter().map(|words| keys(words).len()).collect();
    assert_eq!(requests, [1, 1, 1, 1, 1, 1, 1, 1, MOST]);
    asked.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn an_unreadable_state_fails_its_own_request_and_none_that_shares_the_call() {
    let server = Server::start(&[]);
    let store = store(&server);
    for policy in every(5, 60 * MINUTE) {
        let limiter = limiter(&store, [policy.clone(), daily("other", 5)]);
        let name = policy.name().to_owned();
        warm(&limiter).await;
        let other_type = store.store_key(&policy, 3_u32);
        server.ask(&["HSET", &other_type, "field", "value"]);
        let no_state = store.store_key(&daily("other", 5), 4_u32);
        server.ask(&["SET", &no_state, "1 2\r\n$3"]);
        let (before, _) = scripts_run(&server);
        let told = answers(ask(&limiter, 0..8)).await;
        assert_eq!(scripts_run(&server).0, before + 1);
        for (key, told) in told.into_iter().enumerate() {
            let said = match key {
                3 => "WRONGTYPE",
                4 => "no state is under the key",
                _ => {
                    assert_eq!(used(&told.unwrap()), [1, 1], "{name}");
                    continue;
                }
            };
            failed(&told.unwrap_err(), StoreErrorKind::Misconfigured, said);
        }
        // The requests were charged nothing.
        server.ask(&["DEL", &other_type, &no_state]);
        for key in [3_u32, 4] {
            assert_eq!(used(&limiter.peek(key, 0).await.unwrap()), [0, 0], "{name}");
        }
        server.ask(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn a_script_that_was_flushed_costs_a_shared_call_one_round_trip_and_no_request_a_charge() {
    let server = Server::start(&[]);
    let limiter = limiter(&store(&server), [daily("a", 100)]);
    warm(&limiter).await;
    server.ask(&["SCRIPT", "FLUSH"]);
    let (by_digest, by_text) = scripts_run(&server);
    for told in answers(ask(&limiter, 0..20)).await {
        assert_eq!(used(&told.unwrap()), [1]);
    }
    assert_eq!(scripts_run(&server), (by_digest + 1, by_text + 1));
    for key in 0..20_u32 {
        assert_eq!(used(&limiter.peek(key, 0).await.unwrap()), [1]);
    }
}

#[tokio::test]
async fn a_replica_fails_the_whole_call_and_is_left() {
    let server = Server::start(&[]);
    let limiter = limiter(&store(&server), [daily("a", 5)]);
    warm(&limiter).await;
    server.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    for told in answers(ask(&limiter, 0..10)).await {
        failed(&told.unwrap_err(), StoreErrorKind::Unavailable, "read only");
    }
    // The whole call fails, so that the client drops the connection; the first call did not know the script.
    let info: String = crate::scene::ask(&server, &["INFO", "commandstats"]);
    let scripts = info
        .lines()
        .find(|line| line.starts_with("cmdstat_evalsha:"));
    assert!(scripts.unwrap().ends_with("failed_calls=2"), "{scripts:?}");
    server.ask(&["REPLICAOF", "NO", "ONE"]);
    is_back(&limiter).await;
    for told in answers(ask(&limiter, 0..10)).await {
        assert_eq!(used(&told.unwrap()), [1]);
    }
}

#[tokio::test]
async fn without_memory_charges_fail_and_refusals_are_told() {
    let server = Server::start(&["--maxmemory-policy", "noeviction"]);
    let limiter = limiter(&store(&server), [daily("a", 1)]);
    assert!(limiter.check(2_u32, 1).await.unwrap().is_allowed());
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    for (key, told) in answers(ask(&limiter, 0..4)).await.into_iter().enumerate() {
        if key == 2 {
            assert!(!told.unwrap().is_allowed());
            continue;
        }
        failed(&told.unwrap_err(), StoreErrorKind::Unavailable, "OOM");
    }
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    for key in [0_u32, 1, 3] {
        assert_eq!(used(&limiter.peek(key, 0).await.unwrap()), [0]);
    }
}

#[tokio::test]
async fn a_request_that_gives_up_before_the_call_is_left_out_and_stops_no_other() {
    let server = Server::start(&[]);
    let limiter = limiter(&store(&server), [daily("a", 100)]);
    warm(&limiter).await;
    let (before, _) = scripts_run(&server);
    let mut checks: Vec<_> = (0..20_u32)
        .map(|key| Some(Box::pin(limiter.check(key, 1).into_future())))
        .collect();
    poll_fn(|context| {
        for check in checks.iter_mut().flatten() {
            assert!(check.as_mut().poll(context).is_pending());
        }
        // The first request too, for which the call was started: its task has not run yet.
        checks.iter_mut().step_by(2).for_each(|check| *check = None);
        Poll::Ready(())
    })
    .await;
    for check in checks.into_iter().flatten() {
        assert_eq!(used(&check.await.unwrap()), [1]);
    }
    assert_eq!(scripts_run(&server).0, before + 1);
    for key in 0..20_u32 {
        assert_eq!(
            used(&limiter.peek(key, 0).await.unwrap()),
            [key % 2],
            "{key}"
        );
    }
}

#[tokio::test]
async fn a_request_that_gives_up_after_the_call_was_sent_stops_no_other() {
    let server = Server::start(&[]);
    let limiter = limiter(&store(&server), [daily("a", 100)]);
    warm(&limiter).await;
    server.ask(&["CLIENT", "PAUSE", "20000", "WRITE"]);
    let asked = ask(&limiter, 0..20);
    until("the call", || {
        let clients: String = crate::scene::ask(&server, &["CLIENT", "LIST"]);
        clients.lines().any(|client| client.contains(" flags=b "))
    })
    .await;
    for asked in asked.iter().step_by(2) {
        asked.abort();
    }
    server.ask(&["CLIENT", "UNPAUSE"]);
    for (key, asked) in asked.into_iter().enumerate() {
        match asked.await {
            Ok(told) => assert_eq!(used(&told.unwrap()), [1], "{key}"),
            Err(error) => assert!(error.is_cancelled() && key % 2 == 0),
        }
    }
    warm(&limiter).await;
}

#[tokio::test]
async fn a_call_has_so_many_requests_and_charges_and_no_more() {
    for (policies, requests) in [(1, MOST), (8, 16), (4, MOST)] {
        let server = StandIn::start(|_| ScriptedReply::Silence);
        let store = patient().deadline(Duration::from_secs(1));
        let store = store.open(server.url()).unwrap();
        let policies = (0..policies).map(|number| daily(&number.to_string(), 5));
        let policies: Vec<Policy> = policies.collect();
        let limiter = limiter(&store, policies.clone());
        for told in answers(ask(&limiter, 0..500)).await {
            assert_eq!(told.unwrap_err().kind(), StoreErrorKind::Unavailable);
        }
        let scripts = server.scripts();
        let charges: Vec<usize> = scripts.iter().map(|words| keys(words).len()).collect();
        let most = charges.iter().max().unwrap();
        assert_eq!(*most, requests * policies.len(), "{charges:?}");
        // The server got each request once.
        let mut asked: Vec<&String> = scripts.iter().flat_map(|words| keys(words)).collect();
        let all = asked.len();
        asked.sort();
        asked.dedup();
        assert_eq!(asked.len(), all);
    }
}

#[tokio::test]
async fn a_server_that_falls_silent_keeps_no_request_longer_than_the_deadline() {
    let server = StandIn::start(|_| ScriptedReply::Silence);
    let deadline = Duration::from_millis(200);
    let store = patient().deadline(deadline).open(server.url()).unwrap();
    let limiter = Arc::new(limiter(&store, [daily("a", 5)]));
    // A clock that stands still while the machine does not run this process.
    let tick = Duration::from_millis(5);
    let ticks = Arc::new(AtomicU32::new(0));
    let ticking = Arc::clone(&ticks);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(tick).await;
            ticking.fetch_add(1, Ordering::SeqCst);
        }
    });
    let mut tasks = JoinSet::new();
    for number in 0..300_u32 {
        let (limiter, ticks) = (Arc::clone(&limiter), Arc::clone(&ticks));
        tasks.spawn(async move {
            tokio::time::sleep(Duration::from_millis(u64::from(number % 100))).await;
            let asked = ticks.load(Ordering::SeqCst);
            limiter.check(number, 1).await.unwrap_err();
            ticks.load(Ordering::SeqCst) - asked
        });
    }
    for waited in tasks.join_all().await {
        assert!(waited * tick < 2 * deadline, "{waited} ticks");
    }
}

#[tokio::test]
async fn requests_that_are_told_different_times_do_not_share_a_call() {
    let server = Server::start(&[]);
    let clock = ManualClock::new();
    let minutely = Policy::new("a", tower_ratelimit::FixedWindow::per_minute(1));
    let limiter = limiter(&store(&server).clock(clock.clone()), [minutely]);
    warm(&limiter).await;
    let mut asked = Vec::new();
    for _ in 0..5 {
        asked.push(tokio::spawn(limiter.check("ann", 1).into_future()));
        asked.push(tokio::spawn(limiter.check("ann", 1).into_future()));
        // These policies read the clock.
        yield_now().await;
        clock.advance(MINUTE);
    }
    let told = answers(asked).await.into_iter();
    let allowed: Vec<bool> = told.map(|told| told.unwrap().is_allowed()).collect();
    assert_eq!(allowed, [[true, false]; 5].concat());
}

/// A call is a task in the runtime of one of the requests that share it.
#[test]
fn a_runtime_that_ends_keeps_no_request_of_another_waiting_for_its_calls() {
    let server = Server::start(&[]);
    let store = patient().deadline(MINUTE).open(server.url()).unwrap();
    let limiter = limiter(&store, [daily("a", 1_000)]);
    let runtime = || -> Runtime { Builder::new_current_thread().enable_all().build().unwrap() };
    let here = runtime();
    here.block_on(warm(&limiter));
    let poll_once = |keys: Range<u32>| {
        let mut checks: Vec<_> = keys
            .map(|key| Box::pin(limiter.check(key, 1).into_future()))
            .collect();
        poll_fn(move |context| {
            for check in &mut checks {
                assert!(check.as_mut().poll(context).is_pending());
            }
            Poll::Ready(mem::take(&mut checks))
        })
    };
    for calls_are_made in [false, true] {
        let elsewhere = runtime();
        server.ask(&["CLIENT", "PAUSE", "20000", "WRITE"]);
        // Each of them starts calls, which the proxy holds back.
        let theirs = elsewhere.block_on(async {
            let checks = poll_once(0..100).await;
            if calls_are_made {
                for _ in 0..10 {
                    yield_now().await;
                }
            }
            checks
        });
        let ours = here.block_on(poll_once(100..120));
        drop(elsewhere);
        server.ask(&["CLIENT", "UNPAUSE"]);
        let asked = Instant::now();
        for check in ours {
            // The requests get an error, or a decision.
            if let Err(error) = here.block_on(check) {
                failed(&error, StoreErrorKind::Unavailable, "");
            }
        }
        assert!(asked.elapsed() < PATIENCE / 2);
        drop(theirs);
        here.block_on(is_back(&limiter));
        let told = here.block_on(async { answers(ask(&limiter, 200..300)).await });
        assert!(told.into_iter().all(|told| told.unwrap().is_allowed()));
    }
}

/// A hosted service: one server, configured as the only node of a cluster.
#[tokio::test]
async fn a_server_that_takes_keys_of_one_slot_only_is_asked_about_each_request_alone() {
    let config = std::env::temp_dir().join(format!("trl-slots-{}.conf", std::process::id()));
    let config = config.to_string_lossy();
    let server = Server::start(&["--cluster-enabled", "yes", "--cluster-config-file", &config]);
    let slots: Vec<String> = (0..SLOTS).map(|slot| slot.to_string()).collect();
    let slots = slots.iter().map(String::as_str);
    let add: Vec<&str> = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots).collect();
    server.ask(&add);
    until("the cluster", || {
        let info: String = crate::scene::ask(&server, &["CLUSTER", "INFO"]);
        info.contains("cluster_state:ok")
    })
    .await;
    let limiter = limiter(&store(&server), [daily("a", 100), daily("b", 100)]);
    for round in 1..=2 {
        for told in answers(ask(&limiter, 0..50)).await {
            assert_eq!(used(&told.unwrap()), [round; 2]);
        }
    }
    drop(server);
    // The result does not matter to the test.
    let _ = std::fs::remove_file(&*config);
}

/// Otherwise one broken call would count as many failures in a row as requests have shared it.
#[tokio::test]
async fn a_call_that_fails_is_one_failure_however_many_have_shared_it() {
    let server = StandIn::start(|_| ScriptedReply::Say("-LOADING Redis is loading\r\n"));
    let limiter = limiter(&patient().open(server.url()).unwrap(), [daily("a", 1_000)]);
    let mut failed = 0;
    loop {
        let told = answers(ask(&limiter, 0..20)).await;
        let errors: Vec<_> = told.into_iter().map(Result::unwrap_err).collect();
        if errors.iter().all(|error| error.reason() == Some("away")) {
            break;
        }
        failed += errors.len();
        assert!(server.scripts().len() <= 5, "one more has asked it");
    }
    assert_eq!(server.scripts().len(), 5);
    assert!(failed > 20, "{failed} requests, hardly any shared a call");
}
