use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::diagnostics::{Diagnostic, warn_once_of};

/// Detects that requests keep leaving the lines of a policy before their turn.
pub(crate) struct Leaving {
    policy: String,
    ends: Mutex<Ends>,
}

/// Counts how the requests of a line ended.
#[derive(Default)]
struct Ends {
    stayed: u32,
    left: u32,
}

const LEAVING: Diagnostic = Diagnostic::new(
    "TRL014",
    "",
    "requests keep leaving a line before their turn, as they do if a timeout outside of the layer is shorter than \
     the longest wait",
    "let no request wait for longer than its caller does: by a shorter `longest_wait` or `wait_up_to`, by fewer places, \
     or by a `Deadline` among its extensions; in a file of limits: `wait_up_to`, `wait_places` or `places` of the policy",
);

/// The number of requests in a sample.
const LOOKED_AT: u32 = 100;

/// The number of early leaves in a sample that causes a warning.
const TOO_MANY: u32 = LOOKED_AT / 10;

impl Leaving {
    /// Counts for the policy with this name.
    pub(crate) fn new(policy: &str) -> Self {
        Self {
            policy: policy.to_owned(),
            ends: Mutex::default(),
        }
    }

    /// Records that a request has left its line. `has_stayed` says whether it had its turn or an answer.
    pub(crate) fn ended(&self, has_stayed: bool) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let are_too_many = ends.count(has_stayed);
        drop(ends);
        if are_too_many {
            warn_once_of(&LEAVING, format!("policy {:?}", self.policy));
        }
    }
}

impl Ends {
    /// Records one end. Returns `true` at the end of a sample in which too many requests have left early.
    fn count(&mut self, has_stayed: bool) -> bool {
        if has_stayed {
            self.stayed += 1;
        } else {
            self.left += 1;
        }
        if self.stayed + self.left < LOOKED_AT {
            return false;
        }
        std::mem::take(self).left >= TOO_MANY
    }
}

impl fmt::Debug for Leaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaving")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_in_ten_that_leaves_is_too_many_and_fewer_are_not() {
        for (one_in, is_too_many) in [(1, true), (2, true), (10, true), (12, false), (999, false)] {
            let mut ends = Ends::default();
            let warnings = (1..=300).filter(|number| ends.count(number % one_in != 0));
            assert_eq!(
                warnings.count(),
                if is_too_many { 3 } else { 0 },
                "1 in {one_in}"
            );
        }
    }
}
