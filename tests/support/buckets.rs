//! The bucket family, as statements about the admitted requests.

use super::debt::Pace;
use super::model::{Admitted, Rule, shift};

/// GCRA, the token bucket and the leaky bucket as a meter, by the promise that all three keep: no span up to
/// now has admitted more than the burst and what the rate gives in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pub(crate) limit: u32,
    pub(crate) period: u64,
    pub(crate) burst: u32,
}

impl Bucket {
    /// Returns whether this much at once keeps the promise, for the span from each request to now. All
    /// numbers are parts of a request, as many as the period has microseconds.
    fn fits(self, admitted: &[Admitted], at: i128, capacity: i128) -> bool {
        let period = i128::from(self.period);
        let mut sum = 0;
        admitted.iter().rev().all(|request| {
            sum += request.cost;
            sum * period <= capacity * period + (at - request.at) * i128::from(self.limit)
        })
    }

    /// Cuts the debt to this much.
    fn cut_to(self, most: i128, admitted: &mut Vec<Admitted>, at: i128) {
        if !self.fits(admitted, at, most) {
            *admitted = vec![Admitted { at, cost: most }];
        }
    }
}

impl Rule for Bucket {
    fn limit(&self) -> i128 {
        match self.limit {
            0 => 0,
            _ => self.burst.into(),
        }
    }

    fn allows(&self, admitted: &[Admitted], at: i128, cost: i128) -> bool {
        let left = self.limit() - cost;
        left >= 0 && self.fits(admitted, at, left)
    }

    fn is_new(&self, admitted: &[Admitted], at: i128) -> bool {
        self.fits(admitted, at, 0)
    }

    /// Keeps the debt after the last request as the debt of now.
    fn step_back(&self, admitted: &mut Vec<Admitted>, at: i128) {
        let Some(&Admitted { at: last, .. }) = admitted.last() else {
            return;
        };
        shift(admitted, last - at);
    }

    /// Returns the pace with a part for each microsecond of the period.
    fn pace(&self) -> Option<Pace> {
        Some(Pace {
            capacity: self.limit(),
            rate: self.limit.into(),
            parts: self.period.into(),
            step: 1,
        })
    }

    fn settle(&self, admitted: &mut Vec<Admitted>, at: i128, units: i128) {
        admitted.push(Admitted { at, cost: units });
        self.cut_to(2 * self.limit(), admitted, at);
    }

    fn forget(&self, _: &mut Vec<Admitted>, _: i128) {}

    fn most_within(&self, span: i128) -> i128 {
        self.limit() + i128::from(self.limit) * span / i128::from(self.period)
    }
}

/// The token bucket by interval: tokens arrive together at each whole period after the request that found the
/// bucket full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IntervalBucket {
    pub(crate) limit: u32,
    pub(crate) period: u64,
    pub(crate) burst: u32,
}

impl IntervalBucket {
    /// Returns how many times tokens have arrived since the first request.
    fn refills(self, first: &Admitted, at: i128) -> i128 {
        (at - first.at).div_euclid(self.period.into())
    }

    fn tokens(self, admitted: &[Admitted], at: i128) -> i128 {
        let Some(first) = admitted.first() else {
            return self.limit();
        };
        let mut tokens = self.limit();
        let mut refills = 0;
        let requests = admitted.iter().map(|request| (request.at, request.cost));
        for (at, cost) in requests.chain([(at, 0)]) {
            let arrived = self.refills(first, at) - refills;
            refills += arrived;
            tokens = (tokens + arrived * i128::from(self.limit)).min(self.limit()) - cost;
        }
        tokens
    }
}

impl Rule for IntervalBucket {
    fn limit(&self) -> i128 {
        match self.limit {
            0 => 0,
            _ => self.burst.into(),
        }
    }

    fn allows(&self, admitted: &[Admitted], at: i128, cost: i128) -> bool {
        cost <= self.tokens(admitted, at)
    }

    fn is_new(&self, admitted: &[Admitted], at: i128) -> bool {
        self.tokens(admitted, at) == self.limit()
    }

    /// Moves a last refill that lies in the future to now.
    fn step_back(&self, admitted: &mut Vec<Admitted>, at: i128) {
        let (Some(first), Some(last)) = (admitted.first(), admitted.last()) else {
            return;
        };
        let refills = self.refills(first, last.at);
        let last_refill = first.at + refills * i128::from(self.period);
        shift(admitted, last_refill - at);
    }

    fn pace(&self) -> Option<Pace> {
        Some(Pace {
            capacity: self.limit(),
            rate: self.limit.into(),
            parts: 1,
            step: self.period.into(),
        })
    }

    fn settle(&self, admitted: &mut Vec<Admitted>, at: i128, units: i128) {
        let left = self.tokens(admitted, at) + self.limit();
        let cost = units.min(left);
        admitted.push(Admitted { at, cost });
    }

    fn forget(&self, admitted: &mut Vec<Admitted>, at: i128) {
        if self.is_new(admitted, at) {
            admitted.clear();
        }
    }

    fn most_within(&self, span: i128) -> i128 {
        let refill = self.limit().min(self.limit.into());
        let refills = span / i128::from(self.period) + 1;
        match span {
            0 => self.limit(),
            _ => self.limit().max(self.limit() - 1 + refill * refills),
        }
    }
}
