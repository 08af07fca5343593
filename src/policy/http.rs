use std::fmt;
use std::sync::Arc;

use super::{Policy, Unkeyed};
use crate::key::{Extract, Head, Key, Missing};

/// How a policy reads a request of HTTP: its key, its cost, and whether it applies.
#[derive(Clone)]
pub struct Http {
    key: Arc<dyn Extract>,
    cost: Option<Arc<Cost>>,
    when: Option<Arc<When>>,
}

type Cost = dyn Fn(&Head<'_>) -> u32 + Send + Sync;
type When = dyn Fn(&Head<'_>) -> bool + Send + Sync;

impl Policy {
    /// Takes the key from each request by an extractor of [`key`](crate::key), or by a closure
    /// over the request's [`Head`], whose argument has to be annotated: see [`Extract`].
    pub fn key(self, key: impl Extract) -> Policy<Http> {
        Policy {
            name: self.name,
            algorithm: self.algorithm,
            reads: Http {
                key: Arc::new(key),
                cost: None,
                when: None,
            },
        }
    }
}

impl Policy<Http> {
    /// How many units a request takes; 1 unless said.
    ///
    /// A request that costs more than the limit is always denied. A request that costs 0 is
    /// allowed and charges nothing, unless the limit is 0.
    pub fn cost(mut self, cost: impl Fn(&Head<'_>) -> u32 + Send + Sync + 'static) -> Self {
        self.reads.cost = Some(Arc::new(cost));
        self
    }

    /// When the policy applies; always unless said. A request to which no policy applies goes on
    /// as if there were no layer.
    pub fn when(mut self, when: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.reads.when = Some(Arc::new(when));
        self
    }

    /// The rule alone, and how it reads a request.
    pub(crate) fn split(self) -> (Policy, Http) {
        let rule = Policy {
            name: self.name,
            algorithm: self.algorithm,
            reads: Unkeyed,
        };
        (rule, self.reads)
    }
}

impl Http {
    pub(crate) fn applies(&self, head: &Head<'_>) -> bool {
        self.when.as_ref().is_none_or(|when| when(head))
    }

    pub(crate) fn key(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.key.extract(head)
    }

    pub(crate) fn cost(&self, head: &Head<'_>) -> u32 {
        self.cost.as_ref().map_or(1, |cost| cost(head))
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("cost", &self.cost.as_ref().map(|_| "closure"))
            .field("when", &self.when.as_ref().map(|_| "closure"))
            .finish_non_exhaustive()
    }
}
