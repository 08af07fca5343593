//! Requests that wait before a layer of HTTP while the server goes away.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::{Request, Response, StatusCode};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::key::IntoKey;
use tower_ratelimit::middleware::Deadline;
use tower_ratelimit::policy::Http;
use tower_ratelimit::response::Refusal;
use tower_ratelimit::store::{Amendment, Backend, Charge, Departure, Store};
use tower_ratelimit::{
    AnchoredWindow, LeakyQueue, ManualClock, Micros, OnStoreFailure, Policy, RateLimitLayer,
    RedisStore, key,
};

use crate::scene::{MINUTE, patient, scripts_run, store, until};
use crate::support::redis::Server;
use crate::support::taken::{
    START, nothing_is_given_back_of_a_window_that_has_ended,
    whatever_a_request_cost_the_wait_that_is_told_is_true,
};
use crate::without::lose;

fn service(
    store: &RedisStore,
    policies: impl IntoIterator<Item = Policy<Http>>,
) -> impl Service<Request<()>, Response = Response<()>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    let layer = RateLimitLayer::builder()
        .policies(policies)
        .store(store.clone());
    let inner = service_fn(async |_: Request<()>| Ok(Response::new(String::new())));
    let service = layer.build().unwrap().layer(inner);
    service.map_response(|response| response.map(drop))
}

/// A request that does not wait for long.
fn hurried() -> Request<()> {
    let mut request = Request::new(());
    let deadline = Deadline::after(Duration::from_secs(1));
    request.extensions_mut().insert(deadline);
    request
}

fn wait(response: &Response<()>) -> Duration {
    match response.extensions().get() {
        Some(Refusal::Denied(decision)) => decision.retry_after().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// A request that finds others waiting asks when its turn would be, and charges nothing. While the server was away,
/// the answer left out the policy that allows everything, and no other policy denied the request: so each request
/// passed by the estimate, and 200 of 200 passed under a limit of 5 a day.
#[tokio::test]
async fn a_request_never_passes_by_an_estimate_alone() {
    let server = Server::start(&[]);
    let store = patient().nodes(1).open(server.url()).unwrap();
    let minute = Policy::new("minute", AnchoredWindow::per_minute(1))
        .on_store_failure(OnStoreFailure::Allow)
        .wait_up_to(MINUTE)
        .key(key::global());
    let day = Policy::new("day", AnchoredWindow::per_day(5)).key(key::global());
    let service = service(&store, [minute, day]);
    let send = |request| service.clone().oneshot(request);
    assert_eq!(send(hurried()).await.unwrap().status(), StatusCode::OK);
    let waits = tokio::spawn(send(Request::new(())));
    let mut told = wait(&send(hurried()).await.unwrap());
    while told <= MINUTE {
        told = wait(&send(hurried()).await.unwrap());
    }
    lose(&server, &store).await;
    let mut passed = 0;
    for _ in 0..200 {
        let status = send(Request::new(())).await.unwrap().status();
        passed += u32::from(status == StatusCode::OK);
    }
    assert!(!waits.is_finished(), "it waits for what Redis has told");
    waits.abort();
    assert_eq!(passed, 5);
}

#[tokio::test]
async fn a_refund_counts_until_the_window_of_the_charge_ends() {
    let server = Server::start(&[]);
    let clock = ManualClock::at(START);
    let store = store(&server).clock(clock.clone());
    nothing_is_given_back_of_a_window_that_has_ended(&clock, |policies| {
        store.open(policies).unwrap()
    })
    .await;
}

/// A layer that has moved requests up may know the beginning of a turn to the microsecond: a third of a second is not
/// a whole number of microseconds.
#[tokio::test]
async fn the_last_turns_of_a_queue_are_given_back_and_the_store_says_whether_they_were() {
    let server = Server::start(&[]);
    let clock = ManualClock::at(START);
    let queue = Policy::new("queue", LeakyQueue::per_second(3).places(9));
    let backend = store(&server)
        .clock(clock.clone())
        .open(&[queue.into()])
        .unwrap();
    let charge = |cost| Charge::new(0, "ann".into_key(), cost);
    let take = async |cost| {
        let told = backend.decide(&[charge(cost)]).wait().await.unwrap();
        told.iter().next().unwrap().1.delay().as_micros()
    };
    let give_back = async |cost, after: u64| {
        let begins = Micros::new(START.get() + after);
        backend
            .amend(&[charge(cost)], Amendment::GiveBack(Departure::at(begins)))
            .wait()
            .await
            .unwrap()
    };
    assert_eq!([take(1).await, take(4).await], [0, 333_334]);
    // The turns begin at 333,333.3, 666,666.7, 1,000,000 and 1,333,333.3.
    for (turns, begins) in [(1, 1_333_333), (1, 1_333_336), (3, 666_666), (9, 0)] {
        assert!(!give_back(turns, begins).await, "{turns} from {begins}");
    }
    assert!(give_back(1, 1_333_335).await, "told late");
    assert!(give_back(2, 666_667).await);
    assert_eq!(take(1).await, 666_667);
}

/// Requests that are decided without the server begin a queue of their own, by the clock of this process. They
/// overtook those that waited, and were closer to them than an interval.
#[tokio::test]
async fn a_queue_keeps_its_order_when_the_server_goes_away() {
    let server = Server::start(&[]);
    let store = patient().nodes(1).open(server.url()).unwrap();
    let queue = LeakyQueue::per_second(10).places(50);
    let queue = Policy::new("queue", queue).key(key::global());
    let service = service(&store, [queue]);
    let went_on = Arc::new(Mutex::new(Vec::new()));
    let send = |number: u32| {
        let (sent, went_on) = (service.clone().oneshot(Request::new(())), went_on.clone());
        tokio::spawn(async move {
            assert_eq!(sent.await.unwrap().status(), StatusCode::OK);
            went_on.lock().unwrap().push(number);
        })
    };
    let start = Instant::now();
    // The layer decides each before the next, because nothing else runs until it waits.
    let mut requests = Vec::new();
    for number in 0..10 {
        let asked = scripts_run(&server);
        requests.push(send(number));
        until("it is asked about", || scripts_run(&server) != asked).await;
    }
    lose(&server, &store).await;
    for number in 10..15 {
        requests.push(send(number));
        tokio::task::yield_now().await;
    }
    for request in requests {
        request.await.unwrap();
    }
    assert_eq!(*went_on.lock().unwrap(), (0..15).collect::<Vec<_>>());
    // The first of the five may find the line empty, if the machine is slow.
    assert!(start.elapsed() >= Duration::from_millis(1_300));
}

#[tokio::test]
async fn whatever_a_request_cost_a_client_that_waits_as_it_is_told_passes() {
    let server = Server::start(&[]);
    let clock = ManualClock::at(START);
    let store = store(&server).clock(clock.clone());
    whatever_a_request_cost_the_wait_that_is_told_is_true(&clock, |policies| {
        store.open(policies).unwrap()
    })
    .await;
}
