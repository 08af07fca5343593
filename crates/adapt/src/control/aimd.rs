//! Additive increase, multiplicative decrease.

use std::borrow::Cow;
use std::time::Duration;

use super::watched::Watched;
use super::{Controller, RISES, Target};
use crate::{Load, Loads};
use tower_ratelimit::factor::Factor;

/// A factor that falls by a share while a load is too high, and otherwise rises by a fixed amount: additive
/// increase, multiplicative decrease, as in TCP.
///
/// - **Down** as soon as the load is above its target, to nine tenths of what the factor was, and once each interval
///   while it stays so.
/// - **Up** by a twentieth each interval, while the load is below the target by the dead band.
/// - **Above 1** only if that is allowed ([`grow`](Self::grow)), and then only while limits are reached.
/// - **A signal that is absent** counts with its last load for ten seconds; then the factor is 1.
///
/// Unlike [`Steps`](super::Steps) it finds factors that no table names. So it suits a load that measures the
/// quality of service, such as latency against a target.
///
/// # Defaults
///
/// - interval: 1 second
/// - floor: 0.1
/// - down: to 0.9 of the factor; up: by 0.05
/// - dead band: 5 %
/// - no growth
///
/// ```
/// use std::time::Duration;
/// use tower_ratelimit_adapt::{Aimd, Controller, Load, Loads};
///
/// let mut aimd = Aimd::on("latency", Load::FULL);
/// let mut after = |seconds, percent| {
///     let loads = Loads::new().with("latency", Load::percent(percent));
///     aimd.step(Duration::from_secs(seconds), &loads).factor().get()
/// };
/// assert_eq!([after(0, 300), after(1, 200), after(2, 80)], [900, 810, 860]);
/// ```
#[derive(Clone, Debug)]
pub struct Aimd {
    watched: Watched,
    target: Load,
    dead_band: Load,
    interval: Duration,
    floor: Factor,
    most: Factor,
    down: Factor,
    up: Factor,
    state: AimdState,
}

#[derive(Clone, Debug)]
struct AimdState {
    now: Duration,
    factor: Factor,
    changed: Option<Duration>,
    cause: Option<String>,
}

/// How long an absent signal counts with its last load.
pub(super) const KEPT: Duration = Duration::from_secs(10);

impl Aimd {
    /// Keeps the load of this signal at this target.
    pub fn on(signal: impl Into<Cow<'static, str>>, target: Load) -> Self {
        Self {
            watched: Watched::new(signal.into()),
            target,
            dead_band: Load::percent(5),
            interval: Duration::from_secs(1),
            floor: Factor::thousandths(100),
            most: Factor::ONE,
            down: Factor::thousandths(900),
            up: Factor::thousandths(50),
            state: AimdState {
                now: Duration::ZERO,
                factor: Factor::ONE,
                changed: None,
                cause: None,
            },
        }
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

    /// Sets the share of the factor that remains after a fall. 1 or more counts as 0.999.
    pub fn down_to(self, share: Factor) -> Self {
        let down = share.min(Factor::thousandths(999));
        Self { down, ..self }
    }

    /// Sets by how much the factor rises.
    pub fn up_by(self, up: Factor) -> Self {
        Self { up, ..self }
    }

    /// Sets the shortest time between two changes.
    pub fn interval(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// Sets by how much the load has to be below its target before the factor rises.
    pub fn dead_band(self, dead_band: Load) -> Self {
        Self { dead_band, ..self }
    }

    fn next(&self, load: Load, is_wanted: bool) -> Factor {
        let factor = self.state.factor;
        if load > self.target {
            return factor.times(self.down).max(self.floor);
        }
        let is_wanted = is_wanted || factor < Factor::ONE;
        if load > self.target.less(self.dead_band) || !is_wanted {
            return factor;
        }
        let up = factor.get().saturating_add(self.up.get());
        // Below 1 the rise ends at 1: more requires that limits are reached.
        let most = if factor < Factor::ONE {
            Factor::ONE
        } else {
            self.most
        };
        Factor::thousandths(up).min(most)
    }
}

impl Controller for Aimd {
    fn step(&mut self, now: Duration, loads: &Loads) -> Target {
        let now = now.max(self.state.now);
        self.state.now = now;
        self.watched.take(now, loads, Duration::ZERO, KEPT);
        let Some(load) = self.watched.load() else {
            self.state.factor = Factor::ONE;
            self.state.cause = None;
            return Target::of(Factor::ONE);
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
        if load > self.target {
            self.state.cause = Some(format!("{} {load}", self.watched.name()));
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
