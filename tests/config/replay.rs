//! A log that the limits of a file decide again.

use http::Request;
use tower_ratelimit::Micros;
use tower_ratelimit_config::{Config, Replay, Replayed};

use crate::scene::config;

const START: u64 = 1_700_000_000;

fn replay(text: &str) -> Replay {
    config(text).replay().unwrap()
}

/// Returns a request of this key, this many seconds after the start.
fn ask(replay: &Replay, second: u64, key: &str) -> Replayed {
    let at = Micros::new((START + second) * 1_000_000);
    replay.decide(at, Request::new(()), Some(key), None, None)
}

/// The letters of what was decided: allowed, refused, waits, exempt, forbidden, keyless.
fn letter(replayed: &Replayed) -> char {
    match replayed {
        Replayed::Allowed(_) => 'a',
        Replayed::Refused(_) => 'r',
        Replayed::Waits(_) => 'w',
        Replayed::Exempt => 'e',
        Replayed::Forbidden => 'f',
        Replayed::WithoutKey => 'k',
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_log_is_decided_at_its_times() {
    let minute = replay("[policies.a]\nquota = \"2/minute\"\nkey = \"api_key\"\n");
    let letters = |requests: &[(u64, &str)]| -> String {
        let letters = requests
            .iter()
            .map(|(second, key)| letter(&ask(&minute, *second, key)));
        letters.collect()
    };
    let log = [
        (0, "ann"),
        (1, "ann"),
        (2, "ann"),
        (2, "bob"),
        (59, "ann"),
        (60, "ann"),
    ];
    assert_eq!(letters(&log), "aarara");
}

#[test]
fn the_log_says_what_the_request_does_not_show() {
    let text = "
        default_plan = \"free\"
        plan_of = { header = \"x-plan\", from = \"10.0.0.0/8\" }
        [policies.key]
        quota = \"1/day\"
        key = { header = \"x-id\" }
        [policies.address]
        quota = \"100/day\"
        key = \"client_ip\"
        cost = [{ path = \"/bulk\", cost = 60 }]
        ignore_plans = true
        [plans.free]
        key = 1
        [plans.pro]
        key = 3
    ";
    let limits = replay(text);
    let at = Micros::new(START * 1_000_000);
    let decide = |request: Request<()>, key: &str, plan: Option<&str>, cost: Option<u32>| {
        let replayed = limits.decide(at, request, Some(key), plan, cost);
        let decision = replayed.decision().unwrap();
        let told = decision.policies();
        let told: Vec<(u32, u32)> = told
            .map(|(_, outcome)| (outcome.limit(), outcome.remaining()))
            .collect();
        (letter(&replayed), told)
    };
    let plain = || Request::new(());
    assert_eq!(
        decide(plain(), "192.0.2.1", None, None),
        ('a', vec![(1, 0), (100, 99)])
    );
    // The plan and the cost of the log come before those of the file.
    assert_eq!(
        decide(plain(), "192.0.2.1", Some("pro"), Some(2)),
        ('a', vec![(3, 0), (100, 97)])
    );
    // A header that the log has is that of the request, and a path has its cost.
    let other = || {
        Request::get("/bulk")
            .header("x-id", "other")
            .body(())
            .unwrap()
    };
    assert_eq!(
        decide(other(), "192.0.2.1", None, None).1,
        [(1, 0), (100, 37)]
    );
    assert_eq!(decide(other(), "192.0.2.2", None, None).0, 'r');
}

#[test]
fn lists_waits_and_missing_keys_are_told_apart() {
    let text = "
        [lists]
        exempt_paths = [\"/health\"]
        deny = { path = \"/gone\" }
        [policies.a]
        quota = \"1/minute\"
        key = { header = \"x-id\" }
        on_missing_key = 401
        wait_up_to = \"10s\"
    ";
    let limits = replay(text);
    let letters: String = [
        (0, "/", Some("ann")),
        (1, "/", Some("ann")),
        (55, "/", Some("ann")),
        (55, "/health", Some("ann")),
        (55, "/gone", Some("ann")),
        (55, "/", None),
        (60, "/", Some("ann")),
    ]
    .map(|(second, path, key)| {
        let request = Request::get(path).body(()).unwrap();
        let at = Micros::new((START + second) * 1_000_000);
        letter(&limits.decide(at, request, key, None, None))
    })
    .iter()
    .collect();
    assert_eq!(letters, "arwefka");
}

#[test]
fn slots_are_free_again_and_the_state_of_the_file_is_not_touched() {
    let file: Config = config("[policies.a]\nconcurrency = 1\nkey = \"global\"\n");
    let limits = file.replay().unwrap();
    for second in 0..3 {
        assert_eq!(letter(&ask(&limits, second, "ann")), 'a');
    }
    let file = config("[policies.a]\nquota = \"1/day\"\nkey = \"global\"\n");
    let layer = file.layer().unwrap();
    assert_eq!(letter(&ask(&file.replay().unwrap(), 0, "ann")), 'a');
    assert_eq!(
        crate::scene::send(&layer, crate::scene::get("/")).status,
        200
    );
}
