//! Policies whose units are not leased, and what the log says of them.

use std::sync::atomic::{AtomicBool, Ordering};

use super::lease::Terms;
use tower_ratelimit_core::__internal::Allotment;
use tower_ratelimit_core::__internal::LEAST_LEASED;
use tower_ratelimit_core::__internal::warn_once_of;
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::diagnostics::Diagnostic;
use tower_ratelimit_core::factor::FactorCell;
use tower_ratelimit_core::policy::Policy;

const NOT_LEASED: Diagnostic = Diagnostic::new(
    "TRL035",
    "",
    "units of a policy are not leased, and each of its requests asks Redis",
    "say `.without_lease()` on the policy if that is meant; in a file of limits: `lease = false` of the policy",
);

/// For how long units of each policy are leased; `None` where they are not.
pub(super) fn terms(policies: &[Policy], life: Micros) -> Box<[Option<Terms>]> {
    let mut not_leased = Vec::new();
    let guarantees = Allotment::guarantees(policies);
    // A tenant counts as active while its node spends units or refuses requests by itself, since the node asks again in time.
    let life_under = |policy: &Policy| {
        let scale = Allotment::scale(policy);
        scale.map_or(life, |[_, active_for, _]| {
            life.min(Micros::new(active_for / 2))
        })
    };
    let terms = policies.iter().zip(guarantees).map(|(policy, below)| {
        let why = match policy.is_leased() {
            Ok(false) => return None,
            Ok(true) if below.is_some() => "a part of its limit is guaranteed to the keys below",
            Ok(true) => match Terms::of(policy.algorithm(), life_under(policy)) {
                None => "its algorithm has no units that a node can hold",
                terms => return terms,
            },
            Err(why) => why,
        };
        not_leased.push(format!("{:?}: {why}", policy.shown_name()));
        None
    });
    let terms = terms.collect();
    if !not_leased.is_empty() {
        warn_once_of(&NOT_LEASED, not_leased.join("; "));
    }
    terms
}

/// Finds limits that are too small for leases, and have another source than the policy: a plan, an override, a factor. Each
/// policy with such a limit is logged once.
pub(super) struct SmallLimits(Box<[LeasedPolicy]>);

struct LeasedPolicy {
    name: String,
    factor: Option<FactorCell>,
    is_logged: AtomicBool,
}

impl SmallLimits {
    pub(super) fn new(policies: &[Policy]) -> Self {
        let named = policies.iter().map(|policy| LeasedPolicy {
            name: policy.shown_name().to_owned(),
            factor: policy.parts().map(|(factor, _)| factor.clone()),
            is_logged: AtomicBool::new(false),
        });
        Self(named.collect())
    }

    /// Returns whether this limit lets less than eight requests pass at once.
    pub(super) fn finds(&self, policy: usize, limit: u32) -> bool {
        let Some(policy) = self.0.get(policy) else {
            return false;
        };
        let is_small = policy.admits_at_once(limit) < u64::from(LEAST_LEASED);
        if is_small && !policy.is_logged.load(Ordering::Relaxed) {
            policy.warn();
        }
        is_small
    }
}

impl LeasedPolicy {
    /// Returns how many requests of one unit pass at once. Under a factor, the limit is in thousandths of a unit under the most that
    /// the factor can be, and a request costs the more the lower the factor is.
    fn admits_at_once(&self, limit: u32) -> u64 {
        let Some(factor) = &self.factor else {
            return limit.into();
        };
        let (now, most) = (
            u64::from(factor.get().get()),
            u64::from(factor.most().get()),
        );
        u64::from(limit) * now / (1_000 * most.max(1))
    }

    #[cold]
    fn warn(&self) {
        if !self.is_logged.swap(true, Ordering::Relaxed) {
            let why = "a plan, an override or a factor admits less than 8 units at once";
            warn_once_of(&NOT_LEASED, format!("{:?}: {why}", self.name));
        }
    }
}
