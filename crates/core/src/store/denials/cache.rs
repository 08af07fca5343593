//! The cache of denials.
//!
//! A flood of requests that cannot pass is the load for which a shared store is slowest, and the only one
//! whose answers stay true for a while.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ahash::RandomState;
use smallvec::SmallVec;

use super::epochs::{KeyEpoch, KeyEpochs};
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::store::Charge;
use crate::store::hashed::Hashed;

/// A denied charge as it is remembered. It gives the outcome of a later moment, if only time has passed.
pub trait Remembered {
    /// The facts about the policy that it needs.
    type Policy;

    /// Adds the outcome of the charge, `later` after the decision.
    fn replay(&self, policy: (usize, &Self::Policy), later: Micros, outcomes: &mut Outcomes);
}

/// Denied requests that cannot pass yet. The same request is denied again without a call to the store.
///
/// A denial is remembered until its wait is over, counted from when the question was sent, and for no longer
/// than `longest`: another node may have given the key something back.
#[derive(Debug)]
pub struct DenialCache<N> {
    longest: Duration,
    hasher: RandomState,
    shards: [Mutex<Shard<N>>; SHARDS],
    epochs: Arc<KeyEpochs>,
}

/// Entries do not last long, so eviction goes by generations: the old generation is dropped when the young
/// one is full.
#[derive(Debug)]
struct Shard<N> {
    young: Denials<N>,
    old: Denials<N>,
}

type Denials<N> = HashMap<u64, Denial<N>, BuildHasherDefault<Hashed<SHARDS>>>;

#[derive(Debug)]
struct Denial<N> {
    /// In the order of the charges.
    each: Box<[Denied<N>]>,
    /// When it was decided, by the store's clock.
    at: Micros,
    lasts: DenialSpan,
}

/// How long a denial lasts after it was received.
#[derive(Clone, Copy, Debug)]
pub struct DenialSpan {
    received: Instant,
    /// How long it is remembered.
    remembered: Duration,
    /// How long it is true. While the store is away, it is used for that long.
    pub wait: Duration,
}

/// A charge that was not made.
#[derive(Debug)]
struct Denied<N> {
    charge: Charge,
    /// The epoch of its key when the question was sent, if it is why the request was denied.
    epoch: Option<KeyEpoch>,
    numbers: N,
}

/// A question that was sent to the store.
#[derive(Debug)]
pub struct Sent {
    at: Instant,
    /// The epoch of the key of each charge.
    epochs: SmallVec<[KeyEpoch; 4]>,
    /// How long a denial is remembered at most.
    longest: Duration,
}

impl Sent {
    /// Returns how long a denial lasts that was received now. The request may pass after `wait`; `None` means
    /// that no wait helps. Returns `None` if its end has passed.
    pub fn lasts(&self, wait: Option<Micros>, now: Instant) -> Option<DenialSpan> {
        let wait = wait.map(Micros::to_duration);
        let until = self.at + wait.map_or(self.longest, |wait| wait.min(self.longest));
        // A denial that no wait ends can end by a change of the limit.
        let over = wait.and_then(|wait| self.at.checked_add(wait));
        let over = over.unwrap_or(until);
        (over > now).then(|| DenialSpan {
            received: now,
            remembered: until.saturating_duration_since(now),
            wait: over.saturating_duration_since(now),
        })
    }

    /// Limits how long a denial is remembered.
    pub fn at_most(self, longest: Duration) -> Self {
        Self {
            longest: self.longest.min(longest),
            ..self
        }
    }
}

/// How many parts keys are spread over.
pub const SHARDS: usize = 16;

/// The number of denials at most. Each takes some 350 bytes, if it is of one policy.
const MOST: usize = 10_000;

impl<N: Remembered> DenialCache<N> {
    /// Makes an empty cache.
    pub fn new(longest: Duration, epochs: Arc<KeyEpochs>) -> Self {
        Self {
            longest,
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::new(Shard::empty())),
            epochs,
        }
    }

    /// Returns the outcomes of a remembered denial, if this request has one that has not ended. While the
    /// store is away, a denial is used until its whole wait is over.
    pub fn replay(
        &self,
        (charges, policies): (&[Charge], &[N::Policy]),
        now: Instant,
        is_away: bool,
        outcomes: &mut Outcomes,
    ) -> bool {
        let hash = self.hash(charges);
        let shard = self.shard(hash);
        let Some(denial) = shard.young.get(&hash).or_else(|| shard.old.get(&hash)) else {
            return false;
        };
        // Counted from when the answer was received, and not from when the question was sent: a told wait
        // must not be too short.
        let later = now.saturating_duration_since(denial.lasts.received);
        let DenialSpan {
            remembered, wait, ..
        } = denial.lasts;
        let lasts = if is_away { wait } else { remembered };
        let still_holds = later < lasts && denial.is_about(charges) && self.are_still(denial);
        if still_holds {
            denial.replay(policies, Micros::from(later), outcomes);
        }
        still_holds
    }

    /// Notes that a question about these charges is about to be sent.
    pub fn send(&self, charges: &[Charge], now: Instant) -> Sent {
        Sent {
            at: now,
            epochs: charges
                .iter()
                .map(|charge| self.epochs.of(&charge.key))
                .collect(),
            longest: self.longest,
        }
    }

    /// Remembers a denial that was decided at this moment: for each charge its numbers, and whether it is why
    /// the request was denied.
    pub fn remember(
        &self,
        charges: &[Charge],
        sent: Sent,
        (at, lasts): (Micros, DenialSpan),
        numbers: impl IntoIterator<Item = (N, bool)>,
    ) {
        let each = charges.iter().zip(sent.epochs).zip(numbers);
        let each = each.map(|((charge, epoch), (numbers, denies))| Denied {
            charge: *charge,
            epoch: denies.then_some(epoch),
            numbers,
        });
        let denial = Denial {
            each: each.collect(),
            at,
            lasts,
        };
        let hash = self.hash(charges);
        let mut shard = self.shard(hash);
        if shard.young.len() >= MOST / SHARDS / 2 {
            shard.old = mem::take(&mut shard.young);
        }
        shard.young.insert(hash, denial);
    }

    /// Forgets the denial of a request that the store has allowed.
    pub fn forget(&self, charges: &[Charge]) {
        let hash = self.hash(charges);
        let mut shard = self.shard(hash);
        shard.young.remove(&hash);
        shard.old.remove(&hash);
    }

    /// Returns whether the keys that are why a request was denied are unchanged.
    fn are_still(&self, denial: &Denial<N>) -> bool {
        let mut epochs = denial.each.iter().filter_map(|denied| denied.epoch);
        epochs.all(|epoch| self.epochs.is_still(epoch))
    }

    fn hash(&self, charges: &[Charge]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for Charge {
            policy,
            key,
            cost,
            is_soft,
            is_shadow,
            limit,
            ..
        } in charges
        {
            (policy, key, cost, is_soft, is_shadow, limit).hash(&mut hasher);
        }
        hasher.finish()
    }

    #[expect(clippy::cast_possible_truncation, reason = "a place in a short list")]
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard<N>> {
        let shard = &self.shards[hash as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<N: Remembered> Denial<N> {
    fn is_about(&self, charges: &[Charge]) -> bool {
        let is_about = |(denied, charge): (&Denied<N>, &Charge)| {
            let known = &denied.charge;
            (known.policy, known.cost, known.effect(), known.limit)
                == (charge.policy, charge.cost, charge.effect(), charge.limit)
                && known.key == charge.key
        };
        self.each.len() == charges.len() && self.each.iter().zip(charges).all(is_about)
    }

    /// Adds the outcome of each charge, `later` after the decision.
    fn replay(&self, policies: &[N::Policy], later: Micros, outcomes: &mut Outcomes) {
        outcomes.decided_at(self.at.saturating_add(later));
        for denied in &self.each {
            let policy = denied.charge.policy;
            if let Some(known) = policies.get(policy) {
                denied.numbers.replay((policy, known), later, outcomes);
            }
        }
        outcomes.put_in_order();
    }
}

impl<N> Shard<N> {
    fn empty() -> Self {
        Self {
            young: HashMap::default(),
            old: HashMap::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Outcome;
    use crate::key::IntoKey;
    use crate::store::denials::remembering::AgingOutcome;

    const LONGEST: Duration = Duration::from_secs(60);
    const POLICIES: [bool; 1] = [true];

    fn denials() -> DenialCache<AgingOutcome> {
        DenialCache::new(LONGEST, Arc::new(KeyEpochs::default()))
    }

    fn charge(key: u32) -> [Charge; 1] {
        [Charge::new(0, key.into_key(), 1)]
    }

    /// Remembers a denial whose wait ends the next day.
    fn remember(denials: &DenialCache<AgingOutcome>, charge: &[Charge], sent: Sent, now: Instant) {
        let day = Micros::from_secs(86_400);
        let outcome = Outcome::allowed(1, 0, day).denied(Some(day));
        let lasts = sent.lasts(Some(day), now).expect("a day has not passed");
        denials.remember(
            charge,
            sent,
            (Micros::ZERO, lasts),
            [(AgingOutcome(outcome), true)],
        );
    }

    fn is_replayed(denials: &DenialCache<AgingOutcome>, charge: &[Charge], now: Instant) -> bool {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        denials.replay((charge, &POLICIES), now, false, &mut outcomes)
    }

    #[test]
    fn a_million_keys_that_are_denied_take_no_more_room_than_the_bound() {
        let (denials, now) = (denials(), Instant::now());
        for key in 0..1_000_000 {
            let charge = charge(key);
            let sent = denials.send(&charge, now);
            remember(&denials, &charge, sent, now);
        }
        let counts = denials.shards.iter().map(|shard| {
            let shard = shard.lock().unwrap();
            shard.young.len() + shard.old.len()
        });
        let remembered: usize = counts.sum();
        assert!((MOST / 4..=MOST).contains(&remembered), "{remembered}");
        assert!(is_replayed(&denials, &charge(999_999), now));
        assert!(!is_replayed(&denials, &charge(0), now));
        // Less than half of a table is empty when it is full.
        let each = size_of::<Denied<AgingOutcome>>() + 2 * size_of::<(u64, Denial<AgingOutcome>)>();
        assert!(each <= 360, "{each} bytes");
    }

    #[test]
    fn a_denial_of_a_key_that_changed_meanwhile_is_not_remembered() {
        let (denials, now) = (denials(), Instant::now());
        let charge = charge(7);
        let sent = denials.send(&charge, now);
        denials.epochs.advance(&charge);
        remember(&denials, &charge, sent, now);
        assert!(!is_replayed(&denials, &charge, now));
    }

    #[test]
    fn a_denial_is_remembered_from_its_question_and_no_longer_than_the_bound() {
        let (denials, put) = (denials(), Instant::now());
        let charge = charge(7);
        let sent = denials.send(&charge, put);
        remember(&denials, &charge, sent, put + LONGEST / 2);
        let just_before = put + LONGEST.saturating_sub(Duration::from_nanos(1));
        assert!(is_replayed(&denials, &charge, just_before));
        assert!(!is_replayed(&denials, &charge, put + LONGEST));
    }
}
