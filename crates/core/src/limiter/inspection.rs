//! The state of a key in sentences, for operators.
//!
//! The text comes from a [`Decision`] at cost 0, so no store needs a verb for it.

use std::fmt;
use std::time::{Duration, SystemTime};

use smallvec::SmallVec;

use super::Limiter;
use crate::decision::HoursNow;
use crate::decision::{Decision, LimitRule, Outcome};
use crate::error::StoreError;
use crate::store::{Backend, Charge, Reply, TenantShare};

/// The state of a key under every policy; see
/// [`Limiter::inspect`](super::Limiter::inspect).
///
/// The `Display` form has a line of sentences for each policy, with times rounded up. A level of a tree is indented below the level
/// above it. Neither this form nor
/// the `Debug` form shows the key.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The decision about a request of cost 0.
    decision: Decision,
    beside: SmallVec<[BesideOutcome; 1]>,
}

/// What a store knows of a key under a policy beside the outcome.
#[derive(Clone, Copy, Debug)]
struct BesideOutcome {
    policy: usize,
    /// The refusals that count towards the penalty, and how many of them block the key. `None` without a penalty, or if
    /// the store does not count them.
    refusals: Option<(u32, u32)>,
    /// The units that nodes have leased and not spent.
    leased: u32,
    /// The part of the tenant, if the limit is divided and the store tells.
    share: Option<TenantShare>,
}

impl<L: Backend + ?Sized> Limiter<L> {
    /// Returns each policy that is a level of a tree below another one, with that one, in the order of declaration: see
    /// [`Policy::below`](crate::Policy::below).
    pub fn levels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.policies.names.levels()
    }

    /// Describes the state of the keys of these charges, beside the decision about them.
    pub(super) fn inspect_beside(
        &self,
        peeked: Reply<Result<Decision, StoreError>>,
        charges: &[Charge],
    ) -> Reply<Result<Inspection, StoreError>> {
        let each = charges.iter().map(|charge| {
            let penalty = self
                .policies
                .penalties
                .get(charge.policy)
                .copied()
                .flatten();
            let refusals = penalty.map(|of| (self.backend.refusals(charge), of));
            let share = self.backend.tenant_share(charge);
            (charge.policy, refusals, self.backend.leased(charge), share)
        });
        let each: Vec<_> = each.collect();
        Reply::later(async move {
            let mut inspection = Inspection::new(peeked.await?);
            for (policy, refusals, leased, share) in each {
                let refusals = match refusals {
                    Some((count, of)) => count.await.ok().map(|count| (count, of)),
                    None => None,
                };
                inspection.beside.push(BesideOutcome {
                    policy,
                    refusals,
                    leased: leased.await.unwrap_or_default(),
                    share: share.await.unwrap_or_default(),
                });
            }
            Ok(inspection)
        })
    }
}

impl Inspection {
    pub(super) fn new(decision: Decision) -> Self {
        Self {
            decision,
            beside: SmallVec::new(),
        }
    }

    /// Returns the outcome of a request of cost 0 under each limited policy, with the policy's name, in the
    /// order of declaration.
    pub fn policies(&self) -> impl ExactSizeIterator<Item = (&str, &Outcome)> {
        self.decision.policies()
    }

    /// Returns the rule that gave the limit under each limited policy, with its name: see [`Decision::rules`].
    pub fn rules(&self) -> impl ExactSizeIterator<Item = (&str, LimitRule)> {
        self.decision.rules()
    }

    fn describe_rule(&self, policy: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rules().find(|(name, _)| *name == policy) {
            // Described by other sentences.
            None | Some((_, LimitRule::Policy | LimitRule::Override | LimitRule::Hours(_))) => {
                Ok(())
            }
            Some((_, rule)) => write!(f, " Limit by {rule}."),
        }
    }

    /// Returns how much longer the key is blocked, under the policy with the longest block; `None`
    /// if it is not blocked.
    pub fn blocked_for(&self) -> Option<Duration> {
        self.policies()
            .filter_map(|(_, outcome)| blocked(outcome))
            .max()
    }

    /// Returns how many refusals of the key count towards the [penalty](crate::Policy::penalty) of a policy,
    /// with the name of the policy. Policies without a penalty are left out, and so are all policies if the
    /// store does not count them.
    pub fn refusals(&self) -> impl Iterator<Item = (&str, u32)> {
        let counting = self.beside.iter().filter_map(|it| Some((it, it.refusals?)));
        counting.map(|(it, (refusals, _))| (self.decision.name(it.policy), refusals))
    }

    /// Returns how many units of the key nodes have leased and not spent, as far as the store knows, with the
    /// name of the policy. They count as used. Policies without leased units are left out.
    pub fn leased(&self) -> impl Iterator<Item = (&str, u32)> {
        let leasing = self.beside.iter().filter(|it| it.leased > 0);
        leasing.map(|it| (self.decision.name(it.policy), it.leased))
    }

    /// Returns the part that the tenant has now of each limit that is [divided](crate::Policy::fair), with the name of the policy.
    /// Policies are left out whose limit is not divided, and all of them if the store does not tell, such as one that is away.
    pub fn shares(&self) -> impl Iterator<Item = (&str, TenantShare)> {
        let shared = self.beside.iter().filter_map(|it| Some((it, it.share?)));
        shared.map(|(it, share)| (self.decision.name(it.policy), share))
    }

    fn describe_beside(&self, policy: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut each = self.beside.iter();
        let Some(beside) = each.find(|it| self.decision.name(it.policy) == policy) else {
            return Ok(());
        };
        if let Some(share) = beside.share {
            match share.tenants() {
                1 => f.write_str(" No other tenant is active.")?,
                tenants => {
                    let weight = share.weight();
                    write!(
                        f,
                        " With it, {tenants} tenants are active: its share is {share}, by a weight of {weight}."
                    )?;
                }
            }
        }
        match beside.leased {
            0 => {}
            1 => f.write_str(" Nodes hold 1 of them.")?,
            units => write!(f, " Nodes hold {units} of them.")?,
        }
        match beside.refusals {
            Some((refusals @ 1.., of)) => {
                write!(f, " Refused {refusals} of the {of} times that block it.")
            }
            _ => Ok(()),
        }
    }

    /// Returns when the last block of the key ends, by the clock of the store; `None` if the key is
    /// not blocked, or the platform cannot hold the moment.
    pub fn blocked_until(&self) -> Option<SystemTime> {
        self.at()?.checked_add(self.blocked_for()?)
    }

    /// Returns when the whole limit of this outcome is available again if no other request arrives,
    /// by the clock of the store; `None` if the platform cannot hold the moment.
    pub fn reset_at(&self, outcome: &Outcome) -> Option<SystemTime> {
        self.decision.reset_at(outcome)
    }

    /// Returns the policies with hours, each with its present interval: see [`Decision::hours`].
    pub fn hours(&self) -> impl Iterator<Item = (&str, HoursNow)> {
        self.decision.hours()
    }

    fn describe_hours(&self, policy: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((_, hours)) = self.hours().find(|(name, _)| *name == policy) else {
            return Ok(());
        };
        let left = hours
            .ends
            .map(|ends| ends.saturating_sub(self.decision.outcomes().at()));
        let zone = hours.zone();
        match hours.interval() {
            Some(interval) => write!(f, " It is in the hours {interval} of {zone}")?,
            None => write!(f, " It is outside its hours of {zone}")?,
        }
        match left {
            Some(left) => write!(f, ", for {} more.", Length(left.to_duration())),
            None => f.write_str("."),
        }
    }

    /// Returns when the store was asked, by its clock; `None` if the platform cannot hold the
    /// moment.
    pub fn at(&self) -> Option<SystemTime> {
        self.decision.at()
    }
}

/// Returns how much longer a key is blocked: a request of cost 0 waits only for a block.
fn blocked(outcome: &Outcome) -> Option<Duration> {
    outcome.retry_after().filter(|_| outcome.is_blocked())
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, outcome) in self.policies() {
            write!(
                f,
                "{:indent$}{name}: ",
                "",
                indent = 2 * self.decision.depth_of(name)
            )?;
            describe(outcome, self.decision.is_degraded(), f)?;
            self.describe_rule(name, f)?;
            self.describe_hours(name, f)?;
            self.describe_beside(name, f)?;
            if let Some((quota, above)) = self.decision.guarantee_of(name) {
                write!(f, " {quota} of {above} is guaranteed.")?;
            }
            writeln!(f)?;
        }
        let others = if self.decision.is_degraded() {
            "everything goes on"
        } else {
            "unlimited"
        };
        for name in self.decision.without_outcome() {
            let indent = 2 * self.decision.depth_of(name);
            writeln!(f, "{:indent$}{name}: {others}.", "")?;
        }
        if self.decision.is_degraded() {
            f.write_str("Told by this process alone, since the store is away.\n")?;
        }
        Ok(())
    }
}

fn describe(outcome: &Outcome, is_degraded: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (limit, used) = (outcome.limit(), outcome.used());
    let whole = Length(outcome.reset_after());
    if let Some(left) = blocked(outcome) {
        let left = Length(left);
        write!(f, "blocked for {left}; until then everything is denied.")?;
        return write!(f, " All of {limit} available again in {whole}.");
    }
    match outcome.remaining() {
        0 if outcome.is_of_slots() => write!(
            f,
            "{used} of {limit} used, none remains. One more when a request ends."
        )?,
        remaining if outcome.is_of_slots() => write!(
            f,
            "{used} of {limit} used, {remaining} more at once. Each is free again when its request ends."
        )?,
        _ if limit == 0 => f.write_str("the limit is 0, which nothing passes.")?,
        _ if used == 0 => write!(f, "nothing of {limit} used.")?,
        0 => {
            write!(f, "{used} of {limit} used, none remains. ")?;
            match outcome.effective_window() {
                Some(next) => write!(f, "One more in {}, whole again in {whole}.", Length(next))?,
                None => write!(f, "Whole again in {whole}.")?,
            }
        }
        1 => write!(
            f,
            "{used} of {limit} used, 1 remains. Whole again in {whole}."
        )?,
        remaining => write!(
            f,
            "{used} of {limit} used, {remaining} remain. Whole again in {whole}."
        )?,
    }
    if outcome.is_overridden() {
        f.write_str(if is_degraded {
            " That limit is this node's share."
        } else {
            " That limit is its own for a while."
        })?;
    }
    if outcome.is_soft() {
        f.write_str(" It is soft: what is over the limit goes on, marked.")?;
    }
    if outcome.is_overflow() {
        f.write_str(" Counted together with other keys, for want of room.")?;
    }
    Ok(())
}

/// A length of time as `1d 2h 3m 4s`, or as `5ms` below a second, rounded up.
struct Length(Duration);

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(length) = self;
        let millis = length.as_nanos().div_ceil(1_000_000);
        if millis < 1_000 {
            return write!(f, "{millis}ms");
        }
        let seconds = length.as_nanos().div_ceil(1_000_000_000);
        let units = [
            ("d", 86_400, u128::MAX),
            ("h", 3_600, 24),
            ("m", 60, 60),
            ("s", 1, 60),
        ];
        let mut space = "";
        for (unit, size, most) in units {
            let count = seconds / size % most;
            if count > 0 {
                write!(f, "{space}{count}{unit}")?;
                space = " ";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_told_in_the_units_it_has_and_never_as_less_than_it_is() {
        for (micros, text) in [
            (0, "0ms"),
            (1, "1ms"),
            (999_000, "999ms"),
            (999_001, "1s"),
            (1_000_001, "2s"),
            (60_000_000, "1m"),
            (3_599_000_001, "1h"),
            (90_061_000_000, "1d 1h 1m 1s"),
            (86_400_000_000 * 366, "366d"),
        ] {
            assert_eq!(Length(Duration::from_micros(micros)).to_string(), text);
        }
    }
}
