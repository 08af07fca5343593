//! Declares statistics: each number once, with its documentation, the counter that it is the sum of, and its metrics.

use std::time::Duration;

/// Declares plain structs of statistics.
///
/// `field: Type => metric` is a field, and the metrics that publish it.
macro_rules! stats {
    ($(
        $(#[$of_struct:meta])*
        struct $Stats:ident {
            $($(#[$of_field:meta])* $field:ident: $Type:ty $(=> $metric:expr)*,)*
        }
    )*) => {$(
        $(#[$of_struct])*
        #[derive(Clone, Debug)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct $Stats {
            $($(#[$of_field])* pub $field: $Type,)*
        }

        impl $crate::observe::Published for $Stats {
            const METRICS: &[$crate::observe::Metric<Self>] = &[$($({
                const METRIC: $crate::observe::Metric<$Type> = $metric;
                METRIC.of(|stats| (METRIC.read)(&stats.$field))
            },)*)*];
        }
    )*};
}

/// Declares [`stats!`] of what requests do, and the columns of the table of counters in which they are counted.
///
/// `field: Type = Column => metric` is a field with the sum of a column.
macro_rules! counters {
    (
        $(#[$of_struct:meta])*
        struct $Stats:ident, counted by $Count:ident {
            $($(#[$of_field:meta])* $field:ident: $Type:ty $(= $Column:ident)? $(=> $metric:expr)*,)*
        }
    ) => {
        stats! {
            $(#[$of_struct])*
            struct $Stats {
                $($(#[$of_field])* $field: $Type $(=> $metric)*,)*
            }
        }

        #[doc = concat!("The counters of [`", stringify!($Stats), "`].")]
        #[derive(Clone, Copy, Debug)]
        #[allow(missing_docs, reason = "each is described where it is shown")]
        pub enum $Count {
            $($($Column,)?)*
        }

        const _: () = assert!(
            [$($($Count::$Column,)?)*].len() <= $crate::observe::rows::COLUMNS,
            "a row has no room for these counters"
        );

        impl $Stats {
            /// Returns these statistics with the sums of the counters.
            pub(crate) fn with(self, sums: &$crate::observe::rows::Sums) -> Self {
                Self {
                    $($($field: FromCount::from_count(sums.column($Count::$Column as usize)),)?)*
                    ..self
                }
            }
        }
    };
}

pub(super) use {counters, stats};

/// A statistic that a counter can have.
pub(super) trait FromCount {
    fn from_count(count: u64) -> Self;
}

impl FromCount for u64 {
    fn from_count(count: u64) -> Self {
        count
    }
}

/// Counted in microseconds.
impl FromCount for Duration {
    fn from_count(count: u64) -> Self {
        Self::from_micros(count)
    }
}
