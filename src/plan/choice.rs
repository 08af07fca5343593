use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::algorithm::{Algorithm, Limit};
use crate::decision::{LimitRule, RuleNames};
use crate::error::ConfigError;

/// The limit that a policy has for one request, and the rule that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) given: Given,
    /// The place of the rule in [`Rules`].
    pub(crate) rule: u32,
    /// The time to which a limit that is not the policy's own applies; `None` if it denies every request.
    pub(crate) window: Option<Duration>,
}

/// What a rule gives a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// The limit with which the policy was declared.
    Own,
    Limit(Limit),
    /// The policy counts nothing of the request.
    Nothing,
}

impl Choice {
    pub(crate) const OWN: Self = Self {
        given: Given::Own,
        rule: Rules::OWN,
        window: None,
    };
}

/// The rules that can give limits, which decisions refer to by their places.
#[derive(Debug)]
pub(crate) struct Rules {
    list: Vec<LimitRule>,
    /// Of each rule of the list.
    places: HashMap<LimitRule, u32>,
    /// By how many nodes each limit is divided.
    nodes: NonZeroU32,
}

impl Rules {
    /// The place of [`LimitRule::Policy`].
    pub(crate) const OWN: u32 = 0;

    pub(super) fn new(nodes: NonZeroU32) -> Self {
        Self {
            list: vec![LimitRule::Policy],
            places: HashMap::from([(LimitRule::Policy, Self::OWN)]),
            nodes,
        }
    }

    /// The choice of a limit that this rule gives a policy, whose own limit is `of`.
    ///
    /// # Errors
    ///
    /// When the limit is of another kind or period than the policy.
    pub(super) fn add(
        &mut self,
        rule: LimitRule,
        (policy, of): (&str, &Algorithm),
        limit: Algorithm,
    ) -> Result<Choice, ConfigError> {
        let limit = match self.nodes {
            NonZeroU32::MIN => limit,
            nodes => limit.shared_by(nodes),
        };
        let Choice { given, window, .. } = choice((policy, of), &limit)?;
        Ok(Choice {
            window,
            ..self.choice(rule, given)
        })
    }

    pub(super) fn choice(&mut self, rule: LimitRule, given: Given) -> Choice {
        let rule = if let Some(place) = self.places.get(&rule) {
            *place
        } else {
            // There are no more rules than lines of a configuration.
            let place = u32::try_from(self.list.len()).unwrap_or(Self::OWN);
            self.list.push(rule.clone());
            self.places.insert(rule, place);
            place
        };
        Choice {
            given,
            rule,
            window: None,
        }
    }

    pub(super) fn into_names(self) -> RuleNames {
        RuleNames::new(self.list)
    }
}

/// The choice of this limit for a policy whose own limit is `of`, of a rule without a place yet.
pub(super) fn choice(
    (policy, of): (&str, &Algorithm),
    limit: &Algorithm,
) -> Result<Choice, ConfigError> {
    Ok(Choice {
        given: given(policy, of, limit)?,
        rule: Rules::OWN,
        window: limit.period(),
    })
}

/// What this limit is to a policy whose own limit is `of`.
fn given(policy: &str, of: &Algorithm, limit: &Algorithm) -> Result<Given, ConfigError> {
    let Some(numbers) = limit.limits() else {
        return Ok(Given::Nothing);
    };
    if limit == of {
        return Ok(Given::Own);
    }
    if !limit.differs_in_its_limit_alone(of) {
        let remedy = format!(
            "give policy {policy:?} one that differs from its own, {of}, in its numbers alone, not in its kind \
             or its period",
        );
        return Err(ConfigError::new("limit", limit, remedy));
    }
    Ok(Given::Limit(numbers))
}
