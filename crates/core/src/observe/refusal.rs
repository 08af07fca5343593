use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Micros;

/// The refusal of a request by a policy.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "tracing"),
    expect(dead_code, reason = "the log alone reads what a refusal says")
)]
pub(super) struct Refusal<'a> {
    pub(super) policy: &'a str,
    /// The kind of the key, such as `address`. The log never has the key itself.
    pub(super) key_kind: &'static str,
    /// `None` if no wait helps.
    pub(super) wait: Option<Micros>,
    pub(super) is_blocked: bool,
}

/// When a refusal by a policy was last reported.
#[derive(Debug, Default)]
pub(super) struct LastLogged(AtomicU64);

const MINUTE: u64 = 60_000_000;

impl LastLogged {
    fn may_be_due(&self, now: Micros) -> Option<(u64, u64)> {
        let (now, logged) = (now.get().max(1), self.0.load(Ordering::Relaxed));
        // A clock may step back.
        let is_due = logged == 0 || now.abs_diff(logged) >= MINUTE;
        is_due.then_some((logged, now))
    }

    /// Returns whether a refusal is reported now: once in a minute.
    fn is_due(&self, now: Micros) -> bool {
        self.may_be_due(now).is_some_and(|(logged, now)| {
            self.0
                .compare_exchange(logged, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        })
    }
}

/// Returns whether a refusal may be reported at this moment. Under attack, that is nearly always `false`.
#[cfg(feature = "tracing")]
#[inline]
pub(super) fn may_be_logged(last: &LastLogged, now: Micros) -> bool {
    last.may_be_due(now).is_some()
        || tracing::enabled!(target: "tower_ratelimit::refusal", tracing::Level::DEBUG)
}

#[cfg(not(feature = "tracing"))]
pub(super) fn may_be_logged(last: &LastLogged, now: Micros) -> bool {
    last.may_be_due(now).is_some()
}

/// Reports a refusal to operators, at this moment of the store's clock.
#[cfg(feature = "tracing")]
#[cold]
pub(super) fn log(refusal: &Refusal<'_>, last: &LastLogged, now: Micros) {
    tracing::debug!(
        target: "tower_ratelimit::refusal",
        policy = refusal.policy,
        key_kind = refusal.key_kind,
        wait = refusal.wait.map(|wait| tracing::field::debug(wait.to_duration())),
        blocked = refusal.is_blocked,
        "a request is refused"
    );
    if last.is_due(now) {
        tracing::info!(
            target: "tower_ratelimit::refusal",
            policy = refusal.policy,
            key_kind = refusal.key_kind,
            "a policy refuses requests; this is told once in a minute"
        );
    }
}

#[cfg(not(feature = "tracing"))]
pub(super) fn log(_: &Refusal<'_>, last: &LastLogged, now: Micros) {
    let _ = last.is_due(now);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_in_a_minute_whatever_the_clock_does() {
        let last = LastLogged::default();
        let due = |seconds| last.is_due(Micros::from_secs(seconds));
        let logged = [0, 1, 59, 60, 61, 119, 121, 70, 62, 61].map(due);
        let expected = [
            true, false, false, false, true, false, true, false, false, true,
        ];
        assert_eq!(logged, expected);
    }
}
