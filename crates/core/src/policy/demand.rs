use crate::factor::Class;
use crate::key::Key;

/// What a request asks of one policy, before its limit is known.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own: any two can hold together"
)]
pub struct Demand {
    /// Who is counted.
    pub key: Key,
    /// In units.
    pub cost: u32,
    /// Whether the cost is a default estimate, which is cut to what can pass.
    pub is_estimate: bool,
    /// Whether the request goes on over the limit.
    pub is_soft: bool,
    /// How important it is.
    pub class: Class,
    /// Whether it leaves reserves to other requests.
    pub is_low_priority: bool,
    /// Whether a request that is held to its end settles it there, or gives its slots back.
    pub is_reserved: bool,
}

impl Demand {
    /// Makes the demand of a caller who names key and cost.
    #[inline]
    pub fn of(key: Key, cost: u32) -> Self {
        Self {
            key,
            cost,
            is_estimate: false,
            is_soft: false,
            class: Class::default(),
            is_low_priority: false,
            is_reserved: true,
        }
    }
}

/// Why a policy does not count a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDemand<R> {
    /// The condition of the policy does not hold.
    DoesNotApply,
    /// It has no key, and is not counted.
    MissingKey,
    /// The policy has no limit.
    Unlimited,
    /// The rule with this index exempts the request.
    Exempt(u32),
    /// The policy is off.
    Off,
    /// The request is refused.
    Refused(R),
}
