//! The log of refusals and of changes: the table in the documentation.
//!
//! In a process of their own, because `tracing` may cache that a call site logs nothing on another thread.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tower_ratelimit::__internal::Sealed;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::policy::Penalty;
use tower_ratelimit::policy::Rule;
use tower_ratelimit::store::{Backend, Charge, Charged, MemoryBackend, Store, Wanted};
use tower_ratelimit::{
    ConfigError, FixedWindow, Limiter, LocalLimiter, ManualClock, MemoryStore, OnStoreFailure,
    Policy, RedisStore, StoreError,
};
use tower_ratelimit_adapt::{Adapt, Steps, from_fn};
use tower_ratelimit_config::Config;

use crate::support::log::{Log, LogLine};
use crate::support::redis::Server;

fn limiter(clock: &ManualClock) -> LocalLimiter {
    Limiter::builder()
        .policy(Policy::new("daily", FixedWindow::per_day(1)))
        .policy(Policy::new("wide", FixedWindow::per_day(100)))
        .store(MemoryStore::new().clock(clock.clone()))
        .build_local()
        .unwrap()
}

fn refusals(lines: &[LogLine], level: tracing::Level) -> Vec<&LogLine> {
    let lines = lines
        .iter()
        .filter(|line| line.target == "tower_ratelimit::refusal");
    lines.filter(|line| line.level == level).collect()
}

#[test]
fn each_refusal_is_told_at_debug_and_the_first_of_a_minute_at_info() {
    let clock = ManualClock::new();
    let limiter = limiter(&clock);
    let ((), lines) = Log::of_all(|| {
        for _ in 0..4 {
            let _ = limiter.check("secret", 1).now();
        }
        for _ in 0..2 {
            clock.advance(Duration::from_secs(59));
            let _ = limiter.check("secret", 1).now();
        }
    });
    let each = refusals(&lines, tracing::Level::DEBUG);
    assert_eq!(each.len(), 5, "{lines:?}");
    assert_eq!(
        (&*each[0].fields["policy"], &*each[0].fields["key_kind"]),
        ("daily", "text")
    );
    assert!(each[0].fields["wait"].ends_with('s') && each[0].fields["blocked"] == "false");
    assert_eq!(refusals(&lines, tracing::Level::INFO).len(), 2);
    assert!(!format!("{lines:?}").contains("secret"));
}

/// The field was called `key`, and an operator took `key="address"` for the key.
#[test]
fn a_refusal_tells_the_kind_of_its_key_as_the_page_names_it() {
    use std::net::IpAddr;
    use tower_ratelimit::key::{self, IntoKey, Key, Source};

    let address: IpAddr = "192.0.2.1".parse().unwrap();
    let first_or_second = key::header("x-tenant").or(key::client_ip());
    let kinds = [
        ("address", address.into_key()),
        ("text", "ann".into_key()),
        ("number", 7_u64.into_key()),
        ("bytes", [7_u8; 3].as_slice().into_key()),
        ("secret", key::api_key().key_of("k3y").unwrap()),
        ("pair", ("ann", 7_u64).into_key()),
        (
            "first source",
            first_or_second.key_of(Source::First("a")).unwrap(),
        ),
        (
            "second source",
            first_or_second.key_of(Source::Second(address)).unwrap(),
        ),
        ("global", Key::GLOBAL),
        ("missing", Key::MISSING),
    ];
    let page = fs::read_to_string(PAGE).unwrap();
    let (_, below) = page
        .split_once("`key_kind` is the kind of the key: ")
        .unwrap();
    let (named, _) = below.split_once(". Targets").unwrap();
    let named: BTreeSet<&str> = named.split('`').skip(1).step_by(2).collect();
    let of_key = |line: &&LogLine| line.fields["key_kind"].clone();
    let told = kinds.map(|(kind, key)| {
        let limiter = limiter(&ManualClock::new());
        let (_, lines) = Log::of_all(|| [(); 2].map(|()| limiter.check(key, 1).now()));
        let told = refusals(&lines, tracing::Level::DEBUG);
        assert_eq!(told.iter().map(of_key).collect::<Vec<_>>(), [kind]);
        kind
    });
    assert_eq!(named, told.into());
}

#[test]
fn a_signal_that_tells_nothing_is_told_once_with_its_code_and_its_name() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let adapt = Adapt::builder(Steps::standard())
        .signal(from_fn("cpu", || Some(0.2)))
        .signal(from_fn("a gauge that is gone", || None))
        .build()
        .unwrap();
    let after = |seconds: u32| {
        let sample = async {
            for _ in 0..seconds {
                adapt.sample();
                tokio::time::advance(Duration::from_secs(1)).await;
            }
        };
        let ((), lines) = Log::of_all(|| runtime.block_on(sample));
        let absent = |line: &&LogLine| format!("{line:?}").contains("TRL022");
        lines.iter().filter(absent).cloned().collect::<Vec<_>>()
    };
    // The first reading of a counter shows no change, and must not raise an alert.
    assert!(after(5).is_empty());
    let told = after(30);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].level, tracing::Level::WARN);
    assert!(format!("{told:?}").contains("a gauge that is gone"));
    assert_eq!(adapt.loads().get("a gauge that is gone"), None);
}

/// A store that is not shared, so that no guard decides in its place.
#[derive(Clone, Debug, Default)]
struct Flaky(Arc<AtomicBool>);

#[derive(Debug)]
struct FlakyBackend(MemoryBackend, Flaky);

impl Sealed for Flaky {}

impl Store for Flaky {
    type Backend = FlakyBackend;

    fn open(&self, policies: &[Rule]) -> Result<FlakyBackend, ConfigError> {
        Ok(FlakyBackend(
            MemoryStore::new().open(policies)?,
            self.clone(),
        ))
    }
}

impl Sealed for FlakyBackend {}

impl Backend for FlakyBackend {
    fn charge(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> Charged {
        if self.1.0.load(Ordering::Relaxed) {
            return Charged::Now(Err(StoreError::new(StoreErrorKind::Unavailable)));
        }
        self.0.charge(charges, wanted, outcomes)
    }
}

/// The verbs of a limiter only returned the failure, while a layer also logged it.
#[test]
fn a_limiter_without_a_layer_tells_once_that_its_store_fails_and_once_that_it_answers() {
    let store = Flaky::default();
    let limiter = Limiter::builder()
        .policy(Policy::new("daily", FixedWindow::per_day(9)))
        .store(store.clone())
        .build()
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap();
    let ((), lines) = Log::of_all(|| {
        for fails in [false, true, true, false, false] {
            store.0.store(fails, Ordering::Relaxed);
            let answer = runtime.block_on(limiter.check("ann", 1).into_future());
            assert_eq!(answer.is_err(), fails);
        }
    });
    let told: Vec<_> = lines
        .iter()
        .filter(|line| line.target == "tower_ratelimit::store")
        .map(|line| &*line.fields["message"])
        .collect();
    assert_eq!(told.len(), 2, "{lines:?}");
    assert!(told[0].contains("has failed") && told[1].contains("answers again"));
}

/// Each of these events is logged once.
fn scene() -> Vec<LogLine> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let ((), lines) = Log::of_all(|| {
        let penalty = Penalty::after(3, Duration::from_secs(60));
        let daily = Policy::new("daily", FixedWindow::per_day(1)).penalty(penalty);
        let store = MemoryStore::new().clock(ManualClock::new());
        let limiter = Limiter::builder().policy(daily).store(store);
        let limiter = limiter.build_local().unwrap();
        for _ in 0..6 {
            let _ = limiter.check("ann", 1).now();
        }
        let is_full = Arc::new(AtomicBool::new(false));
        let read = Arc::clone(&is_full);
        let cpu = from_fn("cpu", move || {
            Some(if read.load(Ordering::Relaxed) {
                1.0
            } else {
                0.1
            })
        });
        let adapt = Adapt::builder(Steps::standard().immediate())
            .signal(cpu)
            .build()
            .unwrap();
        adapt.sample();
        is_full.store(true, Ordering::Relaxed);
        adapt.sample();
        adapt.sample();
        reload();
        runtime.block_on(outage());
    });
    lines
}

fn reload() {
    let path = std::env::temp_dir().join(format!("eyes-log-{}.toml", std::process::id()));
    let write = |limit: u32| {
        let text = format!("[policies.a]\nquota = \"{limit}/day\"\nkey = \"global\"\n");
        fs::write(&path, text).unwrap();
    };
    write(1);
    let watched = Config::read(&path).unwrap().watch().unwrap();
    write(2);
    watched.reload().unwrap();
    watched.reload().unwrap();
    fs::remove_file(&path).unwrap();
}

async fn outage() {
    let mut server = Server::start(&[]);
    let store = RedisStore::builder().deadline(Duration::from_secs(60));
    let store = store.nodes(1).open(server.url()).unwrap();
    let limiter = Limiter::builder()
        .policy(Policy::new("a", FixedWindow::per_day(9)).on_store_failure(OnStoreFailure::Allow))
        .store(store)
        .build()
        .unwrap();
    assert!(!limiter.check("ann", 1).await.unwrap().is_degraded());
    server.kill();
    while limiter.snapshot().store.is_up {
        assert!(limiter.check("ann", 1).await.unwrap().is_degraded());
    }
    server.restart();
    while !limiter.snapshot().store.is_up {
        assert!(limiter.check("ann", 1).await.is_ok());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Target, level, message and fields.
type Row = (String, String, String, BTreeSet<String>);

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operating.md");

fn documented() -> BTreeSet<Row> {
    let page = fs::read_to_string(PAGE).unwrap();
    let (_, below) = page.split_once("# What the log says").unwrap();
    let rows = below.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    let row = |row: &str| {
        let cells = row.trim_matches('|').split('|');
        let cells: Vec<_> = cells.map(|cell| cell.trim().replace('`', "")).collect();
        let [target, level, message, fields] = <[String; 4]>::try_from(cells).unwrap();
        let fields = fields.split(", ").map(str::to_owned).collect();
        (target, level, message, fields)
    };
    rows.map(row).collect()
}

#[test]
fn the_page_has_what_the_log_says_with_target_level_and_fields() {
    let documented = documented();
    let lines = scene();
    let mut seen = BTreeSet::new();
    for line in lines
        .iter()
        .filter(|line| !line.fields.contains_key("code"))
    {
        let level = line.level.to_string().to_lowercase();
        let message = &line.fields["message"];
        let row = documented.iter().find(|(target, of_level, text, _)| {
            *target == line.target && *of_level == level && message.starts_with(text.as_str())
        });
        let row = row.unwrap_or_else(|| panic!("not on the page: {line:?}"));
        let fields = line.fields.keys().filter(|name| **name != "message");
        for field in fields {
            assert!(row.3.contains(*field), "{field} of {line:?}");
        }
        if row.1 != "debug" {
            assert!(seen.insert(row.clone()), "told twice: {line:?}");
        }
        seen.insert(row.clone());
    }
    // Other tests have a store that fails for some requests, and a store without a guard.
    let missing: Vec<_> = documented.difference(&seen).map(|row| &row.2).collect();
    assert!(
        missing
            .iter()
            .all(|text| text.contains("cannot decide on some") || text.contains("has failed")),
        "{missing:?}"
    );
}
