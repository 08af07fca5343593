//! The answers of a store to a request: an [`Outcome`] for each policy, and all of them as a [`Decision`].
//!
//! An outcome is copied on each decision, so it is small: absent times take no room of their own, and the waits
//! of allowed and of denied requests share a field. [`Outcomes`] belongs to the stores; a `Decision` adds the
//! names of the policies for the caller.

mod answer;
mod each;
mod hours_now;
mod limit_rule;
pub(crate) mod names;
pub(crate) mod outcome;
mod outcomes;
mod resolution;
mod reused_list;
#[cfg(feature = "serde")]
mod serde;

pub use self::answer::Decision;
pub use self::hours_now::HoursNow;
pub use self::limit_rule::LimitRule;
pub use self::outcome::Outcome;
pub use self::outcomes::Outcomes;
pub use self::resolution::{Resolution, Unresolved};

pub(crate) use self::hours_now::HoursAt;
pub(crate) use self::names::{Names, Rule, RuleNames};
pub(crate) use self::outcome::{DenialEffect, Units, WindowSecs};
pub(crate) use self::outcomes::OwnWindow;
pub(crate) use self::resolution::ResolvedNames;
pub(crate) use self::reused_list::{FreeLists, Reused, ReusedList};
