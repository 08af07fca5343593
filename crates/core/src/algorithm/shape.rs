//! The text after the name of an algorithm: a quota and, after a word, the number of the kind.

use std::fmt::{self, Display};

use crate::error::ConfigError;
use crate::quota::{Quota, not_a_number, whole_number};

/// Reads a quota and, if this word follows, a number.
pub(super) fn read(text: &str, word: &'static str) -> Result<(Quota, Option<u32>), ConfigError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        [quota @ .., last_but_one, number] if *last_but_one == word => {
            let number = whole_number(number).ok_or_else(|| not_a_number(word, number))?;
            Ok((quota.join(" ").parse()?, Some(number)))
        }
        [.., last] if *last == word => Err(not_a_number(word, "")),
        _ => Ok((text.parse()?, None)),
    }
}

/// Writes the quota and, if there is one, the number behind its word.
pub(super) fn write(
    quota: Quota,
    word: &'static str,
    number: Option<u32>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    quota.fmt(f)?;
    match number {
        Some(number) => write!(f, " {word} {number}"),
        None => Ok(()),
    }
}
