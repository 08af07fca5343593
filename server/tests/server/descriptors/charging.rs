//! What requests are charged, and how they are answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratelimitd::envoy::messages::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratelimitd::envoy::messages::envoy::service::ratelimit::v3::rate_limit_response::Code;
use ratelimitd::envoy::messages::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use ratelimitd::envoy::messages::envoy::r#type::v3::RateLimitUnit;
use ratelimitd::ratelimit::{Headers, NoAnswer, Options, RateLimits};
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::store::{Change, Changed, Items, Reply, SharedStore};
use tower_ratelimit::{Micros, StoreError};

use tokio::time::Instant;

use crate::scene::LONG;

use super::{Folder, START, Scene, With, codes, descriptor, header, passes, request, until_reset};

pub(super) const FILE: &str = "
domain: shop
descriptors:
- key: tenant
  rate_limit: { unit: hour, requests_per_unit: 10 }
- key: path
  rate_limit: { unit: minute, requests_per_unit: 3, name: per path }
- key: shadow
  shadow_mode: true
  rate_limit: { unit: hour, requests_per_unit: 1 }
- key: tokens
  rate_limit: { unit: hour, requests_per_unit: 100, settles: true }
- key: burst
  rate_limit: { unit: minute, requests_per_unit: 6, algorithm: token-bucket, burst: 2 }
- key: long
  rate_limit: { period: 10min, requests_per_unit: 4 }
- key: minutes
  rate_limit: { unit: minute, unit_multiplier: 10, requests_per_unit: 4 }
- key: none
  rate_limit: { unit: hour, requests_per_unit: 0 }
";

#[tokio::test]
async fn a_refused_request_charges_nothing() {
    let scene = Scene::new(FILE);
    let tenant = descriptor(&[("tenant", "gold")]);
    let path = descriptor(&[("path", "/a")]);
    assert_eq!(scene.pass(&path, [3]).await, [true]);
    let refused = scene.ask(vec![tenant.clone(), path.clone()]).await;
    assert_eq!(codes(&refused), [Code::Ok, Code::OverLimit]);
    assert!(!passes(&refused));
    assert_eq!(scene.remaining(&tenant).await, 10);

    // As much as is left passes, and the refused request took none of it.
    assert_eq!(
        scene.pass(&tenant, [8, 5, 2, 1]).await,
        [true, false, true, false]
    );
}

#[tokio::test]
async fn a_look_charges_nothing_and_tells_whether_one_more_would_pass() {
    let scene = Scene::new(FILE);
    let (tenant, path) = (
        descriptor(&[("tenant", "gold")]),
        descriptor(&[("path", "/a")]),
    );
    assert_eq!(
        scene.pass(&path, [0, 3, 0, 0]).await,
        [true, true, false, false]
    );
    assert_eq!(scene.remaining(&tenant).await, 10);
    // A look at a limit that is reached refuses the request, and the other descriptor is not charged.
    let refused = scene.ask(vec![tenant.clone(), path.clone().at(0)]).await;
    assert_eq!(codes(&refused), [Code::Ok, Code::OverLimit]);
    assert_eq!(header(&refused, "retry-after"), Some("60"));
    assert_eq!(scene.remaining(&tenant).await, 10);
    scene.clock.advance(Duration::from_secs(60));
    let passed = scene.ask(vec![tenant.clone(), path.clone().at(0)]).await;
    assert!(passes(&passed));
    let left: Vec<u32> = passed
        .statuses
        .iter()
        .map(|status| status.limit_remaining)
        .collect();
    assert_eq!(left, [9, 3]);
    // The request's number is 1 if it is 0, and that of a descriptor comes first.
    let mut request = request(vec![tenant.clone(), path.clone().at(2)]);
    request.hits_addend = 4;
    let passed = scene.answer(request).await.unwrap();
    let left: Vec<u32> = passed
        .statuses
        .iter()
        .map(|status| status.limit_remaining)
        .collect();
    assert_eq!(left, [5, 1]);
}

#[tokio::test]
async fn descriptors_of_one_limit_are_charged_together() {
    let scene = Scene::new(FILE);
    let path = |value| descriptor(&[("path", value)]);
    let both = || vec![path("/a"), path("/b").at(2), path("/a")];
    let passed = scene.ask(both()).await;
    assert!(passes(&passed));
    assert_eq!(
        (
            scene.remaining(&path("/a")).await,
            scene.remaining(&path("/b")).await
        ),
        (1, 1)
    );
    let refused = scene.ask(both()).await;
    assert_eq!(codes(&refused), [Code::OverLimit; 3]);
    assert_eq!(
        (
            scene.remaining(&path("/a")).await,
            scene.remaining(&path("/b")).await
        ),
        (1, 1)
    );
    let refused = scene.ask(vec![path("/c"), path("/a").at(2)]).await;
    assert_eq!(codes(&refused), [Code::Ok, Code::OverLimit]);
    assert_eq!(scene.remaining(&path("/c")).await, 3);
}

#[tokio::test]
async fn each_status_has_its_limit_and_the_true_wait() {
    let scene = Scene::new(FILE);
    scene.clock.advance(Duration::from_millis(15_500));
    let path = descriptor(&[("path", "/a")]);
    let passed = scene.ask(vec![path.clone().at(2)]).await;
    let limit = passed.statuses[0].current_limit.clone().unwrap();
    assert_eq!((limit.requests_per_unit, &*limit.name), (3, "per path"));
    // 44.5 seconds, in whole ones that are long enough.
    assert_eq!(until_reset(&passed.statuses[0]), Duration::from_secs(45));
    assert_eq!(header(&passed, "retry-after"), None);
    let draft = header(&passed, "ratelimit").unwrap();
    assert!(draft.starts_with("\"shop/path\";r=1;t=45"), "{draft}");
    let policy = header(&passed, "ratelimit-policy").unwrap();
    assert!(policy.contains("\"shop/path\";q=3;w=60"), "{policy}");

    let refused = scene.ask(vec![path.at(2)]).await;
    assert_eq!(
        (
            refused.statuses[0].limit_remaining,
            header(&refused, "retry-after")
        ),
        (1, Some("45"))
    );

    // A bucket of 6 a minute gives one each 10 seconds.
    let burst = descriptor(&[("burst", "x")]);
    assert_eq!(scene.pass(&burst, [2]).await, [true]);
    let refused = scene.ask(vec![burst.clone().at(2)]).await;
    assert_eq!(header(&refused, "retry-after"), Some("20"));
    assert_eq!(until_reset(&refused.statuses[0]), Duration::from_secs(20));
    scene.clock.advance(Duration::from_secs(20));
    assert_eq!(scene.pass(&burst, [2]).await, [true]);

    // No wait helps what is more than the limit, and the window ends all the same.
    for (sent, left) in [
        (descriptor(&[("path", "/b")]).at(4), 25),
        (descriptor(&[("none", "x")]), 3_565),
    ] {
        let refused = scene.ask(vec![sent]).await;
        assert_eq!(header(&refused, "retry-after"), None);
        assert_eq!(until_reset(&refused.statuses[0]), Duration::from_secs(left));
    }
    // A period that is none of their units.
    let long = scene.ask(vec![descriptor(&[("long", "x")])]).await;
    assert_eq!(long.statuses[0].current_limit.as_ref().unwrap().unit, 0);
    assert_eq!(until_reset(&long.statuses[0]), Duration::from_secs(565));
    let minutes = scene.ask(vec![descriptor(&[("minutes", "x")])]).await;
    let limit = minutes.statuses[0].current_limit.as_ref().unwrap();
    assert_eq!(
        (limit.requests_per_unit, limit.unit(), limit.unit_multiplier),
        (4, Unit::Minute, Some(10))
    );
    assert_eq!(until_reset(&minutes.statuses[0]), Duration::from_secs(565));
}

#[tokio::test]
async fn windows_begin_where_theirs_do() {
    for (unit, seconds) in [
        ("second", 1),
        ("minute", 60),
        ("hour", 3_600),
        ("day", 86_400),
        ("week", 7 * 86_400),
        ("month", 30 * 86_400),
        ("year", 365 * 86_400),
    ] {
        let file = format!(
            "domain: shop\ndescriptors:\n- key: k\n  rate_limit: {{ unit: {unit}, requests_per_unit: 1 }}\n"
        );
        let scene = Scene::new(&file);
        scene.clock.advance(Duration::from_secs(100_000));
        let now = START + 100_000;
        let sent = descriptor(&[("k", "v")]);
        let passed = scene.ask(vec![sent.clone()]).await;
        let left = Duration::from_secs(seconds - now % seconds);
        assert_eq!(until_reset(&passed.statuses[0]), left, "{unit}");
        scene
            .clock
            .advance(left.saturating_sub(Duration::from_micros(1)));
        assert_eq!(scene.pass(&sent, [1]).await, [false], "{unit}");
        scene.clock.advance(Duration::from_micros(1));
        assert_eq!(scene.pass(&sent, [1]).await, [true], "{unit}");
    }
}

#[tokio::test]
async fn a_limit_in_shadow_refuses_nothing() {
    let scene = Scene::new(FILE);
    let (tenant, shadow) = (
        descriptor(&[("tenant", "gold")]),
        descriptor(&[("shadow", "x")]),
    );
    for left in [9, 8] {
        let answer = scene.ask(vec![tenant.clone(), shadow.clone()]).await;
        assert_eq!(codes(&answer), [Code::Ok, Code::Ok]);
        let remaining: Vec<u32> = answer
            .statuses
            .iter()
            .map(|status| status.limit_remaining)
            .collect();
        assert_eq!(remaining, [left, 0]);
        assert_eq!(header(&answer, "retry-after"), None);
        let draft = header(&answer, "ratelimit").unwrap();
        assert!(!draft.contains("shadow"), "{draft}");
    }
}

#[tokio::test]
async fn what_settles_counts_whole_and_limits_what_comes_next() {
    let scene = Scene::new(FILE);
    let tokens = descriptor(&[("tokens", "ann")]);
    // A look at the request, and the tokens at the end of the stream.
    assert_eq!(scene.pass(&tokens, [0]).await, [true]);
    let over = scene.ask(vec![tokens.clone().at(90)]).await;
    assert_eq!(
        (passes(&over), over.statuses[0].limit_remaining),
        (true, 10)
    );
    assert_eq!(scene.pass(&tokens, [0, 500, 0]).await, [true, true, false]);
    // They were used, although nothing was left.
    let refused = scene.ask(vec![tokens.clone().at(7)]).await;
    assert_eq!(
        (passes(&refused), header(&refused, "retry-after")),
        (false, Some("3600"))
    );
    scene.clock.advance(Duration::from_secs(3_600));
    assert_eq!(scene.remaining(&tokens).await, 100);
}

#[tokio::test]
async fn the_limit_of_a_descriptor_comes_before_the_file() {
    let scene = Scene::new(FILE);
    let gold = |requests, unit| descriptor(&[("tenant", "gold")]).under(requests, unit);
    let hour = RateLimitUnit::Hour;
    assert_eq!(
        scene.pass(&gold(2, hour), [1, 1, 1]).await,
        [true, true, false]
    );
    // A higher limit keeps what was used, and that of the file is another one.
    let raised = scene.ask(vec![gold(5, hour)]).await;
    assert_eq!(
        (passes(&raised), raised.statuses[0].limit_remaining),
        (true, 2)
    );
    let limit = raised.statuses[0].current_limit.as_ref().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit), (5, 3));
    assert_eq!(until_reset(&raised.statuses[0]), Duration::from_secs(3_600));
    assert_eq!(
        scene.remaining(&descriptor(&[("tenant", "gold")])).await,
        10
    );
    assert_eq!(
        scene.pass(&gold(1, RateLimitUnit::Week), [1, 1]).await,
        [true, false]
    );
    assert_eq!(scene.pass(&gold(0, hour), [1]).await, [false]);
    // Both together, one of which no file has.
    let unknown = descriptor(&[("unknown", "x")]).under(1, hour);
    let answer = scene
        .ask(vec![
            gold(9, hour),
            unknown.clone(),
            descriptor(&[("path", "/a")]),
        ])
        .await;
    let left: Vec<u32> = answer
        .statuses
        .iter()
        .map(|status| status.limit_remaining)
        .collect();
    assert_eq!((passes(&answer), left), (true, vec![5, 0, 2]));
    // Without a unit there is no limit.
    let error = scene
        .answer(request(vec![gold(1, RateLimitUnit::Unknown)]))
        .await;
    let Err(NoAnswer::Invalid(error)) = error else {
        panic!("{error:?}")
    };
    assert!(error.contains("limit.unit is UNKNOWN; send"), "{error}");
    // In a domain that no file has, no limit holds.
    let mut elsewhere = request(vec![gold(0, hour)]);
    elsewhere.domain = "elsewhere".to_owned();
    let answer = scene.answer(elsewhere).await.unwrap();
    assert_eq!((passes(&answer), codes(&answer)), (true, vec![Code::Ok]));
}

fn under_units(requests: u32, unit: RateLimitUnit, units: u32) -> RateLimitDescriptor {
    let mut own = descriptor(&[("tenant", "gold")]).under(requests, unit);
    own.limit.as_mut().unwrap().unit_multiplier = Some(units);
    own
}

async fn refusal(scene: &Scene, descriptor: RateLimitDescriptor) -> String {
    match scene.answer(request(vec![descriptor])).await {
        Err(NoAnswer::Invalid(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_limit_of_a_descriptor_may_have_a_period_of_several_units() {
    let scene = Scene::new(FILE);
    let hour = RateLimitUnit::Hour;
    let three_hours = under_units(2, hour, 3);
    let answer = scene.ask(vec![three_hours.clone()]).await;
    let limit = answer.statuses[0].current_limit.as_ref().unwrap();
    assert_eq!(
        (limit.requests_per_unit, limit.unit(), limit.unit_multiplier),
        (2, Unit::Hour, Some(3))
    );
    assert_eq!(
        until_reset(&answer.statuses[0]),
        Duration::from_secs(3 * 3_600)
    );
    assert_eq!(
        header(&answer, "ratelimit-policy")
            .unwrap()
            .split(";w=")
            .nth(1),
        Some("10800")
    );
    // Each period counts apart, and one unit is what no number of them says.
    assert_eq!(
        scene.pass(&under_units(1, hour, 2), [1, 1]).await,
        [true, false]
    );
    assert_eq!(scene.pass(&under_units(1, hour, 1), [1]).await, [true]);
    let one = descriptor(&[("tenant", "gold")]).under(1, hour);
    assert_eq!(scene.pass(&one, [1]).await, [false]);
    assert_eq!(scene.pass(&three_hours, [1, 1]).await, [true, false]);
    scene.clock.advance(Duration::from_secs(2 * 3_600));
    assert_eq!(scene.pass(&three_hours, [1]).await, [false]);
    // It counts on after a reload, and together with others or not at all.
    scene
        .folder
        .write("shop.yaml", &format!("{FILE}# read again\n"));
    scene.limits.reload();
    let answer = scene
        .ask(vec![under_units(9, hour, 2), three_hours.clone()])
        .await;
    assert_eq!(codes(&answer), [Code::Ok, Code::OverLimit]);
    assert_eq!(scene.remaining(&under_units(9, hour, 2)).await, 9);
    scene.clock.advance(Duration::from_secs(3_600));
    assert_eq!(scene.pass(&three_hours, [1]).await, [true]);
}

#[tokio::test]
async fn the_periods_that_descriptors_bring_are_bounded() {
    let scene = Scene::new(FILE);
    let minute = RateLimitUnit::Minute;
    for units in 2..18 {
        assert_eq!(
            scene.pass(&under_units(1, minute, units), [1]).await,
            [true]
        );
    }
    let why = refusal(&scene, under_units(1, minute, 18)).await;
    assert!(
        why.starts_with("limit.unit_multiplier is 18: 16 other periods are counted, and no more;"),
        "{why}"
    );
    // Those that are there count on, also after the files were read again.
    scene
        .folder
        .write("shop.yaml", &format!("{FILE}# read again\n"));
    scene.limits.reload();
    assert_eq!(scene.pass(&under_units(1, minute, 17), [1]).await, [false]);
    let why = refusal(&scene, under_units(1, minute, 18)).await;
    assert!(why.contains("16 other periods"), "{why}");

    let scene = Scene::new(FILE);
    let why = refusal(&scene, under_units(1, RateLimitUnit::Year, u32::MAX)).await;
    assert!(
        why.starts_with("limit.unit_multiplier is 4294967295: "),
        "{why}"
    );
}

/// Quotas, of which one has to have room.
pub(super) const QUOTAS: &str = "
domain: shop
descriptors:
- key: provider
  value: a
  quota_mode: true
  metadata: { route: { to: a, weight: 2 } }
  rate_limit: { unit: hour, requests_per_unit: 1 }
- key: provider
  value: b
  quota_mode: true
  metadata: { route: { to: b, region: eu } }
  rate_limit: { unit: hour, requests_per_unit: 2 }
- key: tenant
  rate_limit: { unit: hour, requests_per_unit: 10 }
";

#[tokio::test]
async fn of_quotas_one_has_to_have_room() {
    let scene = Scene::new(QUOTAS);
    let (a, b) = (
        descriptor(&[("provider", "a")]),
        descriptor(&[("provider", "b")]),
    );
    let tenant = descriptor(&[("tenant", "gold")]);
    let ask = || scene.ask(vec![a.clone(), b.clone(), tenant.clone()]);
    let route =
        |answer: &ratelimitd::envoy::messages::envoy::service::ratelimit::v3::RateLimitResponse| {
            format!(
                "{:?}",
                answer
                    .dynamic_metadata
                    .as_ref()
                    .unwrap()
                    .fields
                    .get("metadata")
            )
        };
    let first = ask().await;
    assert_eq!(codes(&first), [Code::Ok; 3]);
    let merged = route(&first);
    assert!(
        merged.contains("\"a\"") && merged.contains("\"eu\"") && !merged.contains("\"b\""),
        "{merged}"
    );
    let described = format!("{:?}", first.dynamic_metadata);
    assert!(
        described.contains("provider=a") && described.contains("\"shop\""),
        "{described}"
    );

    let second = ask().await;
    assert!(passes(&second));
    assert_eq!(codes(&second), [Code::OverLimit, Code::Ok, Code::Ok]);
    assert!(!route(&second).contains("\"a\""), "{second:?}");

    let third = ask().await;
    assert!(!passes(&third));
    assert_eq!(codes(&third), [Code::OverLimit, Code::OverLimit, Code::Ok]);
    assert_eq!(
        scene.remaining(&tenant).await,
        8,
        "the third was charged nothing"
    );
}

#[tokio::test]
async fn a_wait_ends_when_the_request_would_pass() {
    let limit = |key: &str, limit: &str| format!("- key: {key}\n  rate_limit: {{ {limit} }}\n");
    let quota = |key: &str, its: &str| format!("{}  quota_mode: true\n", limit(key, its));
    let file = [
        "domain: shop\ndescriptors:\n".to_owned(),
        quota("minute", "unit: minute, requests_per_unit: 1"),
        quota("day", "unit: day, requests_per_unit: 1"),
        quota("wide", "unit: day, requests_per_unit: 100"),
        limit("second", "unit: second, requests_per_unit: 1"),
        limit("hour", "unit: hour, requests_per_unit: 1"),
        limit("never", "unit: hour, requests_per_unit: 0"),
    ]
    .concat();
    for (keys, expected) in [
        (&["day", "wide", "second"][..], Some("1")),
        (&["minute", "day"], Some("60")),
        (&["day", "minute"], Some("60")),
        (&["minute", "day", "hour"], Some("3600")),
        (&["hour", "second"], Some("3600")),
        (&["never", "hour"], None),
        (&["hour", "never"], None),
    ] {
        let scene = Scene::new(&file);
        let of = |key: &&str| descriptor(&[(key, "")]);
        for key in keys.iter().filter(|key| **key != "wide") {
            scene.ask(vec![of(key)]).await;
        }
        let refused = scene.ask(keys.iter().map(of).collect()).await;
        assert!(!passes(&refused), "{keys:?}");
        assert_eq!(header(&refused, "retry-after"), expected, "{keys:?}");
    }
}

#[tokio::test]
async fn the_headers_are_theirs_if_they_are_chosen() {
    let scene = Scene::with(
        FILE,
        Options {
            headers: Headers::Envoy,
            ..Options::default()
        },
    );
    let both = || {
        vec![
            descriptor(&[("tenant", "gold")]),
            descriptor(&[("path", "/a")]),
        ]
    };
    let passed = scene.ask(both()).await;
    let names = [
        "RateLimit-Limit",
        "RateLimit-Remaining",
        "RateLimit-Reset",
        "Retry-After",
    ];
    let of = |answer: &_| names.map(|name| header(answer, name).map(str::to_owned));
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(of(&passed), [some("3"), some("2"), some("60"), None]);
    scene.ask(both()).await;
    scene.ask(both()).await;
    let refused = scene.ask(both()).await;
    assert_eq!(of(&refused), [some("3"), some("0"), some("60"), some("60")]);
    assert_eq!(header(&refused, "ratelimit"), None);
}

#[tokio::test]
async fn refused_requests_are_charged_if_that_is_chosen() {
    let scene = Scene::with(
        FILE,
        Options {
            charge_refused: true,
            ..Options::default()
        },
    );
    let tenant = descriptor(&[("tenant", "gold")]);
    // 13 of 10, as they count.
    assert_eq!(scene.pass(&tenant, [8, 5, 1]).await, [true, false, false]);
    let path = descriptor(&[("path", "/a")]);
    let refused = scene.ask(vec![tenant.clone(), path.clone()]).await;
    assert_eq!(codes(&refused), [Code::OverLimit, Code::Ok]);
    assert_eq!(
        (
            refused.statuses[0].limit_remaining,
            refused.statuses[1].limit_remaining
        ),
        (0, 2)
    );
    assert_eq!(header(&refused, "retry-after"), Some("3600"));
}

#[tokio::test]
async fn a_request_with_a_mistake_is_told_so() {
    let scene = Scene::new(FILE);
    let entry = descriptor(&[("tenant", "x")]);
    let long = "x".repeat(1_025);
    let many: Vec<(&str, &str)> = vec![("k", "v"); 33];
    let mut without_domain = request(vec![entry.clone()]);
    without_domain.domain.clear();
    let mut long_domain = request(vec![entry.clone()]);
    long_domain.domain.clone_from(&long);
    for (request, expected) in [
        (without_domain, "domain is empty; send"),
        (long_domain, "domain, in bytes, has 1025; send 1024 at most"),
        (request(vec![]), "descriptors is empty; send"),
        (
            request(vec![entry.clone(); 101]),
            "descriptors has 101; send 100 at most",
        ),
        (
            request(vec![entry.clone(), descriptor(&[])]),
            "descriptors[1].entries is empty; send",
        ),
        (
            request(vec![descriptor(&many)]),
            "descriptors[0].entries has 33; send 32 at most",
        ),
        (
            request(vec![descriptor(&[("", "v")])]),
            "descriptors[0].entries[0].key is empty; send",
        ),
        (
            request(vec![descriptor(&[(&long, "v")])]),
            "entries[0].key, in bytes, has 1025",
        ),
    ] {
        let answer = scene.answer(request).await;
        let Err(NoAnswer::Invalid(error)) = answer else {
            panic!("{expected}: {answer:?}")
        };
        assert!(error.contains(expected), "{error}");
    }
    // A client chooses the value, so it is counted, however long it is.
    let value = "x".repeat(2 << 20);
    let answer = scene.ask(vec![descriptor(&[("tenant", &value)])]).await;
    assert_eq!(answer.statuses[0].limit_remaining, 9);
    // As is a number that is larger than any limit.
    let large = scene.ask(vec![entry.at(u64::MAX)]).await;
    assert!(!passes(&large));
}

/// A place far away: other requests are answered between a question and its answer.
#[derive(Clone, Debug, Default)]
struct FarAway {
    items: Arc<Mutex<HashMap<String, Vec<u8>>>>,
    /// How many questions are answered until one fails, or none if it is 0.
    until_failure: Arc<AtomicU32>,
}

impl FarAway {
    fn limits(&self, file: &str, time: Duration) -> RateLimits {
        let folder = Folder::of(&[("shop.yaml", file)]);
        let options = Options {
            time,
            ..Options::default()
        };
        let items = self.clone();
        let limits = RateLimits::read(folder.path(), options, move |builder| {
            builder.store(SharedStore::new(items.clone())).build()
        });
        limits.unwrap()
    }

    fn fails(&self) -> bool {
        let left = self.until_failure.load(Ordering::Relaxed);
        self.until_failure
            .store(left.saturating_sub(1), Ordering::Relaxed);
        left == 1
    }
}

impl Items for FarAway {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        let (items, fails) = (Arc::clone(&self.items), self.fails());
        Reply::later(async move {
            tokio::task::yield_now().await;
            if fails {
                return Err(StoreError::new(StoreErrorKind::Unavailable));
            }
            let mut items = items.lock().unwrap();
            let found: Vec<_> = change.names().iter().map(|name| items.get(name)).collect();
            let changed = change.apply(Micros::new(START * 1_000_000), &found);
            for write in changed.writes() {
                items.insert(
                    change.names()[write.item()].clone(),
                    write.value().to_owned(),
                );
            }
            Ok(changed)
        })
    }
}

/// A step of such a request that finds less than the look gives back what the steps before it took.
#[tokio::test]
async fn requests_at_the_same_time_are_charged_whole_or_not_at_all() {
    let limits = FarAway::default().limits(FILE, LONG);
    let path = |value| descriptor(&[("path", value)]);
    // Both have looked before one of them takes.
    let ask =
        |first, second| limits.ask(request(vec![path(first).at(3), path(second).at(2)]), None);
    let (one, other) = tokio::join!(ask("/a", "/b"), ask("/b", "/a"));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!(
        !passes(&one) && !passes(&other),
        "each took what the other needed"
    );
    let look = |value| limits.ask(request(vec![path(value).at(0)]), None);
    for value in ["/a", "/b"] {
        let left = look(value).await.unwrap().statuses[0].limit_remaining;
        assert_eq!(left, 3, "{value}");
    }
    assert!(passes(&ask("/a", "/b").await.unwrap()));
}

/// The first step has taken its units, and nothing would have given them back.
#[tokio::test]
async fn a_store_that_fails_between_two_steps_has_charged_nothing() {
    let far_away = FarAway::default();
    let file = "domain: shop\ndescriptors:\n- key: path\n  rate_limit: { unit: minute, requests_per_unit: 3, on_store_failure: refuse }\n";
    let limits = far_away.limits(file, LONG);
    let path = |value| descriptor(&[("path", value)]);
    let ask = |first, second| limits.ask(request(vec![path(first), path(second)]), None);
    assert!(passes(&ask("/a", "/b").await.unwrap()));
    // Two looks, and the step of the first path.
    far_away.until_failure.store(4, Ordering::Relaxed);
    let answer = ask("/a", "/b").await;
    assert!(
        matches!(answer, Err(NoAnswer::Unavailable(_))),
        "{answer:?}"
    );
    for value in ["/a", "/b"] {
        let look = limits.ask(request(vec![path(value).at(0)]), None).await;
        assert_eq!(look.unwrap().statuses[0].limit_remaining, 2, "{value}");
    }
}

/// Envoy waits no longer, and nobody would read the answer. Each limit decides as it says.
#[tokio::test(start_paused = true)]
async fn a_decision_takes_no_longer_than_the_time_for_it() {
    #[derive(Debug)]
    struct Silent;
    impl Items for Silent {
        fn update(&self, _: Change) -> Reply<Result<Changed, StoreError>> {
            Reply::later(std::future::pending())
        }
    }
    for (on_store_failure, passing) in [("local", 3), ("allow", 4), ("refuse", 0)] {
        let file = format!(
            "domain: shop\ndescriptors:\n- key: path\n  rate_limit: {{ unit: minute, requests_per_unit: 3, on_store_failure: {on_store_failure} }}\n"
        );
        let folder = Folder::of(&[("shop.yaml", &file)]);
        let limits = RateLimits::read(folder.path(), Options::default(), |builder| {
            builder.store(SharedStore::new(Silent)).build()
        });
        let limits = limits.unwrap();
        for number in 0..4 {
            let began = Instant::now();
            let question = request(vec![descriptor(&[("path", "/a")])]);
            match limits.ask(question, None).await {
                Ok(answer) => assert_eq!(passes(&answer), number < passing, "{on_store_failure}"),
                Err(error) => {
                    let text = "the store has not answered in time".to_owned();
                    assert_eq!((error, passing), (NoAnswer::Unavailable(text), 0));
                }
            }
            // By the clock of the test, which counts whole milliseconds.
            let took = began.elapsed();
            assert!((15..=16).contains(&took.as_millis()), "{took:?}");
        }
    }
}
