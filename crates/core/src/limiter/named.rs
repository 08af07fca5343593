//! Verbs about policies that a caller names, each with a key and a cost of its own.

use std::fmt;

use smallvec::SmallVec;

use super::Limiter;
use super::Reservation;
use super::amending::Amend;
use super::ask::{Ask, Verb};
use super::charging::Named;
use super::reserving::Reserve;
use super::verbs::{Check, peek};
use crate::algorithm::Algorithm;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::key::IntoKey;
use crate::policy::Demand;
use crate::store::{Amendment, Backend};

/// Policies of a limiter that are [named](Limiter::named), each with a key and a cost of its own.
#[must_use = "nothing is asked before one of its verbs"]
pub struct NamedPolicies<'a, L: ?Sized = dyn Backend> {
    limiter: &'a Limiter<L>,
    named: Named,
}

impl<L: Backend + ?Sized> Limiter<L> {
    /// Names policies, each with its own key and cost. Only they decide and are charged, once one of the verbs is called.
    ///
    /// Without a name, a request is allowed. If the keys have different types, convert each to a
    /// [`Key`](crate::key::Key) with [`into_key`](IntoKey::into_key).
    ///
    /// # Errors
    ///
    /// When the limiter has no policy of a name, or a policy is named twice.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use std::net::Ipv4Addr;
    /// use tower_ratelimit::key::IntoKey;
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("address", FixedWindow::per_minute(100)))
    ///     .policy(Policy::new("user", FixedWindow::per_day(1_000)))
    ///     .build_local()?;
    ///
    /// let demands = [
    ///     ("address", Ipv4Addr::LOCALHOST.into_key(), 1),
    ///     ("user", "ann".into_key(), 25),
    /// ];
    /// assert!(limiter.named(demands)?.check().now().is_allowed());
    /// let user = limiter.named([("user", "ann", 1)])?.check().now();
    /// assert_eq!(user.binding().unwrap().1.remaining(), 974);
    ///
    /// let error = limiter.named([("usr", "ann", 1)]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     r#"`policy` cannot be "usr": name one of address, user"#,
    /// );
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn named<'a, K: IntoKey>(
        &self,
        demands: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<NamedPolicies<'_, L>, ConfigError> {
        Ok(NamedPolicies {
            limiter: self,
            named: self.demands(demands)?,
        })
    }
}

impl<L: ?Sized> Limiter<L> {
    /// Returns what is asked of policies by their names, in the order of the policies.
    pub(super) fn demands<'a, K: IntoKey>(
        &self,
        demands: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<Named, ConfigError> {
        let limited = &self.policies.limited;
        let mut named = Named::default();
        let mut seen: SmallVec<[usize; 8]> = SmallVec::new();
        for (name, key, cost) in demands {
            let policy = self.policies.place_of(name)?;
            if seen.contains(&policy) {
                let remedy = "ask each policy about one key, at the cost of all of it";
                return Err(ConfigError::quoting("policy", name, remedy));
            }
            seen.push(policy);
            if let Ok(place) = limited.binary_search_by_key(&policy, |(limited, _)| *limited) {
                let (_, is_soft) = limited[place];
                let demand = Demand {
                    is_soft,
                    ..Demand::of(key.into_key(), cost)
                };
                let before = |(before, _): &(usize, Demand)| *before < policy;
                let place = named.demands.partition_point(before);
                named.demands.insert(place, (policy, demand));
            }
        }
        Ok(named)
    }
}

impl<'a, L: Backend + ?Sized> NamedPolicies<'a, L> {
    /// Sets limits of the caller: each of these policies has this limit for this request, in place of its own. The state of
    /// a key is the same under all limits. Of two limits of a policy, the last one counts.
    ///
    /// # Errors
    ///
    /// When the limiter has no policy of a name, a policy was not declared with [`limit_by`](crate::Policy::limit_by), or
    /// the limit has another kind or period than the policy.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::{Algorithm, FixedWindow, Limiter, Policy};
    ///
    /// // The contract of a customer comes with the request.
    /// let policy = Policy::new("calls", FixedWindow::per_hour(10)).limit_by(|_| None::<Algorithm>);
    /// let limiter = Limiter::builder().policy(policy).build_local()?;
    /// let calls = |hourly| {
    ///     let calls = limiter.named([("calls", "ann", 1)])?;
    ///     calls.under([("calls", FixedWindow::per_hour(hourly).into())])
    /// };
    ///
    /// assert!(calls(1)?.check().now().is_allowed());
    /// assert!(!calls(1)?.check().now().is_allowed());
    /// assert_eq!(calls(100)?.check().now().binding().unwrap().1.remaining(), 98);
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn under<'b>(
        mut self,
        limits: impl IntoIterator<Item = (&'b str, Algorithm)>,
    ) -> Result<Self, ConfigError> {
        for (policy, limit) in limits {
            let limit = self.limiter.limit_for(policy, &limit)?;
            let limits = &mut self.named.limits;
            limits.retain(|before| before.policy != limit.policy);
            limits.push(limit);
        }
        Ok(self)
    }

    /// Decides, and charges these policies if all allow it; see [`Limiter::check`].
    ///
    /// # Errors
    ///
    /// When the store cannot decide; the in-process store always can.
    pub fn check(self) -> Ask<'a, impl Verb<Answer = Decision>, L> {
        self.limiter.asks(Check(self.named))
    }

    /// Returns the decision that [`check`](Self::check) would make, and charges nothing.
    ///
    /// # Errors
    ///
    /// When the store cannot answer; the in-process store always can.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("calls", FixedWindow::per_hour(10)))
    ///     .policy(Policy::new("bytes", FixedWindow::per_hour(1_000)))
    ///     .build_local()?;
    ///
    /// let upload = [("calls", "ann", 1), ("bytes", "ann", 4_000)];
    /// assert!(!limiter.named(upload)?.peek().now().is_allowed());
    /// let calls = limiter.named([("calls", "ann", 0)])?.peek().now();
    /// assert_eq!(calls.binding().unwrap().1.used(), 0);
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn peek(self) -> Ask<'a, impl Verb<Answer = Decision>, L> {
        self.limiter.asks(peek(self.named))
    }

    /// Decides and charges at estimates, which are settled later; see [`Limiter::reserve`].
    ///
    /// # Errors
    ///
    /// When the store cannot decide; the in-process store always can.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// # use tower_ratelimit::{FixedWindow, Limiter, Policy};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::builder().policy(Policy::new("bytes", FixedWindow::per_day(9_000))).build()?;
    /// let reservation = limiter.named([("bytes", "ann", 4_096)])?.reserve().await?;
    /// if reservation.is_allowed() {
    ///     reservation.settle(1_024);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn reserve(self) -> Ask<'a, impl Verb<Answer = Reservation>, L> {
        self.limiter.asks(Reserve(self.named))
    }

    /// Charges these units after the fact, even if there is no room for them; see [`Limiter::settle`].
    ///
    /// # Errors
    ///
    /// When it is unknown whether all units were charged: of policies with different keys, some may have been charged.
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
    /// // A prompt of 300 tokens, and an answer of 4,000.
    /// let prompt = [("requests", "ann", 1), ("tokens", "ann", 300)];
    /// assert!(limiter.named(prompt)?.check().now().is_allowed());
    /// limiter.named([("tokens", "ann", 4_000)])?.settle().now();
    ///
    /// let used: Vec<_> = limiter.peek("ann", 0).now().policies().map(|(_, told)| told.used()).collect();
    /// assert_eq!(used, [1, 4_300]);
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn settle(self) -> Ask<'a, impl Verb<Answer = ()>, L> {
        self.amends(|named| Amend::of(named, Amendment::Settle))
    }

    /// Gives these units back, for work that was not done; see [`Limiter::refund`].
    ///
    /// # Errors
    ///
    /// When it is unknown whether all units were given back: of policies with different keys, some may have got theirs.
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
    /// // An estimate of 4,000 tokens, of which 1,000 were used.
    /// let estimate = [("requests", "ann", 1), ("tokens", "ann", 4_000)];
    /// assert!(limiter.named(estimate)?.check().now().is_allowed());
    /// limiter.named([("tokens", "ann", 3_000)])?.refund().now();
    ///
    /// let used: Vec<_> = limiter.peek("ann", 0).now().policies().map(|(_, told)| told.used()).collect();
    /// assert_eq!(used, [1, 1_000]);
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn refund(self) -> Ask<'a, impl Verb<Answer = ()>, L> {
        self.amends(|named| Amend::of(named, Amendment::Refund).at_least_price())
    }

    fn amends<V>(self, verb: impl FnOnce(Named) -> V) -> Ask<'a, V, L> {
        self.limiter.policies.mistakes.note_apart();
        self.limiter.asks(verb(self.named))
    }
}

impl<L: fmt::Debug + ?Sized> fmt::Debug for NamedPolicies<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedPolicies")
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}
