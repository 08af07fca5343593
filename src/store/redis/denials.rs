use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::answer::Answer;
use super::ledger::{Charges, Counted};
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::key::Key;
use crate::store::Charge;

/// Requests that were denied and cannot pass yet: whoever asks the same again is told so, and the server is
/// not asked.
///
/// A denial is remembered until its wait is over, counted from when the question was put, and for no longer
/// than `longest`: somebody elsewhere may have given the key something back.
#[derive(Debug)]
pub(super) struct Denials {
    longest: Duration,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    /// How often the state of a key was changed by something else than a charge; many keys share a
    /// number.
    changes: [AtomicU64; CHANGES],
}

/// Nothing in it lasts for long, so what is too much goes by generations: the old one is forgotten when the
/// young one is full.
#[derive(Debug, Default)]
struct Shard {
    young: HashMap<u64, Denial>,
    old: HashMap<u64, Denial>,
}

#[derive(Debug)]
struct Denial {
    charges: Charges,
    answer: Answer,
    /// The numbers of the keys' changes when the question was put.
    seen: Seen,
    received: Instant,
    until: Instant,
}

type Seen = SmallVec<[u64; 2]>;

/// A question that was put to the server.
#[derive(Debug)]
pub(super) struct Question {
    put: Instant,
    seen: Seen,
}

const SHARDS: usize = 16;
const CHANGES: usize = 256;

/// How many denials are remembered at most; each takes some 500 bytes.
const MOST: usize = 10_000;

impl Denials {
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            longest,
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            changes: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// What is known of a request that cannot pass at this moment.
    pub(super) fn find(
        &self,
        charges: &[Charge],
        policies: &[Counted],
        now: Instant,
    ) -> Option<Outcomes> {
        let hash = self.hash(charges);
        let shard = self.shard(hash);
        let denial = shard.young.get(&hash).or_else(|| shard.old.get(&hash))?;
        let still_holds = now < denial.until
            && is_same(&denial.charges, charges)
            && denial.seen == self.seen(charges);
        still_holds.then(|| {
            // Not since it was put: what is told must not be too short.
            let later = now.saturating_duration_since(denial.received);
            denial.answer.outcomes(policies, Micros::from(later))
        })
    }

    /// A question is about to be put.
    pub(super) fn put(&self, charges: &[Charge], now: Instant) -> Question {
        Question {
            put: now,
            seen: self.seen(charges),
        }
    }

    /// Remembers the answer, if it denies.
    pub(super) fn remember(
        &self,
        (charges, question): (&[Charge], Question),
        (answer, outcomes): (&Answer, &Outcomes),
        now: Instant,
    ) {
        // What costs nothing is answered and not denied, but where nothing can pass.
        if answer.is_allowed() || charges.iter().all(|charge| charge.cost == 0) {
            return;
        }
        let wait = answer
            .wait(outcomes)
            .map_or(self.longest, Micros::to_duration);
        let until = question.put + wait.min(self.longest);
        if until <= now {
            return;
        }
        let hash = self.hash(charges);
        let mut shard = self.shard(hash);
        if shard.young.len() >= MOST / SHARDS / 2 {
            shard.old = mem::take(&mut shard.young);
        }
        shard.young.insert(
            hash,
            Denial {
                charges: Charges::from_slice(charges),
                answer: answer.clone(),
                seen: question.seen,
                received: now,
                until,
            },
        );
    }

    /// The server has told that this request could pass.
    pub(super) fn forget(&self, charges: &[Charge]) {
        let hash = self.hash(charges);
        let mut shard = self.shard(hash);
        shard.young.remove(&hash);
        shard.old.remove(&hash);
    }

    /// These keys are about to be changed, or have been.
    pub(super) fn changed(&self, charges: &[Charge]) {
        for charge in charges {
            self.changes_of(&charge.key).fetch_add(1, Ordering::Release);
        }
    }

    fn seen(&self, charges: &[Charge]) -> Seen {
        let mut seen = Seen::new();
        let mut last: Option<&Key> = None;
        for Charge { key, .. } in charges {
            if last != Some(key) {
                seen.push(self.changes_of(key).load(Ordering::Acquire));
                last = Some(key);
            }
        }
        seen
    }

    #[expect(clippy::cast_possible_truncation, reason = "a place in a short list")]
    fn changes_of(&self, key: &Key) -> &AtomicU64 {
        &self.changes[self.hasher.hash_one(key) as usize % CHANGES]
    }

    fn hash(&self, charges: &[Charge]) -> u64 {
        let asked = |charge: &Charge| (charge.policy, charge.key, charge.cost, charge.is_soft);
        let asked: SmallVec<[_; 4]> = charges.iter().map(asked).collect();
        self.hasher.hash_one(&*asked)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a place in a short list")]
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[hash as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_same(one: &[Charge], other: &[Charge]) -> bool {
    let asked = |charge: &Charge| (charge.policy, charge.key, charge.cost, charge.is_soft);
    one.iter().map(asked).eq(other.iter().map(asked))
}
