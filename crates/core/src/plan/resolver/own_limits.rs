//! Limits that a lookup found, and what they mean for the policies of a limiter.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::algorithm::{Algorithm, Share};
use crate::decision::ResolvedNames;
use crate::diagnostics::warn_once_of;
use crate::plan::choice::{Choice, NOT_A_LIMIT, Rules, Subject, choice};
use crate::plan::plans::Plan;

/// Limits that a lookup found.
#[derive(Debug)]
pub(crate) struct OwnLimits {
    plan: Plan,
    /// The prepared limits for the policies of the limiter that read them first, which is nearly always the only
    /// one.
    prepared: OnceLock<(u64, Box<[Option<Choice>]>)>,
}

/// The policies for which a resolver sets limits.
#[derive(Debug)]
pub(crate) struct ResolvedPolicies {
    /// A number that no other limiter's policies have.
    number: u64,
    policies: Box<[Resolvable]>,
    /// The number of nodes that share each limit.
    nodes: NonZeroU32,
    /// The index of the first name among the rules.
    first: usize,
    names: Arc<ResolvedNames>,
}

#[derive(Debug)]
struct Resolvable {
    name: Box<str>,
    own: Algorithm,
    /// How many parts a unit has in its store.
    parts: u32,
    /// The index of the policy of whose limit its own is a share, if it is.
    share: Option<(usize, Share)>,
    /// Whether it is divided among tenants, so that it keeps its own.
    is_divided: bool,
}

impl ResolvedPolicies {
    pub(in crate::plan) fn new(
        policies: &[Subject<'_>],
        nodes: NonZeroU32,
        (first, names): (usize, Arc<ResolvedNames>),
    ) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let place_of = |name: &str| policies.iter().position(|policy| policy.name == name);
        let policies = policies.iter().map(|policy| Resolvable {
            name: policy.name.into(),
            own: *policy.own,
            parts: policy.parts,
            share: policy
                .share
                .and_then(|(of, share)| Some((place_of(of)?, share))),
            is_divided: policy.is_divided,
        });
        Self {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            policies: policies.collect(),
            nodes,
            first,
            names,
        }
    }

    /// Returns what these limits mean for each policy.
    fn prepare(&self, plan: &Plan) -> Box<[Option<Choice>]> {
        for (policy, _) in plan.limits() {
            if !self.policies.iter().any(|known| *known.name == **policy) {
                warn_once_of(&NOT_A_LIMIT, subject(plan, policy));
            }
        }
        let each = 0..self.policies.len();
        each.map(|policy| self.choice(plan, policy)).collect()
    }

    fn choice(&self, plan: &Plan, policy: usize) -> Option<Choice> {
        let Resolvable {
            name,
            own,
            parts,
            is_divided,
            ..
        } = self.policies.get(policy)?;
        let limit = self.limit(plan, policy)?;
        if *is_divided {
            warn_once_of(&NOT_A_LIMIT, subject(plan, name));
            return None;
        }
        let subject_of = Subject {
            name,
            own,
            parts: *parts,
            share: None,
            is_divided: false,
        };
        let Ok(choice) = choice(subject_of, &limit, self.nodes) else {
            warn_once_of(&NOT_A_LIMIT, subject(plan, name));
            return None;
        };
        let place = self.names.place(plan.name());
        let rule = u32::try_from(self.first + place).unwrap_or(Rules::OWN);
        Some(Choice { rule, ..choice })
    }

    /// Returns the limit of a policy: its own, or its share of that of a policy before it.
    fn limit(&self, plan: &Plan, policy: usize) -> Option<Algorithm> {
        let Resolvable { name, share, .. } = self.policies.get(policy)?;
        let mut given = plan.limits().iter();
        if let Some((_, limit)) = given.find(|(of, _)| **of == **name) {
            return Some(*limit);
        }
        let (above, share) = (*share)?;
        Some(self.limit(plan, above)?.part(share))
    }
}

impl OwnLimits {
    pub(super) fn new(plan: Plan) -> Self {
        Self {
            plan,
            prepared: OnceLock::new(),
        }
    }

    /// Returns the limit of one of these policies, or `None` if the lookup set none that it can have.
    #[inline]
    pub(in crate::plan) fn choice(&self, of: &ResolvedPolicies, policy: usize) -> Option<Choice> {
        let (number, prepared) = self
            .prepared
            .get_or_init(|| (of.number, of.prepare(&self.plan)));
        if *number == of.number {
            return prepared.get(policy).copied().flatten();
        }
        of.choice(&self.plan, policy)
    }

    /// Warns that the limiter was not built for limits of a resolver.
    pub(in crate::plan) fn warn_ignored() {
        let subject = "a `Limiter` that was built without `takes_resolved_limits`";
        warn_once_of(&NOT_A_LIMIT, subject.into());
    }
}

fn subject(plan: &Plan, policy: &str) -> String {
    let shown = |name: &str| name.chars().take(40).collect::<String>();
    format!("plan {:?}, policy {:?}", shown(plan.name()), shown(policy))
}
