//! Algorithms as text.

use std::fmt;
use std::str::FromStr;

use super::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, LeakyQueue, SlidingLog,
    SlidingSlots, SlidingWindow, TokenBucket,
};
use crate::error::ConfigError;
use crate::quota::{Quota, not_a_number, whole_number};

const NAMES: &str = "use one of fixed-window, anchored-window, sliding-log, sliding-window, \
    sliding-slots, token-bucket, token-bucket-interval, leaky-bucket, gcra, leaky-queue, unlimited, \
    such as fixed-window 100/minute";

impl FromStr for Algorithm {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let text = text.trim();
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        Ok(match name {
            "fixed-window" => Self::FixedWindow(rest.parse()?),
            "anchored-window" => Self::AnchoredWindow(rest.parse()?),
            "sliding-log" => Self::SlidingLog(rest.parse()?),
            "sliding-window" => Self::SlidingWindow(rest.parse()?),
            "sliding-slots" => Self::SlidingSlots(rest.parse()?),
            "token-bucket" => Self::TokenBucket(rest.parse()?),
            "token-bucket-interval" => {
                Self::TokenBucket(rest.parse::<TokenBucket>()?.by_interval())
            }
            "leaky-bucket" => Self::LeakyBucket(rest.parse()?),
            "gcra" => Self::Gcra(rest.parse()?),
            "leaky-queue" => Self::LeakyQueue(rest.parse()?),
            "unlimited" if rest.is_empty() => Self::Unlimited,
            _ => return Err(ConfigError::quoting("algorithm", text, NAMES)),
        })
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: &dyn fmt::Display = match self {
            Self::FixedWindow(window) => window,
            Self::AnchoredWindow(window) => window,
            Self::SlidingLog(log) => log,
            Self::SlidingWindow(window) => window,
            Self::SlidingSlots(slots) => slots,
            // The name says it already.
            Self::TokenBucket(bucket) if bucket.is_by_interval() => {
                &TokenBucket::of(bucket.quota()).burst(bucket.size())
            }
            Self::TokenBucket(bucket) => bucket,
            Self::LeakyBucket(bucket) => bucket,
            Self::Gcra(gcra) => gcra,
            Self::LeakyQueue(queue) => queue,
            Self::Unlimited => return f.write_str(self.name()),
        };
        write!(f, "{} {shape}", self.name())
    }
}

impl Algorithm {
    /// Its name, as it stands in text: `fixed-window`, `token-bucket-interval`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::FixedWindow(_) => "fixed-window",
            Self::AnchoredWindow(_) => "anchored-window",
            Self::SlidingLog(_) => "sliding-log",
            Self::SlidingWindow(_) => "sliding-window",
            Self::SlidingSlots(_) => "sliding-slots",
            Self::TokenBucket(bucket) if bucket.is_by_interval() => "token-bucket-interval",
            Self::TokenBucket(_) => "token-bucket",
            Self::LeakyBucket(_) => "leaky-bucket",
            Self::Gcra(_) => "gcra",
            Self::LeakyQueue(_) => "leaky-queue",
            Self::Unlimited => "unlimited",
        }
    }
}

/// A shape as text: its quota and, after a word, a number of its own.
macro_rules! shape_as_text {
    ($shape:ident of quota, $of:expr) => {
        impl FromStr for $shape {
            type Err = ConfigError;

            fn from_str(text: &str) -> Result<Self, ConfigError> {
                $of(text.parse()?)
            }
        }

        impl fmt::Display for $shape {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.quota().fmt(f)
            }
        }
    };
    ($shape:ident of quota and $word:literal, $of:expr, $shown:expr) => {
        impl FromStr for $shape {
            type Err = ConfigError;

            fn from_str(text: &str) -> Result<Self, ConfigError> {
                let (quota, number) = with_number(text, $word)?;
                $of(quota, number)
            }
        }

        impl fmt::Display for $shape {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.quota().fmt(f)?;
                match $shown(self) {
                    Some(number) => write!(f, " {} {number}", $word),
                    None => Ok(()),
                }
            }
        }
    };
}

shape_as_text!(FixedWindow of quota, |quota| Ok(Self::of(quota)));
shape_as_text!(AnchoredWindow of quota, |quota| Ok(Self::of(quota)));
shape_as_text!(
    SlidingLog of quota and "up-to",
    |quota, most: Option<u32>| Self::up_to(most.unwrap_or(Self::MOST), quota),
    |log: &SlidingLog| Some(log.quota().limit()).filter(|limit| *limit > SlidingLog::MOST)
);
shape_as_text!(SlidingWindow of quota, |quota| Ok(Self::of(quota)));
shape_as_text!(
    SlidingSlots of quota and "slots",
    |quota, slots: Option<u32>| match slots {
        Some(slots) => Self::cut(quota, slots),
        None => Self::of(quota),
    },
    |slots: &SlidingSlots| (slots.count() != 10).then(|| slots.count())
);
shape_as_text!(
    LeakyBucket of quota and "capacity",
    |quota: Quota, size: Option<u32>| Ok(Self::of(quota).capacity(size.unwrap_or(quota.limit()))),
    |bucket: &LeakyBucket| unless_limit(bucket.quota(), bucket.size())
);
shape_as_text!(
    Gcra of quota and "burst",
    |quota: Quota, burst: Option<u32>| Ok(Self::of(quota).burst(burst.unwrap_or(quota.limit()))),
    |gcra: &Gcra| unless_limit(gcra.quota(), gcra.size())
);

shape_as_text!(
    LeakyQueue of quota and "places",
    |quota: Quota, places: Option<u32>| {
        let remedy = "say how many may wait, such as 5/second places 10";
        let places = places.ok_or_else(|| ConfigError::new("places", "left out", remedy))?;
        Ok(Self::of(quota).places(places))
    },
    |queue: &LeakyQueue| Some(queue.waiting())
);

const BY_INTERVAL: &str = "by interval";

impl FromStr for TokenBucket {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let text = text.trim_end();
        let (text, interval) = match text.strip_suffix(BY_INTERVAL) {
            Some(text) => (text, true),
            None => (text, false),
        };
        let (quota, burst) = with_number(text, "burst")?;
        let bucket = Self::of(quota).burst(burst.unwrap_or(quota.limit()));
        Ok(if interval {
            bucket.by_interval()
        } else {
            bucket
        })
    }
}

impl fmt::Display for TokenBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.quota().fmt(f)?;
        if let Some(burst) = unless_limit(self.quota(), self.size()) {
            write!(f, " burst {burst}")?;
        }
        if self.is_by_interval() {
            write!(f, " {BY_INTERVAL}")?;
        }
        Ok(())
    }
}

fn unless_limit(quota: Quota, size: u32) -> Option<u32> {
    (size != quota.limit()).then_some(size)
}

fn with_number(text: &str, word: &'static str) -> Result<(Quota, Option<u32>), ConfigError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        [quota @ .., before, number] if *before == word => {
            let number = whole_number(number).ok_or_else(|| not_a_number(word, number))?;
            Ok((quota.join(" ").parse()?, Some(number)))
        }
        [.., last] if *last == word => Err(not_a_number(word, "")),
        _ => Ok((text.parse()?, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_parses_to_the_same() {
        for text in [
            "fixed-window 100/minute",
            "anchored-window 100/minute",
            "sliding-log 65536/minute",
            "sliding-log 65537/minute up-to 65537",
            "sliding-window 100/90s",
            "sliding-slots 100/minute",
            "sliding-slots 100/minute slots 60",
            "token-bucket-interval 100/minute burst 5",
            "token-bucket-interval 100/minute",
            "token-bucket 5/second burst 10",
            "token-bucket 5/second",
            "leaky-bucket 5/second capacity 10",
            "gcra 7/250ms burst 0",
            "leaky-queue 5/second places 0",
            "leaky-queue 5/second places 10",
            "unlimited",
        ] {
            let algorithm: Algorithm = text.parse().unwrap();
            assert_eq!(algorithm.to_string(), text);
        }
    }

    #[test]
    fn a_shape_that_is_shown_parses_to_the_same() {
        let interval = TokenBucket::per_second(5).burst(7).by_interval();
        assert_eq!(interval.to_string(), "5/second burst 7 by interval");
        assert_eq!(interval.to_string().parse(), Ok(interval));
        assert_eq!(
            "5/second by interval".parse(),
            Ok(TokenBucket::per_second(5).by_interval())
        );
        let log = SlidingLog::up_to(u32::MAX, Quota::per_day(1_000_000)).unwrap();
        assert_eq!(log.to_string().parse(), Ok(log));
    }

    #[test]
    fn text_that_is_no_algorithm_is_refused_by_the_name_of_its_field() {
        for (text, field) in [
            ("", "algorithm"),
            ("fixed", "algorithm"),
            ("unlimited 5/second", "algorithm"),
            ("fixed-window", "quota"),
            ("fixed-window 5/second burst 10", "period"),
            ("token-bucket 5/second burst", "burst"),
            ("token-bucket 5/second burst +1", "burst"),
            ("token-bucket 5/secondburst10", "period"),
            ("token-bucket 5/second burst10", "period"),
            ("token-bucket 5/second burst -1", "burst"),
            ("token-bucket x/second burst 1", "limit"),
            ("token-bucket 5/second capacity 10", "period"),
            ("sliding-log 65537/second", "limit"),
            ("sliding-slots 5/second slots 7", "slots"),
            ("sliding-slots 5/second slots", "slots"),
            ("leaky-bucket 5/second capacity 4294967296", "capacity"),
            ("leaky-queue 5/second", "places"),
            ("leaky-queue 5/second places -1", "places"),
        ] {
            let error = text.parse::<Algorithm>().unwrap_err();
            assert_eq!(error.field(), field, "{text}");
        }
    }
}
