//! Rate limit headers of the inner service, in every dialect.

use tower::Layer;
use tower_ratelimit::FixedWindow;
use tower_ratelimit::response::Dialect::{Draft03, Draft06, Draft07, Draft11, GitHub};
use tower_ratelimit::response::EXPOSED_HEADERS;

use crate::exchange::{ask, get, global};
use crate::states::{Bare, Inner, Limited, State, TWITTER, X_DELTA, rows, told};

#[test]
fn redirects_get_no_headers_and_304_does() {
    for (status, tells) in [
        (101, false),
        (301, false),
        (308, false),
        (304, true),
        (404, true),
    ] {
        for dialects in [
            &[Draft11][..],
            &[Draft07],
            &[Draft06],
            &[Draft03],
            &[X_DELTA],
            &[GitHub, Draft11],
            &[TWITTER],
        ] {
            let answer = Inner(status, &[]).answer(dialects);
            let lines = told(&answer).len();
            assert_eq!(lines > 1, tells, "{status} in {dialects:?}");
            assert!(tells || lines == 1);
        }
    }
}

#[test]
fn lists_get_a_second_line() {
    rows! {
        "ours behind theirs", Inner(200, &[
            ("ratelimit", r#""inner";r=1;t=1"#),
            ("ratelimit-policy", r#""inner";q=1;w=1"#),
        ]), [Draft11] => r#"200
            ratelimit-policy: "inner";q=1;w=1
            ratelimit-policy: "default";q=100;w=60
            ratelimit: "inner";r=1;t=1
            ratelimit: "default";r=99;t=50"#;
        "beside another dialect", Inner(200, &[("ratelimit", r#""inner";r=1;t=1"#)]),
            [X_DELTA, Draft11] => r#"200
            ratelimit-policy: "default";q=100;w=60
            ratelimit: "inner";r=1;t=1
            ratelimit: "default";r=99;t=50
            x-ratelimit-limit: 100
            x-ratelimit-remaining: 99
            x-ratelimit-reset: 50"#;
        "not behind an older draft's, with which they would be no list", Inner(200, &[
            ("ratelimit", "limit=10, remaining=3, reset=7"),
            ("ratelimit", "acme=1"),
            ("ratelimit-policy", "10;w=60"),
        ]), [Draft11] => "200
            ratelimit-policy: 10;w=60
            ratelimit: limit=10, remaining=3, reset=7
            ratelimit: acme=1";
        "nor beside it, of which it would be taken for the policies", Inner(200, &[
            ("ratelimit", "limit=10, remaining=3, reset=7"),
        ]), [Draft11] => "200
            ratelimit: limit=10, remaining=3, reset=7";
        "the first of a response", Bare, [Draft11] => r#"200
            ratelimit-policy: "default";q=100;w=60
            ratelimit: "default";r=99;t=50"#;
        "the first of a response", Bare, [Draft06] => "200
            ratelimit-limit: 100
            ratelimit-remaining: 99
            ratelimit-reset: 50
            ratelimit-policy: 100;w=60";
    }
}

#[test]
fn of_two_sets_of_x_headers_the_lower_stays_as_a_whole() {
    const OURS_X: &str = "200
        x-ratelimit-limit: 100
        x-ratelimit-remaining: 99
        x-ratelimit-reset: 50";
    rows! {
        "X, theirs is lower", Inner(200, &[
            ("x-ratelimit-limit", "5"),
            ("x-ratelimit-remaining", "3"),
            ("x-ratelimit-reset", "7"),
        ]), [X_DELTA] => "200
            x-ratelimit-limit: 5
            x-ratelimit-remaining: 3
            x-ratelimit-reset: 7";
        "X, theirs is the number alone", Inner(200, &[("x-ratelimit-remaining", "3")]),
            [X_DELTA] => "200
            x-ratelimit-remaining: 3";
        "X, both are as low", Inner(200, &[("x-ratelimit-remaining", "99")]), [X_DELTA] => "200
            x-ratelimit-remaining: 99";
        "X, theirs is higher", Inner(200, &[
            ("x-ratelimit-limit", "500"),
            ("x-ratelimit-remaining", "100"),
            ("x-ratelimit-reset", "7"),
        ]), [X_DELTA] => OURS_X;
        "X, theirs is higher and GitHub's", Inner(200, &[
            ("x-ratelimit-remaining", "4999"),
            ("x-ratelimit-used", "1"),
            ("x-ratelimit-resource", "core"),
        ]), [X_DELTA] => OURS_X;
        "X, theirs is higher, twice", Inner(200, &[
            ("x-ratelimit-remaining", "100"),
            ("x-ratelimit-remaining", "200"),
        ]), [X_DELTA] => OURS_X;
        "X, theirs is higher and lower", Inner(200, &[
            ("x-ratelimit-remaining", "100"),
            ("x-ratelimit-remaining", "1"),
        ]), [X_DELTA] => "200
            x-ratelimit-remaining: 100
            x-ratelimit-remaining: 1";
        "X, theirs is no number", Inner(200, &[("x-ratelimit-remaining", "lots")]),
            [X_DELTA] => "200
            x-ratelimit-remaining: lots";
        "X, theirs has no number", Inner(200, &[("x-ratelimit-limit", "500")]), [X_DELTA] => "200
            x-ratelimit-limit: 500";
        "X, theirs have dashes", Inner(200, &[("x-rate-limit-remaining", "3")]), [X_DELTA] => "200
            x-ratelimit-limit: 100
            x-ratelimit-remaining: 99
            x-ratelimit-reset: 50
            x-rate-limit-remaining: 3";
        "GitHub, theirs is lower", Inner(200, &[("x-ratelimit-remaining", "3")]), [GitHub] => "200
            x-ratelimit-remaining: 3";
        "GitHub, theirs is higher", Inner(200, &[
            ("x-ratelimit-remaining", "300"),
            ("x-ratelimit-resource", "core"),
        ]), [GitHub] => "200
            x-ratelimit-limit: 100
            x-ratelimit-remaining: 99
            x-ratelimit-reset: 1800000050
            x-ratelimit-used: 1
            x-ratelimit-resource: default";
        "Twitter, theirs is lower", Inner(200, &[
            ("x-rate-limit-remaining", "3"),
            ("x-rate-limit-reset", "1800000007"),
        ]), [TWITTER] => "200
            x-rate-limit-remaining: 3
            x-rate-limit-reset: 1800000007";
        "Twitter, theirs is higher", Inner(200, &[("x-rate-limit-remaining", "300")]),
            [TWITTER] => "200
            x-rate-limit-limit: 100
            x-rate-limit-remaining: 99
            x-rate-limit-reset: 1800000050";
    }
}

#[test]
fn of_two_sets_of_an_older_draft_the_lower_stays_as_a_whole() {
    rows! {
        "draft 07, theirs is lower", Inner(200, &[
            ("ratelimit", "limit=5, remaining=3, reset=7"),
            ("ratelimit-policy", "5;w=10"),
        ]), [Draft07] => "200
            ratelimit-policy: 5;w=10
            ratelimit: limit=5, remaining=3, reset=7";
        "draft 07, theirs is higher", Inner(200, &[
            ("ratelimit", "limit=500,remaining=300,reset=7"),
            ("ratelimit-policy", "500;w=10"),
        ]), [Draft07] => "200
            ratelimit-policy: 100;w=60
            ratelimit: limit=100, remaining=99, reset=50";
        "draft 07, theirs is draft 11", Inner(200, &[
            ("ratelimit", r#""inner";r=300;t=1"#),
        ]), [Draft07] => r#"200
            ratelimit: "inner";r=300;t=1"#;
        "draft 06, theirs is lower", Inner(200, &[
            ("ratelimit-limit", "5"),
            ("ratelimit-remaining", "3"),
            ("ratelimit-reset", "7"),
        ]), [Draft06] => "200
            ratelimit-limit: 5
            ratelimit-remaining: 3
            ratelimit-reset: 7";
        "draft 06, theirs is higher", Inner(200, &[
            ("ratelimit-limit", "500"),
            ("ratelimit-remaining", "300"),
            ("ratelimit-policy", "500;w=10"),
        ]), [Draft06] => "200
            ratelimit-limit: 100
            ratelimit-remaining: 99
            ratelimit-reset: 50
            ratelimit-policy: 100;w=60";
        "draft 03, theirs is lower", Inner(200, &[("ratelimit-remaining", "3")]),
            [Draft03] => "200
            ratelimit-remaining: 3";
        "draft 03, theirs is higher", Inner(200, &[
            ("ratelimit-limit", "500, 500;w=10"),
            ("ratelimit-remaining", "300"),
        ]), [Draft03] => "200
            ratelimit-limit: 100, 100;w=60
            ratelimit-remaining: 99
            ratelimit-reset: 50";
        "each set for itself", Inner(200, &[
            ("x-ratelimit-remaining", "3"),
            ("ratelimit-remaining", "300"),
        ]), [X_DELTA, Draft03] => "200
            ratelimit-limit: 100, 100;w=60
            ratelimit-remaining: 99
            ratelimit-reset: 50
            x-ratelimit-remaining: 3";
    }
}

#[test]
fn a_retry_after_of_the_inner_service_is_not_touched() {
    const INNER: State = Inner(
        429,
        &[("retry-after", "120"), ("cache-control", "max-age=9")],
    );
    for dialect in [Draft11, Draft07, Draft06, Draft03, X_DELTA, GitHub, TWITTER] {
        let answer = INNER.answer(&[dialect]);
        assert_eq!(answer.status, 429);
        assert_eq!(answer.lines("retry-after"), ["120"], "{dialect:?}");
        assert_eq!(answer.lines("cache-control"), ["max-age=9"], "{dialect:?}");
        assert!(told(&answer).len() > 3, "{dialect:?}");
    }
}

/// With one layer inside the other, no header appears twice.
#[test]
fn the_lower_of_two_layers_is_announced_and_a_refusal_of_the_inner_one_stands_alone() {
    for (dialect, remaining) in [
        (Draft07, "ratelimit"),
        (Draft06, "ratelimit-remaining"),
        (Draft03, "ratelimit-remaining"),
        (X_DELTA, "x-ratelimit-remaining"),
        (GitHub, "x-ratelimit-remaining"),
        (TWITTER, "x-rate-limit-remaining"),
    ] {
        let scene = |name, limit| {
            let policy = global(name, FixedWindow::per_minute(limit));
            Limited::new(&[dialect], 0, [policy])
        };
        for (inner, outer) in [(2, 5), (5, 2)] {
            let (inner, outer) = (scene("inner", inner), scene("outer", outer));
            let both = outer.layer.layer(inner.hello());
            let answer = ask(&both, get());
            let line = answer.field(remaining).unwrap();
            let told = ["1", "limit=2, remaining=1, reset=60"].contains(&line);
            assert!(told, "{dialect:?}: {line}");
            for name in &EXPOSED_HEADERS {
                assert!(answer.lines(name.as_str()).len() <= 1, "{name}");
            }
            ask(&both, get());
            let answer = ask(&both, get());
            assert_eq!(answer.status, 429);
            let line = answer.field(remaining).unwrap();
            let told = ["0", "limit=2, remaining=0, reset=60"].contains(&line);
            assert!(told, "{dialect:?}: {line}");
        }
    }
}
