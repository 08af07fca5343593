//! What a request may take of a limit of which others have a part, for stores that run the rules in Lua.

use super::fair::{Share, SlotShare};
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
    /// Of slots, of which the request has taken so many.
    Slots(SlotShare, u32),
    Guarantee(Allowance),
}

impl Allotment {
    /// The rule of shares in Lua.
    pub const SHARES: &str = Share::LUA;

    /// The rule of shares of slots in Lua.
    pub const SLOTS: &str = SlotShare::LUA;

    /// The rule of guarantees in Lua.
    pub const GUARANTEES: &str = guarantee::LUA;

    /// Returns what the rule of shares has to know of a policy whose limit is divided, beside the limit: in how many microseconds all of
    /// it is granted anew, or 0 if it is of slots, for how many a tenant counts that does not ask, and how many tenants are told apart.
    pub fn scale(policy: &Policy) -> Option<[u64; 3]> {
        let fair = policy.fairness()?;
        let tenants = u64::try_from(fair.tenants()).unwrap_or(u64::MAX);
        let fill = if policy.algorithm().limits_concurrency() {
            Micros::ZERO
        } else {
            policy.algorithm().period()?.into()
        };
        Some([fill.get(), fair.is_active_for().get(), tenants])
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
        let slots = || SlotShare::read(words).map(|(share, taken)| Rule::Slots(share, taken));
        let rule = Allowance::read(words).map(Rule::Guarantee);
        let rule = rule.or_else(share).or_else(slots);
        rule.map(Self)
    }

    /// Returns the outcome of this moment of a request that the limit has room for, which is kept for others.
    pub fn denied(&self, outcome: Outcome, now: Micros) -> Outcome {
        match &self.0 {
            Rule::Share(_) | Rule::Slots(..) => outcome.denied(None),
            Rule::Guarantee(allowance) => outcome.denied(allowance.until_end(now)),
        }
    }

    /// Writes into an outcome of this moment what is left for the request, and how long it waits. `taken` is what it has taken.
    pub fn tell(&self, outcome: &mut Outcome, (cost, taken): (u32, u32), now: Micros) {
        match &self.0 {
            Rule::Share(share) => share.tell(outcome, (cost, taken)),
            Rule::Slots(share, taken) => share.tell(outcome, *taken),
            Rule::Guarantee(allowance) => allowance.tell(outcome, (cost, taken), now),
        }
    }
}
