//! How many requests were admitted and refused in the last ten minutes, second by second, for a page that is
//! opened now.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tower_ratelimit::observe::{PolicyStats, RequestStats, Snapshot};

/// The rates of the last ten minutes, from the differences of snapshots.
#[derive(Debug, Default, Serialize)]
pub(super) struct History {
    /// The last recorded second, in Unix time.
    end: u64,
    requests: VecDeque<Second>,
    policies: Vec<OfPolicy>,
    #[serde(skip)]
    last: Option<Snapshot>,
}

#[derive(Debug, Serialize)]
struct OfPolicy {
    name: String,
    seconds: VecDeque<Second>,
}

/// Admitted and refused requests in a second; `None` if it was not observed.
type Second = Option<[u64; 2]>;

/// The number of seconds that are kept.
const SECONDS: usize = 600;

impl History {
    /// Adds what happened since the last snapshot, which was read in an earlier second.
    pub(super) fn note(&mut self, second: u64, now: Snapshot) {
        let passed = second.saturating_sub(self.end);
        if passed == 0 {
            // Within the second of the last snapshot, or the clock was set back: the next snapshot includes
            // it all.
            if second < self.end {
                *self = Self::default();
                self.end = second;
                self.last = Some(now);
            }
            return;
        }
        let last = self.last.take();
        // In a longer time it is unknown when requests came.
        let last = last.filter(|last| passed <= 2 && last.since == now.since);
        let add = |seconds: &mut VecDeque<Second>, risen: Second| {
            // A tick may come a little late, and then its counts are those of two seconds.
            let (earlier, own) = match (risen, passed) {
                (Some([admitted, refused]), 2) => {
                    let half = [admitted / 2, refused / 2];
                    (Some(half), Some([admitted - half[0], refused - half[1]]))
                }
                (risen, _) => (None, risen),
            };
            let gap = usize::try_from(passed - 1).map_or(SECONDS, |gap| gap.min(SECONDS));
            seconds.extend((0..gap).map(|_| earlier));
            seconds.push_back(own);
            seconds.drain(..seconds.len().saturating_sub(SECONDS));
        };
        let risen = last
            .as_ref()
            .map(|last| difference(requests(&now.requests), requests(&last.requests)));
        add(&mut self.requests, risen);
        self.policies
            .retain(|known| now.policy(&known.name).is_some());
        for policy in &now.policies {
            let before = last.as_ref().and_then(|last| last.policy(&policy.name));
            let risen = before.map(|before| difference(counts(policy), counts(before)));
            let known = self
                .policies
                .iter()
                .position(|known| known.name == policy.name);
            let place = known.unwrap_or_else(|| {
                self.policies.push(OfPolicy {
                    name: policy.name.clone(),
                    seconds: VecDeque::new(),
                });
                self.policies.len() - 1
            });
            add(&mut self.policies[place].seconds, risen);
        }
        self.end = second;
        self.last = Some(now);
    }
}

/// Returns the second of Unix time.
pub(super) fn unix_second(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

fn requests(requests: &RequestStats) -> [u64; 2] {
    [requests.allowed, requests.refused + requests.failed]
}

fn counts(policy: &PolicyStats) -> [u64; 2] {
    [
        policy.allowed + policy.soft + policy.shadow_refused,
        policy.refused + policy.failed,
    ]
}

fn difference(now: [u64; 2], before: [u64; 2]) -> [u64; 2] {
    [
        now[0].saturating_sub(before[0]),
        now[1].saturating_sub(before[1]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower_ratelimit::{FixedWindow, Limiter, LocalLimiter, Policy};

    fn limiter() -> LocalLimiter {
        let policy = Policy::new("mails", FixedWindow::per_day(3));
        Limiter::builder().policy(policy).build_local().unwrap()
    }

    fn send(limiter: &LocalLimiter, count: u32) {
        for _ in 0..count {
            let _ = limiter.check("ann", 1).now();
        }
    }

    #[test]
    fn each_second_has_what_happened_in_it() {
        let (limiter, mut history) = (limiter(), History::default());
        send(&limiter, 1);
        history.note(100, limiter.snapshot());
        send(&limiter, 3);
        history.note(101, limiter.snapshot());
        // Two snapshots within a second count as one.
        history.note(101, limiter.snapshot());
        send(&limiter, 5);
        history.note(101, limiter.snapshot());
        history.note(103, limiter.snapshot());
        let json = serde_json::to_value(&history).unwrap();
        assert_eq!(json["end"], 103);
        let seconds = serde_json::json!([null, [2, 1], [0, 2], [0, 3]]);
        let policy = &json["policies"][0]["seconds"].as_array().unwrap();
        assert_eq!(policy[policy.len() - 4..], *seconds.as_array().unwrap());
        let requests = &json["requests"].as_array().unwrap();
        assert_eq!(requests[requests.len() - 4..], *seconds.as_array().unwrap());
    }

    #[test]
    fn ten_minutes_are_kept_and_a_longer_pause_is_a_gap() {
        let (limiter, mut history) = (limiter(), History::default());
        for second in 1_000..2_000 {
            history.note(second, limiter.snapshot());
        }
        assert_eq!(history.requests.len(), SECONDS);
        assert!(history.requests.iter().all(Option::is_some));
        send(&limiter, 2);
        history.note(2_009, limiter.snapshot());
        let newest: Vec<_> = history.requests.iter().rev().take(11).collect();
        assert!(newest[..10].iter().all(|second| second.is_none()));
        assert_eq!(*newest[10], Some([0, 0]));
        history.note(1 << 40, limiter.snapshot());
        assert_eq!(history.policies[0].seconds.len(), SECONDS);
        assert!(history.policies[0].seconds.iter().all(Option::is_none));
    }

    #[test]
    fn a_clock_that_is_set_back_begins_anew() {
        let (limiter, mut history) = (limiter(), History::default());
        history.note(1_000, limiter.snapshot());
        history.note(1_001, limiter.snapshot());
        history.note(500, limiter.snapshot());
        assert!(history.requests.is_empty());
        send(&limiter, 1);
        history.note(501, limiter.snapshot());
        assert_eq!(history.requests, [Some([1, 0])]);
    }
}
