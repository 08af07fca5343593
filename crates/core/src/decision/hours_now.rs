use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use crate::clock::Micros;

/// Which interval of its hours a policy was in when it decided, and when that ends: see
/// [`Decision::hours`](super::Decision::hours).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoursNow {
    pub(crate) zone: &'static str,
    pub(crate) interval: Option<&'static str>,
    pub(crate) ends: Option<Micros>,
    /// Whether the interval has a limit in place of the policy's own.
    pub(crate) gives_limit: bool,
}

/// Tells of the hours of a policy at a moment.
pub(crate) type HoursAt = Arc<dyn Fn(Micros) -> HoursNow + Send + Sync>;

impl HoursNow {
    /// Returns the interval as it was written, such as `22:00-06:00`; `None` outside all intervals, where the policy's own limit
    /// holds.
    pub fn interval(&self) -> Option<&'static str> {
        self.interval
    }

    /// Returns when the interval ends, or the next begins if there is none, by the clock of the store. `None` if that is more
    /// than five years away.
    pub fn ends(&self) -> Option<SystemTime> {
        self.ends.and_then(Micros::to_system_time)
    }

    /// Returns the zone by whose clock the hours are.
    pub fn zone(&self) -> &'static str {
        self.zone
    }
}

/// The interval and the zone.
impl fmt::Display for HoursNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interval = self.interval.unwrap_or("outside all hours");
        write!(f, "{interval} ({})", self.zone)
    }
}
