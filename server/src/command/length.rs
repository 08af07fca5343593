//! Lengths of time, as a file of limits spells them.

use std::time::Duration;

use tower_ratelimit::Quota;

/// Reads a length of time.
pub(super) fn length(text: &str) -> Result<Duration, &'static str> {
    let quota = format!("1/{text}").parse::<Quota>();
    quota
        .map(|quota| quota.period())
        .map_err(|_| "write a length of time such as 250ms, 2s or 1min")
}

/// Reads a length of time that may be none.
pub(super) fn pause(text: &str) -> Result<Duration, &'static str> {
    match text {
        "0" | "0s" | "0ms" => Ok(Duration::ZERO),
        _ => length(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_spelled_as_in_the_file() {
        for (text, expected) in [("250ms", 250), ("3s", 3_000), ("1min", 60_000)] {
            assert_eq!(length(text), Ok(Duration::from_millis(expected)));
        }
        for wrong in ["0", "3", "-1s", "soon", ""] {
            length(wrong).unwrap_err();
        }
    }
}
