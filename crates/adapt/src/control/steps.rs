//! A table of thresholds: above this load, that factor.

use std::borrow::Cow;
use std::time::Duration;

use super::watched::Watched;
use super::{Controller, RISES, Target};
use crate::{Load, Loads};
use tower_ratelimit::factor::Factor;

/// A table of thresholds: where a load is above one, the factor falls to that of the table, and comes back
/// step by step.
///
/// - **Down at once**: to the least factor of all steps whose threshold a smoothed load exceeds. A load at a
///   threshold does not exceed it.
/// - **Up one step** each [hold](Self::hold), and only while the loads are below the thresholds by the
///   [dead band](Self::dead_band): so a load at a threshold does not make the factor jump to and fro.
/// - **Above 1** only if that is allowed ([`grow`](Self::grow)), and then only while limits are reached and
///   every load is below every threshold by the dead band.
/// - **A signal that is absent** counts with its last load for a hold, and then not at all. Without any signal, the
///   factor is 1 then.
///
/// # Defaults
///
/// - smoothing: a time constant of 2 seconds
/// - hold: 10 seconds
/// - dead band: 5 %
/// - no growth
///
/// ```
/// use std::time::Duration;
/// use tower_ratelimit_adapt::{Controller, Load, Loads, Steps};
///
/// let mut steps = Steps::standard().immediate();
/// let mut at = |cpu, memory| {
///     let loads = Loads::new()
///         .with("cpu", Load::percent(cpu))
///         .with("memory", Load::percent(memory));
///     steps.step(Duration::ZERO, &loads).factor().get()
/// };
/// assert_eq!([at(50, 50), at(51, 50), at(71, 50), at(50, 91)], [1_000, 750, 500, 100]);
/// ```
#[derive(Clone, Debug)]
pub struct Steps {
    table: Vec<Step>,
    watched: Vec<Watched>,
    smoothing: Duration,
    hold: Duration,
    dead_band: Load,
    growth: Option<Growth>,
    is_immediate: bool,
    state: StepsState,
}

#[derive(Clone, Debug)]
struct Step {
    /// Indices in the list of watched signals.
    signals: Vec<usize>,
    above: Load,
    factor: Factor,
}

#[derive(Clone, Copy, Debug)]
struct Growth {
    most: Factor,
    by: Factor,
}

#[derive(Clone, Debug)]
struct StepsState {
    now: Duration,
    factor: Factor,
    changed: Duration,
    cause: Option<String>,
}

impl Steps {
    /// Creates an empty table, whose factor is always 1.
    pub fn new() -> Self {
        Self {
            table: Vec::new(),
            watched: Vec::new(),
            smoothing: Duration::from_secs(2),
            hold: Duration::from_secs(10),
            dead_band: Load::percent(5),
            growth: None,
            is_immediate: false,
            state: StepsState {
                now: Duration::ZERO,
                factor: Factor::ONE,
                changed: Duration::ZERO,
                cause: None,
            },
        }
    }

    /// Creates a table for the signals `cpu` and `memory`: above 90 % of either, a tenth of the limit; above
    /// 70 % of either, half of it; above 50 % of the processors alone, three quarters.
    pub fn standard() -> Self {
        Self::new()
            .above(
                ["cpu", "memory"],
                Load::percent(90),
                Factor::thousandths(100),
            )
            .above(
                ["cpu", "memory"],
                Load::percent(70),
                Factor::thousandths(500),
            )
            .above(["cpu"], Load::percent(50), Factor::thousandths(750))
    }

    /// Adds a step: where one of these signals exceeds this load, the factor is this, or less by another
    /// step. A factor of 1 or more is not a step, and counts as 1.
    pub fn above<N: Into<Cow<'static, str>>>(
        mut self,
        signals: impl IntoIterator<Item = N>,
        load: Load,
        factor: Factor,
    ) -> Self {
        let signals = signals.into_iter().map(|name| {
            let name = name.into();
            let known = self
                .watched
                .iter()
                .position(|watched| watched.name() == name);
            known.unwrap_or_else(|| {
                self.watched.push(Watched::new(name));
                self.watched.len() - 1
            })
        });
        let signals = signals.collect();
        self.table.push(Step {
            signals,
            above: load,
            factor: factor.min(Factor::ONE),
        });
        self
    }

    /// Follows each sample as it is: no smoothing, no hold, no dead band, no growth. The factor is that of
    /// the table for the loads of this moment. An absent signal does not count.
    pub fn immediate(self) -> Self {
        Self {
            is_immediate: true,
            ..self
        }
    }

    /// Lets the factor rise above 1, by `by` each hold and up to `most`, while limits are reached and all is calm.
    pub fn grow(self, by: Factor, most: Factor) -> Self {
        let most = most.max(Factor::ONE);
        Self {
            growth: Some(Growth { most, by }),
            ..self
        }
    }

    /// Sets the time constant of the average that smooths loads: after this time, 63 % of a jump have taken
    /// effect.
    pub fn smoothing(self, smoothing: Duration) -> Self {
        Self { smoothing, ..self }
    }

    /// Sets the shortest time between a change and a rise.
    pub fn hold(self, hold: Duration) -> Self {
        Self { hold, ..self }
    }

    /// Sets by how much a load has to be below a threshold before the factor rises.
    pub fn dead_band(self, dead_band: Load) -> Self {
        Self { dead_band, ..self }
    }

    /// Returns the least factor of the steps that these loads exceed, with thresholds lowered by `margin`,
    /// and the signal that causes it.
    fn named(
        &self,
        load: impl Fn(usize) -> Option<Load>,
        margin: Load,
    ) -> Option<(Factor, usize, Load)> {
        let fits = self.table.iter().filter_map(|step| {
            let loads = step
                .signals
                .iter()
                .filter_map(|signal| Some((*signal, load(*signal)?)));
            let above = loads.filter(|(_, load)| *load > step.above.less(margin));
            let (signal, load) = above.max_by_key(|(_, load)| *load)?;
            Some((step.factor, signal, load))
        });
        fits.min_by_key(|(factor, ..)| *factor)
    }

    fn cause(&self, signal: usize, load: Load) -> Option<String> {
        let watched = self.watched.get(signal)?;
        Some(format!("{} {load}", watched.name()))
    }

    /// Returns the next factor above `from`.
    fn next_up(&self, from: Factor) -> Factor {
        let steps = self.table.iter().map(|step| step.factor);
        let above = steps.filter(|factor| *factor > from);
        above.min().unwrap_or(Factor::ONE)
    }
}

impl Default for Steps {
    fn default() -> Self {
        Self::new()
    }
}

impl Controller for Steps {
    fn step(&mut self, now: Duration, loads: &Loads) -> Target {
        if self.is_immediate {
            let load = |signal: usize| loads.get(self.watched.get(signal)?.name());
            return match self.named(load, Load::NONE) {
                None => Target::of(Factor::ONE),
                Some((factor, signal, load)) => Target {
                    factor,
                    cause: self.cause(signal, load),
                },
            };
        }
        let now = now.max(self.state.now);
        self.state.now = now;
        for watched in &mut self.watched {
            watched.take(now, loads, self.smoothing, self.hold);
        }
        let (factor, cause) = self.next(now, loads.is_wanted());
        if factor != self.state.factor {
            self.state.factor = factor;
            self.state.changed = now;
        }
        self.state.cause = cause;
        Target {
            factor,
            cause: self.state.cause.clone(),
        }
    }

    fn most(&self) -> Factor {
        let growth = self.growth.filter(|_| !self.is_immediate);
        growth.map_or(Factor::ONE, |growth| growth.most)
    }
}

impl Steps {
    fn next(&self, now: Duration, is_wanted: bool) -> (Factor, Option<String>) {
        let StepsState {
            factor,
            changed,
            ref cause,
            ..
        } = self.state;
        let load = |signal: usize| self.watched.get(signal)?.load();
        if (0..self.watched.len()).all(|signal| load(signal).is_none()) {
            return (Factor::ONE, None);
        }
        if let Some((named, signal, load)) = self.named(load, Load::NONE)
            && named <= factor
        {
            return (named, self.cause(signal, load));
        }
        let may_rise = now.saturating_sub(changed) >= self.hold;
        let in_reach = self.named(load, self.dead_band).map(|(named, ..)| named);
        let calm = in_reach.unwrap_or(Factor::ONE);
        if factor < calm && may_rise {
            let next = self.next_up(factor).min(calm);
            let cause = (next < Factor::ONE).then(|| RISES.to_owned());
            return (next, cause);
        }
        if let Some(growth) = self.growth
            && in_reach.is_none()
            && factor >= Factor::ONE
            && may_rise
            && is_wanted
        {
            let more = factor.get().saturating_add(growth.by.get());
            let factor = Factor::thousandths(more).min(growth.most);
            return (
                factor,
                Some("limits are reached, and all is calm".to_owned()),
            );
        }
        (factor, cause.clone())
    }
}
