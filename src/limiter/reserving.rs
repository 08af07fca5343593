//! Charges at an estimate, which are settled at the end of the request.

use super::reservation::{Held, PendingOutcomes};
use super::{Charges, Limiter, LocalLimiter, Purpose, Reservation};
use crate::decision::Outcomes;
use crate::error::{ConfigError, StoreError};
use crate::key::{IntoKey, Key};
use crate::plan::Finding;
use crate::policy::Demand;
use crate::store::{Charge, Charged, Ledger, Reply, Wanted};

impl LocalLimiter {
    /// Decides at an estimate of the cost and charges it, as [`check_now`](Self::check_now) does. Returns a
    /// [`Reservation`], which settles the real cost of the request.
    ///
    /// An estimate above the limit is denied, however long the request waits, like any other cost. An estimate of 0
    /// is allowed, however much is used: to ask whether anything is left, reserve 1.
    ///
    /// ```
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("tokens", FixedWindow::per_minute(10_000)))
    ///     .build_local()?;
    /// let used = || limiter.peek_now("ann", 0).binding().unwrap().1.used();
    ///
    /// let reservation = limiter.reserve_now("ann", 4_000);
    /// assert!(reservation.is_allowed());
    /// assert_eq!(used(), 4_000);
    /// reservation.settle(1_500);
    /// assert_eq!(used(), 1_500);
    ///
    /// limiter.reserve_now("ann", 8_000).cancel();
    /// assert_eq!(used(), 1_500);
    ///
    /// assert!(!limiter.reserve_now("ann", 9_000).is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn reserve_now(&self, key: impl IntoKey, estimate: u32) -> Reservation {
        let key = key.into_key();
        let Some(policy) = self.policies.shape().sole() else {
            let charges = self.asked_alike_now(key, estimate, Purpose::Hold);
            return self.reserve_charges_now(&charges);
        };
        let (asked, finding) = ((key, estimate), self.found_now(&key));
        self.with_charge_of_one(policy, asked, Purpose::Hold, finding.as_ref(), |charges| {
            self.reserve_charges_now(charges)
        })
    }

    /// Decides under the named policies, each with its own key and estimate; see
    /// [`reserve_now`](Self::reserve_now).
    ///
    /// # Errors
    ///
    /// When the limiter has no policy of a name, or a policy is named twice. Nothing is charged then.
    pub fn reserve_with_now<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<Reservation, ConfigError> {
        self.policies.mistakes.note_asked_apart();
        let charges = self.charges_by_name(asked, Purpose::Hold)?;
        Ok(self.reserve_charges_now(&charges))
    }

    /// A function of its own: a reservation is written where the caller wants it only if it is all that is returned.
    fn reserve_charges_now(&self, charges: &[Charge]) -> Reservation {
        let mut reservation = Reservation::of(self);
        reservation.decide(charges, |outcomes| {
            let decided = self.decide(charges, Wanted::Everything, outcomes);
            matches!(decided, Charged::Now(Ok(true)))
        });
        self.conclude_reserved(charges, &mut reservation);
        reservation
    }
}

impl<L: Ledger + ?Sized> Limiter<L> {
    /// Decides at an estimate of the cost and charges it, in any store; see
    /// [`reserve_now`](Limiter::reserve_now).
    ///
    /// The store in this process decides during this call. Any other store may begin only when the future is
    /// first polled. If the future is dropped after that and before the store has answered, the request has
    /// ended, and is settled as [`Policy::unless_settled`](crate::Policy::unless_settled) says.
    ///
    /// # Errors
    ///
    /// When the store cannot decide; the in-process store always can.
    pub fn reserve(
        &self,
        key: impl IntoKey,
        estimate: u32,
    ) -> impl Future<Output = Result<Reservation, StoreError>> + Send + 'static {
        let key: Key = key.into_key();
        self.once_found(key, move |limiter, finding| {
            let (asker, purpose) = (limiter.asker(), Purpose::Hold);
            limiter.reserve_charges(limiter.asked_alike(asker, (key, estimate), purpose, finding))
        })
    }

    /// Decides under the named policies, each with its own key and estimate; see [`reserve`](Self::reserve).
    ///
    /// # Errors
    ///
    /// At once, when the limiter has no policy of a name, or a policy is named twice. From the future, when the store
    /// cannot decide.
    ///
    /// ```
    /// # use tower_ratelimit::{FixedWindow, Limiter, Policy};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::builder().policy(Policy::new("bytes", FixedWindow::per_day(9_000))).build()?;
    /// let reservation = limiter.reserve_with([("bytes", "ann", 4_096)])?.await?;
    /// if reservation.is_allowed() {
    ///     reservation.settle(1_024);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn reserve_with<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<impl Future<Output = Result<Reservation, StoreError>> + Send + 'static, ConfigError>
    {
        self.policies.mistakes.note_asked_apart();
        let named = self.named(asked)?;
        let limiter = self.clone();
        let reserved = match self.find(&named) {
            Reply::Now(findings) => Ok(self.reserve_found(&named, &findings)),
            Reply::Later(findings) => Err(findings),
        };
        Ok(async move {
            match reserved {
                Ok(reserved) => reserved?.await,
                Err(findings) => {
                    let findings = findings.await;
                    limiter.reserve_found(&named, &findings)?.await
                }
            }
        })
    }

    /// Reserves under named policies, after a resolver has been asked about their keys.
    fn reserve_found(
        &self,
        named: &[(usize, Demand)],
        findings: &[Option<Finding>],
    ) -> Result<
        impl Future<Output = Result<Reservation, StoreError>> + Send + 'static + use<L>,
        StoreError,
    > {
        let charges = self.charges_of_found(named, findings, Purpose::Hold)?;
        Ok(self.reserve_charges(charges))
    }

    /// Returns how many settlements were lost since the limiter was built, because the store failed or the
    /// runtime had ended. It is unknown whether such a settlement was made, and it is not repeated: at worst,
    /// the estimate stays charged.
    pub fn lost_settlements(&self) -> u64 {
        self.policies.lost.count()
    }

    /// Frees the slots of a request that was allowed, and is not served for another reason.
    pub(crate) fn free_slots(&self, charges: &[Charge], outcomes: &Outcomes) {
        if self.has_slots() {
            let slots = charges.iter().filter(|charge| charge.slot.is_some());
            drop(Held::of(self, slots, outcomes));
        }
    }

    fn reserve_charges(
        &self,
        charges: Charges,
    ) -> impl Future<Output = Result<Reservation, StoreError>> + Send + 'static + use<L> {
        let limiter = self.clone();
        let reserved = match self.ask(&charges) {
            Reply::Now(answer) => Ok(self.reserved(&charges, answer)),
            Reply::Later(coming) => Err(PendingOutcomes::new(self, &charges, coming)),
        };
        async move {
            match reserved {
                Ok(reserved) => reserved,
                Err(coming) => {
                    let reserved = limiter.reserved(&charges, coming.await);
                    reserved.map(Reservation::later)
                }
            }
        }
    }

    /// Returns the reservation of charges that a store has answered.
    fn reserved(
        &self,
        charges: &[Charge],
        answer: Result<Outcomes, StoreError>,
    ) -> Result<Reservation, StoreError> {
        let checked = self.policies.checked(charges, answer);
        let outcomes = checked.inspect_err(|_| self.policies.count_failed(charges))?;
        let mut reservation = Reservation::of(self);
        reservation.decide(charges, |told| {
            *told = outcomes;
            told.is_allowed()
        });
        self.conclude_reserved(charges, &mut reservation);
        Ok(reservation)
    }

    /// Concludes the decision on a request whose charges are settled later.
    fn conclude_reserved(&self, charges: &[Charge], reservation: &mut Reservation) {
        reservation.change(|outcomes| self.policies.conclude(charges, outcomes));
    }
}
