//! What publishes a statistic: the name, the help and the labels of its metric.

use std::time::Duration;

/// Statistics with metrics.
pub trait Published: Sized + 'static {
    /// All metrics, those of the same name one after another.
    const METRICS: &[Metric<Self>];
}

/// A metric of a `T`. The unit is at the end of its name, as Prometheus has it.
#[derive(Clone, Copy, Debug)]
pub struct Metric<T> {
    /// The name.
    pub name: &'static str,
    /// The description.
    pub help: &'static str,
    /// Whether it may fall.
    pub kind: Kind,
    /// A label beside those which tell what the statistics are of.
    pub label: Option<(&'static str, &'static str)>,
    /// Returns the value, if there is one.
    pub read: fn(&T) -> Option<Value>,
}

/// Whether a metric may fall.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// It only rises.
    Counter,
    /// It rises and falls.
    Gauge,
}

/// The value of a metric.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// Of a counter.
    Counter(u64),
    /// Of a gauge.
    Gauge(f64),
}

impl<T> Metric<T> {
    /// Returns the metric of an `S` that has this `T`.
    pub(crate) const fn of<S>(self, read: fn(&S) -> Option<Value>) -> Metric<S> {
        let Self {
            name,
            help,
            kind,
            label,
            read: _,
        } = self;
        Metric {
            name,
            help,
            kind,
            label,
            read,
        }
    }

    /// Adds a label.
    pub(crate) const fn label(self, name: &'static str, value: &'static str) -> Self {
        Self {
            label: Some((name, value)),
            ..self
        }
    }
}

/// Creates a counter.
pub(crate) const fn counter(name: &'static str, help: &'static str) -> Metric<u64> {
    Metric {
        name,
        help,
        kind: Kind::Counter,
        label: None,
        read: |count| Some(Value::Counter(*count)),
    }
}

/// Creates a counter of microseconds.
pub(crate) const fn microseconds(name: &'static str, help: &'static str) -> Metric<Duration> {
    Metric {
        name,
        help,
        kind: Kind::Counter,
        label: None,
        read: |time| {
            let time = u64::try_from(time.as_micros());
            Some(Value::Counter(time.unwrap_or(u64::MAX)))
        },
    }
}

/// Creates a gauge of a number, a time in seconds, or 1 for true and 0 for false. What is absent has no value.
pub(crate) const fn gauge<T: Gauged>(name: &'static str, help: &'static str) -> Metric<T> {
    Metric {
        name,
        help,
        kind: Kind::Gauge,
        label: None,
        read: |number| number.gauged().map(Value::Gauge),
    }
}

/// Creates a gauge that is 1 if there is something, or else 0.
pub(crate) const fn presence<T>(name: &'static str, help: &'static str) -> Metric<Option<T>> {
    Metric {
        name,
        help,
        kind: Kind::Gauge,
        label: None,
        read: |thing| thing.is_some().gauged().map(Value::Gauge),
    }
}

/// A statistic that can be a gauge.
pub(crate) trait Gauged {
    fn gauged(&self) -> Option<f64>;
}

impl Gauged for u64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "exact up to 2^53, which is more than fits in memory"
    )]
    fn gauged(&self) -> Option<f64> {
        Some(*self as f64)
    }
}

impl Gauged for u32 {
    fn gauged(&self) -> Option<f64> {
        Some((*self).into())
    }
}

impl Gauged for f64 {
    fn gauged(&self) -> Option<f64> {
        Some(*self)
    }
}

impl Gauged for bool {
    fn gauged(&self) -> Option<f64> {
        Some(u8::from(*self).into())
    }
}

impl Gauged for Duration {
    fn gauged(&self) -> Option<f64> {
        Some(self.as_secs_f64())
    }
}

impl<T: Gauged> Gauged for Option<T> {
    fn gauged(&self) -> Option<f64> {
        self.as_ref()?.gauged()
    }
}
