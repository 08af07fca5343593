//! The lines of the log about refused requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderValue, Response, StatusCode};
use tower_ratelimit::response::Refusal;

use crate::envoy::messages::envoy::service::ratelimit::v3::RateLimitResponse;
use crate::ratelimit::limited;
use crate::trace;

/// Logs refusals, some in each second for each policy. A flood of requests is no flood of lines.
#[derive(Clone, Debug)]
pub(crate) struct Refusals {
    most: u32,
    policies: Arc<Mutex<HashMap<Box<str>, OfPolicy>>>,
}

#[derive(Debug)]
struct OfPolicy {
    /// When the second began in which lines are counted.
    begun: Instant,
    lines: u32,
    /// The refusals without a line since the last one with a line.
    suppressed: u64,
}

impl Refusals {
    /// Each policy has this many lines a second at most.
    pub(crate) fn new(most: u32) -> Self {
        Self {
            most,
            policies: Arc::default(),
        }
    }

    /// Logs the request if this is its refusal.
    pub(crate) fn note<B>(&self, response: &Response<B>, parent: Option<&HeaderValue>) {
        if let Some((policy, wait)) = cause(response) {
            let status = response.status().as_u16();
            self.log(policy, (status, wait), parent);
        }
    }

    /// Logs the call if this answer about its descriptors refuses it. Limits without a name are logged as `descriptors`.
    pub(crate) fn note_answer(
        &self,
        answer: &RateLimitResponse,
        parent: impl FnOnce() -> Option<HeaderValue>,
    ) {
        let (is_limited, name) = limited(answer);
        if is_limited {
            let status = StatusCode::TOO_MANY_REQUESTS.as_u16();
            self.log(
                name.unwrap_or("descriptors"),
                (status, None),
                parent().as_ref(),
            );
        }
    }

    fn log(
        &self,
        policy: &str,
        (status, wait): (u16, Option<Duration>),
        parent: Option<&HeaderValue>,
    ) {
        let Some(suppressed) = self.suppressed(policy, Instant::now()) else {
            return;
        };
        tracing::info!(
            policy,
            status,
            wait = wait.map(tracing::field::debug),
            trace_id = parent.and_then(trace::id),
            suppressed,
            "a request was refused"
        );
    }

    /// Returns how many refusals had no line before this one, or nothing if this one has none either.
    fn suppressed(&self, policy: &str, now: Instant) -> Option<u64> {
        if self.most == 0 {
            return None;
        }
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        if !policies.contains_key(policy) {
            let new = OfPolicy {
                begun: now,
                lines: 0,
                suppressed: 0,
            };
            policies.insert(policy.into(), new);
        }
        let of_policy = policies.get_mut(policy)?;
        if now.duration_since(of_policy.begun) >= Duration::from_secs(1) {
            of_policy.begun = now;
            of_policy.lines = 0;
        }
        if of_policy.lines == self.most {
            of_policy.suppressed += 1;
            return None;
        }
        of_policy.lines += 1;
        Some(std::mem::take(&mut of_policy.suppressed))
    }
}

/// Returns the policy that has refused a request, or what else has, and the wait.
pub(crate) fn cause<B>(response: &Response<B>) -> Option<(&str, Option<Duration>)> {
    Some(match response.extensions().get::<Refusal>()? {
        Refusal::Denied(decision) => (decision.binding()?.0, decision.retry_after()),
        Refusal::MissingKey(_) => ("no key", None),
        Refusal::Unread(_) => ("body", None),
        Refusal::Forbidden => ("deny list", None),
        Refusal::StoreFailed(_) => ("store", None),
        _ => ("other", None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_has_some_lines_a_second_and_the_next_one_tells_how_many_were_left_out() {
        let refusals = Refusals::new(2);
        let begun = Instant::now();
        let at = |policy: &str, millis| {
            refusals.suppressed(policy, begun + Duration::from_millis(millis))
        };
        let first = [0, 10, 20, 999].map(|millis| at("a", millis));
        assert_eq!(first, [Some(0), Some(0), None, None]);
        assert_eq!(at("b", 999), Some(0));
        assert_eq!([at("a", 1_000), at("a", 1_001)], [Some(2), Some(0)]);
        assert_eq!([at("a", 1_999), at("a", 5_000)], [None, Some(1)]);
        assert_eq!(Refusals::new(0).suppressed("a", begun), None);
    }
}
