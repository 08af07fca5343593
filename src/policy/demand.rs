use crate::factor::Class;
use crate::key::Key;

/// What a request asks of one policy, before its limit is known.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own: any two can hold together"
)]
pub(crate) struct Demand {
    pub(crate) key: Key,
    /// In units.
    pub(crate) cost: u32,
    /// Whether the cost is a default estimate, which is cut to what can pass.
    pub(crate) is_estimate: bool,
    /// Whether the request goes on over the limit.
    pub(crate) is_soft: bool,
    pub(crate) class: Class,
    /// Whether it leaves reserves to other requests.
    pub(crate) is_low_priority: bool,
    /// Whether a request that is held to its end settles it there, or gives its slots back.
    pub(crate) is_reserved: bool,
}

impl Demand {
    /// Makes the demand of a caller who names key and cost.
    #[inline]
    pub(crate) fn of(key: Key, cost: u32) -> Self {
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
#[cfg_attr(
    not(feature = "http"),
    expect(dead_code, reason = "a caller who names a key is always counted")
)]
pub(crate) enum NoDemand<R> {
    DoesNotApply,
    NoKey,
    /// The policy has no limit.
    Unlimited,
    /// The rule with this index exempts the request.
    Exempt(u32),
    /// The policy is off.
    Off,
    /// The request is refused.
    Refused(R),
}
