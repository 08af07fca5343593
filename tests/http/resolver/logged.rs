//! The log of a resolver. Each name is logged once in a process, so these names are used in this file alone.

use std::time::Duration;

use tokio::time::advance;
use tower_ratelimit::plan::{Plan, Resolved};
use tower_ratelimit::{AnchoredWindow, FixedWindow, Limiter, Policy};
use tracing::Level;

use crate::resolver::scene::*;
use crate::support::log::{Log, LogLine};

/// Returns the lines that a future logs in a runtime with paused time.
fn logged<F: Future<Output = ()>>(run: F) -> Vec<LogLine> {
    let ((), lines) = Log::of(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        runtime.unwrap().block_on(run);
    });
    lines
}

fn codes(lines: &[LogLine]) -> Vec<(Option<&str>, Option<&str>)> {
    assert!(lines.iter().all(|line| line.level == Level::WARN));
    let told = lines
        .iter()
        .map(|line| (get(line, "code"), get(line, "subject")));
    told.collect()
}

fn get<'a>(line: &'a LogLine, name: &str) -> Option<&'a str> {
    line.fields.get(name).map(String::as_str)
}

#[test]
fn each_limit_that_cannot_be_is_logged_once() {
    let lines = logged(async {
        let source = ScriptedSource::new();
        let odd = Plan::new("odd and logged")
            .limit("minute", AnchoredWindow::per_minute(7))
            .limit("month", FixedWindow::per_day(7));
        source.acts("ann", LookupScript::Answer(Resolved::Limits(odd)));
        let resolver = source.resolver();
        let limiter = limiter(&resolver);
        for _ in 0..3 {
            ask(&limiter, "ann").await;
            resolver.invalidate_all();
        }
    });
    let subject = |policy| format!("plan \"odd and logged\", policy {policy:?}");
    let (month, minute) = (subject("month"), subject("minute"));
    let wanted = [&month, &minute].map(|it| (Some("TRL020"), Some(it.as_str())));
    assert_eq!(codes(&lines), wanted);
}

#[test]
fn limits_for_a_limiter_that_takes_none_are_logged_once() {
    let mut lines = logged(async {
        let source = ScriptedSource::new();
        let own = Plan::new("own").limit("minute", FixedWindow::per_minute(7));
        source.acts("ann", LookupScript::Answer(Resolved::Limits(own)));
        let minute = Policy::new("minute", FixedWindow::per_minute(10));
        let limiter = Limiter::builder()
            .policy(minute)
            .plans_by_name(plans())
            .build();
        crate::resolver::service::asks(limiter.unwrap(), &source.resolver(), "ann", 3).await;
    });
    // The requests cost more than any limit.
    lines.retain(|line| get(line, "code") != Some("TRL016"));
    let subject = "a `Limiter` that was built without `takes_resolved_limits`";
    assert_eq!(codes(&lines), [(Some("TRL020"), Some(subject))]);
}

#[test]
fn a_plan_that_is_named_where_there_are_none_is_logged_once() {
    let lines = logged(async {
        let source = ScriptedSource::new();
        source.set("ann", "gold of the log");
        let limiter = Limiter::builder()
            .policy(Policy::new("minute", FixedWindow::per_minute(10)))
            .resolver(source.resolver(), tower_ratelimit::key::Key::to_text)
            .build_local()
            .unwrap();
        for _ in 0..3 {
            assert_eq!(ask(&limiter, "ann").await, "policy, fresh");
        }
    });
    assert_eq!(
        codes(&lines),
        [(Some("TRL021"), Some("plan \"gold of the log\""))]
    );
}

/// The log has one line when lookups begin to fail and one when they succeed again, and no more failures in a
/// minute.
#[test]
fn that_lookups_fail_is_logged_when_it_begins_and_when_it_ends() {
    let lines = logged(async {
        let source = ScriptedSource::new();
        source.acts("ann", LookupScript::Fail);
        source.set("bob", "pro");
        let resolver = source.resolver();
        let limiter = limiter(&resolver);
        for _ in 0..5 {
            ask(&limiter, "ann").await;
            advance(SECOND).await;
        }
        for _ in 0..5 {
            ask(&limiter, "bob").await;
            resolver.invalidate_all();
            ask(&limiter, "ann").await;
        }
        advance(Duration::from_secs(60)).await;
        resolver.invalidate_all();
        ask(&limiter, "ann").await;
    });
    let failed = "a lookup of the rate limiter's resolver has failed; keys keep their last known plans, and others have the default plan";
    let finds = "the rate limiter's resolver finds plans again";
    let told: Vec<_> = lines
        .iter()
        .map(|line| (line.level, get(line, "message").unwrap()))
        .collect();
    assert_eq!(
        told,
        [
            (Level::WARN, failed),
            (Level::INFO, finds),
            (Level::WARN, failed)
        ]
    );
    assert_eq!(get(&lines[0], "error"), Some("the database is away"));
}
