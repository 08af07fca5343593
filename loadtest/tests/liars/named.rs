//! The judge names each broken limiter, whatever the seed.

use std::time::Duration;

use ratelimit_loadtest::judge::Check;

use crate::server::{Dialect, Lie, Server};
use crate::simulation::{POISSON, STEADY, Traffic, judged, seeds};

const POLICY: &str = "anchored-window 10/2s";

fn is_named(check: Check, stated: Option<&str>, traffic: Traffic, server: impl Fn() -> Server) {
    let policy = stated.map(|text| text.parse().unwrap());
    for seed in 0..seeds() {
        let judgement = judged(server(), policy, traffic, seed);
        assert!(
            judgement.broken().contains(&check),
            "{check} is not named: seed {seed}, {stated:?}, {traffic:?}, {:?}: {judgement}",
            server(),
        );
    }
}

/// With the stated policy and without, at even gaps and at random gaps.
fn is_named_always(check: Check, algorithm: &str, lie: Lie) {
    for traffic in [STEADY, POISSON] {
        for stated in [None, Some(algorithm)] {
            is_named(check, stated, traffic, || Server::lying(algorithm, lie));
        }
    }
}

/// Only the stated policy can reveal these.
fn is_named_under_its_policy(check: Check, algorithm: &str, lie: Lie) {
    for traffic in [STEADY, POISSON] {
        is_named(check, Some(algorithm), traffic, || {
            Server::lying(algorithm, lie)
        });
    }
}

#[test]
fn a_wait_that_is_too_short() {
    let check = Check::RetryAfterEnough;
    is_named_always(check, POLICY, Lie::Wait(1));
    is_named_always(check, POLICY, Lie::Wait(0));
    is_named_always(check, "fixed-window 10/2s", Lie::Wait(1));
    is_named_always(check, "sliding-log 10/2s", Lie::Wait(1));
    is_named_always(check, "gcra 5/second burst 10", Lie::Wait(0));
}

#[test]
fn a_wait_that_is_too_long() {
    let check = Check::RetryAfterLeast;
    is_named_always(check, POLICY, Lie::Wait(4));
    is_named_always(check, "gcra 5/second burst 10", Lie::Wait(10));
    is_named_always(check, "sliding-window 10/2s", Lie::Wait(3_600));
}

#[test]
fn remaining_that_never_falls_or_rises() {
    for algorithm in [POLICY, "fixed-window 10/2s", "gcra 5/second burst 10"] {
        is_named_always(Check::Remaining, algorithm, Lie::ConstantRemaining);
        is_named_always(Check::Remaining, algorithm, Lie::RisingRemaining);
        is_named_always(Check::Remaining, algorithm, Lie::MoreRemaining(1));
    }
}

#[test]
fn more_admissions_at_the_edges_of_windows() {
    for algorithm in [
        POLICY,
        "fixed-window 10/2s",
        "sliding-log 10/2s",
        "gcra 5/second burst 10",
    ] {
        let open = Lie::OpenEdges(Duration::from_millis(400));
        is_named_under_its_policy(Check::Bound, algorithm, open);
    }
}

#[test]
fn a_limit_that_is_higher_than_stated() {
    for (stated, real) in [
        (POLICY, "anchored-window 12/2s"),
        (POLICY, "anchored-window 10/1500ms"),
        ("fixed-window 10/2s", "fixed-window 12/2s"),
        ("sliding-log 10/2s", "sliding-log 12/2s"),
        ("sliding-slots 10/2s", "sliding-slots 12/2s"),
        ("sliding-window 10/2s", "sliding-window 13/2s"),
        ("gcra 5/second burst 10", "gcra 6/second burst 10"),
        (
            "token-bucket 5/second burst 10",
            "token-bucket 5/second burst 15",
        ),
        ("token-bucket-interval 10/2s", "token-bucket-interval 12/2s"),
    ] {
        let lie = Lie::Limit(real.parse().unwrap());
        is_named_under_its_policy(Check::Bound, stated, lie);
    }
}

#[test]
fn a_limit_that_is_lower_than_stated() {
    for (stated, real) in [
        (POLICY, "anchored-window 8/2s"),
        (POLICY, "anchored-window 10/3s"),
        ("fixed-window 10/2s", "fixed-window 8/2s"),
        ("sliding-log 10/2s", "sliding-log 8/2s"),
        ("sliding-slots 10/2s", "sliding-slots 8/2s"),
        ("sliding-window 10/2s", "sliding-window 6/2s"),
        ("gcra 5/second burst 10", "gcra 3/second burst 10"),
        (
            "leaky-bucket 5/second capacity 10",
            "leaky-bucket 3/second capacity 10",
        ),
        ("token-bucket-interval 10/2s", "token-bucket-interval 8/2s"),
    ] {
        let lie = Lie::Limit(real.parse().unwrap());
        is_named_under_its_policy(Check::Strictness, stated, lie);
    }
}

#[test]
fn clients_with_other_limits() {
    for clients in [2, 4] {
        for other in ["anchored-window 3/2s", "anchored-window 100/2s"] {
            let lie = Lie::SomeClients(other.parse().unwrap());
            let traffic = STEADY.of(clients);
            let policy = "anchored-window 5/2s";
            is_named(Check::Fairness, Some(policy), traffic, || {
                Server::lying(policy, lie)
            });
        }
    }
}

#[test]
fn a_policy_in_the_headers_that_is_another_one() {
    for told in ["q=100;w=2", "q=10;w=60", "q=9;w=2"] {
        is_named_under_its_policy(Check::Headers, POLICY, Lie::Policy(told));
    }
    // More requests remain than the limit.
    is_named_always(Check::Headers, POLICY, Lie::Policy("q=5;w=2"));
}

#[test]
fn headers_that_cannot_be_read() {
    is_named_always(Check::Headers, POLICY, Lie::Policy("q=ten;w=2"));
}

#[test]
fn refusals_that_are_slow() {
    let slow = Lie::SlowRefusals(Duration::from_millis(5));
    is_named_always(Check::RefusalLatency, POLICY, slow);
}

#[test]
fn refusals_that_charge() {
    for algorithm in [
        "gcra 5/second burst 10",
        "sliding-log 10/2s",
        "token-bucket 2/second burst 4",
    ] {
        is_named_under_its_policy(Check::RefusalsCharge, algorithm, Lie::RefusalsCharge);
        // Without the policy, the announced wait reveals it.
        for traffic in [STEADY, POISSON] {
            is_named(Check::RetryAfterEnough, None, traffic, || {
                Server::lying(algorithm, Lie::RefusalsCharge)
            });
        }
    }
}

#[test]
fn a_liar_is_named_in_every_dialect() {
    for dialect in [Dialect::Draft11, Dialect::Draft06, Dialect::XRateLimit] {
        is_named(Check::Remaining, None, STEADY, || Server {
            dialect,
            ..Server::lying(POLICY, Lie::ConstantRemaining)
        });
    }
    is_named(Check::RetryAfterEnough, None, STEADY, || Server {
        dialect: Dialect::RetryAfter,
        ..Server::lying(POLICY, Lie::Wait(1))
    });
    is_named(Check::Strictness, Some(POLICY), STEADY, || Server {
        dialect: Dialect::Nothing,
        ..Server::lying(POLICY, Lie::Limit("anchored-window 8/2s".parse().unwrap()))
    });
}
