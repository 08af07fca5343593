//! What of a policy decides whether another one makes it pointless.

use super::on_store_failure::OnStoreFailure;
use crate::algorithm::Algorithm;
use crate::factor::{Factor, FactorCell};

/// The parts of a policy that decide whether another one makes it pointless.
pub(crate) struct Scope<'a> {
    pub(crate) name: &'a str,
    pub(crate) algorithm: &'a Algorithm,
    /// The share of its limit that is in force.
    pub(crate) factor: Option<&'a FactorCell>,
    /// Whether it is soft, in shadow or off.
    pub(crate) refuses_none: bool,
    /// Identifies the counted clients and the cost; `None` if they are unknown.
    pub(crate) counts: Option<String>,
    /// Whether the policy does not apply to some requests.
    pub(crate) is_conditional: bool,
    pub(crate) refuses: Keyless,
    pub(crate) on_store_failure: OnStoreFailure,
}

/// Which requests without a key a policy refuses, from the fewest to the most.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
#[cfg_attr(
    not(feature = "http"),
    expect(dead_code, reason = "without HTTP there is always a key")
)]
pub(crate) enum Keyless {
    None,
    ByServer,
    All,
}

impl Scope<'_> {
    /// Returns the least share of its limit that can be in force.
    pub(crate) fn least(&self) -> Factor {
        self.factor.map_or(Factor::ONE, FactorCell::least)
    }

    /// Returns the largest share of its limit that can be in force.
    pub(crate) fn most(&self) -> Factor {
        self.factor.map_or(Factor::ONE, FactorCell::most)
    }
}
