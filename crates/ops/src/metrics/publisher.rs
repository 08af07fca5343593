//! Reports the metrics of a snapshot to the recorder of the program.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Key, Label, Level, Metadata, Recorder, Unit, with_recorder};
use tokio::time::{MissedTickBehavior, interval};
use tower_ratelimit::__internal::{Kind, Metric, Published, Value};
use tower_ratelimit::observe::{Monitor, Snapshot};
use tower_ratelimit_adapt::AdaptiveConcurrency;

/// Reports what a [`Monitor`] reads to the recorder of the program.
///
/// Clones report the same.
///
/// # Defaults
///
/// - labels beside those of each metric: none
#[derive(Clone, Debug)]
pub struct Publisher {
    monitor: Monitor,
    labels: Vec<(&'static str, Arc<str>)>,
    concurrency: Vec<AdaptiveConcurrency>,
}

impl Publisher {
    /// Starts with a monitor of a limiter or a layer.
    pub fn new(monitor: Monitor) -> Self {
        Self {
            monitor,
            labels: Vec::new(),
            concurrency: Vec::new(),
        }
    }

    /// Adds the metrics of this adaptive concurrency. The label `policy` has its name.
    pub fn concurrency(mut self, concurrency: &AdaptiveConcurrency) -> Self {
        self.concurrency.push(concurrency.clone());
        self
    }

    /// Adds a label to all metrics. A label distinguishes several limiters or layers whose policies have the
    /// same names: `.label("layer", "public")`.
    pub fn label(mut self, name: &'static str, value: impl Into<Arc<str>>) -> Self {
        self.labels.push((name, value.into()));
        self
    }

    /// Reads a snapshot, and reports it to the recorder, with the description and the unit of each metric.
    ///
    /// Without a recorder it does nothing, and the next call reports everything.
    pub fn publish(&self) {
        self.publish_snapshot(&self.monitor.snapshot());
    }

    /// Reports a snapshot that was read already.
    pub fn publish_snapshot(&self, snapshot: &Snapshot) {
        with_recorder(|recorder| {
            let report = Report {
                recorder,
                labels: &self.labels,
            };
            report.snapshot(snapshot);
            report.each_of(
                &CONCURRENCY,
                self.concurrency.iter().map(|concurrency| {
                    let labels = vec![("policy", concurrency.name())];
                    (labels, concurrency)
                }),
            );
        });
    }

    /// Publishes now, and then each time that `time` has passed, until the future is dropped. The least is
    /// 100 ms.
    pub async fn every(self, time: Duration) {
        let mut ticks = interval(time.max(Duration::from_millis(100)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.publish();
        }
    }
}

/// What a publisher reports to a recorder.
struct Report<'a> {
    recorder: &'a dyn Recorder,
    labels: &'a [(&'static str, Arc<str>)],
}

/// The labels that tell what statistics are of.
type Labels<'a> = Vec<(&'static str, &'a str)>;

impl Report<'_> {
    fn snapshot(&self, snapshot: &Snapshot) {
        self.each([(vec![], &snapshot.requests)]);

        let policies = || {
            let policies = snapshot.policies.iter();
            policies.map(|policy| (vec![("policy", policy.name.as_str())], policy))
        };
        self.each(policies());
        self.each(policies().filter_map(|(labels, policy)| Some((labels, policy.queue.as_ref()?))));
        self.each(policies().filter_map(|(labels, policy)| Some((labels, policy.keys.as_ref()?))));
        let factors =
            || policies().filter_map(|(labels, policy)| Some((labels, policy.factor.as_ref()?)));
        self.each(factors());
        self.each(factors().flat_map(|(labels, factor)| {
            factor.signals.iter().map(move |signal| {
                let mut labels = labels.clone();
                labels.push(("signal", &signal.name));
                (labels, signal)
            })
        }));

        let store = &snapshot.store;
        let labels = || vec![("store", store.kind)];
        self.each([(labels(), store)]);
        self.each(store.latency.iter().map(|latency| (labels(), latency)));
        self.each(store.leases.iter().map(|leases| (labels(), leases)));

        let configuration = snapshot.configuration.iter();
        self.each(configuration.map(|configuration| (vec![], configuration)));
        let shadow = snapshot.shadow.iter();
        self.each(shadow.map(|shadow| (vec![], shadow)));
    }

    /// Reports each metric of these statistics, with its description even if there are none.
    fn each<'s, S: Published>(&self, all: impl IntoIterator<Item = (Labels<'s>, &'s S)>) {
        self.each_of(S::METRICS, all);
    }

    fn each_of<'s, S: 's>(
        &self,
        metrics: &[Metric<S>],
        all: impl IntoIterator<Item = (Labels<'s>, &'s S)>,
    ) {
        let all: Vec<_> = all.into_iter().collect();
        for metric in metrics {
            self.describe(metric);
            for (labels, stats) in &all {
                if let Some(value) = (metric.read)(stats) {
                    self.value(&self.key(metric, labels), value);
                }
            }
        }
    }

    fn describe<S>(&self, metric: &Metric<S>) {
        let (name, unit, help) = (metric.name.into(), unit(metric.name), metric.help.into());
        match metric.kind {
            Kind::Counter => self.recorder.describe_counter(name, Some(unit), help),
            Kind::Gauge => self.recorder.describe_gauge(name, Some(unit), help),
        }
    }

    fn value(&self, key: &Key, value: Value) {
        let metadata = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));
        match value {
            Value::Counter(count) => {
                let counter = self.recorder.register_counter(key, &metadata);
                counter.absolute(count);
            }
            Value::Gauge(number) => {
                let gauge = self.recorder.register_gauge(key, &metadata);
                gauge.set(number);
            }
        }
    }

    /// Returns the name with the labels of the publisher, those of the statistics, and that of the metric.
    fn key<S>(&self, metric: &Metric<S>, labels: &Labels<'_>) -> Key {
        let of_publisher = self.labels.iter();
        let of_publisher = of_publisher.map(|(name, value)| Label::new(*name, Arc::clone(value)));
        let others = labels.iter().copied().chain(metric.label);
        let others = others.map(|(name, value)| Label::new(name, value.to_owned()));
        Key::from_parts(metric.name, of_publisher.chain(others).collect::<Vec<_>>())
    }
}

/// Returns the unit at the end of a name.
fn unit(name: &str) -> Unit {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match name.rsplit('_').next() {
        Some("seconds") => Unit::Seconds,
        Some("microseconds") => Unit::Microseconds,
        Some("bytes") => Unit::Bytes,
        _ => Unit::Count,
    }
}

/// Of an adaptive concurrency, which is no part of a snapshot.
const CONCURRENCY: [Metric<AdaptiveConcurrency>; 3] = [
    Metric {
        name: "ratelimit_concurrency_limit",
        help: "How many requests may be in flight at once, as an adaptive concurrency has learnt",
        kind: Kind::Gauge,
        label: None,
        read: |concurrency| Some(Value::Gauge(concurrency.limit().into())),
    },
    Metric {
        name: "ratelimit_in_flight",
        help: "How many requests hold a slot of an adaptive concurrency",
        kind: Kind::Gauge,
        label: None,
        read: |concurrency| Some(Value::Gauge(concurrency.in_flight().into())),
    },
    Metric {
        name: "ratelimit_saturated_total",
        help: "Requests that were refused because all slots of an adaptive concurrency were taken",
        kind: Kind::Counter,
        label: None,
        read: |concurrency| Some(Value::Counter(concurrency.refused())),
    },
];
