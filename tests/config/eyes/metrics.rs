//! The metrics equal those of the page, however late the recorder is installed.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use http::{Request, Response};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString,
    Unit, with_local_recorder,
};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::observe::{Monitor, Snapshot};
use tower_ratelimit::policy::Fair;
use tower_ratelimit::store::Lease;
use tower_ratelimit::{
    FixedWindow, LeakyQueue, Limiter, ManualClock, Policy, RateLimitLayer, RedisStore, TokenBucket,
    key,
};
use tower_ratelimit_adapt::{Adapt, AdaptiveConcurrency, Steps, from_fn};
use tower_ratelimit_config::Config;
use tower_ratelimit_ops::metrics::Publisher;

use crate::support::redis::Server;

/// The kind, the unit and the help of a metric.
type Described = (&'static str, String, String);

/// A recorder that keeps all metrics.
#[derive(Clone, Default)]
struct TestRecorder(Arc<Mutex<Series>>);

#[derive(Default)]
struct Series {
    described: BTreeMap<String, Described>,
    /// By name and labels.
    values: BTreeMap<String, f64>,
    /// The names of the labels of each metric.
    labels: BTreeMap<String, BTreeSet<String>>,
}

struct Handle(TestRecorder, String);

impl TestRecorder {
    fn describe(
        &self,
        kind: &'static str,
        name: &KeyName,
        unit: Option<Unit>,
        help: &SharedString,
    ) {
        let unit = unit.map_or("none", |unit| unit.as_str()).to_owned();
        let described = (kind, unit, help.to_string());
        let mut series = self.0.lock().unwrap();
        series.described.insert(name.as_str().to_owned(), described);
    }

    fn handle(&self, key: &Key) -> Arc<Handle> {
        let name = key.name().to_owned();
        let labels: Vec<_> = key.labels().map(|it| (it.key(), it.value())).collect();
        let mut series = self.0.lock().unwrap();
        let names = series.labels.entry(name.clone()).or_default();
        names.extend(labels.iter().map(|(name, _)| (*name).to_owned()));
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        Arc::new(Handle(
            self.clone(),
            format!("{name}{{{}}}", labels.join(",")),
        ))
    }

    fn value(&self, series: &str) -> f64 {
        let told = self.0.lock().unwrap();
        let value = told.values.get(series).copied();
        value.unwrap_or_else(|| panic!("{series} of {:#?}", told.values))
    }
}

impl Handle {
    fn put(&self, value: f64) {
        self.0
            .0
            .lock()
            .unwrap()
            .values
            .insert(self.1.clone(), value);
    }
}

impl CounterFn for Handle {
    fn increment(&self, _: u64) {
        unreachable!("counters are told as they stand")
    }

    #[expect(clippy::cast_precision_loss, reason = "small")]
    fn absolute(&self, value: u64) {
        self.put(value as f64);
    }
}

impl GaugeFn for Handle {
    fn increment(&self, _: f64) {
        unreachable!("gauges are told as they stand")
    }

    fn decrement(&self, _: f64) {
        unreachable!("gauges are told as they stand")
    }

    fn set(&self, value: f64) {
        self.put(value);
    }
}

impl Recorder for TestRecorder {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe("counter", &name, unit, &help);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe("gauge", &name, unit, &help);
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        unreachable!("there is no histogram")
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.handle(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.handle(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        unreachable!("there is no histogram")
    }
}

/// Snapshots with every value that a snapshot can have.
async fn full() -> Vec<Snapshot> {
    let server = Server::start(&[]);
    let store = RedisStore::builder().nodes(1).open(server.url()).unwrap();
    let leasing = leasing(&server).await;
    let over_redis = Limiter::builder()
        .policy(Policy::new("daily", FixedWindow::per_day(9)))
        .store(store)
        .build()
        .unwrap();
    assert!(over_redis.check("ann", 1).await.unwrap().is_allowed());
    let cpu = from_fn("cpu", || Some(0.5));
    let adapt = Adapt::builder(Steps::standard())
        .signal(cpu)
        .build()
        .unwrap();
    adapt.sample();
    let queue = Policy::new("queue", LeakyQueue::per_second(1).places(1));
    let here = Limiter::builder()
        .policy(Policy::new("api", FixedWindow::per_day(9)).factor(adapt.factor()))
        .policy(queue)
        .build_local()
        .unwrap();
    let divided = Policy::new("divided", TokenBucket::per_second(9)).fair(Fair::new());
    let divided = Limiter::builder().policy(divided).build_local().unwrap();
    let port = server.port();
    let path = std::env::temp_dir().join(format!("eyes-metrics-{port}.toml"));
    let next = path.with_extension("next.toml");
    let policy = "[policies.a]\nquota = \"1/day\"\nkey = \"global\"\n";
    let file_name = next.file_name().unwrap().to_str().unwrap();
    fs::write(&next, policy).unwrap();
    fs::write(&path, format!("shadow = \"{file_name}\"\n{policy}")).unwrap();
    let watched = Config::read(&path).unwrap().watch().unwrap();
    fs::remove_file(&path).unwrap();
    fs::remove_file(&next).unwrap();
    vec![
        over_redis.snapshot(),
        leasing.snapshot(),
        here.snapshot(),
        divided.snapshot(),
        watched.layer().monitor().snapshot(),
    ]
}

/// Returns a limiter that has leased units of a key, and has spent some of them.
async fn leasing(server: &Server) -> Limiter {
    let store = RedisStore::builder()
        .deadline(Duration::from_secs(20))
        .lease(Lease::up_to(Duration::from_secs(60)))
        .open(server.url())
        .unwrap()
        .clock(ManualClock::new());
    let limiter = Limiter::builder()
        .policy(Policy::new("leased", FixedWindow::per_day(100_000)))
        .store(store)
        .build()
        .unwrap();
    for _ in 0..100 {
        assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
    }
    limiter
}

#[tokio::test]
async fn the_fate_of_leased_units_is_counted() {
    let server = Server::start(&[]);
    let limiter = leasing(&server).await;
    let leases = limiter.snapshot().store.leases.unwrap();
    let told = TestRecorder::default();
    with_local_recorder(&told, || Publisher::new(limiter.monitor()).publish());
    for (name, value) in [
        ("granted_total", leases.granted),
        ("spent_total", leases.spent),
        ("given_back_total", leases.given_back),
        ("lapsed_total", leases.lapsed),
        ("saved_total", leases.calls_saved),
        ("held", leases.held),
    ] {
        let series = format!("ratelimit_lease_{name}{{store=redis}}");
        let value = f64::from(u32::try_from(value).unwrap());
        assert!((told.value(&series) - value).abs() < 0.1, "{series}");
    }
    assert!(leases.spent > 50 && leases.held > 0, "{leases:?}");
}

/// Returns the rows of the first table below this heading, as cells.
fn table(heading: &str) -> Vec<Vec<String>> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/ops/docs/metrics.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, below) = page.split_once(heading).unwrap();
    let rows = below.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    let cells = |row: &str| {
        let cells = row.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().replace('`', "")).collect()
    };
    rows.map(cells).collect()
}

fn nobody() -> Monitor {
    let limiter = Limiter::builder().policy(Policy::new("x", FixedWindow::per_day(1)));
    limiter.build_local().unwrap().monitor()
}

#[tokio::test]
async fn the_page_has_each_metric_with_its_kind_labels_unit_and_help() {
    let told = TestRecorder::default();
    let snapshots = full().await;
    with_local_recorder(&told, || {
        for snapshot in &snapshots {
            let publisher = Publisher::new(nobody()).concurrency(&AdaptiveConcurrency::new());
            publisher.publish_snapshot(snapshot);
        }
    });
    let told = told.0.lock().unwrap();
    let metrics = told.described.iter().map(|(name, (kind, unit, help))| {
        let labels = told
            .labels
            .get(name)
            .unwrap_or_else(|| panic!("{name} has no value"));
        let labels: BTreeSet<String> = labels.clone();
        (
            name.clone(),
            (*kind).to_owned(),
            labels,
            unit.clone(),
            help.clone(),
        )
    });
    let metrics: BTreeSet<_> = metrics.collect();
    let documented = table("# The names").into_iter().map(|cells| {
        let [name, kind, labels, unit, help] = <[String; 5]>::try_from(cells).unwrap();
        let labels = labels.split(", ").filter(|label| *label != "none");
        (name, kind, labels.map(str::to_owned).collect(), unit, help)
    });
    let documented: BTreeSet<_> = documented.collect();
    assert_eq!(metrics, documented);
    assert!(
        metrics
            .iter()
            .all(|(name, ..)| name.starts_with("ratelimit_"))
    );
}

#[tokio::test]
async fn the_page_has_each_outcome() {
    let told = TestRecorder::default();
    let snapshots = full().await;
    with_local_recorder(&told, || {
        Publisher::new(nobody()).publish_snapshot(&snapshots[0]);
    });
    let outcomes = |metric: &str, labels: &str| -> BTreeSet<String> {
        let told = told.0.lock().unwrap();
        let series = told.values.keys();
        let prefix = format!("{metric}{{{labels}outcome=");
        let outcomes = series.filter_map(|series| series.strip_prefix(&prefix));
        outcomes
            .map(|rest| rest.trim_end_matches('}').to_owned())
            .collect()
    };
    let documented = |column: usize| -> BTreeSet<String> {
        let rows = table("The values of `outcome`");
        let rows = rows.into_iter().filter(|cells| cells[column] == "yes");
        rows.map(|cells| cells[0].clone()).collect()
    };
    assert_eq!(
        outcomes("ratelimit_decisions_total", "policy=daily,"),
        documented(1)
    );
    assert_eq!(outcomes("ratelimit_requests_total", ""), documented(2));
}

#[test]
fn a_recorder_that_comes_late_misses_nothing() {
    let limiter = Limiter::builder()
        .policy(Policy::new("mails", FixedWindow::per_day(5)))
        .build_local()
        .unwrap();
    let publisher = Publisher::new(limiter.monitor()).label("layer", "inner");
    for _ in 0..7 {
        let _ = limiter.check("ann", 1).now();
    }
    publisher.publish();
    let told = TestRecorder::default();
    with_local_recorder(&told, || publisher.publish());
    let decisions = "ratelimit_decisions_total{layer=inner,policy=mails,outcome";
    assert!((told.value(&format!("{decisions}=allowed}}")) - 5.0).abs() < 0.1);
    assert!((told.value(&format!("{decisions}=refused}}")) - 2.0).abs() < 0.1);
    let _ = limiter.check("bob", 1).now();
    with_local_recorder(&told, || publisher.publish());
    assert!((told.value(&format!("{decisions}=allowed}}")) - 6.0).abs() < 0.1);
    assert!((told.value("ratelimit_store_up{layer=inner,store=memory}") - 1.0).abs() < 0.1);
}

#[test]
fn an_adaptive_concurrency_is_told_under_its_name() {
    let limiter = Limiter::builder().policy(Policy::new("x", FixedWindow::per_day(1)));
    let queries = AdaptiveConcurrency::builder().name("queries").start(2);
    let queries = queries.build().unwrap();
    let publisher = Publisher::new(limiter.build().unwrap().monitor()).concurrency(&queries);
    let _first = queries.try_enter().unwrap();
    let _second = queries.try_enter().unwrap();
    assert!(queries.try_enter().is_err());
    let told = TestRecorder::default();
    with_local_recorder(&told, || publisher.publish());
    for (metric, value) in [
        ("ratelimit_concurrency_limit", 2.0),
        ("ratelimit_in_flight", 2.0),
        ("ratelimit_saturated_total", 1.0),
    ] {
        let series = format!("{metric}{{policy=queries}}");
        assert!((told.value(&series) - value).abs() < 0.1, "{series}");
    }
}

/// Each level of a tree is a policy of its own, and of a group the payer alone is counted.
#[test]
fn a_level_and_a_payer_are_told_under_their_names_and_a_tenant_is_not() {
    let tree = Policy::tree("spend")
        .level("org", key::header("x-org"), FixedWindow::per_hour(9))
        .level("team", key::header("x-team"), FixedWindow::per_hour(1));
    let by_org = |policy: Policy| policy.key(key::header("x-org"));
    let layer = RateLimitLayer::builder()
        .policies(tree.build().unwrap())
        .policies(
            ["plan", "credits"].map(|name| by_org(Policy::new(name, FixedWindow::per_day(1)))),
        )
        .first_of("pays", ["plan", "credits"])
        .build()
        .unwrap();
    let divided = Policy::new("divided", TokenBucket::per_hour(9)).key(key::global());
    let divided = divided.fair(key::header("x-org"));
    let divided = RateLimitLayer::builder().policy(divided).build().unwrap();
    let told = TestRecorder::default();
    for layer in [&layer, &divided] {
        let answer = async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new()));
        let service = layer.layer(service_fn(answer));
        for team in ["secret-red", "secret-blue", "secret-red"] {
            let request = Request::get("/")
                .header("x-org", "secret-acme")
                .header("x-team", team);
            let answer = service.clone().oneshot(request.body(()).unwrap());
            assert!(answer.now_or_never().unwrap().is_ok());
        }
        with_local_recorder(&told, || Publisher::new(layer.monitor()).publish());
    }
    for (policy, outcome, requests) in [
        ("spend.org", "allowed", 2.0),
        ("spend.team", "allowed", 2.0),
        ("spend.team", "refused", 1.0),
        ("plan", "allowed", 1.0),
        ("credits", "allowed", 1.0),
        ("divided", "allowed", 3.0),
    ] {
        let series = format!("ratelimit_decisions_total{{policy={policy},outcome={outcome}}}");
        assert!((told.value(&series) - requests).abs() < 0.1, "{series}");
    }
    assert!((told.value("ratelimit_tenants{policy=divided}") - 1.0).abs() < 0.1);
    let told = told.0.lock().unwrap();
    assert!(told.values.keys().all(|series| !series.contains("secret")));
}

/// No text of a client becomes a label.
#[test]
fn no_key_is_told() {
    let limiter = Limiter::builder()
        .policy(Policy::new("mails", FixedWindow::per_day(5)))
        .build_local()
        .unwrap();
    let publisher = Publisher::new(limiter.monitor());
    let series = |told: &TestRecorder| told.0.lock().unwrap().values.len();
    let told = TestRecorder::default();
    with_local_recorder(&told, || publisher.publish());
    let before = series(&told);
    for number in 0..1_000_u32 {
        let _ = limiter.check(("secret", number), 9).now();
    }
    with_local_recorder(&told, || publisher.publish());
    assert_eq!(series(&told), before);
    let told = told.0.lock().unwrap();
    assert!(told.values.keys().all(|series| !series.contains("secret")));
}

/// The names in the alerts exist, and the alerts on the page are those of the file.
#[test]
fn each_alert_is_on_the_page_and_asks_for_metrics_that_are_there() {
    let read = |file: &str| {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");
        fs::read_to_string(format!("{docs}/{file}")).unwrap()
    };
    let (rules, page) = (read("alerts.yml"), read("operating.md"));
    let alerts = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let alerts: BTreeSet<_> = alerts.map(str::to_owned).collect();
    let headings = page.lines().filter_map(|line| line.strip_prefix("## `"));
    let headings = headings.map(|heading| heading.trim_end_matches('`').to_owned());
    assert_eq!(alerts, headings.collect());
    let known: BTreeSet<_> = table("# The names")
        .into_iter()
        .map(|mut row| row.remove(0))
        .collect();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for text in [&rules, &page] {
        let words = text.split(|c| !is_name(c));
        let names: Vec<_> = words
            .filter(|word| word.starts_with("ratelimit_"))
            .collect();
        assert!(names.len() > 5);
        for name in names {
            assert!(known.contains(name), "{name}");
        }
    }
}
