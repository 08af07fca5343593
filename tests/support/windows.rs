//! The window family, as statements about what was admitted.

use super::model::{Admitted, Rule, clamp, count, shift, sum};

#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedWindow {
    pub(crate) limit: u32,
    pub(crate) period: u64,
}

impl FixedWindow {
    fn window(self, at: i128) -> i128 {
        at.div_euclid(self.period.into())
    }

    fn used(self, admitted: &[Admitted], at: i128) -> i128 {
        let counts = |request: &&Admitted| self.window(request.at) == self.window(at);
        sum(admitted.iter().filter(counts))
    }
}

impl Rule for FixedWindow {
    fn limit(&self) -> i128 {
        self.limit.into()
    }

    fn allows(&self, admitted: &[Admitted], at: i128, cost: i128) -> bool {
        self.used(admitted, at) + cost <= self.limit()
    }

    fn is_new(&self, admitted: &[Admitted], at: i128) -> bool {
        self.used(admitted, at) == 0
    }

    fn settle(&self, admitted: &mut Vec<Admitted>, at: i128, units: i128) {
        let counted = self.used(admitted, at);
        count(admitted, at, units, counted);
    }

    fn step_back(&self, admitted: &mut Vec<Admitted>, at: i128) {
        clamp(admitted, at);
    }

    fn forget(&self, admitted: &mut Vec<Admitted>, at: i128) {
        admitted.retain(|request| self.window(request.at) == self.window(at));
    }

    fn most_within(&self, span: i128) -> i128 {
        let edges = (span + i128::from(self.period) - 1) / i128::from(self.period);
        self.limit() * (edges + 1)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AnchoredWindow {
    pub(crate) limit: u32,
    pub(crate) period: u64,
}

impl AnchoredWindow {
    fn used(self, admitted: &[Admitted], at: i128) -> i128 {
        match admitted.first() {
            Some(first) if at < first.at + i128::from(self.period) => sum(admitted),
            _ => 0,
        }
    }
}

impl Rule for AnchoredWindow {
    fn limit(&self) -> i128 {
        self.limit.into()
    }

    fn allows(&self, admitted: &[Admitted], at: i128, cost: i128) -> bool {
        self.used(admitted, at) + cost <= self.limit()
    }

    fn is_new(&self, admitted: &[Admitted], at: i128) -> bool {
        self.used(admitted, at) == 0
    }

    fn settle(&self, admitted: &mut Vec<Admitted>, at: i128, units: i128) {
        let counted = self.used(admitted, at);
        count(admitted, at, units, counted);
    }

    fn step_back(&self, admitted: &mut Vec<Admitted>, at: i128) {
        clamp(admitted, at);
    }

    fn forget(&self, admitted: &mut Vec<Admitted>, at: i128) {
        if self.is_new(admitted, at) {
            admitted.clear();
        }
    }

    /// Windows begin a period apart; of one that began before the span, the first request lies
    /// outside.
    fn most_within(&self, span: i128) -> i128 {
        let begun = self.limit() * (span / i128::from(self.period) + 1);
        match span {
            0 => self.limit(),
            _ => begun + (self.limit() - 1).max(0),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SlidingLog {
    pub(crate) limit: u32,
    pub(crate) period: u64,
}

impl SlidingLog {
    fn counts(self, request: &Admitted, at: i128) -> bool {
        request.at > at - i128::from(self.period)
    }

    fn used(self, admitted: &[Admitted], at: i128) -> i128 {
        let counts = |request: &&Admitted| self.counts(request, at);
        sum(admitted.iter().filter(counts))
    }
}

impl Rule for SlidingLog {
    fn limit(&self) -> i128 {
        self.limit.into()
    }

    fn allows(&self, admitted: &[Admitted], at: i128, cost: i128) -> bool {
        self.used(admitted, at) + cost <= self.limit()
    }

    fn is_new(&self, admitted: &[Admitted], at: i128) -> bool {
        self.used(admitted, at) == 0
    }

    fn settle(&self, admitted: &mut Vec<Admitted>, at: i128, units: i128) {
        let counted = self.used(admitted, at);
        count(admitted, at, units, counted);
    }

    fn step_back(&self, admitted: &mut Vec<Admitted>, at: i128) {
        clamp(admitted, at);
    }

    fn forget(&self, admitted: &mut Vec<Admitted>, at: i128) {
        admitted.retain(|request| self.counts(request, at));
    }

    fn most_within(&self, span: i128) -> i128 {
        self.limit() * (span / i128::from(self.period) + 1)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SlidingWindow {
    pub(crate) limit: u32,
    pub(crate) period: u64,
}

impl SlidingWindow {
    fn window(self, at: i128) -> i128 {
        at.div_euclid(self.period.into())
    }

    fn used_in(self, admitted: &[Admitted], window: i128) -> i128 {
        let counts = |request: &&Admitted| self.window(request.at) == window;
        sum(admitted.iter().filter(counts))
    }

    /// Returns the estimate, in parts of a request as many as the period has microseconds.
    fn estimate(self, admitted: &[Admitted], at: i128) -> i128 {
        let period = i128::from(self.period);
        let before = self.used_in(admitted, self.window(at) - 1);
        let current = self.used_in(admitted, self.window(at));
        before * (period - at.rem_euclid(period)) + current * period
    }
}

impl Rule for SlidingWindow {
    fn limit(&self) -> i128 {
        self.limit.into()
    }

    fn allows(&self, admitted: &[Admitted], at: i128, cost: i128) -> bool {
        let period = i128::from(self.period);
        self.estimate(admitted, at) + cost * period <= self.limit() * period
    }

    fn is_new(&self, admitted: &[Admitted], at: i128) -> bool {
        self.estimate(admitted, at) == 0
    }

    fn settle(&self, admitted: &mut Vec<Admitted>, at: i128, units: i128) {
        let counted = self.used_in(admitted, self.window(at));
        count(admitted, at, units, counted);
    }

    /// Both windows move together: the one before stays the one before.
    fn step_back(&self, admitted: &mut Vec<Admitted>, at: i128) {
        if let Some(last) = admitted.last() {
            let ahead = self.window(last.at) - self.window(at);
            shift(admitted, ahead * i128::from(self.period));
            clamp(admitted, at);
        }
    }

    fn forget(&self, admitted: &mut Vec<Admitted>, at: i128) {
        admitted.retain(|request| self.window(request.at) >= self.window(at) - 1);
    }

    fn most_within(&self, span: i128) -> i128 {
        let (limit, period) = (self.limit(), i128::from(self.period));
        match span {
            0 => limit,
            _ if span < period => limit + limit * (span - 1) / period,
            _ => (2 * limit - 1).max(0) * (span / period + 1),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SlidingSlots {
    pub(crate) limit: u32,
    pub(crate) period: u64,
    /// Must divide the period.
    pub(crate) slots: u32,
}

impl SlidingSlots {
    fn length(self) -> i128 {
        i128::from(self.period) / i128::from(self.slots)
    }

    fn slot(self, at: i128) -> i128 {
        at.div_euclid(self.length())
    }

    fn counts(self, request: &Admitted, at: i128) -> bool {
        self.slot(request.at) >= self.slot(at) - i128::from(self.slots)
    }

    fn used(self, admitted: &[Admitted], at: i128) -> i128 {
        let counts = |request: &&Admitted| self.counts(request, at);
        sum(admitted.iter().filter(counts))
    }
}

impl Rule for SlidingSlots {
    fn limit(&self) -> i128 {
        self.limit.into()
    }

    fn allows(&self, admitted: &[Admitted], at: i128, cost: i128) -> bool {
        self.used(admitted, at) + cost <= self.limit()
    }

    fn is_new(&self, admitted: &[Admitted], at: i128) -> bool {
        self.used(admitted, at) == 0
    }

    fn settle(&self, admitted: &mut Vec<Admitted>, at: i128, units: i128) {
        let counted = self.used(admitted, at);
        count(admitted, at, units, counted);
    }

    fn step_back(&self, admitted: &mut Vec<Admitted>, at: i128) {
        clamp(admitted, at);
    }

    fn forget(&self, admitted: &mut Vec<Admitted>, at: i128) {
        admitted.retain(|request| self.counts(request, at));
    }

    fn most_within(&self, span: i128) -> i128 {
        self.limit() * (span / i128::from(self.period) + 1)
    }
}
