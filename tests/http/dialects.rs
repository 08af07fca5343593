//! The headers in every dialect, byte by byte.

use tower_ratelimit::response::Dialect::{
    self, Draft03, Draft06, Draft07, Draft11, GitHub, XRateLimitDashed,
};
use tower_ratelimit::response::Reset::DeltaSeconds;
use tower_ratelimit::{FixedWindow, RateLimitLayer};

use crate::exchange::global;
use crate::states::{
    AboveTheLimit, Closed, ClosedBeside, DayDenies, LargestLimit, LastUsed, NoPolicy, OneUsed,
    Refused, SameLimit, SameLimitLater, StoreFailed, TWITTER, TwoAllow, WaitBelowASecond, X_DELTA,
    X_EPOCH, X_MILLIS, rows,
};

/// The complete golden set of a refusal.
#[test]
fn a_refusal_in_every_dialect() {
    rows! {
        "drafts 08 to 11", Refused, [Draft11] => r#"429
            retry-after: 50
            cache-control: no-store
            ratelimit-policy: "default";q=100;w=60
            ratelimit: "default";r=0;t=50"#;
        "draft 07", Refused, [Draft07] => "429
            retry-after: 50
            cache-control: no-store
            ratelimit-policy: 100;w=60
            ratelimit: limit=100, remaining=0, reset=50";
        "drafts 04 to 06", Refused, [Draft06] => "429
            retry-after: 50
            cache-control: no-store
            ratelimit-limit: 100
            ratelimit-remaining: 0
            ratelimit-reset: 50
            ratelimit-policy: 100;w=60";
        "drafts 00 to 03", Refused, [Draft03] => "429
            retry-after: 50
            cache-control: no-store
            ratelimit-limit: 100, 100;w=60
            ratelimit-remaining: 0
            ratelimit-reset: 50";
        "X, delta", Refused, [X_DELTA] => "429
            retry-after: 50
            cache-control: no-store
            x-ratelimit-limit: 100
            x-ratelimit-remaining: 0
            x-ratelimit-reset: 50";
        "X, milliseconds", Refused, [X_MILLIS] => "429
            retry-after: 50
            cache-control: no-store
            x-ratelimit-limit: 100
            x-ratelimit-remaining: 0
            x-ratelimit-reset: 49200";
        "X, epoch", Refused, [X_EPOCH] => "429
            retry-after: 50
            cache-control: no-store
            x-ratelimit-limit: 100
            x-ratelimit-remaining: 0
            x-ratelimit-reset: 1800000050";
        "X, GitHub", Refused, [GitHub] => "429
            retry-after: 50
            cache-control: no-store
            x-ratelimit-limit: 100
            x-ratelimit-remaining: 0
            x-ratelimit-reset: 1800000050
            x-ratelimit-used: 100
            x-ratelimit-resource: default";
        "X, Twitter", Refused, [TWITTER] => "429
            retry-after: 50
            cache-control: no-store
            x-rate-limit-limit: 100
            x-rate-limit-remaining: 0
            x-rate-limit-reset: 1800000050";
        "X with dashes, delta", Refused, [XRateLimitDashed(DeltaSeconds)] => "429
            retry-after: 50
            cache-control: no-store
            x-rate-limit-limit: 100
            x-rate-limit-remaining: 0
            x-rate-limit-reset: 50";
        "none", Refused, [] => "429
            retry-after: 50
            cache-control: no-store";
        "dialects that share no field", Refused, [TWITTER, Draft11, X_DELTA, Draft03] => r#"429
            retry-after: 50
            cache-control: no-store
            ratelimit-policy: "default";q=100;w=60
            ratelimit: "default";r=0;t=50
            ratelimit-limit: 100, 100;w=60
            ratelimit-remaining: 0
            ratelimit-reset: 50
            x-ratelimit-limit: 100
            x-ratelimit-remaining: 0
            x-ratelimit-reset: 50
            x-rate-limit-limit: 100
            x-rate-limit-remaining: 0
            x-rate-limit-reset: 1800000050"#;
    }
}

#[test]
fn the_remaining_units_in_every_dialect() {
    rows! {
        "draft 11", OneUsed, [Draft11] => r#"200
            ratelimit-policy: "default";q=100;w=60
            ratelimit: "default";r=99;t=50"#;
        "draft 07", OneUsed, [Draft07] => "200
            ratelimit-policy: 100;w=60
            ratelimit: limit=100, remaining=99, reset=50";
        "draft 06", OneUsed, [Draft06] => "200
            ratelimit-limit: 100
            ratelimit-remaining: 99
            ratelimit-reset: 50
            ratelimit-policy: 100;w=60";
        "draft 03", OneUsed, [Draft03] => "200
            ratelimit-limit: 100, 100;w=60
            ratelimit-remaining: 99
            ratelimit-reset: 50";
        "X", OneUsed, [X_MILLIS] => "200
            x-ratelimit-limit: 100
            x-ratelimit-remaining: 99
            x-ratelimit-reset: 49200";
        "GitHub", OneUsed, [GitHub] => "200
            x-ratelimit-limit: 100
            x-ratelimit-remaining: 99
            x-ratelimit-reset: 1800000050
            x-ratelimit-used: 1
            x-ratelimit-resource: default";
        "Twitter", OneUsed, [TWITTER] => "200
            x-rate-limit-limit: 100
            x-rate-limit-remaining: 99
            x-rate-limit-reset: 1800000050";
        "draft 11", LastUsed, [Draft11] => r#"200
            ratelimit-policy: "default";q=100;w=60
            ratelimit: "default";r=0;t=50"#;
        "draft 07", LastUsed, [Draft07] => "200
            ratelimit-policy: 100;w=60
            ratelimit: limit=100, remaining=0, reset=50";
        "GitHub", LastUsed, [GitHub] => "200
            x-ratelimit-limit: 100
            x-ratelimit-remaining: 0
            x-ratelimit-reset: 1800000050
            x-ratelimit-used: 100
            x-ratelimit-resource: default";
        // Of 32 bits: no limit has more digits than an integer of a structured field.
        "draft 11", LargestLimit, [Draft11] => r#"200
            ratelimit-policy: "huge";q=4294967295;w=60
            ratelimit: "huge";r=4294967295;t=60"#;
        "draft 07", LargestLimit, [Draft07] => "200
            ratelimit-policy: 4294967295;w=60
            ratelimit: limit=4294967295, remaining=4294967295, reset=60";
        "draft 11 and X", NoPolicy, [Draft11, X_DELTA] => "200";
        "draft 06 and GitHub", NoPolicy, [Draft06, GitHub] => "200";
        "draft 11 and X", StoreFailed, [Draft11, X_DELTA] => "503
            retry-after: 5
            cache-control: no-store";
        "draft 07 and GitHub", StoreFailed, [Draft07, GitHub] => "503
            retry-after: 5
            cache-control: no-store";
    }
}

#[test]
fn no_reset_is_rounded_down() {
    rows! {
        "draft 11", WaitBelowASecond, [Draft11] => r#"429
            retry-after: 1
            cache-control: no-store
            ratelimit-policy: "burst";q=10;w=1
            ratelimit: "burst";r=0;t=1"#;
        "draft 07", WaitBelowASecond, [Draft07] => "429
            retry-after: 1
            cache-control: no-store
            ratelimit-policy: 10;w=1
            ratelimit: limit=10, remaining=0, reset=1";
        "X, delta", WaitBelowASecond, [X_DELTA] => "429
            retry-after: 1
            cache-control: no-store
            x-ratelimit-limit: 10
            x-ratelimit-remaining: 0
            x-ratelimit-reset: 1";
        "X, milliseconds", WaitBelowASecond, [X_MILLIS] => "429
            retry-after: 1
            cache-control: no-store
            x-ratelimit-limit: 10
            x-ratelimit-remaining: 0
            x-ratelimit-reset: 40";
        "X, epoch", WaitBelowASecond, [X_EPOCH] => "429
            retry-after: 1
            cache-control: no-store
            x-ratelimit-limit: 10
            x-ratelimit-remaining: 0
            x-ratelimit-reset: 1800000001";
    }
}

#[test]
fn of_several_policies_a_dialect_shows_the_binding_one() {
    rows! {
        "draft 11", TwoAllow, [Draft11] => r#"200
            ratelimit-policy: "burst";q=10;w=1, "daily";q=5000;w=86400
            ratelimit: "burst";r=7;t=1, "daily";r=100;t=36000"#;
        "draft 07", TwoAllow, [Draft07] => "200
            ratelimit-policy: 10;w=1, 5000;w=86400
            ratelimit: limit=10, remaining=7, reset=1";
        "draft 06", TwoAllow, [Draft06] => "200
            ratelimit-limit: 10
            ratelimit-remaining: 7
            ratelimit-reset: 1
            ratelimit-policy: 10;w=1, 5000;w=86400";
        "draft 03", TwoAllow, [Draft03] => "200
            ratelimit-limit: 10, 10;w=1, 5000;w=86400
            ratelimit-remaining: 7
            ratelimit-reset: 1";
        "X", TwoAllow, [X_MILLIS] => "200
            x-ratelimit-limit: 10
            x-ratelimit-remaining: 7
            x-ratelimit-reset: 700";
        "GitHub", TwoAllow, [GitHub] => "200
            x-ratelimit-limit: 10
            x-ratelimit-remaining: 7
            x-ratelimit-reset: 1800021601
            x-ratelimit-used: 3
            x-ratelimit-resource: burst";
        "draft 11", DayDenies, [Draft11] => r#"429
            retry-after: 36000
            cache-control: no-store
            ratelimit-policy: "hour";q=1000;w=3600, "day";q=5000;w=86400
            ratelimit: "day";r=0;t=36000"#;
        "draft 07", DayDenies, [Draft07] => "429
            retry-after: 36000
            cache-control: no-store
            ratelimit-policy: 1000;w=3600, 5000;w=86400
            ratelimit: limit=5000, remaining=0, reset=36000";
        "draft 06", DayDenies, [Draft06] => "429
            retry-after: 36000
            cache-control: no-store
            ratelimit-limit: 5000
            ratelimit-remaining: 0
            ratelimit-reset: 36000
            ratelimit-policy: 1000;w=3600, 5000;w=86400";
        "draft 03", DayDenies, [Draft03] => "429
            retry-after: 36000
            cache-control: no-store
            ratelimit-limit: 5000, 1000;w=3600, 5000;w=86400
            ratelimit-remaining: 0
            ratelimit-reset: 36000";
        "GitHub", DayDenies, [GitHub] => "429
            retry-after: 36000
            cache-control: no-store
            x-ratelimit-limit: 5000
            x-ratelimit-remaining: 0
            x-ratelimit-reset: 1800057600
            x-ratelimit-used: 5000
            x-ratelimit-resource: day";
        "Twitter", DayDenies, [TWITTER] => "429
            retry-after: 36000
            cache-control: no-store
            x-rate-limit-limit: 5000
            x-rate-limit-remaining: 0
            x-rate-limit-reset: 1800057600";
    }
}

#[test]
fn no_time_is_sent_where_no_wait_helps() {
    rows! {
        "draft 11", AboveTheLimit, [Draft11] => r#"429
            cache-control: no-store
            ratelimit-policy: "api";q=10;w=10
            ratelimit: "api";r=10"#;
        "draft 07, which requires a reset", AboveTheLimit, [Draft07] => "429
            cache-control: no-store
            ratelimit-policy: 10;w=10";
        "draft 06, which requires a reset", AboveTheLimit, [Draft06] => "429
            cache-control: no-store
            ratelimit-policy: 10;w=10";
        "draft 03, which requires a reset", AboveTheLimit, [Draft03] => "429
            cache-control: no-store";
        "X", AboveTheLimit, [X_EPOCH] => "429
            cache-control: no-store
            x-ratelimit-limit: 10
            x-ratelimit-remaining: 10";
        "GitHub", AboveTheLimit, [GitHub] => "429
            cache-control: no-store
            x-ratelimit-limit: 10
            x-ratelimit-remaining: 10
            x-ratelimit-used: 0
            x-ratelimit-resource: api";
        "Twitter", AboveTheLimit, [TWITTER] => "429
            cache-control: no-store
            x-rate-limit-limit: 10
            x-rate-limit-remaining: 10";
        "draft 11", Closed, [Draft11] => r#"429
            cache-control: no-store
            ratelimit-policy: "closed";q=0
            ratelimit: "closed";r=0"#;
        "draft 07, which requires a window", Closed, [Draft07] => "429
            cache-control: no-store";
        "draft 06, which requires a window", Closed, [Draft06, X_DELTA] => "429
            cache-control: no-store
            x-ratelimit-limit: 0
            x-ratelimit-remaining: 0";
        "draft 11", ClosedBeside, [Draft11] => r#"429
            cache-control: no-store
            ratelimit-policy: "open";q=1;w=60, "closed";q=0
            ratelimit: "open";r=0, "closed";r=0"#;
        "draft 07", ClosedBeside, [Draft07] => "429
            cache-control: no-store
            ratelimit-policy: 1;w=60";
        "GitHub", ClosedBeside, [GitHub] => "429
            cache-control: no-store
            x-ratelimit-limit: 0
            x-ratelimit-remaining: 0
            x-ratelimit-used: 0
            x-ratelimit-resource: closed";
    }
}

#[test]
fn no_two_policies_of_one_quota_are_listed_where_the_quota_is_the_identifier() {
    rows! {
        "draft 11", SameLimit, [Draft11] => r#"200
            ratelimit-policy: "second";q=10;w=1, "minute";q=10;w=60, "hour";q=20;w=3600
            ratelimit: "second";r=9;t=1, "minute";r=9;t=60, "hour";r=19;t=3600"#;
        "draft 07, the first binds", SameLimit, [Draft07] => "200
            ratelimit-policy: 10;w=1, 20;w=3600
            ratelimit: limit=10, remaining=9, reset=1";
        "draft 07, the second binds", SameLimitLater, [Draft07] => "200
            ratelimit-policy: 10;w=60, 20;w=3600
            ratelimit: limit=10, remaining=8, reset=59";
        "draft 06, the second binds", SameLimitLater, [Draft06] => "200
            ratelimit-limit: 10
            ratelimit-remaining: 8
            ratelimit-reset: 59
            ratelimit-policy: 10;w=60, 20;w=3600";
        "draft 03, the second binds", SameLimitLater, [Draft03] => "200
            ratelimit-limit: 10, 10;w=60, 20;w=3600
            ratelimit-remaining: 8
            ratelimit-reset: 59";
    }
}

#[test]
fn dialects_that_share_a_field_are_refused_with_both_names_and_the_field() {
    let error_of = |dialects: &[Dialect]| {
        let policy = global("a", FixedWindow::per_day(1));
        let builder = RateLimitLayer::builder().policy(policy);
        builder.dialects(dialects.iter().copied()).build().err()
    };
    for (first, second, field) in [
        (Draft11, Draft07, "ratelimit-policy"),
        (Draft11, Draft06, "ratelimit-policy"),
        (Draft07, Draft06, "ratelimit-policy"),
        (Draft06, Draft03, "ratelimit-limit"),
        (X_DELTA, X_EPOCH, "x-ratelimit-limit"),
        (X_MILLIS, GitHub, "x-ratelimit-limit"),
        (TWITTER, TWITTER, "x-rate-limit-limit"),
    ] {
        let error = error_of(&[first, second]).unwrap();
        assert_eq!(error.field(), "dialects");
        assert_eq!(error.value(), format!("{first:?} beside {second:?}"));
        assert!(error.remedy().ends_with(&format!("`{field}`")), "{error}");
    }
    for beside in [
        &[Draft11, X_DELTA, TWITTER, Draft03][..],
        &[Draft07, Draft03, GitHub],
        &[Draft06, X_MILLIS],
        &[],
    ] {
        assert_eq!(error_of(beside), None, "{beside:?}");
    }
}
