//! What of a policy decides whether another one makes it pointless.

use super::on_store_failure::OnStoreFailure;
use crate::algorithm::Algorithm;
use crate::factor::{Factor, FactorCell};

/// The parts of a policy that decide whether another one makes it pointless.
#[derive(Clone, Debug)]
pub struct Scope<'a> {
    /// The name of the policy.
    pub name: &'a str,
    /// The name of the policy above it in its tree.
    pub above: Option<&'a str>,
    /// Its limit.
    pub algorithm: &'a Algorithm,
    /// The share of its limit that is in force.
    pub factor: Option<&'a FactorCell>,
    /// Whether it is soft, in shadow or off.
    pub refuses_none: bool,
    /// Identifies the counted clients and the cost; `None` if they are unknown.
    pub counts: Option<String>,
    /// Whether the policy does not apply to some requests.
    pub is_conditional: bool,
    /// Which requests without a key it refuses.
    pub refuses: Keyless,
    /// What it does without its store.
    pub on_store_failure: OnStoreFailure,
}

/// Which requests without a key a policy refuses, from the fewest to the most.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Keyless {
    /// None of them.
    None,
    /// Those to which the server has given none.
    ByServer,
    /// All of them.
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
