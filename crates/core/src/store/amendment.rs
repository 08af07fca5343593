//! Changes to the states of keys without a decision, and where the charge was made that they concern.

use super::Charge;
use crate::algorithm::{Algorithm, Limit};
use crate::clock::Micros;
use crate::decision::{Outcome, Outcomes};

/// A change to the state of a key without a decision; see [`Backend::amend`](super::Backend::amend).
// Stores have it, and a user of them does not.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Amendment {
    /// Gives the cost back, the latest units first, and at most the units in use: see [`Algorithm::refund`].
    Refund,
    /// Refunds what this request has taken, unless the store's clock has reached its [end](Taken::until):
    /// other requests have charged what counts then.
    TakeBack(Taken),
    /// Charges the cost, whether there is room for it or not: see [`Algorithm::settle`]. It denies
    /// nothing, and a soft charge is made like any other.
    Settle,
    /// Charges the cost as [`Settle`](Self::Settle) does, in addition to what this request has taken and in
    /// the same place. If the store has failed, nothing is charged.
    Add(Taken),
    /// Makes the key as good as new, whatever the cost. Blocks and overrides stay.
    Reset,
    /// Blocks the key for this long from now on, whatever the cost.
    ///
    /// Until then every charge of the key is denied, including soft charges and charges of cost 0, and its
    /// outcome has [`Outcome::blocked_for`](crate::Outcome::blocked_for). A key that is already blocked for
    /// longer stays so.
    Block(Micros),
    /// Ends the block of the key, if there is one.
    ///
    /// The answer is whether the key was blocked until now; of several keys, whether any was.
    Unblock,
    /// Gives the key this limit for this long from now on, in place of any override that it has.
    ///
    /// The usage stays: the state does not change, except that the debt of a bucket has drained
    /// under the previous limit until this moment. Meanwhile the outcomes of the key have
    /// [`Outcome::overridden`](crate::Outcome::overridden).
    Override(Limit, Micros),
    /// Ends the override of the key, if there is one. The debt of a bucket drains under the override until
    /// this moment.
    EndOverride,
    /// Gives back the slots that the charge [holds](Charge::holding) under a policy on concurrency. No other
    /// amendment changes slots, but [`Block`](Self::Block) and [`Unblock`](Self::Unblock) apply to their
    /// keys.
    Release,
    /// Gives turns of a [`LeakyQueue`](crate::LeakyQueue) back, as many as the charge costs. The requests have
    /// gone away, and the requests behind them have moved up, so nothing takes these turns.
    ///
    /// It is of one charge. Only the last turns of a queue can be given back: every later request was told to wait for them. The
    /// answer is `false` if other turns lie behind them, which another process, another limiter over the same
    /// state, or a request whose answer is on its way has been charged. Nothing changes then. The limiter that
    /// has the turns keeps them until they begin: its next request takes them, and they are given back with the
    /// turns that lie behind them, as soon as these are free too.
    GiveBack(Departure),
}

impl Amendment {
    /// Returns whether it is about whether a key is blocked.
    pub(crate) fn is_of_blocks(self) -> bool {
        matches!(self, Self::Block(_) | Self::Unblock)
    }

    /// Returns its name in the scripts of Redis.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refund => "refund",
            Self::TakeBack(_) => "take back",
            Self::Settle | Self::Add(_) => "settle",
            Self::Reset => "reset",
            Self::Block(_) => "block",
            Self::Unblock => "unblock",
            Self::GiveBack(_) => "give back",
            Self::Override(..) => "override",
            Self::EndOverride => "end override",
            Self::Release => "release",
        }
    }

    /// Returns whether it charges a request after the fact, or gives its charge back.
    pub fn settles(self) -> bool {
        matches!(
            self,
            Self::Refund | Self::TakeBack(_) | Self::Settle | Self::Add(_)
        )
    }

    /// Returns whether a node gives back the units of the key that it has leased: it could spend them despite
    /// the change.
    pub fn ends_leases(self) -> bool {
        matches!(
            self,
            Self::Reset | Self::Block(_) | Self::Unblock | Self::Override(..) | Self::EndOverride
        )
    }

    /// Returns the [answer](super::Backend::amend) about no key at all, to which those about keys are
    /// [added](Self::and).
    pub fn answer_about_none(self) -> bool {
        self != Self::Unblock
    }

    /// Returns the answer about some keys and another one.
    pub fn and(self, some: bool, another: bool) -> bool {
        match self {
            Self::Unblock => some || another,
            _ => some && another,
        }
    }

    /// Returns whether it concerns a charge that was made in this process because the store was away.
    pub fn is_of_a_degraded_charge(self) -> bool {
        match self {
            Self::TakeBack(taken) | Self::Add(taken) => taken.is_degraded(),
            Self::GiveBack(departure) => departure.is_degraded(),
            _ => false,
        }
    }
}

/// When the first of some turns of a queue begins, and where they were charged.
// Stores have it, and a user of them does not.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    begins: Micros,
    is_degraded: bool,
    is_overflow: bool,
}

impl Departure {
    /// Creates it for turns that the store has charged to an entry of their key.
    ///
    /// The first begins at this moment by the clock of the store: the time of the outcomes and the
    /// [delay](crate::Outcome::delay) together, rounded up to a microsecond or to the next.
    pub fn at(begins: Micros) -> Self {
        Self {
            begins,
            is_degraded: false,
            is_overflow: false,
        }
    }

    /// Sets where the turns were charged.
    pub(crate) fn charged_where(self, is_degraded: bool, is_overflow: bool) -> Self {
        Self {
            is_degraded,
            is_overflow,
            ..self
        }
    }

    /// Returns when the first turn begins, by the clock of the store that made the charge.
    pub fn begins(&self) -> Micros {
        self.begins
    }

    /// Returns whether the turns were charged to the entry that keys share for which a full store in memory has
    /// no room: see [`Outcome::is_overflow`].
    pub fn is_overflow(&self) -> bool {
        self.is_overflow
    }

    /// Returns whether the turns were charged in this process because the store was away.
    pub fn is_degraded(&self) -> bool {
        self.is_degraded
    }
}

/// Until when the charge of a request can be taken back, and where it was made.
// Stores have it, and a user of them does not.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    until: Micros,
    is_degraded: bool,
    is_overflow: bool,
}

impl Taken {
    /// Reads it from these outcomes of a charge under this algorithm.
    pub fn of(charge: &Charge, algorithm: &Algorithm, outcomes: &Outcomes) -> Self {
        let mut each = outcomes.iter();
        match each.find(|(policy, _)| *policy == charge.policy) {
            Some((_, outcome)) => Self::with(algorithm, outcome, outcomes),
            None => Self {
                until: algorithm.refundable_until(outcomes.at(), Micros::ZERO),
                is_degraded: outcomes.is_degraded(),
                is_overflow: false,
            },
        }
    }

    /// Reads it from this outcome of a charge, one of these outcomes.
    #[inline]
    pub(crate) fn with(algorithm: &Algorithm, outcome: &Outcome, outcomes: &Outcomes) -> Self {
        Self {
            until: algorithm.refundable_until(outcomes.at(), outcome.reset_micros()),
            is_degraded: outcomes.is_degraded(),
            is_overflow: outcome.is_overflow(),
        }
    }

    /// Returns the end of the window of the charge, or the moment at which a bucket has drained, by the clock
    /// of the store that made the charge.
    pub fn until(&self) -> Micros {
        self.until
    }

    /// Returns whether the charge was made to the entry that keys share for which a full store in memory has no
    /// room: see [`Outcome::is_overflow`].
    pub fn is_overflow(&self) -> bool {
        self.is_overflow
    }

    /// Returns whether the charge was made in this process because the store was away.
    pub fn is_degraded(&self) -> bool {
        self.is_degraded
    }
}
