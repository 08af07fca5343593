//! What a request may take of a limit of which others have a part, for stores that run the rules in Lua.

use super::fair::Share;
use super::guarantee::{self, Allowance};
use crate::clock::Micros;
use crate::decision::Outcome;
use crate::policy::{Policy, guaranteed_below};

/// What a request may take of a limit that is divided among tenants, or guaranteed in part to children.
#[derive(Clone, Copy, Debug)]
pub struct Allotment(Rule);

#[derive(Clone, Copy, Debug)]
enum Rule {
    Share(Share),
    Guarantee(Allowance),
}

impl Allotment {
    /// The rule of shares in Lua.
    pub const SHARES: &str = Share::LUA;

    /// The rule of guarantees in Lua.
    pub const GUARANTEES: &str = guarantee::LUA;

    /// Returns what the rule of shares has to know of a policy whose limit is divided, beside the limit: in how many microseconds all of
    /// it is granted anew, for how many a tenant counts that does not ask, and how many tenants are told apart.
    pub fn scale(policy: &Policy) -> Option<[u64; 3]> {
        Share::scale(policy)
    }

    /// Returns for each policy to the keys of which other one it guarantees something, and how many units of a period, if it does.
    pub fn guarantees(policies: &[Policy]) -> Vec<Option<(usize, u32)>> {
        let below = guaranteed_below(policies);
        let of = |policy: &Policy| below.get(policy.shown_name());
        let each = policies.iter().map(of);
        each.map(|below| below.map(|&(_, child, units)| (child, units)))
            .collect()
    }

    /// Reads what a rule in Lua has told.
    pub fn read(words: &[u64]) -> Option<Self> {
        let share = || Share::read(words).map(Rule::Share);
        let rule = Allowance::read(words).map(Rule::Guarantee).or_else(share);
        rule.map(Self)
    }

    /// Returns the outcome of this moment of a request that the limit has room for, which is kept for others.
    pub fn denied(&self, outcome: Outcome, now: Micros) -> Outcome {
        match &self.0 {
            Rule::Share(_) => outcome.denied(None),
            Rule::Guarantee(allowance) => outcome.denied(allowance.until_end(now)),
        }
    }

    /// Writes into an outcome of this moment what is left for the request, and how long it waits. `taken` is what it has taken.
    pub fn tell(&self, outcome: &mut Outcome, (cost, taken): (u32, u32), now: Micros) {
        match &self.0 {
            Rule::Share(share) => share.tell(outcome, (cost, taken)),
            Rule::Guarantee(allowance) => allowance.tell(outcome, (cost, taken), now),
        }
    }
}
