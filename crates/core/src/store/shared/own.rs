//! Values that a key has for a span of time: a block, or a limit of its own.

use crate::algorithm::{Algorithm, Limit};
use crate::clock::Micros;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Micros,
    pub(super) until: Micros,
}

impl Span {
    /// A span of this length from now on.
    pub(super) fn new(now: Micros, length: Micros) -> Self {
        Self {
            from: now,
            until: now.saturating_add(length.min(Micros::LONGEST)),
        }
    }

    pub(super) fn of(words: &[u64]) -> Option<Self> {
        match *words {
            [from, until] => Some(Self {
                from: Micros::new(from),
                until: Micros::new(until),
            }),
            _ => None,
        }
    }

    pub(super) fn words(self) -> [u64; 2] {
        [self.from, self.until].map(Micros::get)
    }

    pub(super) fn left(self, now: Micros) -> Micros {
        self.until.saturating_sub(now)
    }

    /// Moves the span back, with its length, if it begins after this moment.
    pub(super) fn moved_back(self, now: Micros) -> Self {
        let length = self.until.saturating_sub(self.from);
        Self::new(self.from.min(now), length)
    }
}

/// The limit of a key, in place of its policy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) span: Span,
    pub(super) limit: Algorithm,
}

impl Own {
    /// Reads an override from these words, under this policy.
    pub(super) fn of(words: &[u64], policy: &Algorithm) -> Option<Self> {
        let [from, until, limit, most] = *words else {
            return None;
        };
        let limit = Limit::new(u32::try_from(limit).ok()?, u32::try_from(most).ok()?);
        Some(Self {
            span: Span::of(&[from, until])?,
            limit: policy.without_hours().under(limit)?,
        })
    }

    pub(super) fn words(&self) -> [u64; 4] {
        let [from, until] = self.span.words();
        let limit = self.limit.limits();
        let [quota, size] = limit.map_or([0; 2], |limit| [limit.quota(), limit.size()]);
        [from, until, quota.into(), size.into()]
    }
}
