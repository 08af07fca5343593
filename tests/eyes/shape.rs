//! The JSON of a snapshot, which programs outside read.

use serde_json::{Value, json};
use tower_ratelimit::factor::FactorCell;
use tower_ratelimit::{FixedWindow, Limiter, Policy};

#[test]
fn a_snapshot_has_the_names_that_the_documentation_tells() {
    let limiter = Limiter::builder()
        .policy(Policy::new("mails", FixedWindow::per_minute(10)).factor(&FactorCell::new()))
        .build()
        .unwrap();
    let _ = limiter.check_now("ann", 9);
    let _ = limiter.check_now("ann", 9);
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
            "allowed": 1, "refused": 1, "failed": 0, "degraded": 0, "exempt": 0, "forbidden": 0, "without_key": 0,
        },
        "policies": [{
            "name": "mails", "algorithm": "fixed-window", "mode": "enforce", "limit": 10, "period_seconds": 60.0,
            "allowed": 1, "refused": 1, "shadow_refused": 0, "soft": 0, "uncharged": 0, "failed": 0, "skipped": 0,
            "degraded": 0, "near_limit": 1, "blocked": 0, "penalized": 0, "cost": 9, "waited": 0, "waited_seconds": 0.0, "settled": 0,
            "keys": { "kept": 1, "most": null, "bytes": null, "forgotten": 0, "together": 0 },
            "queue": null,
            "factor": { "factor": 1.0, "least": 0.1, "most": 1.0, "cause": null, "since": null, "signals": [] },
            "heaviest": null,
        }],
        "store": {
            "kind": "memory", "name": "", "is_up": true, "away_since": null, "failing_parts": 0, "calls": 0,
            "failures": 0, "batched": 0, "remembered_denials": 0, "latency": null,
        },
        "configuration": null,
        "shadow": null,
    });
    assert_eq!(told, expected);
}
