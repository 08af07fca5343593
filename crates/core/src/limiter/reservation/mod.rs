//! Charges at an estimate, until the real cost of the request is known.
//!
//! A reservation is held from the decision to the end of the request, and ends exactly once: by
//! [`settle`](Reservation::settle), by [`cancel`](Reservation::cancel), or when it is dropped. The layers
//! hold one in the body of the response.
//!
//! [`ReservationGuard`] is the part that ends. All that is released when a request ends belongs there, such as its slots:
//! it is held by [`ReservationGuard::of`], by the charges and their outcomes, and released in `ReservationGuard::drop`, after the
//! settlement. [`PendingOutcomes`] also holds the charges of a request that has gone
//! away before the store has answered.

mod charges;
pub(crate) mod guard;
mod pending;
mod settlement;
mod spill;

use std::fmt;
use std::sync::Arc;

pub(crate) use self::guard::{RealCost, ReservationGuard};
pub(crate) use self::pending::{OnDropped, PendingOutcomes};
pub(super) use self::settlement::Lost;

use super::Limiter;
use crate::clock::Micros;
use crate::decision::{Decision, Outcomes};
use crate::error::ConfigError;
use crate::store::{Backend, Charge};

/// A charge at an estimate of the cost, which is settled at the end of the request.
///
/// Made by [`Limiter::reserve`](super::Limiter::reserve) and the other `reserve` methods.
///
/// - [`settle`](Self::settle) sets the real cost of the request, and [`cancel`](Self::cancel) a cost of zero.
/// - A dropped reservation costs what [`Policy::on_abandoned`](crate::Policy::on_abandoned) says: the
///   estimate, by default.
/// - Each of these returns at once. A store in this process has settled then. Over any other store, a task of
///   the runtime settles, whatever happens to the request.
/// - If the cost exceeds the estimate, the rest is charged even above the limit, so the next request waits. A
///   window counts it when it is settled.
/// - If the cost is less than the estimate, the rest is given back, but only while the charged window (the
///   slot, or the debt of the bucket) still counts.
/// - The settlement goes to the store, the state and the limit that were charged, whatever the configuration
///   is meanwhile: to the state of this process if the store was away when the request was charged.
/// - Over a shared store, it is sent at most once. If the store is away then, the settlement is lost, the estimate stays
///   charged, and [`Limiter::lost_settlements`](super::Limiter::lost_settlements) counts it.
///
/// If each of `n` simultaneous requests costs at most `m` more than its estimate, all together use at most `n × m` more
/// than the limit.
#[must_use = "what is dropped at once is charged as if the request had ended"]
pub struct Reservation {
    decision: Decision,
    guard: ReservationGuard,
}

impl Reservation {
    /// Creates an empty reservation without a decision, which is filled in place, because it is large to
    /// move.
    #[inline]
    pub(super) fn of<L: Backend + ?Sized>(limiter: &Limiter<L>) -> Self {
        let names = Arc::clone(&limiter.policies.names);
        Self {
            decision: Decision::new(names, Outcomes::new(Micros::ZERO)),
            guard: ReservationGuard::nothing(&limiter.policies),
        }
    }

    /// Decides by this closure, which returns whether the request is allowed, and holds its charges.
    #[inline]
    pub(super) fn decide(
        &mut self,
        charges: &[Charge],
        decide: impl FnOnce(&mut Outcomes) -> bool,
    ) {
        let Self { decision, guard } = self;
        decision.change(|outcomes| {
            if decide(outcomes) {
                guard.hold(charges, |_| true, outcomes);
            }
        });
    }

    /// Changes the outcomes.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Outcomes)) {
        self.decision.change(change);
    }

    /// Settles in this runtime.
    pub(super) fn later(self) -> Self {
        Self {
            guard: self.guard.later(),
            ..self
        }
    }

    /// Returns whether the request may go on. If not, it is charged nothing, and there is nothing to settle.
    pub fn is_allowed(&self) -> bool {
        self.decision.is_allowed()
    }

    /// Returns the decision about the estimate.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Settles the request at this cost, under every policy that charged it.
    pub fn settle(mut self, units: u32) {
        self.guard.settle(|_| RealCost::Units(units));
    }

    /// Settles the request at these costs by policy. Under the others it cost its estimate.
    ///
    /// # Errors
    ///
    /// When the limiter has no policy of a name. Then the request cost its estimate.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("requests", FixedWindow::per_minute(60)))
    ///     .policy(Policy::new("tokens", FixedWindow::per_minute(10_000)))
    ///     .build_local()?;
    ///
    /// let asked = [("requests", "ann", 1), ("tokens", "ann", 4_000)];
    /// let reservation = limiter.named(asked)?.reserve().now();
    /// reservation.settle_with([("tokens", 1_000)])?;
    ///
    /// let used: Vec<_> = limiter.peek("ann", 0).now().policies().map(|(_, told)| told.used()).collect();
    /// assert_eq!(used, [1, 1_000]);
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn settle_with<'a>(
        mut self,
        amounts: impl IntoIterator<Item = (&'a str, u32)>,
    ) -> Result<(), ConfigError> {
        let named = |(name, units)| Ok((self.guard.policy(name)?, units));
        let amounts: Result<Vec<_>, _> = amounts.into_iter().map(named).collect();
        let (amounts, result) = match amounts {
            Ok(amounts) => (amounts, Ok(())),
            Err(error) => (Vec::new(), Err(error)),
        };
        self.guard.settle(|policy| {
            let amount = amounts.iter().find(|(named, _)| *named == policy);
            amount.map_or(RealCost::Estimate, |(_, units)| RealCost::Units(*units))
        });
        result
    }

    /// Settles the request at no cost: all of it is given back.
    pub fn cancel(self) {
        self.settle(0);
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}
