//! The trait of rules, and what [`Algorithm`](super::Algorithm) does with a rule of any type.
//!
//! A rule reads a [`State`] into a form of its own, asks and changes that, and writes it back. A store that
//! knows the type of the rule keeps this form, and so reads and writes no states: in one word if it
//! [packs](Pack::pack), in three words, or as a list of any length.

use super::State;
use crate::clock::Micros;
use crate::decision::Outcome;

/// The rule of one algorithm, as pure functions on integers.
///
/// Asking, charging and telling the outcome are separate functions, for two reasons: a denied request only
/// reads, and all policies of a request are asked before any of them is charged.
///
/// The functions see costs from 1 to the limit, and no state that [`moved_back`](Self::moved_back) would
/// change.
pub trait Step: Clone + Send + Sync + 'static {
    /// The state of one key in the form of the rule. The default is that of a new key.
    type Form: Clone + Default;

    /// Reads a state, which any limit may have left. A debt of more than `MOST_OWED` is cut to that.
    fn read(&self, state: State) -> Self::Form;

    /// Writes a state.
    fn write(&self, state: Self::Form) -> State;

    /// Returns the most that can be admitted at one instant; 0 if every request is denied.
    fn limit(&self) -> u32;

    /// Returns the most that can be admitted at this moment, where it depends on the hour.
    fn limit_at(&self, _: Micros) -> u32 {
        self.limit()
    }

    /// Returns the time to which the limit applies: the period of a window, or the time in which an empty bucket
    /// fills.
    fn window(&self) -> Micros;

    /// Returns how long a key that has used up its limit waits for the whole limit, at most.
    fn longest_wait(&self) -> Micros;

    /// Returns the nearest possible state, if no request at or before `now` could have left this one: times
    /// are no later than `now`.
    fn moved_back(&self, state: &Self::Form, now: Micros) -> Option<Self::Form>;

    /// Returns whether a request of this cost is allowed.
    fn admits(&self, state: &Self::Form, now: Micros, cost: u32) -> bool;

    /// Charges a request that is allowed.
    fn charge(&self, state: &mut Self::Form, now: Micros, cost: u32);

    /// Charges units even if that exceeds the limit: to a window up to `MOST_COUNTED`, to a bucket up to
    /// twice its capacity. A debt above that stays.
    fn settle(&self, state: &mut Self::Form, now: Micros, units: u32);

    /// Gives back units of the latest charges, as far as these still count.
    fn refund(&self, state: &mut Self::Form, now: Micros, units: u32);

    /// Returns whether all that counts ends at one moment, and until then nothing of it does. A refund as of the last
    /// charge is then the same as one at present, and needs no clock.
    fn ends_at_once(&self) -> bool {
        false
    }

    /// Returns whether these turns of a queue, the first of which begins at `begins`, are the last, so that no
    /// request has a turn behind them.
    fn are_last(&self, _: &Self::Form, _now: Micros, _turns: u32, _begins: Micros) -> bool {
        false
    }

    /// Gives back turns of a queue if they are the last. Returns whether they are.
    fn give_back(&self, state: &mut Self::Form, now: Micros, turns: u32, begins: Micros) -> bool {
        let are_last = self.are_last(state, now, turns, begins);
        if are_last {
            self.refund(state, now, turns);
        }
        are_last
    }

    /// Returns how many further requests of cost 1 would be allowed at this instant.
    fn remaining(&self, state: &Self::Form, now: Micros) -> u32;

    /// A measure of how much is used: 0 for a key that is as good as new.
    fn distance(&self, state: &Self::Form, now: Micros) -> u64;

    /// Returns how long until the key is as good as new.
    fn reset_after(&self, state: &Self::Form, now: Micros) -> Micros;

    /// Returns how long a request of this cost has to wait if it is denied now.
    fn retry_after(&self, state: &Self::Form, now: Micros, cost: u32) -> Micros;

    /// Returns the rule that says when a key refuses, whatever limit is in force next: that with the least.
    fn strictest(&self) -> Self {
        self.clone()
    }

    /// Returns how long the remaining units have to last if the client is not to be refused.
    fn effective_window(&self, state: &Self::Form, now: Micros) -> Micros;

    /// Returns how long the present window is, if windows differ in their lengths.
    #[inline]
    fn present_window(&self, _: &Self::Form, _: Micros) -> Option<Micros> {
        None
    }

    /// Returns how long a request of this cost, which is charged already, is held before it goes on.
    #[inline]
    fn delay(&self, _: &Self::Form, _: Micros, _: u32) -> Micros {
        Micros::ZERO
    }

    /// Returns how much room this takes in a store: 1 for a key, or the number of its entries.
    fn size(&self, _: &Self::Form) -> usize {
        1
    }

    /// Takes less room if possible. The rule may then hold requests back for longer, but admits no more.
    fn compact_state(&self, _: &mut Self::Form) {}

    /// Returns until when a charge of now counts in the same window as this moment: a lease of now ends by then.
    /// `now`, if only a request opens a window, and none is open. The default is that of a rule without
    /// windows.
    fn bin_end(&self, _: &Self::Form, _: Micros) -> Micros {
        Micros::new(u64::MAX)
    }

    /// Returns how long until one unit more remains than now, or the window if the whole limit remains.
    fn next_unit(&self, state: &Self::Form, now: Micros) -> Micros {
        match self.remaining(state, now) {
            remaining if remaining < self.limit() => self.retry_after(state, now, remaining + 1),
            _ => self.window(),
        }
    }

    /// Returns whether a request of any cost is allowed. A cost of 0 only asks.
    #[inline]
    fn allows(&self, state: &Self::Form, now: Micros, cost: u32) -> bool {
        match cost {
            0 => self.limit() > 0,
            cost => cost <= self.limit() && self.admits(state, now, cost),
        }
    }

    /// Returns the outcome of a request whose charge is in the state, or was dropped.
    #[inline]
    fn outcome(&self, state: &Self::Form, now: Micros, cost: u32, allowed: bool) -> Outcome {
        let limit = self.limit();
        let outcome = match limit {
            0 => Outcome::allowed(0, 0, Micros::ZERO),
            _ => Outcome::allowed(
                limit,
                self.remaining(state, now),
                self.reset_after(state, now),
            )
            .lasting(self.effective_window(state, now)),
        };
        let outcome = match self.present_window(state, now) {
            Some(window) if limit > 0 => outcome.in_window(window),
            _ => outcome,
        };
        if allowed {
            return match self.delay(state, now, cost) {
                Micros::ZERO => outcome,
                delay => outcome.delayed(delay),
            };
        }
        let can_pass = (1..=limit).contains(&cost);
        outcome.denied(can_pass.then(|| self.retry_after(state, now, cost)))
    }
}

/// A rule that keeps a fixed number of words, under whatever limit.
pub trait Fixed: Step<Form: Copy> {
    /// Packs a state.
    fn words(&self, state: Self::Form) -> [u64; 3];

    /// Unpacks a state.
    fn of_words(&self, words: [u64; 3]) -> Self::Form;
}

/// A rule that keeps one word, as long as it is the only limit that a key meets.
pub trait Pack: Step<Form: Copy + PartialEq> {
    /// Returns the last moment at which one word can hold the state.
    fn packs_until(&self) -> Micros;

    /// Packs the state into one word.
    fn pack(&self, state: Self::Form) -> u64;

    /// Unpacks a word. `latest` is any moment between the charge that left the word and now: a debt has the
    /// same meaning as of each of these moments.
    fn unpack(&self, word: u64, latest: Micros) -> Self::Form;

    /// Returns whether one word can hold this state as of now.
    fn packs(&self, state: Self::Form, now: Micros) -> bool {
        self.unpack(self.pack(state), now) == state
    }

    /// Returns whether one word can hold this state, which another limit may have left.
    fn fits(&self, state: &State, now: Micros) -> bool {
        self.packs(self.read(state.clone()), now)
    }
}

/// An action on a rule, by how the rule keeps its states.
pub trait WithRule {
    /// What it returns.
    type Result;

    /// For a rule that keeps a fixed number of words.
    fn fixed(self, rule: impl Fixed) -> Self::Result;

    /// For a rule that keeps a fixed number of words, or one word.
    #[inline]
    fn packed(self, rule: impl Fixed + Pack) -> Self::Result
    where
        Self: Sized,
    {
        self.fixed(rule)
    }

    /// For a rule that has another form in one word, unless its numbers are too large.
    #[inline]
    fn in_two_forms<P: Pack>(
        self,
        rule: impl Fixed,
        packed: impl FnOnce() -> Option<P>,
    ) -> Self::Result
    where
        Self: Sized,
    {
        let _ = packed;
        self.fixed(rule)
    }

    /// For a rule that keeps any number of words.
    fn long(self, rule: impl Step<Form = State>) -> Self::Result;

    /// For a rule that keeps nothing of its own.
    #[inline]
    fn stateless(self, rule: impl Step<Form = State>) -> Self::Result
    where
        Self: Sized,
    {
        self.long(rule)
    }
}

/// A closure that is generic over the rule: `with_rule!(algorithm, (now: Micros) -> u32, rule => …)`. It
/// lists its captures with their types.
macro_rules! with_rule {
    ($algorithm:expr, ($($name:ident: $type:ty),*) -> $result:ty, $rule:ident => $value:expr) => {{
        struct Captured {
            $($name: $type),*
        }

        impl WithRule for Captured {
            type Result = $result;

            fn fixed(self, $rule: impl Fixed) -> $result {
                let Self { $($name),* } = self;
                $value
            }

            fn long(self, $rule: impl Step<Form = State>) -> $result {
                let Self { $($name),* } = self;
                $value
            }
        }

        $algorithm.with_rule(Captured { $($name),* })
    }};
}
pub(super) use with_rule;

/// The largest count of a window, of all slots or of a log, including charges after the fact.
pub(super) const MOST_COUNTED: u64 = u32::MAX as u64;

/// The largest debt of a bucket in requests, under any limit: twice the largest capacity.
pub(super) const MOST_OWED: u64 = 2 * MOST_COUNTED;

/// Returns how many of these units a window counts that has `counted` some already.
pub(super) fn countable(units: u32, counted: u64) -> u64 {
    u64::from(units).min(MOST_COUNTED.saturating_sub(counted))
}

/// Returns how many bits a count takes in a word. They hold twice the limit, which few charges after the fact
/// exceed.
pub(super) const fn bits_of_count(limit: u32) -> u32 {
    u32::BITS + 1 - limit.leading_zeros()
}

/// Returns the largest number in a word with `taken` bits in use.
pub(super) fn largest_beside(taken: u32) -> u64 {
    u64::MAX.checked_shr(taken).unwrap_or(0)
}

/// Gives units back; see [`Algorithm::refund`](super::Algorithm::refund).
pub(super) fn refund<S: Step>(rule: &S, state: State, now: Micros, units: u32) -> State {
    let mut state = read(rule, state, now);
    rule.refund(&mut state, now, units);
    rule.write(state)
}

/// Returns the outcome of a request; see [`Algorithm::outcome`](super::Algorithm::outcome).
pub(super) fn outcome<S: Step>(
    rule: &S,
    state: State,
    now: Micros,
    (cost, allowed): (u32, bool),
) -> Outcome {
    let state = read(rule, state, now);
    // Several policies may have denied the request, and this policy may allow it by now.
    let allowed = allowed || rule.allows(&state, now, cost);
    rule.outcome(&state, now, cost, allowed)
}

/// Returns how long a request waits that is not charged; see [`Algorithm::wait`](super::Algorithm::wait).
pub(super) fn wait<S: Step>(
    rule: &S,
    state: State,
    now: Micros,
    cost: u32,
) -> (Option<Micros>, State) {
    let state = read(rule, state, now);
    let wait = if rule.allows(&state, now, cost) {
        Some(Micros::ZERO)
    } else {
        rule.outcome(&state, now, cost, false).retry_micros()
    };
    (wait, rule.write(state))
}

/// Charges after the fact; see [`Algorithm::settle`](super::Algorithm::settle).
pub(super) fn settle<S: Step>(rule: &S, state: State, now: Micros, units: u32) -> State {
    if units == 0 || rule.limit_at(now) == 0 {
        return state;
    }
    let mut state = read(rule, state, now);
    rule.settle(&mut state, now, units);
    rule.write(state)
}

/// Reads a state, or the nearest possible state.
pub fn read<S: Step>(rule: &S, state: State, now: Micros) -> S::Form {
    let state = rule.read(state);
    rule.moved_back(&state, now).unwrap_or(state)
}

/// Decides on one request; see [`Algorithm::step`](super::Algorithm::step).
pub(super) fn step<S: Step>(rule: &S, state: State, now: Micros, cost: u32) -> (Outcome, State) {
    let mut state = read(rule, state, now);
    let allowed = rule.allows(&state, now, cost);
    if allowed && cost > 0 {
        rule.charge(&mut state, now, cost);
    }
    let outcome = rule.outcome(&state, now, cost, allowed);
    (outcome, rule.write(state))
}
