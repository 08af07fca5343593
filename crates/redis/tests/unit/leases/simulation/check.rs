//! Checks that the plain algorithm would have admitted a spend.

use tower_ratelimit_core::__internal::Step;
use tower_ratelimit_core::algorithm::SlidingLog;
use tower_ratelimit_core::clock::Micros;

/// The spends of a key, at the moments at which they happened.
#[derive(Debug)]
pub(super) struct Check<S: Step> {
    plain: S::Form,
    /// When a bucket by interval was last refilled. The server knows, since its intervals begin when *it* has
    /// a full bucket.
    refilled: Option<u64>,
    missing: u64,
    /// Whether the plain algorithm forgets expired entries only when it is charged.
    forgets_late: bool,
    /// How much may be spent in excess, because of the faults that have happened.
    pub(super) excess: u64,
}

impl<S: Step> Check<S> {
    pub(super) fn new(by_interval: bool, forgets_late: bool) -> Self {
        Self {
            plain: S::Form::default(),
            refilled: by_interval.then_some(0),
            missing: 0,
            forgets_late,
            excess: 0,
        }
    }

    /// Returns whether this much can be spent now.
    pub(super) fn has_room(&mut self, rule: &S, now: Micros, cost: u32) -> bool {
        if self.refilled.is_some() {
            return self.missing + u64::from(cost) <= u64::from(rule.limit());
        }
        self.move_back(rule, now);
        rule.allows(&self.plain, now, cost)
    }

    /// Spends units. Returns whether the plain algorithm allows that.
    ///
    /// Units that it does not admit count as excess, and nowhere else.
    pub(super) fn spend(&mut self, rule: &S, now: Micros, cost: u32) -> bool {
        let admitted = self.admitted(rule, now, cost);
        let Some(left) = self.excess.checked_sub((cost - admitted).into()) else {
            return false;
        };
        self.excess = left;
        match self.refilled {
            Some(_) => self.missing += u64::from(admitted),
            None if admitted > 0 => rule.charge(&mut self.plain, now, admitted),
            None => {}
        }
        true
    }

    /// Returns how many of these units the plain algorithm admits.
    fn admitted(&mut self, rule: &S, now: Micros, cost: u32) -> u32 {
        let mut units = (1..=cost).rev();
        units
            .find(|units| self.has_room(rule, now, *units))
            .unwrap_or(0)
    }

    /// Steps the server's clock back. The plain algorithm is asked at every moment: all that has drained
    /// until then is drained, and the rest drains from the moment of the step. A server that is asked less
    /// often forgets some of that time, and admits less. But it may forget less of it than a plain algorithm
    /// that is asked at the moments of the spends alone, because nodes report to it in between.
    pub(super) fn step_back(&mut self, rule: &S, from: Micros, to: Micros) {
        if let Some(last) = &mut self.refilled {
            // The bucket is as full as it was, and is refilled next one period after the step.
            *last = (*last).min(to.get());
            return;
        }
        rule.refund(&mut self.plain, from, 0);
        if self.forgets_late {
            // A step back would bring back entries that have expired since the last spend.
            rule.charge(&mut self.plain, from, 0);
        }
        self.move_back(rule, to);
    }

    fn move_back(&mut self, rule: &S, now: Micros) {
        if let Some(moved) = rule.moved_back(&self.plain, now) {
            self.plain = moved;
        }
    }

    /// Records that the server has refilled a bucket by interval at this moment, and does so in each period.
    pub(super) fn refill(&mut self, now: u64, anchor: u64, (period, tokens): (u64, u64)) {
        let Some(last) = self.refilled else {
            return;
        };
        if now < anchor {
            return;
        }
        // If the intervals begin again, the bucket was full: nothing may be missing by the previous
        // intervals.
        let is_new = anchor > last && !(anchor - last).is_multiple_of(period);
        let latest = if is_new {
            anchor
        } else {
            anchor + (now - anchor) / period * period
        };
        let refills = latest.saturating_sub(last) / period;
        if last > now {
            // The clock has stepped back, and the state with it.
            self.refilled = Some(latest);
            return;
        }
        self.missing = self.missing.saturating_sub(refills.saturating_mul(tokens));
        self.refilled = Some(latest.max(last));
    }
}

#[test]
fn a_step_back_brings_back_nothing_that_has_expired() {
    let log = SlidingLog::per_second(2);
    let mut check = Check::new(false, true);
    let at = |millis: u64| Micros::new(1_000_000_000 + millis * 1_000);
    assert!(check.spend(&log, at(1_000), 2));
    check.step_back(&log, at(2_500), at(500));
    assert!(check.spend(&log, at(500), 2));
    assert!(!check.spend(&log, at(600), 1));
}
