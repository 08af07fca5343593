//! The constructors that most algorithms share.

/// The constructors that cannot fail. A note says what follows from the type of the limit, or a default.
macro_rules! paved_constructors {
    ($limit:ty, $of:path $(, $note:literal)?) => {
        /// This many requests in a second.
        $(#[doc = concat!("\n", $note)])?
        pub const fn per_second(limit: $limit) -> Self {
            $of($crate::quota::Quota::per_second(limit as u32))
        }

        /// This many requests in a minute.
        $(#[doc = concat!("\n", $note)])?
        pub const fn per_minute(limit: $limit) -> Self {
            $of($crate::quota::Quota::per_minute(limit as u32))
        }

        /// This many requests in an hour.
        $(#[doc = concat!("\n", $note)])?
        pub const fn per_hour(limit: $limit) -> Self {
            $of($crate::quota::Quota::per_hour(limit as u32))
        }

        /// This many requests in a day of 24 hours.
        $(#[doc = concat!("\n", $note)])?
        pub const fn per_day(limit: $limit) -> Self {
            $of($crate::quota::Quota::per_day(limit as u32))
        }
    };
}
pub(super) use paved_constructors;

/// The constructors of an algorithm that takes any quota.
macro_rules! quota_constructors {
    () => {
        $crate::algorithm::paved_constructors!(u32, Self::of);

        /// This many requests in this period.
        ///
        /// # Errors
        ///
        /// If the period is shorter than 1 ms, longer than 366 days, or not a whole number of
        /// microseconds.
        pub fn new(
            limit: u32,
            period: std::time::Duration,
        ) -> Result<Self, $crate::error::ConfigError> {
            $crate::quota::Quota::new(limit, period).map(Self::of)
        }
    };
}
pub(super) use quota_constructors;
