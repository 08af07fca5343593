use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// How a [`Resolver`](crate::plan::Resolver) found the plan or the limits of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resolution {
    /// The answer of a lookup that is recent.
    Fresh,
    /// The last answer for the key, which is no longer fresh, and why there is no fresh one.
    Stale(Unresolved),
    /// No answer: the default plan applies, and this is why.
    Default(Unresolved),
}

/// Why a [`Resolver`](crate::plan::Resolver) had no fresh plan for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unresolved {
    /// The source has no plan for the key.
    NotFound,
    /// A lookup of the key is in flight, and the request did not wait for it any longer.
    Pending,
    /// The number of lookups in flight is at its bound, all for other keys.
    Busy,
    /// The last lookup of the key failed.
    Failed,
    /// There is no tokio runtime for a lookup.
    NoRuntime,
}

impl Resolution {
    const ALL: [Self; 10] = [
        Self::Fresh,
        Self::Stale(Unresolved::Pending),
        Self::Stale(Unresolved::Busy),
        Self::Stale(Unresolved::Failed),
        Self::Stale(Unresolved::NoRuntime),
        Self::Default(Unresolved::NotFound),
        Self::Default(Unresolved::Pending),
        Self::Default(Unresolved::Busy),
        Self::Default(Unresolved::Failed),
        Self::Default(Unresolved::NoRuntime),
    ];

    /// Stores this in the upper byte of a rule's index, which is free.
    pub(crate) fn note(self, rule: u32) -> u32 {
        let place = Self::ALL.iter().position(|other| *other == self);
        let place = place.and_then(|place| u32::try_from(place + 1).ok());
        (rule & PLACE) | place.unwrap_or(0) << PLACE.count_ones()
    }

    /// Returns what is stored in the upper byte of a rule's index.
    pub(super) fn noted(rule: u32) -> Option<Self> {
        let place = usize::try_from(rule >> PLACE.count_ones()).ok()?;
        Self::ALL.get(place.checked_sub(1)?).copied()
    }
}

/// The bits of a rule's index. There are fewer rules than that.
const PLACE: u32 = (1 << 24) - 1;

/// Returns the index of a rule without its upper byte.
pub(super) fn place(rule: u32) -> u32 {
    rule & PLACE
}

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fresh => f.write_str("fresh"),
            Self::Stale(why) => write!(f, "stale: {why}"),
            Self::Default(why) => write!(f, "default: {why}"),
        }
    }
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "not found",
            Self::Pending => "lookup in flight",
            Self::Busy => "too many lookups in flight",
            Self::Failed => "lookup failed",
            Self::NoRuntime => "no runtime to look it up in",
        })
    }
}

/// The names of the plans whose limits a resolver has given, to which decisions refer by index.
///
/// The names come from a database and not from clients. Names beyond the first 10,000 are not kept.
#[derive(Debug, Default)]
pub(crate) struct ResolvedNames(RwLock<Vec<Arc<str>>>);

impl ResolvedNames {
    const MOST: usize = 10_000;

    /// Returns the index of this name, which is added if it is new and there is room for it.
    pub(crate) fn place(&self, name: &str) -> usize {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = names.iter().position(|known| **known == *name) {
            return place;
        }
        if names.len() == Self::MOST {
            return Self::MOST;
        }
        names.push(name.into());
        names.len() - 1
    }
}

impl ResolvedNames {
    /// Returns the name with this index, or an empty one.
    pub(super) fn name(&self, place: usize) -> Arc<str> {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.get(place).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolution_is_noted_beside_a_rule_and_read_again() {
        for rule in [0, 7, PLACE] {
            assert_eq!(Resolution::noted(rule), None);
            for resolution in Resolution::ALL {
                let noted = resolution.note(rule);
                assert_eq!(Resolution::noted(noted), Some(resolution));
                assert_eq!(place(noted), rule);
            }
        }
    }
}
