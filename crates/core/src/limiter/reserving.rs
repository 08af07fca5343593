//! Charges at an estimate, which are settled at the end of the request.

use smallvec::SmallVec;

use super::ask::sealed::Sealed;
use super::ask::{Ask, Verb};
use super::counting::Decided;
use super::findings::{Findings, Looks};
use super::subject::{Alike, Subject};
use super::{Limiter, LocalLimiter, OnDropped, PendingOutcomes, Purpose, Reservation};
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::key::IntoKey;
use crate::store::{Backend, Charge, Charged, Reply, Wanted};

impl<L: Backend + ?Sized> Limiter<L> {
    /// Decides at an estimate of the cost and charges it, as [`check`](Self::check) does. Answers with a
    /// [`Reservation`], which settles the real cost of the request.
    ///
    /// An estimate above the limit is denied, however long the request waits, like any other cost. An estimate of 0
    /// is allowed, however much is used: to ask whether anything is left, reserve 1.
    ///
    /// If the future is dropped after it was first polled and before the store has answered, the request has ended, and
    /// is settled as [`Policy::on_abandoned`](crate::Policy::on_abandoned) says.
    ///
    /// # Errors
    ///
    /// When the store cannot decide; the in-process store always can.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("tokens", FixedWindow::per_minute(10_000)))
    ///     .build_local()?;
    /// let used = || limiter.peek("ann", 0).now().binding().unwrap().1.used();
    ///
    /// let reservation = limiter.reserve("ann", 4_000).now();
    /// assert!(reservation.is_allowed());
    /// assert_eq!(used(), 4_000);
    /// reservation.settle(1_500);
    /// assert_eq!(used(), 1_500);
    ///
    /// limiter.reserve("ann", 8_000).now().cancel();
    /// assert_eq!(used(), 1_500);
    ///
    /// assert!(!limiter.reserve("ann", 9_000).now().is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn reserve(
        &self,
        key: impl IntoKey,
        estimate: u32,
    ) -> Ask<'_, impl Verb<Answer = Reservation>, L> {
        self.asks(Reserve(Alike::of(key, estimate)))
    }

    /// Returns how many settlements were lost since the limiter was built, because the store failed or the
    /// runtime had ended. It is unknown whether such a settlement was made, and it is not repeated: at worst,
    /// the estimate stays charged.
    pub fn lost_settlements(&self) -> u64 {
        self.policies.lost.count()
    }

    fn reserve_charges(&self, charges: &[Charge]) -> Reply<Result<Reservation, StoreError>> {
        let mut reservation = Reservation::of(self);
        match self.reserve_into(charges, &mut reservation) {
            Charged::Now(Ok(_)) => Reply::Now(Ok(reservation)),
            Charged::Now(Err(error)) => {
                self.policies
                    .count(self.policies.tallies(charges), Decided::Nothing);
                Reply::Now(Err(error))
            }
            Charged::Later(coming) => {
                let coming = PendingOutcomes::new(&self.any(), charges, coming, OnDropped::Settle);
                let limiter = self.clone();
                let charges: SmallVec<[Charge; 1]> = SmallVec::from_slice(charges);
                Reply::later(async move {
                    let reserved = limiter.reserved(&charges, coming.await);
                    reserved.map(Reservation::later)
                })
            }
        }
    }

    /// Decides on these charges, and holds them if the answer comes at once. A reservation is large to move.
    fn reserve_into(&self, charges: &[Charge], reservation: &mut Reservation) -> Charged {
        let mut answer = Charged::Now(Ok(false));
        reservation.decide(charges, |outcomes| {
            answer = self.decide(charges, Wanted::Everything, outcomes);
            matches!(answer, Charged::Now(Ok(true)))
        });
        if let Charged::Now(Ok(_)) = answer {
            self.conclude_reserved(charges, reservation);
        }
        answer
    }

    /// Returns the reservation of charges that a store has answered.
    fn reserved(
        &self,
        charges: &[Charge],
        answer: Result<Outcomes, StoreError>,
    ) -> Result<Reservation, StoreError> {
        let checked = self.policies.checked(charges, answer);
        let count = |_: &_| {
            let tallies = self.policies.tallies(charges);
            self.policies.count(tallies, Decided::Nothing);
        };
        let outcomes = checked.inspect_err(count)?;
        let mut reservation = Reservation::of(self);
        reservation.decide(charges, |decided| {
            *decided = outcomes;
            decided.is_allowed()
        });
        self.conclude_reserved(charges, &mut reservation);
        Ok(reservation)
    }

    /// Concludes the decision on a request whose charges are settled later.
    fn conclude_reserved(&self, charges: &[Charge], reservation: &mut Reservation) {
        reservation.change(|outcomes| self.policies.conclude(charges, outcomes));
    }
}

pub(super) struct Reserve<S>(pub(super) S);

impl<S> Sealed for Reserve<S> {}

impl<S: Subject> Verb for Reserve<S> {
    type Answer = Reservation;

    fn look<L: ?Sized>(&self, limiter: &Limiter<L>) -> Looks {
        self.0.look(limiter)
    }

    fn ask<L: Backend + ?Sized>(
        self,
        limiter: &Limiter<L>,
        findings: &Findings,
    ) -> Reply<Result<Reservation, StoreError>> {
        let reserve = |charges: &[Charge]| limiter.reserve_charges(charges);
        self.0
            .with_charges(limiter, findings, Purpose::Reserve, reserve)
    }

    fn now(self, limiter: &LocalLimiter) -> Reservation {
        let findings = self.0.look(limiter).now();
        let mut reservation = Reservation::of(limiter);
        let reserve = |charges: &[Charge]| {
            // The store in this process always answers, about each charge.
            let _ = limiter.reserve_into(charges, &mut reservation);
        };
        self.0
            .with_charges(limiter, &findings, Purpose::Reserve, reserve);
        reservation
    }
}
