use std::time::{Duration, SystemTime};

/// A whole number of microseconds: a length of time, or a moment since the Unix epoch.
///
/// All decisions use it, so that arithmetic is exact, and the same in Rust and in Lua.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(u64);

impl Micros {
    /// A length of zero; as a moment, the Unix epoch.
    pub const ZERO: Self = Self(0);

    /// The longest wait that a decision tells: 2^53 − 1 µs, about 285 years.
    ///
    /// A longer wait (one request a year, four billion of them in debt) is cut to this.
    pub const LONGEST: Self = Self((1 << 53) - 1);

    /// Makes a length of this many microseconds.
    pub const fn new(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the number of microseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Makes a time of whole seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000)
    }

    /// Makes a wait of at most [`LONGEST`](Self::LONGEST).
    pub(crate) fn wait(micros: u128) -> Self {
        u64::try_from(micros).map_or(Self::LONGEST, |micros| Self(micros).min(Self::LONGEST))
    }

    /// Returns whole seconds, rounded up.
    pub const fn ceil_secs(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// Converts a length.
    pub const fn to_duration(self) -> Duration {
        Duration::from_micros(self.0)
    }

    /// Converts a moment; `None` if the platform cannot hold it.
    pub fn to_system_time(self) -> Option<SystemTime> {
        SystemTime::UNIX_EPOCH.checked_add(self.to_duration())
    }

    /// Converts a moment, rounded down; a moment before the epoch becomes the epoch.
    pub fn from_system_time(time: SystemTime) -> Self {
        time.duration_since(SystemTime::UNIX_EPOCH)
            .map_or(Self::ZERO, Self::from)
    }

    /// Returns the time by the clock of this node, which may be set while it runs.
    pub fn by_this_node() -> Self {
        Self::from_system_time(SystemTime::now())
    }

    /// Returns the sum, or the largest time.
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference, or zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<Duration> for Micros {
    /// Rounds down to whole microseconds; at most about 584,000 years.
    fn from(duration: Duration) -> Self {
        let seconds = duration.as_secs().checked_mul(1_000_000);
        let below = u64::from(duration.subsec_micros());
        Self(seconds.map_or(u64::MAX, |micros| micros.saturating_add(below)))
    }
}
