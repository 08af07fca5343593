//! The restored part of a snapshot, until its policy is opened.
//!
//! A snapshot has no algorithms to decide with, so its states are kept as bytes until a policy fits them.

use std::mem;
use std::sync::Arc;

use super::format::{Reader, Writer};
use super::{CHILDREN, Overridden, TENANTS, period_of, put_overrides, put_words};
use crate::algorithm::{Algorithm, State};
use crate::clock::Micros;
use crate::diagnostics::{Diagnostic, warn_once_of};
use crate::policy::LONGEST_ACTIVE;
use crate::store::fair::Shares;
use crate::store::guarantee::children::Children;
use crate::store::memory::blocks::{Blocked, Blocks};
use crate::store::memory::fair::Tenants;
use crate::store::memory::guarantee::Families;
use crate::store::memory::opening::counter_with;
use crate::store::memory::tiers::Counter;
use crate::store::memory::timed::Override;

/// The part of a snapshot for one policy, and what happened to it: see
/// [`MemoryStore::restored`](crate::MemoryStore::restored).
#[derive(Clone, Debug)]
pub struct Restored {
    policy: String,
    algorithm: String,
    status: RestoreStatus,
    /// The bytes of the keys in the snapshot; empty once they have been restored.
    keys: Arc<[u8]>,
    /// The bytes of the keys that have overrides.
    overrides: Arc<[u8]>,
    /// The bytes of the keys that guarantee something to others; empty once they have been restored.
    children: Arc<[u8]>,
    /// The bytes of the shared keys; empty once they have been restored.
    tenants: Arc<[u8]>,
}

/// The result of restoring one policy's part of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestoreStatus {
    /// No policy of this name has been opened yet.
    Waiting,
    /// The policy that was opened under this name has another algorithm, period or number of slots, and has
    /// started empty.
    Mismatch,
    /// The part was restored.
    Restored {
        /// The number of keys that were restored. Keys that had become as good as new meanwhile do not count.
        keys: usize,
        /// The number of keys for which the opened store has no room.
        left_out: usize,
    },
}

const UNLIKE: Diagnostic = Diagnostic::new(
    "TRL008",
    "MemoryStore",
    "a policy starts empty, since the snapshot has it with another algorithm, period or number of slots",
    "nothing if that is meant; else give it the algorithm that it had",
);

impl Restored {
    /// Returns the policy's name.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Returns the algorithm that the policy had, as [text](Algorithm).
    pub fn algorithm(&self) -> &str {
        &self.algorithm
    }

    /// Returns what happened to the part.
    pub fn status(&self) -> RestoreStatus {
        self.status
    }

    pub(super) fn read(mut section: Reader<'_>) -> Option<Self> {
        let policy = section.text()?.to_owned();
        let algorithm = section.text()?.to_owned();
        let keys = section.rest();
        while !section.is_at_its_end() {
            section.key()?;
        }
        Some(Self {
            policy,
            algorithm,
            status: RestoreStatus::Waiting,
            keys: keys.into(),
            overrides: Arc::default(),
            children: Arc::default(),
            tenants: Arc::default(),
        })
    }

    /// Writes what is still waiting, so that a policy that is opened late, or again by the next process,
    /// finds it in the next snapshot too.
    pub(super) fn write(&self, file: &mut Writer, now: Micros) {
        let Some(algorithm) = self.its_algorithm().filter(|_| self.is_waiting()) else {
            return;
        };
        let overrides = self.its_overrides(&algorithm);
        let (overrides, ended): (Vec<_>, Vec<_>) =
            overrides.partition(|(_, limit, _)| limit.until > now);
        let ended = ended
            .into_iter()
            .map(|(fingerprint, _, state)| (fingerprint, state));
        file.section("policy", |file| {
            file.text(&self.policy);
            file.text(&self.algorithm);
            for (fingerprint, state) in self.keys().chain(ended) {
                let (outcome, state) = algorithm.step(state, now, 0);
                if !outcome.reset_after().is_zero() {
                    file.key(fingerprint, &state);
                }
            }
        });
        let of = (self.policy.as_str(), self.algorithm.as_str());
        put_overrides(file, of, &overrides);
        let active = keys_of(&self.children).filter(|(_, words)| {
            let children = Children::read(words.words());
            children.is_some_and(|children| !children.are_idle(now, period_of(&algorithm)))
        });
        let active: Vec<_> = active.collect();
        put_words(file, CHILDREN, of, &active);
        let active = keys_of(&self.tenants).filter(|(_, words)| {
            let shares = Shares::read(words.words());
            shares.is_some_and(|shares| !shares.are_idle(now, LONGEST_ACTIVE))
        });
        let active: Vec<_> = active.collect();
        put_words(file, TENANTS, of, &active);
    }

    fn is_waiting(&self) -> bool {
        !matches!(self.status, RestoreStatus::Restored { .. })
    }

    /// Returns the algorithm, or `None` if a later version wrote it.
    fn its_algorithm(&self) -> Option<Algorithm> {
        self.algorithm.parse().ok()
    }

    fn keys(&self) -> impl Iterator<Item = (u64, State)> {
        keys_of(&self.keys)
    }

    /// Returns the overrides whose limit this version knows, and that differ from this algorithm in the limit
    /// alone.
    fn its_overrides(&self, policys: &Algorithm) -> impl Iterator<Item = Overridden> {
        let mut overrides = Reader::of(&self.overrides);
        let each = std::iter::from_fn(move || overridden(&mut overrides));
        each.filter_map(|(limit, (from, until), (fingerprint, state))| {
            let algorithm: Algorithm = limit.parse().ok()?;
            if !algorithm.differs_in_its_limit_alone(policys) {
                return None;
            }
            let limit = Override {
                what: algorithm,
                from,
                until,
            };
            Some((fingerprint, limit, state))
        })
    }

    /// Creates a table with these keys.
    fn restore_table(
        &mut self,
        algorithm: &Algorithm,
        bound: usize,
        now: Micros,
    ) -> Arc<dyn Counter> {
        let overrides: Vec<_> = self.its_overrides(algorithm).collect();
        let own = overrides.iter();
        let own = own.map(|(fingerprint, _, state)| (*fingerprint, state.clone()));
        // As of now, and checked: the limit may have changed, and so may the file.
        let states = self
            .keys()
            .chain(own)
            .map(|(fingerprint, state)| (fingerprint, algorithm.refund(state, now, 0)));
        let states: Vec<_> = states.collect();
        let limits = overrides
            .into_iter()
            .map(|(fingerprint, limit, _)| (fingerprint, limit));
        let (counter, restored) = counter_with(algorithm, bound, states, limits.collect(), now);
        let (keys, left_out) = restored;
        self.status = RestoreStatus::Restored { keys, left_out };
        self.keys = Arc::default();
        self.overrides = Arc::default();
        counter
    }
}

/// Adds overrides to the policy before them in the snapshot.
pub(super) fn overrides(restored: &mut [Restored], section: Reader<'_>) -> Option<()> {
    let (policy, overrides) = entries(section, |keys| overridden(keys).map(drop))?;
    if let Some(its) = its_last(restored, policy) {
        its.overrides = overrides.into();
    }
    Some(())
}

/// Adds children to the policy before them in the snapshot.
pub(super) fn children(restored: &mut [Restored], section: Reader<'_>) -> Option<()> {
    let (policy, children) = entries(section, |keys| keys.key().map(drop))?;
    if let Some(its) = its_last(restored, policy) {
        its.children = children.into();
    }
    Some(())
}

/// Adds tenants to the policy before them in the snapshot.
pub(super) fn tenants(restored: &mut [Restored], section: Reader<'_>) -> Option<()> {
    let (policy, tenants) = entries(section, |keys| keys.key().map(drop))?;
    if let Some(its) = its_last(restored, policy) {
        its.tenants = tenants.into();
    }
    Some(())
}

/// Returns the name and the algorithm of a policy, and the bytes of the entries behind them, if they are whole.
fn entries<'a>(
    mut section: Reader<'a>,
    read: impl Fn(&mut Reader<'a>) -> Option<()>,
) -> Option<((&'a str, &'a str), &'a [u8])> {
    let policy = (section.text()?, section.text()?);
    let entries = section.rest();
    while !section.is_at_its_end() {
        read(&mut section)?;
    }
    Some((policy, entries))
}

/// Returns what was read last of this policy.
fn its_last<'a>(
    restored: &'a mut [Restored],
    (policy, algorithm): (&str, &str),
) -> Option<&'a mut Restored> {
    let its = |one: &&mut Restored| one.policy == policy && one.algorithm == algorithm;
    restored.iter_mut().rev().find(its)
}

fn keys_of(bytes: &[u8]) -> impl Iterator<Item = (u64, State)> {
    let mut keys = Reader::of(bytes);
    std::iter::from_fn(move || keys.key())
}

/// An entry as written: its limit as text, its beginning and end, and the key's fingerprint and state.
type Put<'a> = (&'a str, (Micros, Micros), (u64, State));

fn overridden<'a>(keys: &mut Reader<'a>) -> Option<Put<'a>> {
    let [from, until] = keys.numbers()?.map(Micros::new);
    Some((keys.text()?, (from, until), keys.key()?))
}

/// The parts of a snapshot for which no policy has been opened yet.
///
/// It calls what reads it by pointers that only [`restore`](crate::MemoryStore::restore) sets, so that a program which
/// restores no snapshot does not contain the code.
#[derive(Clone, Debug)]
pub(in crate::store::memory) struct Past {
    policies: Vec<Restored>,
    /// By the names of their policies.
    blocks: Vec<(String, Blocked)>,
    revive: RestoreTable,
    block: fn(&Blocks, Blocked, Micros),
    children: fn(&mut [Restored], (&str, &Algorithm), &Families),
    tenants: fn(&mut [Restored], (&str, &Algorithm), &Tenants),
}

/// Creates a table for a policy with room for this many keys, of what was restored of it.
type RestoreTable =
    fn(&mut [Restored], (&str, &Algorithm), usize, Micros) -> Option<Arc<dyn Counter>>;

impl Past {
    pub(super) fn new(policies: Vec<Restored>, blocks: Vec<(String, Blocked)>) -> Self {
        Self {
            policies,
            blocks,
            revive: revived,
            block: Blocks::restore,
            children: with_children,
            tenants: with_tenants,
        }
    }

    /// Returns what is still to be restored.
    pub(in crate::store::memory) fn waiting(&self) -> Self {
        let waiting = self.policies.iter().filter(|one| one.is_waiting());
        Self {
            policies: waiting.cloned().collect(),
            ..self.clone()
        }
    }

    pub(in crate::store::memory) fn policies(&self) -> &[Restored] {
        &self.policies
    }

    pub(in crate::store::memory) fn blocks(&self) -> &[(String, Blocked)] {
        &self.blocks
    }

    /// Creates a table for this policy with what was restored of it; `None` if that is nothing.
    pub(in crate::store::memory) fn restore_table(
        &mut self,
        policy: (&str, &Algorithm),
        bound: usize,
        now: Micros,
    ) -> Option<Arc<dyn Counter>> {
        (self.revive)(&mut self.policies, policy, bound, now)
    }

    /// Adds the children to whom the keys of this policy guaranteed a part.
    pub(in crate::store::memory) fn restore_children(
        &mut self,
        policy: (&str, &Algorithm),
        families: &Families,
    ) {
        (self.children)(&mut self.policies, policy, families);
    }

    /// Adds the tenants among whom the limits of this policy were divided.
    pub(in crate::store::memory) fn restore_tenants(
        &mut self,
        policy: (&str, &Algorithm),
        tenants: &Tenants,
    ) {
        (self.tenants)(&mut self.policies, policy, tenants);
    }

    /// Blocks the keys that were blocked under this policy.
    pub(in crate::store::memory) fn block(&mut self, policy: &str, blocks: &Blocks, now: Micros) {
        let block = self.block;
        self.blocks.retain_mut(|(name, blocked)| {
            if name == policy {
                block(blocks, mem::take(blocked), now);
            }
            name != policy
        });
    }
}

fn revived(
    restored: &mut [Restored],
    (policy, algorithm): (&str, &Algorithm),
    bound: usize,
    now: Micros,
) -> Option<Arc<dyn Counter>> {
    let is_its_own = |one: &Restored| one.is_waiting() && one.policy == policy;
    if let Some(found) = nearest(restored, algorithm, is_its_own) {
        return Some(found.restore_table(algorithm, bound, now));
    }
    for one in restored.iter_mut().filter(|one| is_its_own(one)) {
        one.status = RestoreStatus::Mismatch;
        let subject = format!("policy {policy:?}: {} then, {algorithm} now", one.algorithm);
        warn_once_of(&UNLIKE, subject);
    }
    None
}

fn with_children(
    restored: &mut [Restored],
    (policy, algorithm): (&str, &Algorithm),
    families: &Families,
) {
    let has_children = |one: &Restored| one.policy == policy && !one.children.is_empty();
    let Some(found) = nearest(restored, algorithm, has_children) else {
        return;
    };
    for (root, words) in keys_of(&mem::take(&mut found.children)) {
        if let Some(children) = Children::read(words.words()) {
            families.restore(root, children);
        }
    }
}

fn with_tenants(
    restored: &mut [Restored],
    (policy, algorithm): (&str, &Algorithm),
    tenants: &Tenants,
) {
    let has_tenants = |one: &Restored| one.policy == policy && !one.tenants.is_empty();
    let Some(found) = nearest(restored, algorithm, has_tenants) else {
        return;
    };
    for (root, words) in keys_of(&mem::take(&mut found.tenants)) {
        if let Some(shares) = Shares::read(words.words()) {
            tenants.restore(root, shares);
        }
    }
}

/// Returns the one of these that had this algorithm, or the same with another limit: two limiters may have policies of one name that
/// differ in their limit.
fn nearest<'a>(
    restored: &'a mut [Restored],
    algorithm: &Algorithm,
    is_one_of_these: impl Fn(&Restored) -> bool,
) -> Option<&'a mut Restored> {
    let is_same = |its: &Algorithm| its == algorithm;
    let is_alike = |its: &Algorithm| algorithm.differs_in_its_limit_alone(its);
    let of = |is: &dyn Fn(&Algorithm) -> bool| {
        let mut each = restored.iter();
        each.position(|one| is_one_of_these(one) && one.its_algorithm().as_ref().is_some_and(is))
    };
    let found = of(&is_same).or_else(|| of(&is_alike))?;
    restored.get_mut(found)
}
