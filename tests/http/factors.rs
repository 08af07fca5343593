//! The headers under a limit of which only a part is in force.

use std::time::Duration;

use http::Request;
use tower_ratelimit::factor::{Class, Factor, FactorCell};
use tower_ratelimit::response::Refusal;
use tower_ratelimit::{
    Algorithm, Decision, FixedWindow, Policy, Quota, SlidingSlots, SlidingWindow, TokenBucket, key,
};

use crate::exchange::{Hello, Received, ask, get, global, limited_hello};

fn reduced(thousandths: u32) -> FactorCell {
    let factor = FactorCell::new();
    factor.set(Factor::thousandths(thousandths), "memory 83 %");
    factor
}

fn at(path: &str) -> Request<()> {
    let mut request = get();
    *request.uri_mut() = path.parse().unwrap();
    request
}

/// Returns the refusal after this many requests that pass.
fn refused_after(service: &Hello, passes: u32) -> Received {
    for number in 0..passes {
        assert_eq!(ask(service, get()).status, 200, "request {number}");
    }
    let answer = ask(service, get());
    assert_eq!(answer.status, 429);
    answer
}

fn decision(answer: &Received) -> &Decision {
    match &answer.refusal {
        Some(Refusal::Denied(decision)) => decision,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_headers_tell_the_part_in_force() {
    let policy = global("api", FixedWindow::per_hour(100));
    let factor = reduced(500);
    let (_, service) = limited_hello([policy.factor(&factor)]);
    let answer = ask(&service, get());
    assert_eq!(
        answer.field("ratelimit-policy"),
        Some(r#""api";q=50;w=3600"#)
    );
    let left = answer.field("ratelimit").unwrap();
    assert!(left.starts_with(r#""api";r=49;t="#), "{left}");

    // The charges stay, and from now on a request costs one of a hundred.
    factor.set(Factor::ONE, "");
    let answer = ask(&service, get());
    assert_eq!(
        answer.field("ratelimit-policy"),
        Some(r#""api";q=100;w=3600"#)
    );
    let left = answer.field("ratelimit").unwrap();
    assert!(left.starts_with(r#""api";r=97;t="#), "{left}");
}

#[test]
fn a_refusal_says_that_the_capacity_is_reduced_only_while_it_is() {
    let policy = global("api", FixedWindow::per_hour(10)).factor(&reduced(500));
    let (_, service) = limited_hello([policy]);
    let answer = refused_after(&service, 5);
    assert!(
        answer.text().starts_with(
            r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":429,"#
        ),
        "{}",
        answer.text()
    );
    let why: Vec<_> = decision(&answer).reduced().collect();
    assert_eq!(why.len(), 1);
    assert_eq!((why[0].0, why[0].1.cause()), ("api", Some("memory 83 %")));
    assert!(why[0].1.since().elapsed().unwrap() < Duration::from_secs(60));

    let whole = global("api", FixedWindow::per_hour(10)).factor(&FactorCell::new());
    let (_, service) = limited_hello([whole]);
    let answer = refused_after(&service, 10);
    assert!(
        answer.text().contains("#quota-exceeded"),
        "{}",
        answer.text()
    );
    assert_eq!(decision(&answer).reduced().count(), 0);
}

/// Another policy denies, and the response says that the capacity of this one is whole.
#[test]
fn a_reduced_policy_that_does_not_deny_is_not_the_reason() {
    let (_, service) = limited_hello([
        global("api", FixedWindow::per_hour(100)).factor(&reduced(500)),
        global("burst", FixedWindow::per_hour(2)),
    ]);
    let answer = refused_after(&service, 2);
    assert!(
        answer.text().contains("#quota-exceeded"),
        "{}",
        answer.text()
    );
}

#[test]
fn a_class_that_matters_less_runs_out_first() {
    let classes = || {
        let policy = global("api", TokenBucket::per_hour(80)).factor(&reduced(500));
        let policy = policy.class(|head| match head.path() {
            "/checkout" => Class::CriticalPlus,
            "/hints" => Class::SheddablePlus,
            "/ads" => Class::Sheddable,
            _ => Class::Critical,
        });
        limited_hello([policy]).1
    };
    for (path, passes) in [("/checkout", 80), ("/", 40), ("/hints", 20), ("/ads", 10)] {
        let service = classes();
        let passed = (0..100)
            .filter(|_| ask(&service, at(path)).status == 200)
            .count();
        assert_eq!(passed, passes, "{path}");
    }
}

/// Ten seconds in which each class uses all of its limit, while the factor is at its floor.
#[test]
fn a_critical_class_keeps_all_of_its_limit_while_the_rest_is_cut() {
    let cell = reduced(100);
    let classes = || {
        let policy = global("api", TokenBucket::per_second(100)).factor(&cell);
        limited_hello([policy.class(|head| match head.path() {
            "/checkout" => Class::CriticalPlus,
            _ => Class::Sheddable,
        })])
    };
    let passed = |path| {
        let (clock, service) = classes();
        let passed = (0..1_000).filter(|_| {
            clock.advance(Duration::from_millis(10));
            ask(&service, at(path)).status == 200
        });
        passed.count()
    };
    assert!(passed("/checkout") >= 990);
    assert!(passed("/ads") <= 115);
}

#[test]
fn at_least_one_request_is_told_and_passes() {
    let policy = global("api", FixedWindow::per_hour(3)).factor(&reduced(1));
    let (_, service) = limited_hello([policy]);
    let answer = ask(&service, get());
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.field("ratelimit-policy"),
        Some(r#""api";q=1;w=3600"#)
    );
}

/// The response that leaves nothing says when the next request passes, whatever the factor does until then.
#[test]
fn the_time_to_the_next_request_is_true_when_nothing_is_left() {
    let minute = Quota::per_minute(60);
    let algorithms: [Algorithm; 5] = [
        FixedWindow::of(minute).into(),
        SlidingWindow::of(minute).into(),
        SlidingSlots::cut(minute, 10).unwrap().into(),
        TokenBucket::of(minute).into(),
        TokenBucket::of(minute).by_interval().into(),
    ];
    for algorithm in algorithms {
        let factor = reduced(300);
        let (clock, service) = limited_hello([global("api", algorithm).factor(&factor)]);
        let last = (0..18)
            .map(|_| ask(&service, get()))
            .fold(None, |_, answer| Some(answer))
            .unwrap();
        assert_eq!(last.status, 200, "{algorithm}");
        let told = last.field("ratelimit").unwrap();
        let wait = told
            .strip_prefix(r#""api";r=0;t="#)
            .unwrap_or_else(|| panic!("{algorithm}: {told}"));
        factor.set(Factor::thousandths(100), "worse");
        clock.advance(Duration::from_secs(wait.parse().unwrap()));
        assert_eq!(ask(&service, get()).status, 200, "{algorithm}: {told}");
    }
}

/// The figures of crates/adapt/docs/adaptive.md. Requests of all classes compete for a key that they share.
#[test]
fn classes_protect_a_key_of_its_own_and_not_one_that_all_share() {
    let passed = |is_shared: bool| {
        let policy = Policy::new("api", TokenBucket::per_second(100)).factor(&reduced(300));
        let policy = policy.key(key::from_fn(move |head| {
            Some(if is_shared { "all" } else { head.path() }.to_owned())
        }));
        let (clock, service) = limited_hello([policy.class(|head| match head.path() {
            "/batch" => Class::Sheddable,
            _ => Class::Critical,
        })]);
        let mut critical = 0;
        for _ in 0..1_000 {
            critical += u32::from(ask(&service, at("/pay")).status == 200);
            clock.advance(Duration::from_millis(10));
            ask(&service, at("/batch"));
            clock.advance(Duration::from_millis(10));
        }
        critical
    };
    assert_eq!((passed(false), passed(true)), (629, 10));
}
