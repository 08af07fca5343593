//! Either–or: of several policies, the first that has room is charged.

use super::{Policy, check_names};
use crate::error::ConfigError;

/// The most groups, and the most members of a group.
const MOST: usize = u8::MAX as usize;

/// The place of a policy in a group of which one member pays.
// Stores have it, and a user of them does not.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alternative {
    pub(crate) group: u8,
    /// The first has the lowest rank.
    pub(crate) rank: u8,
    /// Whether the request may pass without a charge, because a later member does not count it.
    pub(crate) is_optional: bool,
}

/// A group as it was declared.
#[derive(Clone, Debug)]
pub(crate) struct FirstOf {
    name: String,
    members: Vec<String>,
    spills: bool,
}

impl FirstOf {
    pub(crate) fn new(
        name: impl Into<String>,
        members: impl IntoIterator<Item: Into<String>>,
    ) -> Self {
        Self {
            name: name.into(),
            members: members.into_iter().map(Into::into).collect(),
            spills: false,
        }
    }

    /// Lets what an answer costs beyond the room of a member go to the next, in the group of this name.
    ///
    /// # Errors
    ///
    /// When there is no group of this name.
    pub(crate) fn spill(declared: &mut [Self], name: &str) -> Result<(), ConfigError> {
        if let Some(group) = declared.iter_mut().find(|group| group.name == name) {
            group.spills = true;
            return Ok(());
        }
        let known: Vec<&str> = declared.iter().map(Self::name).collect();
        let remedy = match &*known {
            [] => "declare the group first, by `first_of`".to_owned(),
            known => format!("name one of {}", known.join(", ")),
        };
        Err(ConfigError::quoting("spill", name, remedy))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// The groups of a limiter.
#[derive(Debug)]
pub(crate) struct Groups {
    names: Box<[String]>,
    /// Those in which the next members take what an answer costs beyond the room of one.
    spilling: Box<[u8]>,
    by_policy: Box<[Option<Alternative>]>,
}

impl Groups {
    /// Finds the members among the policies. Returns `None` if there is no group.
    ///
    /// # Errors
    ///
    /// When a group is not one of two or more policies that can be members.
    pub(crate) fn find(
        declared: &[FirstOf],
        policies: &[Policy],
    ) -> Result<Option<Self>, ConfigError> {
        if declared.is_empty() {
            return Ok(None);
        }
        check_names(declared.iter().map(|group| group.name.as_str()))?;
        if declared.len() > MOST {
            let remedy = "declare at most 255 groups";
            return Err(ConfigError::new("first_of", declared.len(), remedy));
        }
        policies.iter().try_for_each(Policy::check_beside_groups)?;
        let mut by_policy: Box<[Option<Alternative>]> = policies.iter().map(|_| None).collect();
        for (group, declared) in (0..=u8::MAX).zip(declared) {
            if !(2..=MOST).contains(&declared.members.len()) {
                let remedy = "name 2 to 255 policies, the one to be charged first at the front";
                return Err(ConfigError::quoting("first_of", &declared.name, remedy));
            }
            for (rank, member) in (0..=u8::MAX).zip(&declared.members) {
                let place = policies.iter().position(|policy| policy.name() == member);
                let Some(place) = place else {
                    let known: Vec<&str> = policies.iter().map(Policy::name).collect();
                    let remedy = format!("name one of {}", known.join(", "));
                    return Err(ConfigError::quoting("first_of", member, remedy));
                };
                policies[place].check_member()?;
                let alternative = Alternative {
                    group,
                    rank,
                    is_optional: false,
                };
                if by_policy[place].replace(alternative).is_some() {
                    let remedy = "name it once: a policy is a member of one group";
                    return Err(ConfigError::quoting("first_of", member, remedy));
                }
            }
        }
        let each = (0..=u8::MAX).zip(declared);
        let spilling = each.filter_map(|(group, declared)| declared.spills.then_some(group));
        Ok(Some(Self {
            spilling: spilling.collect(),
            names: declared.iter().map(|group| group.name.clone()).collect(),
            by_policy,
        }))
    }

    /// Returns the place of this policy in its group, or `None` if it is always charged.
    pub(crate) fn of(&self, policy: usize) -> Option<Alternative> {
        self.by_policy.get(policy).copied().flatten()
    }

    /// Returns the place of a charge in its group, if the next members take what an answer costs beyond the room of one.
    pub(crate) fn spilling(&self, alternative: Option<Alternative>) -> Option<Alternative> {
        alternative.filter(|its| self.spilling.contains(&its.group))
    }

    /// Returns whether there is such a group.
    pub(crate) fn spill(&self) -> bool {
        !self.spilling.is_empty()
    }

    /// Returns the names of the groups, each with the indices of its members.
    pub(crate) fn names(&self) -> impl Iterator<Item = (String, Box<[usize]>)> {
        self.names.iter().enumerate().map(|(group, name)| {
            let is_member = |its: &Alternative| usize::from(its.group) == group;
            let each = self.by_policy.iter().enumerate();
            let members = each.filter(|(_, its)| its.as_ref().is_some_and(is_member));
            (name.clone(), members.map(|(policy, _)| policy).collect())
        })
    }
}

impl Policy {
    /// Rejects what cannot stand beside a group, in any policy of its limiter.
    fn check_beside_groups(&self) -> Result<(), ConfigError> {
        let beside_first_of = "leave it out, or leave out `first_of`";
        let unfit = [
            ("hours", self.algorithm.has_hours()),
            ("wait_up_to", self.patience.is_any()),
            ("penalty", self.penalty.is_some()),
            ("factor", self.factor.is_some()),
            ("concurrency", self.algorithm.limits_concurrency()),
            ("leaky queue", self.shapes()),
        ];
        match unfit.into_iter().find(|(_, is_unfit)| *is_unfit) {
            Some((field, _)) => Err(ConfigError::quoting(field, &self.name, beside_first_of)),
            None => Ok(()),
        }
    }

    /// Rejects a policy that cannot be one of several.
    fn check_member(&self) -> Result<(), ConfigError> {
        let (field, remedy) = if self.is_soft {
            (
                "soft",
                "let it not be soft, or charge it always: a soft policy always has room",
            )
        } else if !self.is_limited() {
            (
                "first_of",
                "give it a limit, or leave it out: without a limit it pays nothing",
            )
        } else if self.terms.most().is_some() {
            (
                "most",
                "give `most` to a policy that is charged always, and not to a member of `first_of`",
            )
        } else {
            return Ok(());
        };
        Err(ConfigError::quoting(field, &self.name, remedy))
    }
}
