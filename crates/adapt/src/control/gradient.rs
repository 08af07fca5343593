//! The ratio of a load to its value under normal conditions.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use super::aimd::KEPT;
use super::{Controller, RISES, Target};
use crate::{Load, Loads};
use tower_ratelimit::factor::Factor;

/// A factor that follows the ratio of a load, such as latency, to its value under normal conditions. So it
/// learns its target instead of being given one.
///
/// - **The baseline** is a percentile of the last readings, and never one sample: one lucky reading does not
///   make all others look slow. It is at most the [cap](Self::healthy), and does not change while [another
///   signal is hot](Self::frozen_above). Without a cap, a load that is three times as high for 45 seconds is
///   taken for the new normal, as after the deployment of a slower version.
/// - **Down** as soon as the median of the last three readings exceeds the baseline by more than the
///   tolerance, in proportion, and at most by 15 % each interval. It does not fall further while the load is
///   already falling.
/// - **Up** by a twentieth each interval otherwise.
/// - **Above 1** only if that is allowed ([`grow`](Self::grow)), and then only while limits are reached.
/// - **A signal that is absent** counts with its last load for ten seconds; then the factor is 1.
///
/// # Defaults
///
/// - percentile: the lower quartile of 60 readings
/// - tolerance: 1.5 times the baseline
/// - interval: 1 second
/// - floor: 0.1
/// - no cap, nothing that freezes it, no growth
///
/// The ratio and its bounds are those of Netflix's `Gradient2Limit` and of Envoy's adaptive concurrency.
#[derive(Clone, Debug)]
pub struct Gradient {
    signal: Cow<'static, str>,
    healthy: Option<Load>,
    freezing: Vec<(Cow<'static, str>, Load)>,
    tolerance: Factor,
    interval: Duration,
    floor: Factor,
    most: Factor,
    state: GradientState,
}

#[derive(Clone, Debug)]
struct GradientState {
    now: Duration,
    seen: Duration,
    factor: Factor,
    changed: Option<Duration>,
    cause: Option<String>,
    /// The last readings, from which the factor is computed.
    recent: VecDeque<Load>,
    /// The readings from which the baseline is learnt.
    learnt: VecDeque<Load>,
}

const RECENT: usize = 3;

const LEARNT: usize = 60;

impl Gradient {
    /// Keeps this signal near its value under normal conditions.
    pub fn on(signal: impl Into<Cow<'static, str>>) -> Self {
        Self {
            signal: signal.into(),
            healthy: None,
            freezing: Vec::new(),
            tolerance: Factor::thousandths(1_500),
            interval: Duration::from_secs(1),
            floor: Factor::thousandths(100),
            most: Factor::ONE,
            state: GradientState {
                now: Duration::ZERO,
                seen: Duration::ZERO,
                factor: Factor::ONE,
                changed: None,
                cause: None,
                recent: VecDeque::new(),
                learnt: VecDeque::new(),
            },
        }
    }

    /// Sets the largest healthy load: the baseline never rises above it.
    pub fn healthy(self, healthy: Load) -> Self {
        let healthy = Some(healthy);
        Self { healthy, ..self }
    }

    /// Freezes the baseline while this other signal is above this load.
    pub fn frozen_above(mut self, signal: impl Into<Cow<'static, str>>, load: Load) -> Self {
        self.freezing.push((signal.into(), load));
        self
    }

    /// Sets the largest ratio of the load to its baseline. Less than 1 counts as 1.
    pub fn tolerance(self, tolerance: Factor) -> Self {
        let tolerance = tolerance.max(Factor::ONE);
        Self { tolerance, ..self }
    }

    /// Sets the least factor. More than 1 counts as 1.
    pub fn floor(self, floor: Factor) -> Self {
        let floor = floor.min(Factor::ONE);
        Self { floor, ..self }
    }

    /// Lets the factor rise above 1, up to `most`, while limits are reached.
    pub fn grow(self, most: Factor) -> Self {
        let most = most.max(Factor::ONE);
        Self { most, ..self }
    }

    /// Sets the shortest time between two changes.
    pub fn interval(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// Returns the load under normal conditions, or `None` before the first reading.
    pub fn baseline(&self) -> Option<Load> {
        let learnt = quantile(&self.state.learnt, 4);
        match (learnt, self.healthy) {
            (Some(learnt), Some(healthy)) => Some(learnt.min(healthy)),
            (learnt, healthy) => learnt.or(healthy),
        }
    }

    fn learn(&mut self, load: Load, loads: &Loads) {
        let is_hot = |(signal, above): &(Cow<'static, str>, Load)| {
            loads.get(signal).is_some_and(|load| load > *above)
        };
        if !self.freezing.iter().any(is_hot) {
            push(&mut self.state.learnt, load, LEARNT);
        }
    }

    fn is_slow(&self, load: Load) -> bool {
        self.allowed().is_some_and(|allowed| load > allowed)
    }

    /// Returns the largest allowed load.
    fn allowed(&self) -> Option<Load> {
        let baseline = u64::from(self.baseline()?.get());
        let allowed = baseline * u64::from(self.tolerance.get()) / 1_000;
        Some(Load::millionths(u32::try_from(allowed).unwrap_or(u32::MAX)))
    }

    fn next(&self, load: Load, is_wanted: bool) -> Factor {
        let factor = self.state.factor;
        let Some(allowed) = self.allowed() else {
            return factor;
        };
        if load > allowed {
            let mut latest = self.state.recent.iter().rev();
            if latest.next() < latest.next() {
                return factor;
            }
            let share = u64::from(allowed.get()) * 1_000 / u64::from(load.get().max(1));
            // Requests that were admitted before are still being served, and are slow for that reason alone.
            let share = u32::try_from(share).unwrap_or(1_000).clamp(850, 1_000);
            return factor.times(Factor::thousandths(share)).max(self.floor);
        }
        let up = factor.get().saturating_add(50);
        if factor < Factor::ONE {
            return Factor::thousandths(up).min(Factor::ONE);
        }
        if is_wanted {
            return Factor::thousandths(up).min(self.most);
        }
        factor
    }
}

impl Controller for Gradient {
    fn step(&mut self, now: Duration, loads: &Loads) -> Target {
        let now = now.max(self.state.now);
        self.state.now = now;
        if let Some(load) = loads.get(&self.signal) {
            self.state.seen = now;
            push(&mut self.state.recent, load, RECENT);
            self.learn(load, loads);
        } else if now.saturating_sub(self.state.seen) >= KEPT {
            self.state.recent.clear();
            self.state.factor = Factor::ONE;
            self.state.cause = None;
        }
        let Some(load) = quantile(&self.state.recent, 2) else {
            return Target::of(self.state.factor);
        };
        let changed = self.state.changed;
        if changed.is_none_or(|changed| now.saturating_sub(changed) >= self.interval) {
            let next = self.next(load, loads.is_wanted());
            if next != self.state.factor {
                if next > self.state.factor {
                    self.state.cause = Some(RISES.to_owned());
                }
                self.state.factor = next;
                self.state.changed = Some(now);
            }
        }
        if self.is_slow(load) {
            let allowed = self.allowed().unwrap_or_default();
            let cause = format!("{} {load}, of at most {allowed}", self.signal);
            self.state.cause = Some(cause);
        } else if self.state.factor >= Factor::ONE {
            self.state.cause = None;
        }
        Target {
            factor: self.state.factor,
            cause: self.state.cause.clone(),
        }
    }

    fn most(&self) -> Factor {
        self.most
    }
}

fn push(readings: &mut VecDeque<Load>, load: Load, most: usize) {
    if readings.len() == most {
        readings.pop_front();
    }
    readings.push_back(load);
}

/// Returns the reading that one part in `parts` of all readings does not exceed: the median for 2.
fn quantile(readings: &VecDeque<Load>, parts: usize) -> Option<Load> {
    let mut sorted: Vec<_> = readings.iter().copied().collect();
    sorted.sort_unstable();
    sorted.get(sorted.len() / parts).copied()
}
