//! The questions to the script that decides.

use smallvec::SmallVec;

use super::lease::Ask;
use crate::algorithm::{Algorithm, Limit, Lua};
use crate::clock::Micros;
use crate::key::Key;
use crate::policy::Penalty;
use crate::store::Charge;

/// A request for the script to decide.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) kind: Kind,
    /// The key of the first charge.
    pub(super) key: Key,
    pub(super) charges: SmallVec<[QueryCharge; 2]>,
}

/// The settings that all requests of a call have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kind {
    pub(super) verb: &'static str,
    /// The time, if the server does not use its own.
    pub(super) moment: Option<Micros>,
}

#[derive(Debug)]
pub(super) struct QueryCharge {
    pub(super) key: String,
    pub(super) rule: Rule,
    pub(super) cost: u32,
    pub(super) softness: u8,
    /// The question to the script that grants units.
    pub(super) ask: Option<Box<Ask>>,
}

/// The algorithm of a policy, its rule, and its penalty.
pub(super) type PolicyRule = (Algorithm, Option<Lua>, Option<Penalty>);

/// A policy, and what a charge has beside it. Each goes into a call once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rule {
    pub(super) policy: usize,
    pub(super) own: Own,
}

/// The limit or the override of a charge, beside its policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Own {
    /// Nothing.
    None,
    /// Another limit than the policy's.
    Limit(Limit),
    /// The numbers of the slots that it takes.
    Slots([u64; 4]),
}

/// The verb of the script that grants units.
pub(super) const LEASE: &str = "lease";

impl Query {
    /// Creates a query with the verb `charge`, `peek`, `deny`, or [`LEASE`], at this moment or that of the
    /// server's clock.
    pub(super) fn new(verb: &'static str, moment: Option<Micros>) -> Self {
        Self {
            kind: Kind { verb, moment },
            key: Key::MISSING,
            charges: SmallVec::new(),
        }
    }

    /// Adds a charge, whose state is under this key.
    pub(super) fn charge(
        &mut self,
        key: String,
        charge: &Charge,
        (own, ask): (Own, Option<Box<Ask>>),
    ) {
        if self.charges.is_empty() {
            self.key = charge.key;
        }
        self.charges.push(QueryCharge {
            key,
            rule: Rule {
                policy: charge.policy,
                own,
            },
            cost: charge.cost,
            softness: charge.softness(),
            ask,
        });
    }

    /// Returns whether another query asks the same, perhaps for other keys.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let what = |asked: &QueryCharge| (asked.rule, asked.cost, asked.softness);
        self.charges
            .iter()
            .map(what)
            .eq(other.charges.iter().map(what))
    }
}

/// Returns the rules of all charges, each once.
pub(super) fn rules_of<'a>(queries: impl Iterator<Item = &'a Query>) -> SmallVec<[Rule; 4]> {
    let mut rules: SmallVec<[Rule; 4]> = SmallVec::new();
    for asked in queries.flat_map(|query| &query.charges) {
        if !rules.contains(&asked.rule) {
            rules.push(asked.rule);
        }
    }
    rules
}
