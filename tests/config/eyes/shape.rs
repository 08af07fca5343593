//! The JSON of a snapshot, which programs outside read.

use serde_json::{Value, json};
use tower_ratelimit::factor::FactorCell;
use tower_ratelimit::{FixedWindow, Limiter, ManualClock, MemoryStore, Policy};

#[test]
fn a_snapshot_has_the_names_that_the_documentation_tells() {
    let limiter = Limiter::builder()
        .policy(Policy::new("mails", FixedWindow::per_minute(10)).factor(&FactorCell::new()))
        .build_local()
        .unwrap();
    let _ = limiter.check("ann", 9).now();
    let _ = limiter.check("ann", 9).now();
    let mut told = serde_json::to_value(limiter.snapshot()).unwrap();
    for moment in ["/at", "/since", "/policies/0/factor/since"] {
        let moment = told.pointer_mut(moment).unwrap();
        assert!(moment.as_f64().unwrap() > 1.7e9, "{moment}");
        *moment = Value::Null;
    }
    let bytes = told.pointer_mut("/policies/0/keys/bytes").unwrap();
    assert!(bytes.as_u64().unwrap() > 0);
    *bytes = Value::Null;
    let most = told.pointer_mut("/policies/0/keys/most").unwrap();
    assert!(most.as_u64().unwrap() > 1_000);
    *most = Value::Null;
    let expected = json!({
        "at": null,
        "since": null,
        "requests": {
            "allowed": 1, "refused": 1, "failed": 0, "degraded": 0, "exempt": 0, "forbidden": 0, "without_key": 0, "guessed": 0,
        },
        "policies": [{
            "name": "mails", "algorithm": "fixed-window", "mode": "enforce", "limit": 10, "period_seconds": 60.0,
            "allowed": 1, "refused": 1, "shadow_refused": 0, "soft": 0, "uncharged": 0, "failed": 0, "skipped": 0,
            "degraded": 0, "near_limit": 1, "blocked": 0, "penalized": 0, "cost": 9, "waited": 0, "waited_seconds": 0.0, "settled": 0, "refunded": 0,
            "keys": { "kept": 1, "most": null, "bytes": null, "forgotten": 0, "together": 0, "tenants": null },
            "queue": null,
            "factor": { "factor": 1.0, "least": 0.1, "most": 1.0, "cause": null, "since": null, "signals": [] },
            "heaviest": null,
        }],
        "store": {
            "kind": "memory", "name": "", "is_up": true, "away_since": null, "failing_parts": 0, "calls": 0,
            "failures": 0, "batched": 0, "remembered_denials": 0, "failed_renewals": 0, "latency": null,
        },
        "configuration": null,
        "shadow": null,
    });
    assert_eq!(told, expected);
}

#[test]
fn a_decision_has_the_numbers_of_what_decides_and_of_each_policy() {
    let limiter = Limiter::builder()
        .policy(Policy::new("minute", FixedWindow::per_minute(2)))
        .policy(Policy::new("day", FixedWindow::per_day(10)))
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build_local()
        .unwrap();
    let first = json!({
        "limit": 2, "used": 2, "remaining": 0, "reset_after_us": 60_000_000, "retry_after_us": null,
    });
    let mut told = serde_json::to_value(limiter.check("ann", 2).now()).unwrap();
    let policies = told.as_object_mut().unwrap().remove("policies").unwrap();
    let mut expected = first.clone();
    expected.as_object_mut().unwrap().extend([
        ("allowed".to_owned(), json!(true)),
        ("degraded".to_owned(), json!(false)),
        ("delay_us".to_owned(), json!(0)),
        ("policy".to_owned(), json!("minute")),
        ("rule".to_owned(), json!("policy")),
        ("resolution".to_owned(), Value::Null),
    ]);
    assert_eq!(told, expected);
    assert_eq!(policies["minute"], first);
    assert_eq!(policies["day"]["remaining"], 8);

    let refused = serde_json::to_value(limiter.check("ann", 1).now()).unwrap();
    assert_eq!(refused["allowed"], false);
    assert_eq!(refused["retry_after_us"], 60_000_000);
}
