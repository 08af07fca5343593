//! The trait of signals.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::Load;

/// Measures how busy something is.
///
/// A signal without a reading is absent, which is not the same as idle: it returns `None`.
pub trait Signal: Send {
    /// Returns its name in controllers and explanations.
    fn name(&self) -> &str;

    /// Returns how busy it is. `now` is the time since the first reading, by a clock that never steps back.
    ///
    /// It is called about once a second, in a task of its own. It may read a small file, and must not wait
    /// for anything else.
    fn read(&mut self, now: Duration) -> Option<Load>;

    /// Returns whether the signal is normally absent at times, as without traffic. Then the log does not
    /// mention that.
    fn may_be_absent(&self) -> bool {
        false
    }
}

impl<S: Signal + ?Sized> Signal for Box<S> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn read(&mut self, now: Duration) -> Option<Load> {
        (**self).read(now)
    }

    fn may_be_absent(&self) -> bool {
        (**self).may_be_absent()
    }
}

/// A signal from a closure; see [`from_fn`].
pub struct FromFn<F> {
    name: Cow<'static, str>,
    read: F,
}

/// Creates a signal with this name from a closure, which returns a share: 0.5 is half of the capacity. A
/// number that is not a load (`NaN`, or below 0) counts as absent.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use std::time::Duration;
/// use tower_ratelimit_adapt::{Load, Signal, from_fn};
///
/// let waiting = Arc::new(AtomicU32::new(30));
/// let queue = Arc::clone(&waiting);
/// let mut signal = from_fn("queue", move || Some(f64::from(queue.load(Ordering::Relaxed)) / 100.0));
/// assert_eq!(signal.read(Duration::ZERO), Some(Load::percent(30)));
/// ```
pub fn from_fn<F>(name: impl Into<Cow<'static, str>>, read: F) -> FromFn<F>
where
    F: FnMut() -> Option<f64> + Send,
{
    FromFn {
        name: name.into(),
        read,
    }
}

impl<F: FnMut() -> Option<f64> + Send> Signal for FromFn<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn read(&mut self, _: Duration) -> Option<Load> {
        (self.read)().and_then(Load::share)
    }
}

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromFn")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
