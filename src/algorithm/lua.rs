//! The rule of an algorithm in Lua, for stores that run it where the state is.

use super::kind::{Kind, match_kind};
use super::{Algorithm, Limit};
use crate::quota::Quota;

/// A rule in Lua.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lua {
    /// The name of the rule, and of the table that the text declares.
    pub(crate) name: &'static str,
    /// The text, which stands beside the same rule in Rust.
    pub(crate) text: &'static str,
    /// The arguments of its functions: the most at one instant, two numbers that differ between the
    /// rules, and the quota's limit.
    pub(crate) numbers: [u64; 4],
}

impl Lua {
    /// The rule of a window, whose functions take the limit and the period.
    pub(super) fn of_window(name: &'static str, text: &'static str, quota: Quota) -> Self {
        let limit = quota.limit().into();
        Self {
            name,
            text,
            numbers: [limit, quota.period_micros().get(), 0, limit],
        }
    }
}

impl Algorithm {
    /// The rule in Lua; `None` if unlimited.
    pub(crate) fn lua(&self) -> Option<Lua> {
        match_kind!(self, kind => Some(kind.lua()), None)
    }

    /// The same with other [numbers](Lua::numbers); `None` if it cannot have them.
    pub(crate) fn with_numbers(&self, [size, _, _, limit]: [u64; 4]) -> Option<Self> {
        self.under(Limit::new(limit.try_into().ok()?, size.try_into().ok()?))
    }
}
