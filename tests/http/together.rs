//! Trees, either–or and fair shares beside everything else: each cell of the table in `docs/together.md`.
//!
//! Whatever divides it, a client has five units an hour, so that it shows what each option does to them.

use std::time::Duration;

use http::{Method, Request, StatusCode};
use tower::ServiceExt;
use tower_ratelimit::error::StoreError;
use tower_ratelimit::factor::{Factor, FactorCell};
use tower_ratelimit::key::{self, IntoKey, Key};
use tower_ratelimit::middleware::RateLimitLayerBuilder;
use tower_ratelimit::plan::{Plan, Plans, Resolved, Resolver};
use tower_ratelimit::policy::{Fair, Http, Mode, OnMissingKey, Penalty, Settle};
use tower_ratelimit::{ConfigError, MemoryStore, Policy, RateLimitLayer, TokenBucket};

use crate::arrivals::store;
use crate::exchange::{Behind, Hello, cost};
use crate::trees::of;

const PAGE: &str = include_str!("../../docs/together.md");

const HOUR: Duration = Duration::from_secs(3_600);

/// How many requests a test sends: twice as many as pass.
const SENT: usize = 10;

type Builder = RateLimitLayerBuilder<MemoryStore>;
type Built = Result<RateLimitLayer, ConfigError>;

/// The columns of the table.
#[derive(Clone, Copy, Debug)]
enum Subject {
    Tree,
    FirstOf,
    Fair,
}

const ALL: [Subject; 3] = [Subject::Tree, Subject::FirstOf, Subject::Fair];

fn bucket(name: &str, units: u32) -> Policy<Http> {
    Policy::new(name, TokenBucket::per_hour(units)).key(key::header("x-org"))
}

fn divided(name: &str, units: u32) -> Policy<Http> {
    Policy::new(name, TokenBucket::per_hour(units))
        .key(key::global())
        .fair_by(key::header("x-org"), Fair::new().active_for(HOUR))
}

impl Subject {
    /// Five units an hour, with this option for each policy.
    fn builder(self, set: impl Fn(Policy<Http>) -> Policy<Http>) -> Builder {
        let builder = RateLimitLayer::builder().store(store());
        match self {
            Self::Tree => {
                let tree = Policy::tree("spend")
                    .level("org", key::header("x-org"), TokenBucket::per_hour(5))
                    .level("team", key::header("x-team"), TokenBucket::per_hour(5));
                builder.policies(tree.each(set).build().unwrap())
            }
            Self::FirstOf => builder
                .policies([bucket("plan", 2), bucket("credits", 3)].map(set))
                .first_of("payer", ["plan", "credits"]),
            Self::Fair => builder.policy(set(divided("upstream", 5))),
        }
    }

    /// Returns a policy that counts the client, and its key there.
    fn counted(self) -> (&'static str, Key) {
        match self {
            Self::Tree => ("spend.org", Key::branch("acme", &[])),
            Self::FirstOf => ("plan", "acme".into_key()),
            Self::Fair => ("upstream", Key::branch(Key::GLOBAL, &["acme".into_key()])),
        }
    }
}

/// Builds each subject with an option for each of its policies, and with an option of the layer.
fn each(
    set: impl Fn(Policy<Http>) -> Policy<Http>,
    with: impl Fn(Subject, Builder) -> Builder,
) -> [Built; 3] {
    ALL.map(|subject| with(subject, subject.builder(&set)).build())
}

fn each_with(set: impl Fn(Policy<Http>) -> Policy<Http>) -> [Built; 3] {
    each(set, |_, builder| builder)
}

/// Returns the names of the rows of the page, and whether each subject works there.
fn rows() -> Vec<(&'static str, [bool; 3])> {
    let cells = |line: &'static str| line.trim_matches('|').split(" | ").map(str::trim);
    let rows = PAGE.lines().filter(|line| line.starts_with("| ")).skip(2);
    rows.map(|line| {
        let mut cells = cells(line);
        let name = cells.next().unwrap();
        let works = cells.map(|cell| match cell.split(':').next().unwrap() {
            "works" => true,
            "refused" => false,
            _ => panic!("{name} neither works nor is refused: {cell}"),
        });
        (name, works.collect::<Vec<_>>().try_into().unwrap())
    })
    .collect()
}

/// Compares what works with what the page says in this row, and returns the layers. What is refused has a remedy.
#[track_caller]
fn as_told(row: &str, each: [Built; 3]) -> [Option<RateLimitLayer>; 3] {
    let rows = rows();
    let (_, told) = rows.iter().find(|(name, _)| *name == row).unwrap();
    let works = each.each_ref().map(Result::is_ok);
    assert_eq!(works, *told, "{row}: {each:?}");
    each.map(|built| {
        built
            .inspect_err(|error| {
                let mut ways = ["leave", "without"].into_iter();
                assert!(
                    ways.any(|way| error.remedy().contains(way)),
                    "{row}: {error}"
                );
            })
            .ok()
    })
}

async fn passes(layer: &RateLimitLayer, request: Request<()>) -> StatusCode {
    let response = Hello::behind(layer).oneshot(request).await.unwrap();
    response.status()
}

async fn count(layer: &RateLimitLayer, request: impl Fn() -> Request<()>) -> usize {
    let mut passed = 0;
    for _ in 0..SENT {
        passed += usize::from(passes(layer, request()).await == StatusCode::OK);
    }
    passed
}

/// Returns how many requests pass of those that work as the page says.
async fn counts(
    row: &str,
    each: [Built; 3],
    request: impl Fn() -> Request<()>,
) -> [Option<usize>; 3] {
    let mut counts = [None; 3];
    for (count, layer) in counts.iter_mut().zip(as_told(row, each)) {
        if let Some(layer) = layer {
            *count = Some(self::count(&layer, &request).await);
        }
    }
    counts
}

fn acme() -> Request<()> {
    of(&["acme", "blue"])
}

#[test]
fn the_page_has_each_row_that_is_tried() {
    let names: Vec<_> = rows().iter().map(|(name, _)| *name).collect();
    let tried = [
        "`on_missing_key`",
        "`when`",
        "`mode`",
        "`cost`",
        "`estimate` and `settle`",
        "`penalty`",
        "`wait_up_to`",
        "`hours`",
        "a factor",
        "plans",
        "a resolver",
        "an override",
        "a block, a reset",
        "`renamed_from`",
        "a tree",
        "`first_of`",
        "`fair`",
    ];
    assert_eq!(names, tried);
}

#[tokio::test(start_paused = true)]
async fn a_missing_key() {
    for layer in each_with(|policy| policy) {
        assert_eq!(count(&layer.unwrap(), acme).await, 5);
    }
    let unauthorized = OnMissingKey::Refuse(StatusCode::UNAUTHORIZED);
    let refusing = each_with(|policy| policy.on_missing_key(unauthorized));
    for layer in as_told("`on_missing_key`", refusing) {
        let layer = layer.unwrap();
        assert_eq!(passes(&layer, of(&[])).await, StatusCode::UNAUTHORIZED);
        assert_eq!(count(&layer, acme).await, 5);
    }
    let skipping = each_with(|policy| policy.on_missing_key(OnMissingKey::Skip));
    let counts = counts("`on_missing_key`", skipping, || of(&[])).await;
    assert_eq!(counts, [Some(SENT); 3]);
}

#[tokio::test(start_paused = true)]
async fn a_condition() {
    let posts = each_with(|policy| policy.when(|head| head.method() == "POST"));
    for layer in as_told("`when`", posts) {
        let layer = layer.unwrap();
        assert_eq!(count(&layer, acme).await, SENT);
        let post = || {
            let mut request = acme();
            *request.method_mut() = Method::POST;
            request
        };
        assert_eq!(count(&layer, post).await, 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_mode() {
    for mode in [Mode::Off, Mode::Shadow] {
        let counts = counts("`mode`", each_with(|policy| policy.mode(mode)), acme).await;
        assert_eq!(counts, [Some(SENT); 3], "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cost() {
    for layer in as_told("`cost`", each_with(|policy| policy.cost(cost))) {
        let layer = layer.unwrap();
        let mut passed = Vec::new();
        for units in [2_u32, 3, 1] {
            let mut request = acme();
            request.headers_mut().insert("x-cost", units.into());
            passed.push(passes(&layer, request).await == StatusCode::OK);
        }
        assert_eq!(passed, [true, true, false]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_estimate_and_a_settlement() {
    let estimated = |real: Option<u32>| {
        each_with(move |policy| {
            policy
                .estimate(2)
                .settle(Settle::from_ending(move |_| real))
        })
    };
    // The second member takes the second request of two units, and has one left.
    let without = counts("`estimate` and `settle`", estimated(None), acme).await;
    assert_eq!(without, [Some(2); 3]);
    let free = counts("`estimate` and `settle`", estimated(Some(0)), acme).await;
    assert_eq!(free, [Some(SENT); 3]);
    let dear = counts("`estimate` and `settle`", estimated(Some(4)), acme).await;
    assert_eq!(dear, [Some(1), Some(2), Some(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_penalty() {
    let penalty = Penalty::after(8, HOUR).block(3 * HOUR);
    let blocking = each_with(|policy| policy.penalty(penalty));
    for layer in as_told("`penalty`", blocking).into_iter().flatten() {
        assert_eq!(count(&layer, acme).await, 5);
        assert_eq!(count(&layer, acme).await, 0);
        // The limit is whole again, and the block goes on.
        tokio::time::advance(2 * HOUR).await;
        assert_eq!(count(&layer, acme).await, 0);
        assert_eq!(count(&layer, || of(&["other", "blue"])).await, 5);
        tokio::time::advance(2 * HOUR).await;
        assert_eq!(count(&layer, acme).await, 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait() {
    let waiting = each_with(|policy| policy.wait_up_to(HOUR));
    let counts = counts("`wait_up_to`", waiting, acme).await;
    assert_eq!(counts, [Some(SENT), None, None]);
}

#[tokio::test(start_paused = true)]
async fn hours() {
    let hours = tower_ratelimit::Hours::in_zone("UTC").unwrap();
    let hours = hours.at("00:00-24:00", TokenBucket::per_hour(1)).unwrap();
    let timed = each_with(|policy| policy.hours(&hours).unwrap());
    let counts = counts("`hours`", timed, acme).await;
    assert_eq!(counts, [Some(1), None, None]);
    // Those of another policy, too.
    let beside = each(
        |policy| policy,
        |_, builder| builder.policy(bucket("other", 9).hours(&hours).unwrap()),
    );
    as_told("`hours`", beside);
}

#[tokio::test(start_paused = true)]
async fn a_factor() {
    let factor = FactorCell::new();
    factor.set(Factor::thousandths(400), "the test");
    let scaled = each_with(|policy| policy.factor(&factor));
    let counts = counts("a factor", scaled, acme).await;
    assert_eq!(counts, [Some(2), None, None]);
}

/// Returns a plan that sets a limit of one unit, or none where that is refused.
fn plan(subject: Subject) -> Plan {
    match subject {
        Subject::Tree => Plan::new("small").limit("spend.team", TokenBucket::per_hour(1)),
        Subject::FirstOf => Plan::new("small").limit("plan", TokenBucket::per_hour(1)),
        Subject::Fair => Plan::new("small"),
    }
}

#[tokio::test(start_paused = true)]
async fn plans() {
    let planned = each(
        |policy| policy,
        |subject, builder| builder.plans(Plans::new([plan(subject)]), |_| Some("small")),
    );
    let counts = counts("plans", planned, acme).await;
    assert_eq!(counts, [Some(1), Some(1 + 3), Some(5)]);
    // What a plan gives to a divided limit is a weight: with one of 4, four times as much is kept.
    let kept = async |weight: u32| {
        let fair = Fair::new().active_for(HOUR).weight("small", weight);
        let policy = Policy::new("upstream", TokenBucket::per_hour(50))
            .key(key::global())
            .fair_by(key::header("x-org"), fair);
        let plans = Plans::new([Plan::new("small"), Plan::new("other")]);
        let layer = RateLimitLayer::builder()
            .policy(policy)
            .plans(plans, |head| {
                let is_acme = head.header("x-org") == Some("acme");
                Some(if is_acme { "small" } else { "other" })
            })
            .store(store())
            .build()
            .unwrap();
        passes(&layer, acme()).await;
        while passes(&layer, of(&["hog", "blue"])).await == StatusCode::OK {}
        tokio::time::advance(HOUR / 2).await;
        let mut passed = 0;
        while passes(&layer, of(&["hog", "blue"])).await == StatusCode::OK {
            passed += 1;
        }
        passed
    };
    let (equal, weighted) = (kept(1).await, kept(4).await);
    assert!(weighted < equal, "{weighted} of {equal}");
    let limits = Plans::new([Plan::new("small").limit("upstream", TokenBucket::per_hour(9))]);
    let error = Subject::Fair.builder(|policy| policy).plans_by_name(limits);
    assert!(error.build().unwrap_err().remedy().contains("weight"));
}

#[tokio::test(start_paused = true)]
async fn a_resolver() {
    let resolved = each(
        |policy| policy,
        |subject, builder| {
            let resolver = Resolver::new(move |_: String| async move {
                Ok::<_, std::io::Error>(match subject {
                    Subject::Fair => Resolved::plan("small"),
                    _ => Resolved::Limits(plan(subject)),
                })
            });
            let builder = builder.plans_by_name(Plans::new([Plan::new("small")]));
            builder.resolver(resolver, |head| head.header("x-org").map(str::to_owned))
        },
    );
    let counts = counts("a resolver", resolved, acme).await;
    assert_eq!(counts, [Some(1), Some(1 + 3), Some(5)]);
}

#[tokio::test(start_paused = true)]
async fn an_override() {
    let overridden = ALL.map(|subject| {
        let layer = subject.builder(|policy| policy).build().unwrap();
        let (policy, key) = subject.counted();
        let one = TokenBucket::per_hour(1);
        let limiter = layer.limiter();
        let answer = limiter.override_limit(policy, key, one, HOUR)?;
        crate::exchange::now(answer).unwrap();
        Ok(layer)
    });
    let counts = counts("an override", overridden, acme).await;
    assert_eq!(counts, [Some(1), Some(1 + 3), None]);
}

#[tokio::test(start_paused = true)]
async fn a_block_and_a_reset() -> Result<(), StoreError> {
    let plain = as_told("a block, a reset", each_with(|policy| policy));
    for (subject, layer) in ALL.into_iter().zip(plain) {
        let (limiter, layer) = (layer.as_ref().unwrap().limiter(), layer.as_ref().unwrap());
        let (_, key) = subject.counted();
        limiter.block(key, HOUR).await?;
        assert_eq!(count(layer, acme).await, 0, "{subject:?}");
        assert_eq!(passes(layer, of(&["other", "blue"])).await, StatusCode::OK);
        assert!(limiter.unblock(key).await?);
        assert!(count(layer, acme).await >= 4, "{subject:?}");
        limiter.reset(key).await?;
        if matches!(subject, Subject::Tree) {
            // The key of its team is another one.
            limiter
                .reset(Key::branch("acme", &["blue".into_key()]))
                .await?;
        }
        assert_eq!(count(layer, acme).await, 5, "{subject:?}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_former_name() {
    let kept = store();
    let before = each(|policy| policy, |_, builder| builder.store(kept.clone()));
    let before = as_told("`renamed_from`", before).map(Option::unwrap);
    for layer in &before {
        assert_eq!(count(layer, acme).await, 5);
    }
    let renamed = ALL.map(|subject| {
        let builder = RateLimitLayer::builder().store(kept.clone());
        match subject {
            Subject::Tree => {
                let tree = Policy::tree("budget")
                    .level("org", key::header("x-org"), TokenBucket::per_hour(5))
                    .with(|org| org.renamed_from("spend.org"))
                    .level("team", key::header("x-team"), TokenBucket::per_hour(9));
                builder.policies(tree.build().unwrap())
            }
            Subject::FirstOf => builder
                .policy(bucket("abo", 2).renamed_from("plan"))
                .policy(bucket("more", 3).renamed_from("credits"))
                .first_of("payer", ["abo", "more"]),
            Subject::Fair => builder.policy(divided("model", 5).renamed_from("upstream")),
        }
        .build()
    });
    let counts = counts("`renamed_from`", renamed, acme).await;
    assert_eq!(counts, [Some(0); 3]);
}

/// A tree of three units an hour, of which a request of these subjects is charged as well.
fn tree() -> Vec<Policy<Http>> {
    let tree = Policy::tree("other").level("org", key::header("x-org"), TokenBucket::per_hour(3));
    tree.build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_tree() {
    let beside = each(|policy| policy, |_, builder| builder.policies(tree()));
    for layer in as_told("a tree", beside) {
        let layer = layer.unwrap();
        assert_eq!(count(&layer, acme).await, 3);
        // What the tree refuses is not charged to the others, either.
        let used = layer
            .limiter()
            .inspect(Key::branch("acme", &[]))
            .await
            .unwrap();
        assert!(
            used.to_string().contains("other.org: 3 of 3 used"),
            "{used}"
        );
        let snapshot = layer.limiter().snapshot();
        assert!(snapshot.policies.iter().all(|policy| policy.allowed <= 3));
    }
    let member = RateLimitLayer::builder()
        .policies(tree())
        .policy(bucket("credits", 2))
        .first_of("payer", ["other.org", "credits"])
        .store(store())
        .build();
    assert_eq!(count(&member.unwrap(), acme).await, 3 + 2);
    let level = Policy::tree("spend").level_of(divided("spend.org", 9));
    let error = level.build().unwrap_err();
    assert!(error.remedy().contains("beside"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_group() {
    let beside = each(
        |policy| policy,
        |_, builder| {
            builder
                .policies([bucket("first", 1), bucket("second", 2)])
                .first_of("other", ["first", "second"])
        },
    );
    let counts = counts("`first_of`", beside, acme).await;
    assert_eq!(counts, [Some(3), Some(3), None]);
}

#[tokio::test(start_paused = true)]
async fn a_divided_limit() {
    let beside = each(
        |policy| policy,
        |_, builder| builder.policy(divided("other", 7)),
    );
    for (subject, layer) in ALL.into_iter().zip(as_told("`fair`", beside)) {
        let Some(layer) = layer else { continue };
        assert_eq!(count(&layer, acme).await, 5, "{subject:?}");
        // What the subject refuses uses nothing of the other limit.
        let client = Key::branch(Key::GLOBAL, &["acme".into_key()]);
        let inspection = layer.limiter().inspect(client).await.unwrap();
        let mut each = inspection.policies();
        let (_, other) = each.find(|(name, _)| *name == "other").unwrap();
        assert_eq!(other.remaining(), 2, "{subject:?}");
        let passed = count(&layer, || of(&["other", "blue"])).await;
        let left = match subject {
            Subject::Tree => 2,
            Subject::FirstOf | Subject::Fair => 0,
        };
        assert_eq!(passed, left, "{subject:?}");
    }
}
