//! Algorithms as text.

use std::fmt;
use std::str::FromStr;

use super::{Algorithm, FixedWindow, Gcra, LeakyBucket, TokenBucket};
use crate::error::ConfigError;
use crate::quota::Quota;

const NAMES: &str = "use one of fixed-window, token-bucket, leaky-bucket, gcra, unlimited, such as fixed-window 100/minute";

impl FromStr for Algorithm {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let text = text.trim();
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        Ok(match name {
            "fixed-window" => Self::FixedWindow(rest.parse()?),
            "token-bucket" => Self::TokenBucket(rest.parse()?),
            "leaky-bucket" => Self::LeakyBucket(rest.parse()?),
            "gcra" => Self::Gcra(rest.parse()?),
            "unlimited" if rest.is_empty() => Self::Unlimited,
            _ => return Err(ConfigError::quoting("algorithm", text, NAMES)),
        })
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FixedWindow(window) => write!(f, "fixed-window {window}"),
            Self::TokenBucket(bucket) => write!(f, "token-bucket {bucket}"),
            Self::LeakyBucket(bucket) => write!(f, "leaky-bucket {bucket}"),
            Self::Gcra(gcra) => write!(f, "gcra {gcra}"),
            Self::Unlimited => f.write_str("unlimited"),
        }
    }
}

impl FromStr for FixedWindow {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        text.parse().map(Self::of)
    }
}

impl fmt::Display for FixedWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.quota().fmt(f)
    }
}

/// A bucket as text: its quota and, after a word of its own, its size.
macro_rules! bucket_text {
    ($($bucket:ident, $size:literal, $resized:ident, $capacity:expr;)+) => {$(
        impl FromStr for $bucket {
            type Err = ConfigError;

            fn from_str(text: &str) -> Result<Self, ConfigError> {
                let (quota, size) = sized(text, $size)?;
                let bucket = Self::of(quota);
                Ok(size.map_or(bucket, |size| bucket.$resized(size)))
            }
        }

        impl fmt::Display for $bucket {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.quota().fmt(f)?;
                match $capacity(self) {
                    size if size == self.quota().limit() => Ok(()),
                    size => write!(f, " {} {size}", $size),
                }
            }
        }
    )+};
}

bucket_text! {
    Gcra, "burst", burst, Gcra::capacity;
    TokenBucket, "burst", burst, TokenBucket::capacity;
    LeakyBucket, "capacity", capacity, |bucket: &LeakyBucket| bucket.as_gcra().capacity();
}

fn sized(text: &str, word: &'static str) -> Result<(Quota, Option<u32>), ConfigError> {
    let Some((quota, size)) = text.split_once(word) else {
        return Ok((text.parse()?, None));
    };
    let size = size.trim();
    let parsed = size.parse().map_err(|_| {
        ConfigError::quoting(word, size, "give a whole number from 0 to 4294967295")
    })?;
    Ok((quota.trim_end().parse()?, Some(parsed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_parses_to_the_same() {
        for text in [
            "fixed-window 100/minute",
            "token-bucket 5/second burst 10",
            "token-bucket 5/second",
            "leaky-bucket 5/second capacity 10",
            "gcra 7/250ms burst 0",
            "unlimited",
        ] {
            let algorithm: Algorithm = text.parse().unwrap();
            assert_eq!(algorithm.to_string(), text);
        }
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
            ("token-bucket 5/second burst -1", "burst"),
            ("token-bucket x/second burst 1", "limit"),
            ("token-bucket 5/second capacity 10", "period"),
            ("leaky-bucket 5/second capacity 4294967296", "capacity"),
        ] {
            let error = text.parse::<Algorithm>().unwrap_err();
            assert_eq!(error.field(), field, "{text}");
        }
    }
}
