//! Adaptive concurrency and signals of the load, for services that speak no HTTP.

use std::future::{Future, pending};
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Semaphore;
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{ConcurrencyLayer, CountTrafficLayer};
use crate::{AdaptiveConcurrency, Load, Sample, Saturated, Signal, Traffic};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Job {
    Serve,
    /// The service is overloaded.
    Drop,
    /// The request has a mistake.
    Mistaken,
    /// It has no answer.
    Hang,
}

#[derive(Debug, PartialEq)]
enum Failure {
    Overloaded,
    Mistaken,
    Refused(u32),
}

async fn work(job: Job) -> Result<&'static str, Failure> {
    match job {
        Job::Serve => Ok("served"),
        Job::Drop => Err(Failure::Overloaded),
        Job::Mistaken => Err(Failure::Mistaken),
        Job::Hang => pending().await,
    }
}

fn of(slots: u32) -> AdaptiveConcurrency {
    let builder = AdaptiveConcurrency::builder().start(slots);
    builder.build().unwrap()
}

fn refuse(full: Saturated) -> Result<&'static str, Failure> {
    Err(Failure::Refused(full.limit()))
}

/// A mistake of the request says nothing of the service.
fn classify(answer: Result<&&'static str, &Failure>) -> Sample {
    match answer {
        Ok(_) => Sample::Served,
        Err(Failure::Overloaded) => Sample::Overloaded,
        Err(_) => Sample::Nothing,
    }
}

fn poll<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn a_request_without_a_slot_is_answered_by_the_closure_and_not_by_the_service() {
    let concurrency = of(1);
    let layer = ConcurrencyLayer::new(&concurrency, refuse);
    let mut service = layer.layer(service_fn(work));
    let hanging = service.ready().await.unwrap().call(Job::Hang);
    let refused = service.ready().await.unwrap().call(Job::Serve).await;
    assert_eq!(refused, Err(Failure::Refused(1)));
    assert_eq!((concurrency.in_flight(), concurrency.refused()), (1, 1));
    // Its caller is gone.
    drop(hanging);
    assert_eq!(service.oneshot(Job::Serve).await, Ok("served"));
    assert_eq!(concurrency.in_flight(), 0);
}

/// A permit that is taken when the service is polled ready is held by connections that are idle.
#[tokio::test]
async fn a_slot_is_taken_in_the_call_and_nothing_is_shed_on_pending_alone() {
    let concurrency = of(1);
    let layer = ConcurrencyLayer::new(&concurrency, refuse);
    let permits = Arc::new(Semaphore::new(1));
    let taken = Arc::clone(&permits).try_acquire_owned().unwrap();
    let mut service = layer.layer(ConcurrencyLimit::with_semaphore(service_fn(work), permits));
    assert!(poll(service.ready()).is_pending());
    assert_eq!((concurrency.in_flight(), concurrency.refused()), (0, 0));
    drop(taken);
    assert_eq!(service.oneshot(Job::Serve).await, Ok("served"));
}

/// A refused request leaves what the inner service was ready for.
#[tokio::test]
async fn a_refusal_keeps_no_permit_of_the_inner_service() {
    let concurrency = of(1);
    let permits = Arc::new(Semaphore::new(1));
    let inner = ConcurrencyLimit::with_semaphore(service_fn(work), Arc::clone(&permits));
    let mut service = ConcurrencyLayer::new(&concurrency, refuse).layer(inner);
    let _taken = concurrency.try_enter().unwrap();
    let refused = service.ready().await.unwrap().call(Job::Serve).await;
    assert_eq!(refused, Err(Failure::Refused(1)));
    assert_eq!(permits.available_permits(), 1);
}

#[tokio::test]
async fn probes_take_no_slot_and_a_partition_keeps_its_share() {
    let concurrency = AdaptiveConcurrency::builder()
        .start(2)
        .partition("paid", 50)
        .build()
        .unwrap();
    let layer = ConcurrencyLayer::new(&concurrency, |full: Saturated| {
        Err(Failure::Refused(full.limit()))
    })
    .except(|(_, customer): &(Job, &str)| *customer == "probe")
    .partition_of(|(_, customer)| (*customer == "ann").then_some("paid"));
    let service = layer.layer(service_fn(|(job, _)| work(job)));
    let call = |job, customer| service.clone().oneshot((job, customer));
    let mut hanging = Vec::new();
    for _ in 0..2 {
        let mut future = Box::pin(call(Job::Hang, "bob"));
        assert!(poll(future.as_mut()).is_pending());
        hanging.push(future);
    }
    assert_eq!(call(Job::Serve, "bob").await, Err(Failure::Refused(2)));
    assert_eq!(call(Job::Serve, "ann").await, Ok("served"));
    assert_eq!(call(Job::Serve, "probe").await, Ok("served"));
}

/// One second of requests, a hundred of each kind. They follow each other, so that a limit of ten is never refused.
async fn a_second_of<S>(service: &mut S, jobs: &[Job])
where
    S: Service<Job, Response = &'static str, Error = Failure>,
{
    for number in 0..100 {
        for job in jobs {
            // Half of the limit is used, or the limit learns nothing.
            let call = service.ready().await.unwrap().call(*job);
            let _ = call.await;
        }
        if number % 10 == 0 {
            tokio::time::advance(Duration::from_millis(101)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_limit_learns_from_answers_as_the_closure_classifies_them() {
    for (jobs, falls) in [
        (&[Job::Serve][..], false),
        (&[Job::Serve, Job::Mistaken], false),
        (&[Job::Serve, Job::Drop], true),
    ] {
        let concurrency = of(10);
        // Six of ten are taken by others, so that the limit is in use.
        let _others: Vec<_> = (0..6).map(|_| concurrency.try_enter().unwrap()).collect();
        let layer = ConcurrencyLayer::new(&concurrency, refuse).classify(classify);
        let mut service = layer.layer(service_fn(work));
        for _ in 0..5 {
            a_second_of(&mut service, jobs).await;
        }
        assert_eq!(concurrency.limit() < 10, falls, "{jobs:?}: {concurrency:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_tells_of_an_overload_unless_a_closure_says_otherwise() {
    let concurrency = of(10);
    let _others: Vec<_> = (0..6).map(|_| concurrency.try_enter().unwrap()).collect();
    let mut service = ConcurrencyLayer::new(&concurrency, refuse).layer(service_fn(work));
    for _ in 0..3 {
        a_second_of(&mut service, &[Job::Mistaken]).await;
    }
    assert!(concurrency.limit() < 10, "{concurrency:?}");
}

#[tokio::test]
async fn the_traffic_counts_what_is_under_way_and_what_fails() {
    let traffic = Traffic::new();
    let mut in_flight = traffic.in_flight(NonZeroU32::new(10).unwrap());
    let mut failures = traffic.failures();
    let layer = CountTrafficLayer::new(&traffic)
        .except(|job| *job == Job::Hang)
        .classify(classify);
    let service = layer.layer(service_fn(work));
    let call = |job| service.clone().oneshot(job);

    // It is left out.
    let mut hanging = Box::pin(call(Job::Hang));
    assert!(poll(hanging.as_mut()).is_pending());
    assert_eq!(in_flight.read(Duration::ZERO), Some(Load::NONE));

    for number in 0..80 {
        let job = if number % 4 == 0 {
            Job::Drop
        } else {
            Job::Serve
        };
        let _ = call(job).await;
        // The closure counts it as nothing.
        let _ = call(Job::Mistaken).await;
    }
    assert_eq!(in_flight.read(Duration::ZERO), Some(Load::percent(10)));
    assert_eq!(failures.read(Duration::ZERO), Some(Load::percent(25)));
    assert_eq!(in_flight.read(Duration::ZERO), Some(Load::NONE));
}
