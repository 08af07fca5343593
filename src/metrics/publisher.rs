use std::sync::Arc;
use std::time::Duration;

use ::metrics::{Key, Label, Level, Metadata, Recorder, with_recorder};
use tokio::time::{MissedTickBehavior, interval};

#[cfg(feature = "adapt")]
use super::names::OF_CONCURRENCY;
use super::names::{Labels, METRICS, Metric, Read};
#[cfg(feature = "adapt")]
use crate::adapt::AdaptiveConcurrency;
use crate::observe::{Monitor, Snapshot};

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
    #[cfg(feature = "adapt")]
    concurrency: Vec<AdaptiveConcurrency>,
}

impl Publisher {
    /// Starts with a monitor of a limiter or a layer.
    pub fn new(monitor: Monitor) -> Self {
        Self {
            monitor,
            labels: Vec::new(),
            #[cfg(feature = "adapt")]
            concurrency: Vec::new(),
        }
    }

    /// Adds the metrics of this adaptive concurrency. The label `policy` has its name.
    #[cfg(feature = "adapt")]
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
            for metric in METRICS {
                self.publish_metric(metric, snapshot, recorder);
            }
            #[cfg(feature = "adapt")]
            for concurrency in &self.concurrency {
                for metric in OF_CONCURRENCY {
                    self.publish_metric(metric, concurrency, recorder);
                }
            }
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

    fn publish_metric<S>(&self, metric: &Metric<S>, source: &S, recorder: &dyn Recorder) {
        let name = metric.name;
        let key = |labels: Labels<'_>| self.key(name, labels);
        let metadata = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));
        let (unit, help) = (Some(metric.unit), metric.help.into());
        match metric.read {
            Read::Counter(read) => {
                recorder.describe_counter(name.into(), unit, help);
                read(source, &mut |labels, value| {
                    let counter = recorder.register_counter(&key(labels), &metadata);
                    counter.absolute(value);
                });
            }
            Read::Gauge(read) => {
                recorder.describe_gauge(name.into(), unit, help);
                read(source, &mut |labels, value| {
                    let gauge = recorder.register_gauge(&key(labels), &metadata);
                    gauge.set(value);
                });
            }
        }
    }

    fn key(&self, name: &'static str, labels: Labels<'_>) -> Key {
        let own = self.labels.iter();
        let own = own.map(|(name, value)| Label::new(*name, Arc::clone(value)));
        let labels = labels.iter();
        let labels = labels.map(|(name, value)| Label::new(*name, (*value).to_owned()));
        Key::from_parts(name, own.chain(labels).collect::<Vec<_>>())
    }
}
