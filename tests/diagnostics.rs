//! A server that was set up wrongly: what its clients and its operators are told.
//!
//! In a process of their own, since each diagnostic is logged once per process, and one test for
//! each diagnostic.

#![cfg(all(feature = "axum", feature = "tracing"))]

use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tokio::time::{sleep, timeout};
use tower::{Layer, ServiceExt};
use tower_http::timeout::TimeoutLayer;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::diagnostics::Diagnostic;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::key::{
    self, Extract, Forwarding, Head, IntoKey, Key, Missing, Proxies, Secret,
};
use tower_ratelimit::plan::{KeyLimits, Operations, Plan, Plans};
use tower_ratelimit::policy::{Http, NoKey, Settle};
use tower_ratelimit::response::Refusal;
use tower_ratelimit::store::{Availability, Charge, Charged, Ledger, MemoryLedger, Store, Wanted};
use tower_ratelimit::{
    ConfigError, FixedWindow, LeakyQueue, LimitLayer, Limiter, MemoryStore, Policy, RateLimitLayer,
    StoreError, TokenBucket,
};
use tracing::Level;

#[path = "support/log.rs"]
mod log;

#[path = "support/tokio_clock.rs"]
mod tokio_clock;

use self::log::{Line, Log};
use self::tokio_clock::TokioClock;

struct Answer {
    status: StatusCode,
    content_type: String,
    body: String,
    refusal: Refusal,
}

/// The answers to this many requests, and what was logged meanwhile.
fn ask(limit: &RateLimitLayer, times: usize) -> (Vec<Answer>, Vec<Line>) {
    let app: Router = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(limit.clone());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let ask = || async {
        let response = app.clone().oneshot(Request::new(Body::empty())).await;
        let (head, body) = response.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: head.status,
            content_type: head.headers["content-type"].to_str().unwrap().to_owned(),
            body: String::from_utf8(body.into()).unwrap(),
            refusal: head.extensions.get().cloned().unwrap(),
        }
    };
    Log::of(|| (0..times).map(|_| runtime.block_on(ask())).collect())
}

fn limit(key: impl Extract) -> RateLimitLayer {
    RateLimitLayer::new(key, TokenBucket::per_second(1))
}

/// Each answer is a 500 that says nothing of the cause to the client; the diagnostic that all of
/// them carry for layers outside.
#[track_caller]
fn diagnostic_of(answers: &[Answer]) -> Diagnostic {
    let diagnostics = answers.iter().map(|answer| {
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(answer.content_type, "application/problem+json");
        assert_eq!(
            answer.body,
            r#"{"type":"about:blank","title":"Internal Server Error","status":500}"#
        );
        match answer.refusal {
            Refusal::NoKey(Missing::ByServer(diagnostic)) => diagnostic,
            ref other => panic!("{other:?}"),
        }
    });
    let diagnostics: Vec<_> = diagnostics.collect();
    assert!(diagnostics.windows(2).all(|pair| pair[0] == pair[1]));
    diagnostics[0]
}

/// The log has one line, a warning with this code about this subject.
#[track_caller]
fn assert_warns_once(lines: &[Line], code: &str, subject: &str) {
    let [line] = lines else {
        panic!("{lines:?}");
    };
    assert_eq!(line.level, Level::WARN);
    let told = ["code", "subject"].map(|name| &*line.fields[name]);
    assert_eq!(told, [code, subject]);
    let page = include_str!("../docs/diagnostics.md");
    assert!(
        page.contains(&format!("# `{code}`: ")),
        "{code} has no page"
    );
}

/// The log has one line, an error that says all of a diagnostic.
#[track_caller]
fn assert_logs_once(lines: &[Line], diagnostic: &Diagnostic) {
    let [line] = lines else {
        panic!("{lines:?}");
    };
    assert_eq!(line.level, Level::ERROR);
    let expected = [
        ("code", diagnostic.code()),
        ("message", diagnostic.problem()),
        ("remedy", diagnostic.remedy()),
        ("subject", diagnostic.subject()),
    ];
    let expected = expected.map(|(name, value)| (name, value.to_owned()));
    assert_eq!(line.fields, expected.into());
}

#[test]
fn a_server_that_forgot_connect_info_says_once_what_to_write() {
    // Both extractors, several layers and many requests are one mistake.
    let mut lines = Vec::new();
    let mut answers = Vec::new();
    for limit in [
        limit(key::client_ip()),
        limit(key::client_ip()),
        limit(key::peer_ip()),
    ] {
        let (more_answers, more_lines) = ask(&limit, 100);
        answers.extend(more_answers);
        lines.extend(more_lines);
    }
    let diagnostic = diagnostic_of(&answers);
    assert_eq!(answers.len(), 300);
    assert_eq!(diagnostic.code(), "TRL001");
    let line_of_code = "`app.into_make_service_with_connect_info::<SocketAddr>()`";
    assert!(diagnostic.remedy().contains(line_of_code), "{diagnostic}");
    assert_logs_once(&lines, &diagnostic);
}

#[derive(Clone)]
struct User {
    id: u64,
}

#[derive(Clone)]
struct UserId;

#[derive(Clone)]
struct Tenant;

impl IntoKey for UserId {
    fn into_key(self) -> Key {
        "user".into_key()
    }
}

impl IntoKey for Tenant {
    fn into_key(self) -> Key {
        "tenant".into_key()
    }
}

#[test]
fn an_extension_that_is_not_there_is_named_once_for_each_type() {
    for (limit, name) in [
        (limit(key::extension::<UserId>()), "UserId"),
        (limit(key::extension::<Tenant>()), "Tenant"),
    ] {
        let (answers, lines) = ask(&limit, 100);
        let diagnostic = diagnostic_of(&answers);
        assert_eq!(diagnostic.code(), "TRL002");
        assert_eq!(diagnostic.subject(), format!("diagnostics::{name}"));
        assert_logs_once(&lines, &diagnostic);
    }
}

#[test]
fn an_extractor_of_ones_own_has_a_diagnostic_of_its_own() {
    const NO_SHARD: Diagnostic = Diagnostic::new("APP7", "shard", "no shard", "call `shard()`");
    let key = |_: &Head<'_>| Err::<u8, _>(Missing::ByServer(NO_SHARD));
    let (answers, lines) = ask(&limit(key), 100);
    assert_eq!(diagnostic_of(&answers), NO_SHARD);
    assert_logs_once(&lines, &NO_SHARD);
    let remedy_and_all = "APP7: no shard (shard); call `shard()`";
    assert_eq!(NO_SHARD.to_string(), remedy_and_all);
}

#[test]
fn a_server_that_is_set_up_well_logs_nothing() {
    let limit = limit(key::client_ip());
    let app = Router::<()>::new()
        .route("/", get(|| async { "hello" }))
        .layer(limit);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let request = || {
        let mut request = Request::new(Body::empty());
        let peer = SocketAddr::from(([192, 0, 2, 1], 40_000));
        request.extensions_mut().insert(peer);
        request
    };
    let ((), lines) = Log::of(|| {
        for _ in 0..3 {
            runtime.block_on(app.clone().oneshot(request())).unwrap();
        }
    });
    assert!(lines.is_empty(), "{lines:?}");
}

#[test]
fn a_private_peer_that_sends_forwarding_fields_and_is_not_trusted_is_warned_of_once() {
    let trusting = || {
        let proxies = Proxies::in_networks(["10.0.0.0/8"]);
        key::client_ip().behind(proxies, Forwarding::XForwardedFor)
    };
    let logged = |key: &dyn Extract, peer: [u8; 4], field: &'static str| {
        let mut request = Request::new(());
        let peer = SocketAddr::from((peer, 40_000));
        request.extensions_mut().insert(peer);
        let value = "203.0.113.7".parse().unwrap();
        request.headers_mut().insert(field, value);
        let (key, lines) = Log::of(|| key.extract(&Head::of(&request)));
        assert!(key.is_ok());
        lines
    };
    let (inside, outside) = ([10, 0, 0, 1], [192, 0, 2, 1]);
    for quiet in [
        logged(&key::client_ip(), outside, "x-forwarded-for"),
        logged(&key::client_ip(), inside, "x-other"),
        logged(&key::peer_ip(), inside, "x-forwarded-for"),
        logged(&trusting(), inside, "x-forwarded-for"),
        logged(&trusting(), outside, "x-forwarded-for"),
    ] {
        assert!(quiet.is_empty(), "{quiet:?}");
    }

    let lines = logged(&trusting(), [192, 168, 0, 1], "x-forwarded-for");
    let [line] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(line.level, Level::WARN);
    assert_eq!(line.fields["code"], "TRL003");
    let subject = "forwarding header fields of 192.168.0.1";
    assert_eq!(line.fields["subject"], subject);
    assert!(line.fields["remedy"].contains(".behind("), "{line:?}");
    let said = format!("{line:?}");
    assert!(!said.contains("203.0.113.7"), "{said}");

    for field in ["x-forwarded-for", "forwarded", "cf-connecting-ip"] {
        let again = logged(&key::client_ip(), [127, 0, 0, 1], field);
        assert!(again.is_empty(), "{again:?}");
    }
}

#[derive(Debug)]
struct DownStore;

impl Store for DownStore {
    type Ledger = Self;

    fn open(&self, _: &[Policy]) -> Result<Self, ConfigError> {
        Ok(Self)
    }
}

impl Ledger for DownStore {
    fn charge(&self, _: &[Charge], _: Wanted, _: &mut Outcomes) -> Charged {
        let error = StoreError::new(StoreErrorKind::Unavailable);
        Charged::Now(Err(error.caused_by("connection refused")))
    }
}

#[test]
fn a_store_that_fails_is_a_warning_with_its_cause_which_the_client_is_not_told() {
    let policy = Policy::new("default", TokenBucket::per_second(1));
    let limit = RateLimitLayer::builder()
        .policy(policy.key(|_: &Head<'_>| "secret-key"))
        .store(DownStore)
        .build()
        .unwrap();
    let (answers, lines) = ask(&limit, 1);
    assert_eq!(answers[0].status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(!answers[0].body.contains("refused"));

    let [line] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(line.level, Level::WARN);
    assert!(line.fields["error"].contains("unavailable"), "{line:?}");
    assert!(!format!("{line:?}").contains("secret"), "{line:?}");
    // A second request that meets the same outage adds no line.
    let (answers, lines) = ask(&limit, 3);
    assert_eq!(answers.len(), 3);
    assert!(lines.is_empty(), "{lines:?}");
}

/// The answers of a router to so many requests that have no key, and what was logged meanwhile.
fn statuses(app: &Router, times: usize) -> (Vec<StatusCode>, Vec<Line>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    Log::of(|| {
        let ask = || app.clone().oneshot(Request::new(Body::empty()));
        let ask = |_| runtime.block_on(ask()).unwrap().status();
        (0..times).map(ask).collect()
    })
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

#[test]
fn a_key_that_is_said_to_be_missing_at_times_is_no_mistake() {
    for no_key in [NoKey::Skip, NoKey::Shared] {
        let policy = Policy::new("user", TokenBucket::per_second(9))
            .key(key::extension::<u8>().optional())
            .no_key(no_key);
        let limit = RateLimitLayer::builder().policy(policy).build().unwrap();
        let (answers, lines) = statuses(&hello().layer(limit), 3);
        assert_eq!(answers, [StatusCode::OK; 3]);
        assert!(lines.is_empty(), "{lines:?}");
    }
}

#[test]
fn a_server_that_tells_no_key_is_told_so_though_the_policy_goes_on_without() {
    for (no_key, key) in [
        (NoKey::Shared, key::extension::<u16>().prefix("a")),
        (NoKey::Skip, key::extension::<u16>().prefix("b")),
    ] {
        let policy = Policy::new("user", TokenBucket::per_second(9)).key(key);
        let limit = RateLimitLayer::builder().policy(policy.no_key(no_key));
        let app = hello().layer(limit.build().unwrap());
        let (answers, lines) = statuses(&app, 3);
        assert_eq!(answers, [StatusCode::OK; 3]);
        // Both are one mistake.
        assert_eq!(
            lines.len(),
            usize::from(no_key == NoKey::Shared),
            "{lines:?}"
        );
    }
}

#[test]
fn a_layer_that_stands_on_a_route_twice_is_warned_of_once() {
    let constant = |_: &Head<'_>| "all";
    let many = || RateLimitLayer::new(constant, TokenBucket::per_second(100));
    let (once, twice) = (many(), many());

    // Two layers one within the other, and one layer on two routes, are meant so.
    let fine = Router::new()
        .route("/other", get(|| async { "other" }).layer(twice.clone()))
        .merge(hello().layer(twice.clone()))
        .layer(once.clone());
    let (_, lines) = statuses(&fine, 3);
    assert!(lines.is_empty(), "{lines:?}");

    // One layer added to a route and to the router around it, with another between.
    let doubled = hello()
        .layer(twice.clone())
        .layer(once.clone())
        .layer(twice);
    let (_, lines) = statuses(&doubled, 3);
    assert_warns_once(&lines, "TRL004", "RateLimitLayer");
}

#[test]
fn layers_that_are_built_for_each_request_are_warned_of_once() {
    // As many as a reload of the configuration never makes.
    let ((), lines) = Log::of(|| {
        for _ in 0..300 {
            let app = hello().layer(limit(|_: &Head<'_>| "all"));
            assert_eq!(statuses(&app, 1).0, [StatusCode::OK]);
        }
    });
    assert_warns_once(&lines, "TRL005", "RateLimitLayer");
}

#[test]
fn a_policy_that_never_binds_is_warned_of_when_the_layer_is_built() {
    let by_header = |name: &str, algorithm: FixedWindow| {
        Policy::new(name, algorithm).key(key::header("x-api-key"))
    };
    let minute = || by_header("minute", FixedWindow::per_minute(10));
    let hour = || by_header("hour", FixedWindow::per_hour(10));
    let build = |policies: [Policy<Http>; 2]| {
        Log::of(|| {
            RateLimitLayer::builder()
                .policies(policies)
                .build()
                .unwrap()
        })
        .1
    };
    for apart in [
        // Other clients, other requests, other costs, or one that denies nothing.
        [minute().key_of_another_type(), hour()],
        [minute(), hour().when(|head| head.method() == "POST")],
        [minute(), hour().cost(|_| 2)],
        [minute(), hour().soft()],
        [minute(), hour().no_key(NoKey::Skip)],
        [minute(), by_header("hour", FixedWindow::per_hour(100))],
        // The first refuses those whom the second lets share a quota.
        [
            minute().no_key(NoKey::Refuse(StatusCode::UNAUTHORIZED)),
            hour(),
        ],
        // Two types of one name, as of two versions of a crate.
        [
            by_user_of_its_own!("minute", FixedWindow::per_minute(10)),
            by_user_of_its_own!("hour", FixedWindow::per_hour(10)),
        ],
        [
            Policy::new("minute", FixedWindow::per_minute(10)).key(|_: &Head<'_>| "a"),
            Policy::new("hour", FixedWindow::per_hour(10)).key(|_: &Head<'_>| "a"),
        ],
    ] {
        let lines = build(apart);
        assert!(lines.is_empty(), "{lines:?}");
    }
    let some_of_them = || build([minute().when(|head| head.method() == "POST"), hour()]);
    assert_warns_once(
        &some_of_them(),
        "TRL006",
        r#"policy "minute" beside "hour""#,
    );
    assert!(some_of_them().is_empty());
    let lines = build([by_header("day", FixedWindow::per_day(9)), hour()]);
    assert_warns_once(&lines, "TRL006", r#"policy "hour" beside "day""#);

    // So is one closure that reads an extension for both.
    let user = key::extension::<User>().map(|user: &User| user.id);
    let of_user = |name: &str, algorithm: FixedWindow| Policy::new(name, algorithm).key(user);
    let lines = build([
        of_user("m", FixedWindow::per_minute(10)),
        of_user("h", FixedWindow::per_hour(10)),
    ]);
    assert_warns_once(&lines, "TRL006", r#"policy "m" beside "h""#);
}

/// The log told of `policy "same" beside "same"`, beside the error.
#[test]
fn two_policies_of_one_name_are_an_error_and_no_warning() {
    let policy = |limit| Policy::new("same", limit).key(key::global());
    let policies = [FixedWindow::per_minute(10), FixedWindow::per_hour(10)].map(policy);
    let (error, lines) = Log::of(|| RateLimitLayer::builder().policies(policies).build());
    let text = r#"`name` cannot be "same": give each policy a name of its own; case is ignored"#;
    assert_eq!(error.unwrap_err().to_string(), text);
    assert!(lines.is_empty(), "{lines:?}");
}

/// A limiter is told keys and costs with each question, so that nothing is proved when it is built.
#[test]
fn a_policy_of_a_limiter_never_binds_where_all_are_asked_alike() {
    let twice = || {
        let same = ["one", "two"].map(|name| Policy::new(name, FixedWindow::per_hour(10_000)));
        Limiter::builder().policies(same).build().unwrap()
    };
    let ((), lines) = Log::of(|| {
        let limiter = twice();
        for _ in 0..99 {
            let _ = limiter.check_now("ann", 1);
        }
    });
    assert!(lines.is_empty(), "{lines:?}");
    let ((), lines) = Log::of(|| {
        let (by_check, by_admit) = (twice(), twice());
        for _ in 0..300 {
            let _ = by_check.check_now("ann", 1);
            let _ = by_admit.admit_now("ann", 1);
        }
    });
    assert_warns_once(&lines, "TRL006", r#"policy "two" beside "one""#);
}

#[test]
fn requests_that_keep_leaving_a_line_before_their_turn_are_warned_of_once() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let queue = Policy::new("queue", LeakyQueue::per_second(1).places(1_000));
    let patient = Policy::new("bucket", TokenBucket::per_second(1))
        .wait_up_to(Duration::from_secs(3_600))
        .wait_places(1_000);
    for policy in [queue, patient] {
        let subject = format!("policy {:?}", policy.name());
        let policy = policy.key(|_: &Head<'_>| "all");
        let limit = RateLimitLayer::builder().policy(policy).build().unwrap();
        let app = hello().layer(limit);
        let ((), lines) = Log::of(|| {
            runtime.block_on(async {
                for _ in 0..300 {
                    let sent = app.clone().oneshot(Request::new(Body::empty()));
                    let _ = timeout(Duration::ZERO, sent).await;
                }
            });
        });
        assert_warns_once(&lines, "TRL014", &subject);
    }
}

/// Ten a second, and twenty requests a second that are given up after so long.
fn logged_of_a_queue_under(name: &str, patience: Duration) -> Vec<Line> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let scene = async {
        let queue = Policy::new(name, LeakyQueue::per_second(10).places(50));
        let limit = RateLimitLayer::builder()
            .policy(queue.key(key::global()))
            .store(MemoryStore::new().clock(TokioClock::new()));
        let timeout = TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, patience);
        let app = hello().layer(limit.build().unwrap()).layer(timeout);
        for _ in 0..200 {
            tokio::spawn(app.clone().oneshot(Request::new(Body::empty())));
            sleep(Duration::from_millis(50)).await;
        }
    };
    Log::of(|| runtime.block_on(scene)).1
}

#[test]
fn a_timeout_outside_that_is_shorter_than_the_longest_wait_is_warned_of_once() {
    let lines = logged_of_a_queue_under("in time", Duration::from_secs(6));
    assert!(lines.is_empty(), "{lines:?}");
    let lines = logged_of_a_queue_under("too late", Duration::from_millis(700));
    assert_warns_once(&lines, "TRL014", r#"policy "too late""#);
}

/// Found in the field: 60 requests and 100,000 tokens a minute, each asked at a cost of its own, and
/// the log told the operator to leave the tokens out.
#[test]
fn policies_that_are_asked_at_costs_of_their_own_are_not_accused() {
    let limiter = || {
        Limiter::builder()
            .policy(Policy::new("requests", FixedWindow::per_minute(60)))
            .policy(Policy::new("tokens", FixedWindow::per_minute(100_000)))
            .build()
            .unwrap()
    };
    let ((), lines) = Log::of(|| {
        let limiter = limiter();
        let asked = [("requests", "ann", 1), ("tokens", "ann", 4_000)];
        for _ in 0..300 {
            let _ = limiter.check_with_now(asked).unwrap();
            // What asks all of them alike is an operator's question then.
            let _ = limiter.check_now("ann", 1);
        }
    });
    assert!(lines.is_empty(), "{lines:?}");
}

/// Found by running the example of a file: a table of operations beside a stricter policy was accused.
#[test]
fn policies_whose_limits_differ_between_requests_are_not_accused() {
    let window = FixedWindow::per_minute;
    let ((), lines) = Log::of(|| {
        let operations = Operations::new().limit("GET", window(5));
        let by_method = Policy::new("by method", window(50))
            .operations(operations)
            .for_all_plans()
            .key(key::global())
            .operation(key::method());
        let by_plan = Policy::new("by plan", window(50)).key(key::global());
        let strict = Policy::new("strict", window(10))
            .for_all_plans()
            .key(key::global());
        let plan = Plan::new("small").limit("by plan", window(3));
        RateLimitLayer::builder()
            .policies([by_method, by_plan, strict])
            .plans(Plans::new([plan]), |_: &Head<'_>| None::<&str>)
            .build()
            .unwrap();
    });
    assert!(lines.is_empty(), "{lines:?}");
}

/// A batch of 50 under a burst of 20 is refused for ever, and its client is told no wait.
#[test]
fn a_cost_above_the_limit_is_warned_of_once_for_each_policy() {
    let burst = |name: &str| Policy::new(name, TokenBucket::per_second(10).burst(20));
    let closed = Policy::new("closed", FixedWindow::per_day(0));
    let soft = Policy::new("soft", FixedWindow::per_day(5)).soft();
    let quiet = || {
        let limiter = Limiter::builder().policies([burst("quiet"), closed, soft]);
        let limiter = limiter.build().unwrap();
        let ask = |policy, cost| limiter.check_with_now([(policy, "ann", cost)]).unwrap();
        for _ in 0..3 {
            // All of it, more than is left, a limit that nothing passes, a policy that denies nothing.
            let _ = (ask("quiet", 20), ask("quiet", 20), ask("closed", 2));
            let _ = ask("soft", 50);
        }
        // Questions, and taking what there is.
        let _ = limiter.peek_now("ann", 50);
        let _ = limiter.take_up_to_now("ann", 50);
        let _ = block_on(limiter.take_up_to("ann", 50)).unwrap();
        // A limit of its own that is lower, and a block.
        let one = TokenBucket::per_second(10).burst(1);
        let day = Duration::from_secs(86_400);
        limiter
            .override_limit_now("quiet", "bob", one, day)
            .unwrap();
        let _ = limiter.check_with_now([("quiet", "bob", 2)]).unwrap();
        limiter.block_now("eve", day);
        let _ = limiter.check_with_now([("quiet", "eve", 50)]).unwrap();
    };
    let ((), lines) = Log::of(quiet);
    assert!(lines.is_empty(), "{lines:?}");

    let limiter = |name: &str| Limiter::builder().policy(burst(name)).build().unwrap();
    let now = |name: &str| limiter(name).check_now("ann", 50).is_allowed();
    let verdict = |name: &str| limiter(name).admit_now("ann", 50);
    let later = |name: &str| {
        block_on(limiter(name).check("ann", 50))
            .unwrap()
            .is_allowed()
    };
    let by_name = |name: &str| {
        let asked = limiter(name).check_with_now([(name, "ann", 50)]);
        asked.unwrap().is_allowed()
    };
    let by_name_later = |name: &str| {
        let asked = limiter(name).check_with([(name, "ann", 50)]).unwrap();
        block_on(asked).unwrap().is_allowed()
    };
    let by_layer = |name: &str| {
        let policy = burst(name).key(key::global()).cost(|_| 50);
        let limit = RateLimitLayer::builder().policy(policy).build().unwrap();
        let asked = hello().layer(limit).oneshot(Request::new(Body::empty()));
        block_on(asked).unwrap().status() == StatusCode::OK
    };
    let by_service = |name: &str| {
        let limit: LimitLayer<(), bool, ()> =
            LimitLayer::new(limiter(name), |()| "ann", |_| Ok(false)).cost(|()| 50);
        let inner = tower::service_fn(async |()| Ok(true));
        block_on(limit.layer(inner).oneshot(())).unwrap()
    };
    let ways: [(&str, Asked<'_>); 7] = [
        ("now", &now),
        ("verdict", &verdict),
        ("later", &later),
        ("by name", &by_name),
        ("by name, later", &by_name_later),
        ("layer", &by_layer),
        ("service", &by_service),
    ];
    for (name, is_allowed) in ways {
        let ((), lines) = Log::of(|| {
            for _ in 0..3 {
                assert!(!is_allowed(name), "{name}");
            }
        });
        assert_warns_once(&lines, "TRL016", &format!("policy {name:?}"));
    }
}

fn plans() -> Plans {
    let window = FixedWindow::per_hour;
    Plans::new([
        Plan::new("free").limit("hour", window(10)),
        Plan::new("pro").limit("hour", window(20)),
    ])
}

#[test]
fn an_unknown_plan_is_named_once_and_is_the_default_plan() {
    let ((), lines) = Log::of(|| {
        let limiter = Limiter::builder()
            .policy(Policy::new("hour", FixedWindow::per_hour(10)))
            .plans(plans(), |_| Some("platinum"))
            .build()
            .unwrap();
        for _ in 0..3 {
            let decision = limiter.check_now("ann", 1);
            assert_eq!(decision.rule().unwrap().to_string(), "plan free");
        }
    });
    assert_warns_once(&lines, "TRL017", "plan \"platinum\"");
}

#[test]
fn plans_that_no_request_can_have_are_named() {
    let hour = FixedWindow::per_hour;
    let by =
        |names: [&str; 2]| Plans::new(names.map(|name| Plan::new(name).limit("hour", hour(10))));
    let layer = |plans, finds: bool| {
        let policy = Policy::new("hour", hour(10)).key(key::global());
        let builder = RateLimitLayer::builder().policy(policy);
        let builder = if finds {
            builder.plans(plans, |_| None::<&str>)
        } else {
            builder.plans_by_name(plans)
        };
        builder.build().unwrap();
    };
    let ((), lines) = Log::of(|| layer(by(["default", "found"]), true));
    assert!(lines.is_empty(), "{lines:?}");
    let ((), lines) = Log::of(|| layer(by(["default", "found by nothing"]), false));
    assert_warns_once(&lines, "TRL033", "plan \"found by nothing\"");

    let limiter = |plan: &str, limits: KeyLimits| {
        let policy = Policy::new("hour", hour(10)).key_limits(limits);
        let plans = Plans::new([Plan::new(plan).limit("hour", hour(20))]);
        let limiter = Limiter::builder().policy(policy).plans_by_name(plans);
        limiter.build().unwrap();
    };
    let some = KeyLimits::new().key("ann", hour(1));
    let ((), lines) = Log::of(|| limiter("of all but ann", some.clone()));
    assert!(lines.is_empty(), "{lines:?}");
    let ((), lines) = Log::of(|| limiter("behind a table", some.clone().other(hour(2))));
    assert_warns_once(&lines, "TRL033", "plan \"behind a table\"");
}

#[test]
fn a_limit_of_a_closure_that_cannot_be_is_named_once() {
    let ((), lines) = Log::of(|| {
        let policy = Policy::new("limited by a closure", FixedWindow::per_hour(10));
        let limiter = Limiter::builder()
            .policy(policy.limit_by(|_| Some(FixedWindow::per_day(99))))
            .build()
            .unwrap();
        for _ in 0..3 {
            let decision = limiter.check_now("ann", 1);
            assert_eq!(decision.rule().unwrap().to_string(), "policy");
        }
    });
    assert_warns_once(&lines, "TRL020", "policy \"limited by a closure\"");
}

#[test]
fn a_policy_of_which_no_plan_speaks_is_named_unless_that_is_meant() {
    let build = |address: Policy| {
        let builder = Limiter::builder()
            .policy(Policy::new("hour", FixedWindow::per_hour(10)))
            .policy(address);
        builder.plans(plans(), |_| None::<&str>).build().unwrap();
    };
    let address = || Policy::new("address of plans", FixedWindow::per_day(10));
    let ((), lines) = Log::of(|| build(address().for_all_plans()));
    assert!(lines.is_empty(), "{lines:?}");
    let ((), lines) = Log::of(|| build(address()));
    assert_warns_once(&lines, "TRL018", "policy \"address of plans\"");
}

#[test]
fn a_plan_that_stands_in_a_header_is_warned_of() {
    let ask = |plan_of: fn(&Head<'_>) -> Option<String>| {
        let layer = RateLimitLayer::builder()
            .policy(Policy::new("hour", FixedWindow::per_hour(10)).key(key::global()))
            .plans(plans(), plan_of)
            .build()
            .unwrap();
        let app: Router = Router::new()
            .route("/", get(|| async { "hello" }))
            .layer(layer);
        let request = Request::builder().header("x-plan", "pro").extension(7_u32);
        block_on(app.oneshot(request.body(Body::empty()).unwrap())).unwrap();
    };
    let verified: fn(&Head<'_>) -> Option<String> = |head| {
        Some(format!(
            "fr{}",
            if head.extension::<u32>() == Some(&7) {
                "ee"
            } else {
                ""
            }
        ))
    };
    let ((), lines) = Log::of(|| ask(verified));
    assert!(lines.is_empty(), "{lines:?}");
    let ((), lines) = Log::of(|| ask(|head| head.header("x-plan").map(str::to_owned)));
    assert_warns_once(&lines, "TRL019", "header x-plan");
}

/// Asks at a cost above the limit; tells whether that was allowed.
type Asked<'a> = &'a dyn Fn(&str) -> bool;

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

/// A store that other processes share, which is not asked.
#[derive(Debug)]
struct SharedByAll;

impl Store for SharedByAll {
    type Ledger = DownStore;

    fn open(&self, _: &[Policy]) -> Result<DownStore, ConfigError> {
        Ok(DownStore)
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn availability(&self) -> Option<Availability> {
        Some(Availability::new().nodes(1))
    }
}

/// What is logged when a layer over a shared store is built with this key.
fn logged_of_shared(name: &str, key: impl Extract) -> Vec<Line> {
    let policy = Policy::new(name, FixedWindow::per_day(5)).key(key);
    let builder = RateLimitLayer::builder().policy(policy).store(SharedByAll);
    Log::of(|| builder.build().unwrap()).1
}

/// `key::header("x-api-key")` stood in Redis as it was sent, for every user who may list its keys.
#[test]
fn a_credential_that_reaches_a_shared_store_in_the_clear_is_warned_of() {
    let secret = Secret::new([7; 32]).unwrap();
    for name in [
        "authorization",
        "Proxy-Authorization",
        "cookie",
        "x-api-key",
        "API-Key",
        "apikey",
        "x-auth-token",
    ] {
        let subject = format!("policy {name:?}, header {}", name.to_ascii_lowercase());
        let lines = logged_of_shared(name, key::header(name));
        assert_warns_once(&lines, "TRL015", &subject);
        let again = logged_of_shared(name, key::header(name));
        assert!(again.is_empty(), "{again:?}");
        let hashed = logged_of_shared("hashed", key::header(name).hashed(&secret));
        assert!(hashed.is_empty(), "{hashed:?}");
    }
    let lines = logged_of_shared("link", key::query("access_token"));
    assert_warns_once(
        &lines,
        "TRL015",
        r#"policy "link", query parameter access_token"#,
    );

    #[cfg(feature = "tonic")]
    {
        let lines = logged_of_shared("call", key::metadata("authorization"));
        assert_warns_once(&lines, "TRL015", r#"policy "call", header authorization"#);
    }

    // Whatever it is combined with.
    let header = || key::header("x-api-key");
    for lines in [
        logged_of_shared("1", header().or(key::client_ip())),
        logged_of_shared("2", key::client_ip().or(header().prefix("a"))),
        logged_of_shared("3", header().and(key::method())),
        logged_of_shared("4", key::method().and(header()).prefix(1_u8)),
    ] {
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0].fields["code"], "TRL015");
    }
    for quiet in [
        logged_of_shared("a", key::api_key().hashed(&secret)),
        logged_of_shared(
            "b",
            key::bearer_token().hashed(&secret).or(key::client_ip()),
        ),
        logged_of_shared("c", key::cookie("session").hashed(&secret)),
        logged_of_shared("d", header().or(key::client_ip()).hashed(&secret)),
        logged_of_shared("e", key::header("x-tenant").and(key::query("page"))),
        logged_of_shared("f", key::client_ip()),
    ] {
        assert!(quiet.is_empty(), "{quiet:?}");
    }
    // Of a closure it is seen in the requests.
    let by_closure = |head: &Head<'_>| {
        let authorization = head.header("authorization")?;
        Some(("token", authorization.strip_prefix("Bearer ")?).into_key())
    };
    for (name, key) in [
        ("closure", Box::new(by_closure) as Box<dyn Extract>),
        ("from_fn", Box::new(key::from_fn(by_closure).prefix("a"))),
        (
            "map",
            Box::new(key::header("authorization").map(str::to_owned)),
        ),
    ] {
        let key = key::from_fn(move |head| key.extract(head));
        let policy = Policy::new(name, FixedWindow::per_day(5)).key(key);
        let builder = RateLimitLayer::builder().policy(policy).store(SharedByAll);
        let (limit, lines) = Log::of(|| builder.build().unwrap());
        assert!(lines.is_empty(), "{lines:?}");
        let said = |authorization: &'static str| {
            let request = Request::get("/").header("authorization", authorization);
            let asked = hello()
                .layer(limit.clone())
                .oneshot(request.body(Body::empty()).unwrap());
            let (_, mut lines) = Log::of(|| block_on(asked).unwrap());
            lines.retain(|line| line.fields.contains_key("code"));
            lines
        };
        assert!(said("short").is_empty());
        let lines = said("Bearer s3kr3t-t0k3n");
        let subject = format!("policy {name:?}, header authorization");
        assert_warns_once(&lines, "TRL015", &subject);
        assert!(!format!("{lines:?}").contains("s3kr3t"), "{lines:?}");
        assert!(said("Bearer s3kr3t-t0k3n").is_empty());
    }
    let policy = Policy::new("here", FixedWindow::per_day(5)).key(header());
    let (_, here) = Log::of(|| RateLimitLayer::builder().policy(policy).build().unwrap());
    assert!(here.is_empty(), "{here:?}");
}

macro_rules! by_user_of_its_own {
    ($name:literal, $algorithm:expr) => {{
        #[derive(Clone)]
        struct User;

        impl IntoKey for User {
            fn into_key(self) -> Key {
                Key::GLOBAL
            }
        }

        Policy::new($name, $algorithm).key(key::extension::<User>())
    }};
}
use by_user_of_its_own;

trait OfAnotherType {
    fn key_of_another_type(self) -> Policy<Http>;
}

impl OfAnotherType for Policy<Http> {
    fn key_of_another_type(self) -> Policy<Http> {
        Policy::new(self.name(), *self.algorithm()).key(key::header("x-tenant"))
    }
}

#[test]
fn a_response_that_does_not_tell_its_cost_is_warned_of() {
    let untold = Policy::new("cost that is untold", FixedWindow::per_hour(100))
        .key(key::global())
        .settle(Settle::from_header("x-cost"));
    let layer = RateLimitLayer::builder().policy(untold).build().unwrap();
    let app = |status: StatusCode, cost: &'static str| -> Router {
        let answer = move || async move { (status, [("x-cost", cost)], "hello") };
        Router::new().route("/", get(answer)).layer(layer.clone())
    };
    let send = |app: Router| {
        let response = block_on(app.oneshot(Request::new(Body::empty()))).unwrap();
        block_on(response.into_body().collect()).unwrap();
    };
    let ((), lines) = Log::of(|| {
        send(app(StatusCode::OK, "3"));
        send(app(StatusCode::NOT_FOUND, "none"));
    });
    assert!(lines.is_empty(), "{lines:?}");
    let ((), lines) = Log::of(|| (0..3).for_each(|_| send(app(StatusCode::OK, "none"))));
    assert_warns_once(&lines, "TRL025", "policy \"cost that is untold\"");
}

/// A store that charges and changes nothing else.
#[derive(Debug)]
struct ChargesOnly<T>(T);

impl Store for ChargesOnly<MemoryStore> {
    type Ledger = ChargesOnly<MemoryLedger>;

    fn open(&self, policies: &[Policy]) -> Result<Self::Ledger, ConfigError> {
        self.0.open(policies).map(ChargesOnly)
    }
}

impl Ledger for ChargesOnly<MemoryLedger> {
    fn charge(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> Charged {
        self.0.charge(charges, wanted, outcomes)
    }
}

#[test]
fn a_settlement_that_is_lost_is_warned_of_once_and_counted() {
    let limiter = Limiter::builder()
        .policy(Policy::new("never settled", FixedWindow::per_hour(100)))
        .store(ChargesOnly(MemoryStore::new()))
        .build()
        .unwrap();
    let ((), lines) = Log::of(|| {
        for cost in [3, 4, 5] {
            block_on(limiter.reserve("ann", 4)).unwrap().settle(cost);
        }
    });
    assert_warns_once(&lines, "TRL024", "policy \"never settled\"");
    // To settle the estimate changes nothing.
    assert_eq!(limiter.lost_settlements(), 2);
}

/// Each of these asks Redis for every request, though the store leases. No server is there: the store connects later.
#[cfg(feature = "redis")]
#[test]
fn policies_whose_units_cannot_be_leased_are_named_once_with_the_reasons() {
    use tower_ratelimit::policy::Penalty;
    use tower_ratelimit::store::Lease;
    use tower_ratelimit::{Concurrency, RedisStore};

    let window = |name: &str| Policy::new(name, FixedWindow::per_hour(100));
    let minute = Duration::from_secs(60);
    let policies = || {
        [
            window("leased"),
            window("unleased").unleased(),
            window("penalty").penalty(Penalty::after(3, minute)),
            window("waits").wait_up_to(minute),
            window("reserve").reserve(5),
            Policy::new("small", FixedWindow::per_hour(7)),
            Policy::new("bucket", TokenBucket::per_hour(100).burst(7)),
            Policy::new("queue", LeakyQueue::per_second(100).places(20)),
            Policy::new("slots", Concurrency::of(50)),
        ]
    };
    let opened = |lease: Option<Lease>| {
        let mut builder = RedisStore::builder();
        if let Some(lease) = lease {
            builder = builder.lease(lease);
        }
        let store = builder.open("redis://127.0.0.1:1/").unwrap();
        let limiter = Limiter::builder().policies(policies()).store(store);
        let (_, mut lines) = Log::of(|| limiter.build().unwrap());
        // One of them never binds beside another, which does not matter here.
        lines.retain(|line| line.fields["code"] == "TRL035");
        lines
    };
    assert!(opened(None).is_empty());
    let lease = Lease::up_to(Duration::from_secs(1));
    let reasons = [
        r#""penalty": it counts refusals for a penalty"#,
        r#""waits": its requests wait for their turn"#,
        r#""reserve": it keeps a reserve from requests of low priority"#,
        r#""small": it admits less than 8 units at once"#,
        r#""bucket": it admits less than 8 units at once"#,
        r#""queue": its algorithm has no units that a node can hold"#,
        r#""slots": its algorithm has no units that a node can hold"#,
    ];
    assert_warns_once(&opened(Some(lease)), "TRL035", &reasons.join("; "));
    assert!(opened(Some(lease)).is_empty());
}
