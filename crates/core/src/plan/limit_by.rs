//! Limits that a closure sets.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::choice::{Choice, NOT_A_LIMIT, Rules, Subject, choice};
use crate::algorithm::Algorithm;
use crate::decision::LimitRule;
use crate::diagnostics::warn_once_of;
use crate::key::Key;

/// A source of the limit of a request.
#[derive(Clone)]
pub(crate) enum LimitBy {
    /// A closure over the key, as the client has sent it.
    Key(Arc<OfKey>),
    /// A closure of the layer over the request.
    Layer,
}

type OfKey = dyn Fn(&Key) -> Option<Algorithm> + Send + Sync;

/// A closure, prepared for a policy.
#[derive(Debug)]
pub(super) struct LimitsByClosure {
    by: LimitBy,
    policy: String,
    own: Algorithm,
    parts: u32,
    /// The number of nodes that share each limit.
    nodes: NonZeroU32,
    /// The index of the rule.
    rule: u32,
    /// Whether an invalid limit was reported.
    has_said: AtomicBool,
}

impl LimitsByClosure {
    pub(super) fn new(by: LimitBy, policy: Subject<'_>, rules: &mut Rules) -> Self {
        Self {
            by,
            policy: policy.name.to_owned(),
            own: *policy.own,
            parts: policy.parts,
            nodes: rules.nodes(),
            rule: rules.place(LimitRule::Closure),
            has_said: AtomicBool::new(false),
        }
    }

    /// Returns the limit of a request with this key; `of_layer` asks the layer. Returns
    /// `None` if the closure sets no limit, or one that the policy cannot have.
    pub(super) fn choice(
        &self,
        key: Option<&Key>,
        of_layer: impl FnOnce() -> Option<Algorithm>,
    ) -> Option<Choice> {
        let limit = match &self.by {
            LimitBy::Key(of_key) => of_key(key?),
            LimitBy::Layer => of_layer(),
        };
        let policy = Subject {
            name: &self.policy,
            own: &self.own,
            parts: self.parts,
            share: None,
            is_divided: false,
        };
        let Ok(choice) = choice(policy, &limit?, self.nodes) else {
            self.say();
            return None;
        };
        Some(Choice {
            rule: self.rule,
            ..choice
        })
    }

    #[cold]
    fn say(&self) {
        if !self.has_said.swap(true, Ordering::Relaxed) {
            warn_once_of(&NOT_A_LIMIT, format!("policy {:?}", self.policy));
        }
    }
}

impl fmt::Debug for LimitBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LimitBy(closure)")
    }
}
