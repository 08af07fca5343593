//! Stores that fail, that other processes share, and that settle and lease.

use std::fmt::Debug;
use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode};
use tower::ServiceExt;
use tower_ratelimit::__internal::Sealed;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::key::{self, Extract, Head, IntoKey, Secret};
use tower_ratelimit::policy::Rule;
use tower_ratelimit::store::{
    Availability, Backend, Charge, Charged, MemoryBackend, Store, Wanted,
};
use tower_ratelimit::{
    ConfigError, FixedWindow, LeakyQueue, Limiter, MemoryStore, Policy, RateLimitLayer, StoreError,
    TokenBucket,
};
use tracing::Level;

use super::{ask, assert_warns_once, block_on, hello};
use crate::support::log::{Log, LogLine};

#[derive(Debug)]
struct DownStore;

impl Sealed for DownStore {}

impl Store for DownStore {
    type Backend = Self;

    fn open(&self, _: &[Rule]) -> Result<Self, ConfigError> {
        Ok(Self)
    }
}

impl Backend for DownStore {
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

/// A store that other processes share, which is not asked.
#[derive(Debug)]
struct SharedByAll;

impl Sealed for SharedByAll {}

impl Store for SharedByAll {
    type Backend = DownStore;

    fn open(&self, _: &[Rule]) -> Result<DownStore, ConfigError> {
        Ok(DownStore)
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn availability(&self) -> Option<Availability> {
        Some(Availability::new().nodes(1))
    }
}

/// Returns the log of building a layer over a shared store with this key.
fn logged_of_shared(name: &str, key: impl Extract) -> Vec<LogLine> {
    let policy = Policy::new(name, FixedWindow::per_day(5)).key(key);
    let builder = RateLimitLayer::builder().policy(policy).store(SharedByAll);
    Log::of(|| builder.build().unwrap()).1
}

/// `key::header("x-api-key")` stored API keys in Redis in the clear, for every user who may list its keys.
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

    {
        let lines = logged_of_shared("call", key::metadata("authorization"));
        assert_warns_once(&lines, "TRL015", r#"policy "call", header authorization"#);
    }

    // In any combination.
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
    // For a closure, the check looks at the requests.
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

/// A store that implements `charge` alone.
#[derive(Debug)]
struct ChargesOnly<T>(T);

impl Sealed for ChargesOnly<MemoryStore> {}

impl Store for ChargesOnly<MemoryStore> {
    type Backend = ChargesOnly<MemoryBackend>;

    fn open(&self, policies: &[Rule]) -> Result<Self::Backend, ConfigError> {
        self.0.open(policies).map(ChargesOnly)
    }
}

impl Sealed for ChargesOnly<MemoryBackend> {}

impl Backend for ChargesOnly<MemoryBackend> {
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
            block_on(limiter.reserve("ann", 4).into_future())
                .unwrap()
                .settle(cost);
        }
    });
    assert_warns_once(&lines, "TRL024", "policy \"never settled\"");
    // To settle the estimate changes nothing.
    assert_eq!(limiter.lost_settlements(), 2);
}

/// Each of these policies calls Redis for every request, though the store leases. There is no server, because the
/// store connects later.
#[test]
fn policies_whose_units_cannot_be_leased_are_named_once_with_the_reasons() {
    use tower_ratelimit::factor::FactorCell;
    use tower_ratelimit::policy::{Fair, Penalty};
    use tower_ratelimit::store::Lease;
    use tower_ratelimit::{Concurrency, RedisStore};

    let window = |name: &str| Policy::new(name, FixedWindow::per_hour(100));
    let minute = Duration::from_secs(60);
    let policies = || {
        [
            window("leased"),
            window("unleased").without_lease(),
            Policy::new("divided", TokenBucket::per_hour(100)).fair(Fair::new()),
            Policy::new("divided slots", Concurrency::of(50)).fair(Fair::new()),
            window("penalty").penalty(Penalty::after(3, minute)),
            window("waits").wait_up_to(minute),
            window("reserve").reserve(5),
            Policy::new("small", FixedWindow::per_hour(7)),
            Policy::new("bucket", TokenBucket::per_hour(100).burst(7)),
            Policy::new("parts", FixedWindow::per_hour(7)).factor(&FactorCell::new()),
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
        r#""divided slots": its algorithm has no units that a node can hold"#,
        r#""penalty": it counts refusals for a penalty"#,
        r#""waits": its requests wait for their turn"#,
        r#""reserve": it keeps a reserve from requests of low priority"#,
        r#""small": it admits less than 8 units at once"#,
        r#""bucket": it admits less than 8 units at once"#,
        r#""parts": it admits less than 8 units at once"#,
        r#""queue": its algorithm has no units that a node can hold"#,
        r#""slots": its algorithm has no units that a node can hold"#,
    ];
    assert_warns_once(&opened(Some(lease)), "TRL035", &reasons.join("; "));
    assert!(opened(Some(lease)).is_empty());
}
