//! The judge accuses no honest limiter, whatever the seed.

use std::time::Duration;

use tower_ratelimit_core::algorithm::State;
use tower_ratelimit_core::{Algorithm, Micros};

use crate::server::{Dialect, Lie, Server};
use crate::simulation::{POISSON, SLOW, STEADY, Traffic, judged, seeds};

const ALGORITHMS: [&str; 10] = [
    "fixed-window 10/2s",
    "anchored-window 10/2s",
    "sliding-log 10/2s",
    "sliding-window 10/2s",
    "sliding-slots 10/2s",
    "token-bucket 5/second burst 10",
    "token-bucket-interval 10/2s",
    "token-bucket-interval 4/second burst 10",
    "leaky-bucket 5/second capacity 3",
    "gcra 7/second burst 10",
];

fn is_acquitted(stated: Option<&str>, traffic: Traffic, server: impl Fn(u64) -> Server) {
    let policy = stated.map(|text| text.parse().unwrap());
    for seed in 0..seeds() {
        let judgement = judged(server(seed), policy, traffic, seed);
        assert!(
            !judgement.is_disproved(),
            "accused: seed {seed}, {stated:?}, {traffic:?}, {:?}: {judgement}",
            server(seed),
        );
    }
}

fn each(check: impl Fn(&'static str, Traffic, Option<&str>)) {
    for algorithm in ALGORITHMS {
        for traffic in [STEADY, POISSON, SLOW] {
            for stated in [None, Some(algorithm)] {
                check(algorithm, traffic, stated);
            }
        }
    }
}

#[test]
fn every_algorithm_in_every_dialect() {
    for dialect in [
        Dialect::Nothing,
        Dialect::RetryAfter,
        Dialect::Draft11,
        Dialect::Draft06,
        Dialect::XRateLimit,
    ] {
        each(|algorithm, traffic, stated| {
            is_acquitted(stated, traffic, |_| Server {
                dialect,
                ..Server::honest(algorithm)
            });
        });
    }
}

#[test]
fn clients_with_a_key_each() {
    each(|algorithm, traffic, stated| {
        is_acquitted(stated, traffic.of(3), |_| Server::honest(algorithm));
    });
}

/// The tester expects a limit for each client, and the clients share one.
#[test]
fn clients_that_are_counted_by_their_address() {
    each(|algorithm, traffic, stated| {
        is_acquitted(stated, traffic.of(3), |_| Server {
            counts_by_address: true,
            ..Server::honest(algorithm)
        });
    });
}

#[test]
fn a_second_limit_for_all_clients_together() {
    each(|algorithm, traffic, stated| {
        for dialect in [Dialect::Draft11, Dialect::XRateLimit, Dialect::RetryAfter] {
            let stated = stated.filter(|_| dialect == Dialect::Draft11);
            is_acquitted(stated, traffic, |_| Server {
                global: Some("gcra 4/second burst 12".parse().unwrap()),
                dialect,
                ..Server::honest(algorithm)
            });
            is_acquitted(stated, traffic.of(3), |_| Server {
                global: Some("gcra 8/second burst 12".parse().unwrap()),
                dialect,
                ..Server::honest(algorithm)
            });
        }
    });
}

#[test]
fn a_limit_that_was_in_use_before_the_run() {
    each(|algorithm, traffic, stated| {
        is_acquitted(stated, traffic, |seed| {
            let mut server = Server::honest(algorithm);
            let mut random = fastrand::Rng::with_seed(seed);
            let begin = Duration::from_secs(1_700_000_000)
                + Duration::from_micros(random.u64(..86_400_000_000));
            let mut state = State::NEW;
            for _ in 0..30 {
                let before = Duration::from_millis(random.u64(..300));
                let now = Micros::from(begin.saturating_sub(before));
                state = server.algorithm.step(state, now, 1).1;
            }
            server.states.insert(Some(0), state);
            server
        });
    });
}

/// A server that gives the charge back when a request fails.
#[test]
fn requests_that_fail() {
    each(|algorithm, traffic, stated| {
        is_acquitted(stated, traffic, |_| Server {
            fails: Some(7),
            ..Server::honest(algorithm)
        });
    });
}

#[test]
fn a_handler_that_is_slow_and_refusals_that_are_not() {
    is_acquitted(None, SLOW, |_| {
        Server::lying(
            "anchored-window 10/2s",
            Lie::SlowRefusals(Duration::from_micros(900)),
        )
    });
}

#[test]
fn no_limit_at_all() {
    let unlimited: Algorithm = "unlimited".parse().unwrap();
    assert_eq!(unlimited.limit(), None);
    is_acquitted(Some("anchored-window 500/2s"), STEADY, |_| {
        Server::honest("anchored-window 500/2s")
    });
}
