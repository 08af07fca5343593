use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ahash::RandomState;
use smallvec::SmallVec;

use super::answer::Answer;
use super::calls::{Charges, Counted};
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
    changes: Arc<Changes>,
}

/// How often the state of a key was changed through whatever ledger of the store; many keys share a number.
#[derive(Debug)]
pub(super) struct Changes {
    hasher: RandomState,
    numbers: [AtomicU64; NUMBERS],
}

/// Nothing in it lasts for long, so what is too much goes by generations: the old one is forgotten when the
/// young one is full.
#[derive(Debug, Default)]
struct Shard {
    young: HashMap<u64, Denial, BuildHasherDefault<AsItIs>>,
    old: HashMap<u64, Denial, BuildHasherDefault<AsItIs>>,
}

/// Of numbers that are hashes.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        // The first bits are the same in all of a shard.
        self.0 = hash.rotate_right(SHARDS.trailing_zeros());
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Debug)]
struct Denial {
    charges: Charges,
    answer: Answer,
    /// How often those keys had been changed that are why it was denied, when the question was put.
    seen: SmallVec<[Seen; 4]>,
    received: Instant,
    until: Instant,
    /// When its wait is over: there is nobody to ask before that if the server is away.
    over: Instant,
}

/// A question that was put to the server.
#[derive(Debug)]
pub(super) struct Question {
    put: Instant,
    /// How often each charge's key has been changed.
    seen: SmallVec<[Seen; 4]>,
}

/// A number of [`Changes`], and its place there.
#[derive(Clone, Copy, Debug)]
struct Seen {
    place: usize,
    number: u64,
}

const SHARDS: usize = 16;
const NUMBERS: usize = 4_096;

/// How many denials are remembered at most; each takes some 500 bytes.
const MOST: usize = 10_000;

impl Denials {
    pub(super) fn new(longest: Duration, changes: Arc<Changes>) -> Self {
        Self {
            longest,
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            changes,
        }
    }

    /// What is known of a request that cannot pass at this moment. While the server is away, all of its
    /// wait is.
    pub(super) fn find(
        &self,
        charges: &[Charge],
        policies: &[Counted],
        now: Instant,
        is_away: bool,
    ) -> Option<Outcomes> {
        let hash = self.hash(charges);
        let shard = self.shard(hash);
        let denial = shard.young.get(&hash).or_else(|| shard.old.get(&hash))?;
        let until = if is_away { denial.over } else { denial.until };
        let still_holds = now < until
            && is_same(&denial.charges, charges)
            && denial.seen.iter().all(|seen| self.changes.are_still(*seen));
        if !still_holds {
            return None;
        }
        // Not since it was put: what is told must not be too short.
        let later = now.saturating_duration_since(denial.received);
        Some(denial.answer.outcomes(policies, Micros::from(later)))
    }

    /// A question is about to be put.
    pub(super) fn put(&self, charges: &[Charge], now: Instant) -> Question {
        Question {
            put: now,
            seen: charges
                .iter()
                .map(|charge| self.changes.seen(&charge.key))
                .collect(),
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
        let wait = answer.wait(outcomes).map(Micros::to_duration);
        let until = question.put + wait.map_or(self.longest, |wait| wait.min(self.longest));
        // What no wait helps may be given another limit.
        let over = wait.and_then(|wait| question.put.checked_add(wait));
        let over = over.unwrap_or(until);
        if over <= now {
            return;
        }
        let seen = charges.iter().zip(question.seen);
        let seen = seen.filter(|(charge, _)| answer.is_denied_by(charge.policy));
        let seen = seen.map(|(_, seen)| seen);
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
                seen: seen.collect(),
                received: now,
                until,
                over,
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

    fn hash(&self, charges: &[Charge]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for Charge {
            policy,
            key,
            cost,
            is_soft,
        } in charges
        {
            (policy, key, cost, is_soft).hash(&mut hasher);
        }
        hasher.finish()
    }

    #[expect(clippy::cast_possible_truncation, reason = "a place in a short list")]
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[hash as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Changes {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            numbers: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// These keys are about to be changed, or may have been.
    pub(super) fn add(&self, charges: &[Charge]) {
        for charge in charges {
            self.numbers[self.place(&charge.key)].fetch_add(1, Ordering::Release);
        }
    }

    fn seen(&self, key: &Key) -> Seen {
        let place = self.place(key);
        Seen {
            place,
            number: self.numbers[place].load(Ordering::Acquire),
        }
    }

    fn are_still(&self, seen: Seen) -> bool {
        self.numbers[seen.place].load(Ordering::Acquire) == seen.number
    }

    #[expect(clippy::cast_possible_truncation, reason = "a place in a short list")]
    fn place(&self, key: &Key) -> usize {
        self.hasher.hash_one(key) as usize % NUMBERS
    }
}

fn is_same(one: &[Charge], other: &[Charge]) -> bool {
    let is_same = |(one, other): (&Charge, &Charge)| {
        (one.policy, one.cost, one.is_soft) == (other.policy, other.cost, other.is_soft)
            && one.key == other.key
    };
    one.len() == other.len() && one.iter().zip(other).all(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{AnchoredWindow, State};
    use crate::decision::Outcomes;
    use crate::key::IntoKey;
    use crate::store::redis::calls::Counted;

    const LONGEST: Duration = Duration::from_secs(60);

    fn denials() -> Denials {
        Denials::new(LONGEST, Arc::new(Changes::new()))
    }

    fn policies() -> [Counted; 1] {
        let algorithm = AnchoredWindow::per_day(1).into();
        [Counted {
            algorithm,
            lua: algorithm.lua(),
            suffix: String::new(),
        }]
    }

    fn charges(key: u32) -> Charges {
        Charges::from_slice(&[Charge::new(0, key.into_key(), 1)])
    }

    fn denied(charges: &Charges) -> (Answer, Outcomes) {
        let answer = Answer::denied(charges, Micros::new(1_704_067_200_000_000), &State::NEW);
        let outcomes = answer.outcomes(&policies(), Micros::ZERO);
        (answer, outcomes)
    }

    fn remembered(denials: &Denials) -> usize {
        let counts = denials.shards.iter().map(|shard| {
            let shard = shard.lock().unwrap();
            shard.young.len() + shard.old.len()
        });
        counts.sum()
    }

    #[test]
    fn f58_a_million_keys_that_are_denied_take_no_more_room_than_the_bound() {
        let (denials, now) = (denials(), Instant::now());
        let (answer, outcomes) = denied(&charges(0));
        for key in 0..1_000_000 {
            let charges = charges(key);
            let question = denials.put(&charges, now);
            denials.remember((&charges, question), (&answer, &outcomes), now);
        }
        let remembered = remembered(&denials);
        assert!((MOST / 4..=MOST).contains(&remembered), "{remembered}");
        assert!(
            denials
                .find(&charges(999_999), &policies(), now, false)
                .is_some()
        );
        assert!(denials.find(&charges(0), &policies(), now, false).is_none());
    }

    #[test]
    fn f62_what_was_changed_between_question_and_answer_is_not_remembered() {
        let (denials, now) = (denials(), Instant::now());
        let charges = charges(7);
        let (answer, outcomes) = denied(&charges);
        let question = denials.put(&charges, now);
        denials.changes.add(&charges);
        denials.remember((&charges, question), (&answer, &outcomes), now);
        assert!(denials.find(&charges, &policies(), now, false).is_none());
    }

    #[test]
    fn f62_a_denial_is_remembered_from_its_question_and_no_longer_than_the_bound() {
        let (denials, put) = (denials(), Instant::now());
        let charges = charges(7);
        let (answer, outcomes) = denied(&charges);
        let question = denials.put(&charges, put);
        let received = put + LONGEST / 2;
        denials.remember((&charges, question), (&answer, &outcomes), received);
        let just_before = put + LONGEST.saturating_sub(Duration::from_nanos(1));
        assert!(
            denials
                .find(&charges, &policies(), just_before, false)
                .is_some()
        );
        assert!(
            denials
                .find(&charges, &policies(), put + LONGEST, false)
                .is_none()
        );
    }
}
