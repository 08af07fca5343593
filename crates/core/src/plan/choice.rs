//! The limits that rules set for a policy, prepared for decisions.
//!
//! Rules are checked and divided by the number of nodes when a limiter is built, so that a decision only
//! looks one up.

use std::collections::HashMap;
use std::num::NonZeroU32;

use crate::algorithm::{Algorithm, Limit, Share};
use crate::decision::{LimitRule, RuleNames, WindowSecs};
use crate::diagnostics::Diagnostic;
use crate::error::ConfigError;

pub(super) const NOT_A_LIMIT: Diagnostic = Diagnostic::new(
    "TRL020",
    "",
    "a resolver or a closure has returned a limit that does not fit its policy; the request keeps the limit that it has without it",
    "return limits only for policies that exist and are not divided among tenants, with the algorithm and the period of the policy",
);

/// A policy for which a rule sets a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) name: &'a str,
    /// The limit with which it was declared.
    pub(crate) own: &'a Algorithm,
    /// How many parts a unit has in its store; 1 without a factor.
    pub(crate) parts: u32,
    /// The policy before it of whose limit its own is a share, if it is.
    pub(crate) share: Option<(&'a str, Share)>,
    /// Whether it is divided among tenants, so that it is the same for all requests.
    pub(crate) is_divided: bool,
}

/// The limit that a policy has for one request, and the rule that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) given: RuleLimit,
    /// The index of the rule in [`Rules`].
    pub(crate) rule: u32,
    /// The time to which a limit that is not the policy's own applies; `None` if it denies every request.
    pub(crate) window: Option<WindowSecs>,
}

/// The limit that a rule sets for a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleLimit {
    /// The limit with which the policy was declared.
    Own,
    Limit(Limit),
    /// The policy does not count the request.
    Nothing,
}

impl Choice {
    pub(crate) const OWN: Self = Self {
        given: RuleLimit::Own,
        rule: Rules::OWN,
        window: None,
    };
}

/// The rules that can set limits, to which decisions refer by index.
#[derive(Debug)]
pub(crate) struct Rules {
    list: Vec<LimitRule>,
    /// The index of each rule in the list.
    places: HashMap<LimitRule, u32>,
    /// The number of nodes that share each limit.
    nodes: NonZeroU32,
}

impl Rules {
    /// The index of [`LimitRule::Policy`].
    pub(crate) const OWN: u32 = 0;

    pub(super) fn new(nodes: NonZeroU32) -> Self {
        Self {
            list: vec![LimitRule::Policy],
            places: HashMap::from([(LimitRule::Policy, Self::OWN)]),
            nodes,
        }
    }

    /// Returns the choice of a limit that this rule sets for a policy, whose own limit is `of`.
    ///
    /// # Errors
    ///
    /// When the limit has another kind or period than the policy.
    pub(super) fn add(
        &mut self,
        rule: LimitRule,
        policy: Subject<'_>,
        limit: Algorithm,
    ) -> Result<Choice, ConfigError> {
        let Choice { given, window, .. } = choice(policy, &limit, self.nodes)?;
        Ok(Choice {
            window,
            ..self.choice(rule, given)
        })
    }

    pub(super) fn nodes(&self) -> NonZeroU32 {
        self.nodes
    }

    pub(super) fn choice(&mut self, rule: LimitRule, given: RuleLimit) -> Choice {
        Choice {
            given,
            rule: self.place(rule),
            window: None,
        }
    }

    /// Returns the index of a rule.
    pub(super) fn place(&mut self, rule: LimitRule) -> u32 {
        if let Some(place) = self.places.get(&rule) {
            return *place;
        }
        // There are no more rules than lines of a configuration.
        let place = u32::try_from(self.list.len()).unwrap_or(Self::OWN);
        self.list.push(rule.clone());
        self.places.insert(rule, place);
        place
    }

    pub(super) fn into_names(self) -> RuleNames {
        RuleNames::new(self.list)
    }
}

/// Returns the choice of this limit for a policy, divided by the number of nodes, for a rule without an index
/// yet.
///
/// # Errors
///
/// When the limit has another kind or period than the policy, and when it is too large for one with a factor.
pub(super) fn choice(
    policy: Subject<'_>,
    limit: &Algorithm,
    nodes: NonZeroU32,
) -> Result<Choice, ConfigError> {
    let limit = match nodes {
        NonZeroU32::MIN => *limit,
        nodes => limit.shared_by(nodes),
    };
    Ok(Choice {
        given: given(policy, &limit)?,
        rule: Rules::OWN,
        window: limit.period().map(WindowSecs::of),
    })
}

/// Returns what this limit means for a policy.
fn given(policy: Subject<'_>, limit: &Algorithm) -> Result<RuleLimit, ConfigError> {
    let Subject {
        name, own, parts, ..
    } = policy;
    let Some(numbers) = limit.limits() else {
        return Ok(RuleLimit::Nothing);
    };
    if limit == own {
        return Ok(RuleLimit::Own);
    }
    if !limit.differs_in_its_limit_alone(own) {
        let remedy = format!(
            "give policy {name:?} one that differs from its own, {own}, in its numbers alone, not in its kind \
             or its period",
        );
        return Err(ConfigError::new("limit", limit, remedy));
    }
    if parts == 1 {
        return Ok(RuleLimit::Limit(numbers));
    }
    let numbers = numbers.in_parts(parts).ok_or_else(|| {
        let most = Limit::MOST_PARTS / parts;
        let remedy = format!("give policy {name:?}, which has a factor, at most {most}");
        ConfigError::new("limit", limit, remedy)
    })?;
    Ok(RuleLimit::Limit(numbers))
}
