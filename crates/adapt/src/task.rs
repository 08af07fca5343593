//! The task that reads the signals, runs the controller and writes the factor.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{Controller, Load, Loads, Signal};
use tower_ratelimit::__internal::warn_once_of;
use tower_ratelimit::diagnostics::Diagnostic;
use tower_ratelimit::error::ConfigError;
use tower_ratelimit::factor::{Explanation, Factor, FactorCell};

/// Makes the limits of chosen policies follow the load: signals, a controller, and the factor that it writes.
///
/// Clones share all of it. The policies hold the [factor](Self::factor), and a task [runs](Self::run).
///
/// ```
/// use tower_ratelimit_adapt::{Adapt, Kernel, Steps};
/// use tower_ratelimit::{Policy, TokenBucket};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_ratelimit::ConfigError> {
/// let adapt = Adapt::builder(Steps::standard())
///     .signal(Kernel::new().cpu())
///     .signal(Kernel::new().memory())
///     .build()?;
/// tokio::spawn(adapt.run());
///
/// let policy = Policy::new("api", TokenBucket::per_minute(100)).factor(adapt.factor());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Adapt {
    factor: FactorCell,
    sampler: Arc<Mutex<Sampler>>,
    told: Arc<Mutex<Reading>>,
}

/// The last readings.
#[derive(Clone, Debug, Default)]
struct Reading {
    loads: Loads,
    cost: Load,
}

struct Sampler {
    signals: Vec<Watch>,
    controller: Box<dyn Controller>,
    began: Option<Instant>,
    /// How long reading the signals took, since the first sample.
    spent: Duration,
}

struct Watch {
    signal: Box<dyn Signal>,
    /// Since when it is absent.
    absent: Option<Duration>,
}

/// Builds an [`Adapt`]; see [`Adapt::builder`].
#[must_use = "a builder does nothing until it is built"]
pub struct AdaptBuilder {
    signals: Vec<Box<dyn Signal>>,
    controller: Box<dyn Controller>,
    floor: Factor,
}

const ABSENT: Diagnostic = Diagnostic::new(
    "TRL022",
    "",
    "a signal of the load tells nothing, so that no limit follows it",
    "give a closure that tells it, `tower_ratelimit_adapt::from_fn(name, read)`, or leave the signal out: outside Linux, and without /proc and /sys, the kernel's are absent; \
     in a file of limits: `signals` under `[adapt]`",
);

/// How long a signal may be absent before the log says so. The first reading of a counter is always absent.
const SILENCE: Duration = Duration::from_secs(5);

/// The time between two samples, on average.
const INTERVAL: Duration = Duration::from_secs(1);

impl Adapt {
    /// Starts with a controller.
    ///
    /// # Defaults
    ///
    /// - signals: none; at least one is required
    /// - floor: a tenth of each limit
    /// - a sample each second, more or less by up to 15 %, so that nodes do not act at the same moments
    pub fn builder(controller: impl Controller + 'static) -> AdaptBuilder {
        AdaptBuilder {
            signals: Vec::new(),
            controller: Box::new(controller),
            floor: Factor::thousandths(100),
        }
    }

    /// Returns the factor, for the policies that follow it.
    pub fn factor(&self) -> &FactorCell {
        &self.factor
    }

    /// Returns the factor with its cause and its age.
    pub fn explain(&self) -> Explanation {
        self.factor.explain()
    }

    /// Returns the last readings of the signals.
    pub fn loads(&self) -> Loads {
        lock(&self.told).loads.clone()
    }

    /// Returns the share of one processor's time that is spent on reading the signals, since the first
    /// sample.
    pub fn cost(&self) -> Load {
        lock(&self.told).cost
    }

    /// Reads the signals once, and writes the factor that they call for.
    ///
    /// [`run`](Self::run) does so each second. It reads files, so an asynchronous program calls it where it
    /// may block.
    pub fn sample(&self) {
        let now = Instant::now();
        let mut sampler = lock(&self.sampler);
        let began = *sampler.began.get_or_insert(now);
        let elapsed = now.saturating_duration_since(began);
        let reading = std::time::Instant::now();
        let mut loads = Loads::new().wanted(self.factor.take_reached());
        for watch in &mut sampler.signals {
            watch.read(elapsed, &mut loads);
        }
        let target = sampler.controller.step(elapsed, &loads);
        sampler.spent += reading.elapsed();
        let cost = share_of(sampler.spent, elapsed.max(INTERVAL));
        drop(sampler);
        let before = self.factor.explain();
        self.factor
            .set(target.factor(), target.cause().unwrap_or_default());
        let now = self.factor.explain();
        if now.factor() != before.factor() {
            factor_changed(&before, &now);
        }
        let share = |load: Load| f64::from(load.get()) / 1e6;
        let signals = loads.iter();
        let signals = signals.map(|(name, load)| (name.to_owned(), load.map(share)));
        self.factor.note_signals(signals.collect());
        *lock(&self.told) = Reading { loads, cost };
    }

    /// Samples until the runtime ends. Spawn it once, in the runtime that serves: `tokio::spawn(adapt.run())`. The factor stays as
    /// it is when nothing samples any more.
    ///
    /// Each sample is read on a thread for work that blocks.
    pub fn run(&self) -> impl Future<Output = ()> + Send + 'static {
        let adapt = self.clone();
        async move {
            loop {
                let sampled = adapt.clone();
                // A signal that panics costs one sample, and not all later ones.
                let _ = tokio::task::spawn_blocking(move || sampled.sample()).await;
                tokio::time::sleep(interval()).await;
            }
        }
    }
}

impl fmt::Debug for Adapt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapt")
            .field("factor", &self.factor)
            .field("loads", &lock(&self.told).loads)
            .finish_non_exhaustive()
    }
}

impl AdaptBuilder {
    /// Adds a signal.
    pub fn signal(mut self, signal: impl Signal + 'static) -> Self {
        self.signals.push(Box::new(signal));
        self
    }

    /// Sets the least factor, whatever the controller says. More than 1 counts as 1.
    pub fn floor(self, floor: Factor) -> Self {
        Self { floor, ..self }
    }

    /// Builds the task. The factor is 1 until the first sample.
    ///
    /// # Errors
    ///
    /// When there is no signal, and when two signals have the same name.
    pub fn build(self) -> Result<Adapt, ConfigError> {
        if self.signals.is_empty() {
            let remedy = "add one, such as `.signal(Kernel::new().cpu())`";
            return Err(ConfigError::new("signals", "empty", remedy));
        }
        for (index, signal) in self.signals.iter().enumerate() {
            let mut before = self.signals.iter().take(index);
            if before.any(|other| other.name() == signal.name()) {
                let remedy = "give each signal a name of its own";
                return Err(ConfigError::quoting("signal", signal.name(), remedy));
            }
        }
        let watch = |signal| Watch {
            signal,
            absent: None,
        };
        Ok(Adapt {
            factor: FactorCell::between(self.floor, self.controller.most()),
            sampler: Arc::new(Mutex::new(Sampler {
                signals: self.signals.into_iter().map(watch).collect(),
                controller: self.controller,
                began: None,
                spent: Duration::ZERO,
            })),
            told: Arc::default(),
        })
    }
}

impl fmt::Debug for AdaptBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signals = self.signals.iter().map(Signal::name);
        f.debug_struct("AdaptBuilder")
            .field("signals", &signals.collect::<Vec<_>>())
            .field("floor", &self.floor)
            .finish_non_exhaustive()
    }
}

impl Watch {
    fn read(&mut self, now: Duration, loads: &mut Loads) {
        // A signal that panics is absent, and the limits follow the others.
        let read = catch_unwind(AssertUnwindSafe(|| self.signal.read(now)));
        let load = read.unwrap_or_default();
        let name = self.signal.name().to_owned();
        if load.is_some() || self.signal.may_be_absent() {
            self.absent = None;
        } else {
            let since = *self.absent.get_or_insert(now);
            if now.saturating_sub(since) >= SILENCE {
                warn_once_of(&ABSENT, format!("signal {name:?}"));
            }
        }
        loads.insert(name, load);
    }
}

/// Returns a second, more or less by up to 15 %, or exactly a second without a source of randomness.
fn interval() -> Duration {
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    INTERVAL.mul_f64(0.85 + 0.3 * f64::from(random) / f64::from(u32::MAX))
}

/// Reports to operators that another share of the limits is in force.
fn factor_changed(before: &Explanation, now: &Explanation) {
    tracing::info!(
        target: "tower_ratelimit::adapt",
        factor = %now.factor(),
        before = %before.factor(),
        cause = now.cause(),
        "the share of the limits that is in force has changed"
    );
}

fn share_of(part: Duration, whole: Duration) -> Load {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Load::of(nanos(part), nanos(whole)).unwrap_or_default()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Steps, from_fn};
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn the_time_between_samples_is_a_second_and_spread() {
        let intervals: Vec<_> = (0..200).map(|_| interval()).collect();
        let (least, most) = (
            intervals.iter().min().unwrap(),
            intervals.iter().max().unwrap(),
        );
        assert!(*least >= Duration::from_millis(850) && *most <= Duration::from_millis(1_151));
        assert!(
            *most > *least + Duration::from_millis(150),
            "{least:?} to {most:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_factor_follows_the_signal_and_says_why() {
        let percent = Arc::new(AtomicU32::new(20));
        let read = Arc::clone(&percent);
        let cpu = from_fn("cpu", move || {
            Some(f64::from(read.load(Ordering::Relaxed)) / 100.0)
        });
        let adapt = Adapt::builder(Steps::standard())
            .signal(cpu)
            .build()
            .unwrap();
        let task = tokio::spawn(adapt.run());
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(adapt.factor().get(), Factor::ONE);
        assert_eq!(adapt.explain().cause(), None);

        percent.store(100, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(8)).await;
        assert_eq!(adapt.factor().get().get(), 100);
        let cause = adapt.explain().cause().unwrap_or_default().to_owned();
        assert!(cause.starts_with("cpu 9"), "{cause}");
        assert_eq!(adapt.loads().get("cpu"), Some(Load::FULL));

        percent.store(20, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!(adapt.factor().get(), Factor::ONE);
        task.abort();
    }

    #[test]
    fn a_signal_is_needed_and_each_has_a_name_of_its_own() {
        let builder = || Adapt::builder(Steps::standard());
        assert_eq!(builder().build().unwrap_err().field(), "signals");
        let twice = builder()
            .signal(from_fn("a", || None))
            .signal(from_fn("a", || None));
        assert_eq!(twice.build().unwrap_err().field(), "signal");
    }

    /// A closure that divides by 0 has no load: the factor holds, and then returns to 1, since nothing is
    /// known.
    #[tokio::test(start_paused = true)]
    async fn a_signal_that_is_no_number_is_absent_and_never_idle() {
        let told = Arc::new(Mutex::new(0.95));
        let read = Arc::clone(&told);
        let cpu = from_fn("cpu", move || Some(*lock(&read)));
        let adapt = Adapt::builder(Steps::standard()).signal(cpu).build();
        let adapt = adapt.unwrap();
        adapt.sample();
        assert_eq!(adapt.factor().get().get(), 100);
        *lock(&told) = f64::NAN;
        for seconds in [9, 2] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            adapt.sample();
            assert_eq!(adapt.loads().get("cpu"), None);
            let is_held = adapt.factor().get().get() == 100;
            assert_eq!(is_held, seconds == 9, "{:?}", adapt.explain());
        }
    }

    #[test]
    fn a_signal_that_panics_keeps_no_limit_from_following_the_others() {
        let adapt = Adapt::builder(Steps::standard().immediate())
            .signal(from_fn("broken", || panic!("a signal")))
            .signal(from_fn("cpu", || Some(1.0)))
            .build()
            .unwrap();
        adapt.sample();
        assert_eq!(adapt.factor().get().get(), 100);
        assert_eq!(adapt.loads().get("broken"), None);
    }

    #[test]
    fn the_floor_holds_whatever_the_controller_says() {
        let full = from_fn("cpu", || Some(1.0));
        let steps = Steps::standard().immediate();
        let adapt = Adapt::builder(steps)
            .signal(full)
            .floor(Factor::thousandths(300))
            .build();
        let adapt = adapt.unwrap();
        adapt.sample();
        assert_eq!(adapt.factor().get().get(), 300);
        assert!(adapt.cost() < Load::percent(1), "{}", adapt.cost());
    }
}
