use super::State;
use crate::clock::Micros;
use crate::decision::Outcome;

/// The rule of one algorithm, as pure functions on integers.
///
/// Asking, charging and telling are apart: a refusal only reads, and of several policies none
/// is charged before all have been asked. A room sees costs from 1 to its limit only, and only
/// states that [`moved_back`](Self::moved_back) has nothing to say about.
pub(crate) trait Step: Send + Sync + 'static {
    /// What is kept of one key; by default, of a key that was never seen.
    type Kept: Clone + Default;

    /// What a state says, as far as it says anything here: a debt above the capacity, which only a
    /// charge after the fact under this very rule can leave, is cut to it as of `now` if another has
    /// left it.
    fn read(&self, state: State, now: Micros) -> Self::Kept;

    /// The state that says this.
    fn write(&self, kept: Self::Kept) -> State;

    /// The most that can be admitted at one instant; 0 if nothing ever can.
    fn limit(&self) -> u32;

    /// The time for which the limit is meant: a window's period; the time in which an empty
    /// bucket fills.
    fn window(&self) -> Micros;

    /// How long a key that has used up its limit waits for the whole of it, at most.
    fn longest_wait(&self) -> Micros;

    /// If no request at or before `now` could have left this, the nearest that one could:
    /// times are no later than `now`, and a debt is no more than the capacity, which a charge after
    /// the fact may double.
    fn moved_back(&self, kept: &Self::Kept, now: Micros) -> Option<Self::Kept>;

    /// Whether a request of this cost is allowed.
    fn admits(&self, kept: &Self::Kept, now: Micros, cost: u32) -> bool;

    /// Charges a request that is allowed.
    fn charge(&self, kept: &mut Self::Kept, now: Micros, cost: u32);

    /// Charges so much whether there is room for it or not: all of it as far as a window can count,
    /// which is to [`MOST_COUNTED`]; and to a bucket until it owes twice its capacity.
    fn settle(&self, kept: &mut Self::Kept, now: Micros, units: u32);

    /// Gives back so much of what was charged last, as far as it still counts.
    fn refund(&self, kept: &mut Self::Kept, now: Micros, units: u32);

    /// Gives back the turn of a request of this cost that was to leave at `departure`, if nobody
    /// has a turn behind it.
    fn give_back(&self, _: &mut Self::Kept, _: Micros, _: u32, _: Micros) {}

    /// How many further requests of cost 1 would be allowed at this instant.
    fn remaining(&self, kept: &Self::Kept, now: Micros) -> u32;

    /// How far from new it is: 0 if it is as good as new, else the more the further.
    fn distance(&self, kept: &Self::Kept, now: Micros) -> u64;

    /// How long until the key is as good as new.
    fn reset_after(&self, kept: &Self::Kept, now: Micros) -> Micros;

    /// How long a request of this cost, which is denied now, has to wait.
    fn retry_after(&self, kept: &Self::Kept, now: Micros, cost: u32) -> Micros;

    /// How long what remains has to last for a client that wants no refusal.
    fn effective_window(&self, kept: &Self::Kept, now: Micros) -> Micros;

    /// How long a request of this cost, whose charge is in what is kept, is held before it goes on.
    #[inline]
    fn delay(&self, _: &Self::Kept, _: Micros, _: u32) -> Micros {
        Micros::ZERO
    }

    /// How much of a store's room is taken: a key, or its entries if there are more of them.
    fn size(&self, _: &Self::Kept) -> usize {
        1
    }

    /// Takes less room if that is possible, by holding back longer; never by admitting more.
    fn squeeze(&self, _: &mut Self::Kept) {}

    /// How long until one more unit remains than now; the window, if the limit is whole.
    fn next_unit(&self, kept: &Self::Kept, now: Micros) -> Micros {
        match self.remaining(kept, now) {
            remaining if remaining < self.limit() => self.retry_after(kept, now, remaining + 1),
            _ => self.window(),
        }
    }

    /// Whether a request of any cost is allowed. One of cost 0 only asks.
    fn allows(&self, kept: &Self::Kept, now: Micros, cost: u32) -> bool {
        match cost {
            0 => self.limit() > 0,
            cost => cost <= self.limit() && self.admits(kept, now, cost),
        }
    }

    /// What is told of a request, once its charge is in what is kept, or has been dropped.
    fn outcome(&self, kept: &Self::Kept, now: Micros, cost: u32, allowed: bool) -> Outcome {
        let limit = self.limit();
        let outcome = match limit {
            0 => Outcome::allowed(0, 0, Micros::ZERO),
            _ => Outcome::allowed(
                limit,
                self.remaining(kept, now),
                self.reset_after(kept, now),
            )
            .lasting(self.effective_window(kept, now)),
        };
        if allowed {
            return match self.delay(kept, now, cost) {
                Micros::ZERO => outcome,
                delay => outcome.held(delay),
            };
        }
        let can_pass = (1..=limit).contains(&cost);
        outcome.denied(can_pass.then(|| self.retry_after(kept, now, cost)))
    }
}

/// A rule that keeps a fixed number of words.
pub(crate) trait Fixed: Step<Kept: Copy> {
    fn words(&self, kept: Self::Kept) -> [u64; 3];

    fn of_words(&self, words: [u64; 3]) -> Self::Kept;

    /// The last moment at which one word holds whatever this rule keeps.
    fn packs_until(&self) -> Micros;

    /// All of it in one word.
    fn pack(&self, kept: Self::Kept) -> u64;

    /// What was packed. `latest` is a moment at or after that of the charge which left it, and
    /// no later than now: to a debt that drains it makes no difference at which of these it is
    /// told.
    fn unpack(&self, word: u64, latest: Micros) -> Self::Kept;

    /// As much of this as one word holds: of a count, twice the limit at least.
    fn fitted(&self, kept: Self::Kept) -> Self::Kept {
        kept
    }

    /// Whether one word holds this, which another limit may have left, as of now.
    fn packs(&self, kept: Self::Kept, now: Micros) -> bool {
        self.words(self.unpack(self.pack(kept), now)) == self.words(kept)
    }
}

/// The most that a window, all slots or a log can count, however much is charged after the fact.
pub(super) const MOST_COUNTED: u64 = u32::MAX as u64;

/// How much of these units a window counts that has counted so much.
pub(super) fn countable(units: u32, counted: u64) -> u64 {
    u64::from(units).min(MOST_COUNTED.saturating_sub(counted))
}

/// How many bits a count takes in a word: enough for twice this limit, as much as is used after
/// most charges after the fact.
pub(super) const fn bits_of_count(limit: u32) -> u32 {
    u32::BITS + 1 - limit.leading_zeros()
}

/// The largest number in a word of which so many bits are taken.
pub(super) fn largest_beside(taken: u32) -> u64 {
    u64::MAX.checked_shr(taken).unwrap_or(0)
}

/// Gives back; see [`Algorithm::refund`](super::Algorithm::refund).
pub(super) fn refund<S: Step>(rule: &S, state: State, now: Micros, units: u32) -> State {
    let mut kept = read(rule, state, now);
    rule.refund(&mut kept, now, units);
    rule.write(kept)
}

/// Tells of a request; see [`Algorithm::outcome`](super::Algorithm::outcome).
#[cfg(feature = "redis")]
pub(super) fn outcome<S: Step>(
    rule: &S,
    state: State,
    now: Micros,
    (cost, allowed): (u32, bool),
) -> Outcome {
    let kept = read(rule, state, now);
    // Of several policies that denied it, this one may allow it by now.
    let allowed = allowed || rule.allows(&kept, now, cost);
    rule.outcome(&kept, now, cost, allowed)
}

/// Charges after the fact; see [`Algorithm::settle`](super::Algorithm::settle).
pub(super) fn settle<S: Step>(rule: &S, state: State, now: Micros, units: u32) -> State {
    if units == 0 || rule.limit() == 0 {
        return state;
    }
    let mut kept = read(rule, state, now);
    rule.settle(&mut kept, now, units);
    rule.write(kept)
}

/// What a state says, or the nearest to it that is possible.
pub(crate) fn read<S: Step>(rule: &S, state: State, now: Micros) -> S::Kept {
    let kept = rule.read(state, now);
    rule.moved_back(&kept, now).unwrap_or(kept)
}

/// Decides on one request; see [`Algorithm::step`](super::Algorithm::step).
pub(super) fn step<S: Step>(rule: &S, state: State, now: Micros, cost: u32) -> (Outcome, State) {
    let mut kept = read(rule, state, now);
    let allowed = rule.allows(&kept, now, cost);
    if allowed && cost > 0 {
        rule.charge(&mut kept, now, cost);
    }
    let outcome = rule.outcome(&kept, now, cost, allowed);
    (outcome, rule.write(kept))
}
