//! Functions that code registers by name, and files that use them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use http::{HeaderValue, Response};
use tower_ratelimit::response::RefusalBody;
use tower_ratelimit::{MemoryStore, key};
use tower_ratelimit_config::{Config, ConfigBuilder, Format};

use crate::endings::{UNITS, cost};
use crate::scene::{get, layer, send};

fn read(builder: &ConfigBuilder, text: &str) -> Config {
    builder
        .parse(text, Format::Toml)
        .unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn mistake(builder: &ConfigBuilder, text: &str) -> String {
    let error = builder.parse(text, Format::Toml).unwrap_err();
    error.mistakes()[0].to_string()
}

#[test]
fn a_request_is_settled_at_a_cost_that_code_has_registered() {
    let builder = Config::builder()
        .settle("never", |_| None)
        .settle("length", |ending| u32::try_from(10 * ending.bytes()).ok());
    for (settle, expected) in [
        ("{ function = \"length\" }", 50),
        ("{ function = \"never\" }", 100),
        ("[{ function = \"never\" }, \"cost\"]", 11),
    ] {
        let text = format!("{UNITS}estimate = 100\nsettle = {settle}");
        let config = read(&builder, &text);
        assert_eq!(
            cost(&config, &Response::new(()), true),
            expected,
            "{settle}"
        );
    }
    let text = format!("{UNITS}estimate = 100\nsettle = {{ function = \"lenght\" }}");
    let told = mistake(&builder, &text);
    assert!(told.contains("policies.units.settle.function"), "{told}");
    assert!(
        told.contains("did you mean \"length\"? Known are never, length"),
        "{told}"
    );
    let told = mistake(&Config::builder(), &text);
    assert!(
        told.contains("register it with `.settle(\"lenght\", …)`"),
        "{told}"
    );
}

#[test]
fn the_end_of_a_request_may_be_judged_by_code() {
    let builder = Config::builder().ending("short", |ending| ending.bytes() < 6);
    for (when, is_charged) in [
        ("charge_when = { function = \"short\" }", true),
        (
            "charge_when = { function = \"short\", status = 500 }",
            false,
        ),
        (
            "charge_when = [{ function = \"short\" }, { status = 500 }]",
            true,
        ),
        ("refund_when = { function = \"short\" }", false),
    ] {
        let config = read(&builder, &format!("{UNITS}estimate = 100\n{when}"));
        let expected = if is_charged { 100 } else { 0 };
        assert_eq!(cost(&config, &Response::new(()), true), expected, "{when}");
    }
    let text = format!("{UNITS}estimate = 100\ncharge_when = {{ function = \"slow\" }}");
    let told = mistake(&builder, &text);
    assert!(
        told.contains("function for a condition on the end \"slow\" is unknown; known are short"),
        "{told}"
    );
}

#[test]
fn the_body_of_a_refusal_may_be_made_by_code() {
    let text_plain = HeaderValue::from_static("text/plain");
    let body = RefusalBody::custom(text_plain, |denied| {
        Bytes::from(format!(
            "slow down on {}",
            denied.head().map_or("", |head| head.path())
        ))
    });
    let builder = Config::builder().refusal_body("own", body);
    let policy = "[policies.a]\nquota = \"0/day\"\nkey = \"global\"\n";
    let text = format!("{policy}[responses]\nrefusal_body = {{ function = \"own\" }}");
    let refused = send(&layer(&read(&builder, &text)), get("/search"));
    assert_eq!(
        (refused.status, &*refused.body),
        (429, &b"slow down on /search"[..])
    );
    let both = text.replace('}', ", text = \"x\" }");
    let told = mistake(&builder, &both);
    assert!(
        told.contains("`text` contradicts `function` (line 5)"),
        "{told}"
    );
}

#[test]
fn every_decision_is_told_to_code_after_a_reload_too() {
    let refused = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&refused);
    let builder = Config::builder().on_decision(move |_, _, decision| {
        counter.fetch_add(u32::from(!decision.is_allowed()), Ordering::Relaxed);
    });
    let folder = crate::folder::Folder::new("hook");
    let limits = |limit: u32| format!("[policies.a]\nquota = \"{limit}/day\"\nkey = \"global\"\n");
    std::fs::write(folder.file(), limits(1)).unwrap();
    let watched = builder.read(folder.file()).unwrap().watch().unwrap();
    for _ in 0..2 {
        send(&watched.layer(), get("/"));
    }
    std::fs::write(folder.file(), limits(2)).unwrap();
    watched.reload().unwrap();
    for _ in 0..2 {
        send(&watched.layer(), get("/"));
    }
    assert_eq!(refused.load(Ordering::Relaxed), 2);
}

#[test]
fn a_store_of_the_program_keeps_the_state_through_reloads_and_restarts() {
    let folder = crate::folder::Folder::new("own-store");
    let limits = |limit: u32| format!("[policies.a]\nquota = \"{limit}/day\"\nkey = \"global\"\n");
    std::fs::write(folder.file(), limits(1)).unwrap();
    let watched = |store: MemoryStore| {
        let builder = Config::builder().store(store);
        builder.read(folder.file()).unwrap().watch().unwrap()
    };
    let store = MemoryStore::new();
    let before = watched(store.clone());
    assert_eq!(send(&before.layer(), get("/")).status, 200);
    std::fs::write(folder.file(), limits(2)).unwrap();
    before.reload().unwrap();
    assert_eq!(send(&before.layer(), get("/")).status, 200);
    assert_eq!(send(&before.layer(), get("/")).status, 429);

    let after = watched(MemoryStore::new().restore(&store.snapshot()).unwrap());
    assert_eq!(send(&after.layer(), get("/")).status, 429);
    let limiter = after.limiter();
    let used = limiter.peek(key::global().key_of(()).unwrap(), 0);
    let used = crate::scene::now(used).unwrap();
    assert_eq!(used.binding().unwrap().1.used(), 2);

    let builder = Config::builder().store(MemoryStore::new());
    let told = mistake(&builder, &format!("{}[store]\nmax_keys = 5", limits(1)));
    assert!(
        told.contains("store: code has registered the store; leave it out"),
        "{told}"
    );
}

mod following_the_load {
    use super::*;
    use tower_ratelimit::factor::{Class, Factor};
    use tower_ratelimit_adapt::{Adapt, Steps, from_fn};

    const POLICY: &str = "[policies.api]\nquota = \"100/minute\"\nkey = \"global\"\nadapt = true\n";

    #[test]
    fn limits_follow_what_code_has_registered_in_place_of_a_table() {
        let steps = Steps::new().above(
            ["queue"],
            tower_ratelimit_adapt::Load::percent(50),
            Factor::thousandths(200),
        );
        let adapt = Adapt::builder(steps.immediate())
            .signal(from_fn("queue", || Some(0.9)))
            .build()
            .unwrap();
        let builder = Config::builder().adapt(&adapt);
        let config = read(&builder, POLICY);
        adapt.sample();
        let told = send(&layer(&config), get("/")).policies.unwrap();
        assert_eq!(told, "\"api\";q=20;w=60");
        let told = mistake(&builder, &format!("{POLICY}[adapt]\nsignals = \"cpu\""));
        assert!(
            told.contains("code has registered what limits follow; leave the table out"),
            "{told}"
        );
    }

    #[test]
    fn the_class_of_a_request_may_be_told_by_code() {
        let adapt = Adapt::builder(
            Steps::new()
                .above(
                    ["queue"],
                    tower_ratelimit_adapt::Load::percent(50),
                    Factor::thousandths(500),
                )
                .immediate(),
        )
        .signal(from_fn("queue", || Some(0.9)))
        .build()
        .unwrap();
        adapt.sample();
        let builder = Config::builder()
            .adapt(&adapt)
            .class("by-path", |head| match head.path() {
                "/checkout" => Class::CriticalPlus,
                _ => Class::Sheddable,
            });
        let remaining = |class: &str, path: &str| {
            let config = read(&builder, &format!("{POLICY}class = {class}\n"));
            send(&layer(&config), get(path)).limits.unwrap()
        };
        let function = "{ function = \"by-path\" }";
        for (path, word) in [("/checkout", "critical_plus"), ("/", "sheddable")] {
            assert_eq!(
                remaining(function, path),
                remaining(&format!("{word:?}"), path)
            );
        }
        assert_ne!(remaining(function, "/checkout"), remaining(function, "/"));
        let told = mistake(
            &builder,
            &format!("{POLICY}class = {{ function = \"by-plan\" }}\n"),
        );
        assert!(told.contains("\"by-plan\""), "{told}");
    }
}
