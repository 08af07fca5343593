use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ahash::RandomState;
use smallvec::SmallVec;

use super::key_epochs::{KeyEpoch, KeyEpochs};
use super::numbers::Numbers;
use super::opened::OpenedPolicy;
use super::reply::ScriptReply;
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::store::Charge;

/// Requests that were denied and cannot pass yet. The same request is denied again, and the server is not asked.
///
/// A denial is remembered until its wait is over, counted from when the question was sent, and for no longer
/// than `longest`: another node may have given the key something back.
#[derive(Debug)]
pub(super) struct DenialCache {
    longest: Duration,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    epochs: Arc<KeyEpochs>,
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
pub(super) struct AsItIs(u64);

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
    /// In the order in which they were asked about.
    each: Box<[Denied]>,
    /// When it was decided, by the server's clock.
    at: Micros,
    received: Instant,
    /// For how long it is remembered, and for how long it is true. While the server is away, it is used for as
    /// long as it is true.
    lasts: Duration,
    wait: Duration,
}

/// A charge that was not made.
#[derive(Debug)]
struct Denied {
    charge: Charge,
    /// The epoch of its key when the question was sent, if it is why the request was denied.
    epoch: Option<KeyEpoch>,
    numbers: Numbers,
}

/// A question that was sent to the server.
#[derive(Debug)]
pub(super) struct Sent {
    at: Instant,
    /// The epoch of the key of each charge.
    epochs: SmallVec<[KeyEpoch; 4]>,
    /// For how long a denial is remembered.
    longest: Duration,
}

impl Sent {
    /// The same for a denial that is remembered for this time at most.
    pub(super) fn at_most(self, longest: Duration) -> Self {
        Self {
            longest: self.longest.min(longest),
            ..self
        }
    }
}

pub(super) const SHARDS: usize = 16;

/// How many denials are remembered at most; each takes some 350 bytes, if it is of one policy.
const MOST: usize = 10_000;

impl DenialCache {
    pub(super) fn new(longest: Duration, epochs: Arc<KeyEpochs>) -> Self {
        Self {
            longest,
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            epochs,
        }
    }

    /// Tells what is known of a request that cannot pass at this moment, if anything is. While the server is
    /// away, all of its wait is.
    pub(super) fn tell(
        &self,
        (charges, policies): (&[Charge], &[OpenedPolicy]),
        now: Instant,
        is_away: bool,
        outcomes: &mut Outcomes,
    ) -> bool {
        let hash = self.hash(charges);
        let shard = self.shard(hash);
        let Some(denial) = shard.young.get(&hash).or_else(|| shard.old.get(&hash)) else {
            return false;
        };
        // Not since it was sent: what is told must not be too short.
        let later = now.saturating_duration_since(denial.received);
        let lasts = if is_away { denial.wait } else { denial.lasts };
        let still_holds = later < lasts && denial.is_about(charges) && self.are_still(denial);
        if still_holds {
            denial.tell(policies, Micros::from(later), outcomes);
        }
        still_holds
    }

    /// Notes that a question about these is about to be sent.
    pub(super) fn send(&self, charges: &[Charge], now: Instant) -> Sent {
        Sent {
            at: now,
            epochs: charges
                .iter()
                .map(|charge| self.epochs.of(&charge.key))
                .collect(),
            longest: self.longest,
        }
    }

    /// Remembers the answer, if it denies.
    pub(super) fn remember(
        &self,
        (charges, policies): (&[Charge], &[OpenedPolicy]),
        sent: Sent,
        (answer, outcomes): (&ScriptReply, &Outcomes),
        now: Instant,
    ) {
        // What costs nothing is answered and not denied, but where nothing can pass.
        if answer.is_allowed()
            || answer.is_to_be_asked_again(policies)
            || charges.iter().all(|charge| charge.cost == 0)
        {
            return;
        }
        let wait = answer.wait(outcomes).map(Micros::to_duration);
        let until = sent.at + wait.map_or(sent.longest, |wait| wait.min(sent.longest));
        // What no wait helps may be given another limit.
        let over = wait.and_then(|wait| sent.at.checked_add(wait));
        let over = over.unwrap_or(until);
        if over <= now {
            return;
        }
        let wait = over.saturating_duration_since(now);
        let each = charges.iter().zip(sent.epochs).map(|(charge, epoch)| {
            let told = answer.of(charge.policy)?;
            Some(Denied {
                charge: *charge,
                epoch: told.denies().then_some(epoch),
                numbers: Numbers::of(told, policies.get(charge.policy)?, wait.into()),
            })
        });
        let Some(each) = each.collect() else {
            // A server that has one of the keys did not answer.
            return;
        };
        let denial = Denial {
            each,
            at: answer.at(),
            received: now,
            lasts: until.saturating_duration_since(now),
            wait,
        };
        let hash = self.hash(charges);
        let mut shard = self.shard(hash);
        if shard.young.len() >= MOST / SHARDS / 2 {
            shard.old = mem::take(&mut shard.young);
        }
        shard.young.insert(hash, denial);
    }

    /// The server has told that this request could pass.
    pub(super) fn forget(&self, charges: &[Charge]) {
        let hash = self.hash(charges);
        let mut shard = self.shard(hash);
        shard.young.remove(&hash);
        shard.old.remove(&hash);
    }

    /// Whether the keys that are why a request was denied are as they were.
    fn are_still(&self, denial: &Denial) -> bool {
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
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[hash as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Denial {
    fn is_about(&self, charges: &[Charge]) -> bool {
        let is_about = |(denied, charge): (&Denied, &Charge)| {
            let known = &denied.charge;
            (known.policy, known.cost, known.weight(), known.limit)
                == (charge.policy, charge.cost, charge.weight(), charge.limit)
                && known.key == charge.key
        };
        self.each.len() == charges.len() && self.each.iter().zip(charges).all(is_about)
    }

    /// Adds the numbers so much later.
    fn tell(&self, policies: &[OpenedPolicy], later: Micros, outcomes: &mut Outcomes) {
        outcomes.decided_at(self.at.saturating_add(later));
        for denied in &self.each {
            let policy = denied.charge.policy;
            if let Some(counted) = policies.get(policy) {
                denied.numbers.tell((policy, counted), later, outcomes);
            }
        }
        outcomes.put_in_order();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{AnchoredWindow, State};
    use crate::key::IntoKey;
    use crate::store::redis::opened::Charges;

    const LONGEST: Duration = Duration::from_secs(60);

    fn denials() -> DenialCache {
        DenialCache::new(LONGEST, Arc::new(KeyEpochs::new()))
    }

    fn policies() -> [OpenedPolicy; 2] {
        [(); 2].map(|()| {
            let algorithm = AnchoredWindow::per_day(1).into();
            OpenedPolicy {
                algorithm,
                lua: algorithm.lua(),
                suffix: String::new(),
                penalty: None,
            }
        })
    }

    fn charges(key: u32) -> Charges {
        Charges::from_slice(&[Charge::new(0, key.into_key(), 1)])
    }

    fn denied(charges: &[Charge]) -> ScriptReply {
        ScriptReply::denied(charges, Micros::new(1_704_067_200_000_000), &State::NEW)
    }

    fn remember(denials: &DenialCache, charges: &[Charge], sent: Sent, now: Instant) {
        let (answer, policies) = (denied(charges), policies());
        let told = (&answer, &answer.outcomes(&policies));
        denials.remember((charges, &policies), sent, told, now);
    }

    fn is_told(denials: &DenialCache, charges: &[Charge], now: Instant) -> bool {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        denials.tell((charges, &policies()), now, false, &mut outcomes)
    }

    fn remembered(denials: &DenialCache) -> usize {
        let counts = denials.shards.iter().map(|shard| {
            let shard = shard.lock().unwrap();
            shard.young.len() + shard.old.len()
        });
        counts.sum()
    }

    #[test]
    fn f58_a_million_keys_that_are_denied_take_no_more_room_than_the_bound() {
        let (denials, now) = (denials(), Instant::now());
        for key in 0..1_000_000 {
            let charges = charges(key);
            let sent = denials.send(&charges, now);
            remember(&denials, &charges, sent, now);
        }
        let remembered = remembered(&denials);
        assert!((MOST / 4..=MOST).contains(&remembered), "{remembered}");
        assert!(is_told(&denials, &charges(999_999), now));
        assert!(!is_told(&denials, &charges(0), now));
        // Less than half of a table is empty when it is full.
        let each = size_of::<Denied>() + 2 * size_of::<(u64, Denial)>();
        assert!(each <= 352, "{each} bytes");
    }

    #[test]
    fn f62_what_was_changed_between_question_and_answer_is_not_remembered() {
        let (denials, now) = (denials(), Instant::now());
        let charges = charges(7);
        let sent = denials.send(&charges, now);
        denials.epochs.advance(&charges);
        remember(&denials, &charges, sent, now);
        assert!(!is_told(&denials, &charges, now));
    }

    #[test]
    fn f62_a_denial_is_remembered_from_its_question_and_no_longer_than_the_bound() {
        let (denials, put) = (denials(), Instant::now());
        let charges = charges(7);
        let sent = denials.send(&charges, put);
        remember(&denials, &charges, sent, put + LONGEST / 2);
        let just_before = put + LONGEST.saturating_sub(Duration::from_nanos(1));
        assert!(is_told(&denials, &charges, just_before));
        assert!(!is_told(&denials, &charges, put + LONGEST));
    }

    /// As when a part of a cluster goes away while it is asked: the others may be told of next time.
    #[test]
    fn f62_an_answer_that_leaves_a_policy_out_is_not_remembered() {
        let (denials, now) = (denials(), Instant::now());
        let key = 7_u32.into_key();
        let both = [Charge::new(0, key, 1), Charge::new(1, key, 1)];
        let (policies, sent) = (policies(), denials.send(&both, now));
        let answer = denied(&both[..1]);
        let told = (&answer, &answer.outcomes(&policies));
        denials.remember((&both, &policies), sent, told, now);
        assert_eq!(remembered(&denials), 0);
        let sent = denials.send(&both, now);
        remember(&denials, &both, sent, now);
        assert!(is_told(&denials, &both, now));
    }
}
