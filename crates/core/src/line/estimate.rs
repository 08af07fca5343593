//! Computes when a request gets its turn beside others that wait, from the state of each of its keys.
//!
//! The others go on in their order, each when all of its policies let it pass, and are then charged. A request stands
//! in one line, that of the policy with the longest wait, and holds up those behind it there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::wait_queue::{Number, QueuedCharges};
use crate::algorithm::Limit;
use crate::clock::Micros;
use crate::store::KeyOutlook;

/// The keys of a request, and the requests that wait for them.
pub(crate) struct Estimate {
    keys: SmallVec<[Waited; 4]>,
    /// The requests that are behind no other one, in their order.
    front: VecDeque<Member>,
    /// The requests that wait for keys of their own as well. The last one is the first to have waited for them.
    later: Vec<Member>,
    /// How much time has passed.
    clock: Micros,
    /// The key in whose line the request stands behind another one.
    is_behind_in: Option<usize>,
}

/// A key of the request, as it is after some time.
struct Waited {
    key: KeyOutlook,
    /// Whether requests wait under the policy. Otherwise a request that it denies is refused.
    is_patient: bool,
    /// The requests behind one that stands in the line of this key.
    behind: BTreeMap<Number, Member>,
    /// When it lets the request pass, as far as it was found to deny it.
    passes_after: Micros,
}

/// A request that waits, or the one that asks.
struct Member {
    number: Number,
    asks: SmallVec<[KeyAsk; 2]>,
    /// How long its other keys deny it.
    from: Micros,
    is_own: bool,
}

#[derive(Clone, Copy)]
struct KeyAsk {
    key: usize,
    cost: u32,
    limit: Option<Limit>,
}

/// When a request goes on, if no other request goes before it.
#[derive(Clone, Copy)]
struct Turn {
    after: Micros,
    /// The key in whose line it stands until then.
    stands_in: Option<usize>,
}

/// The keys in whose lines requests stand, at the front.
type Standing = SmallVec<[(usize, Number); 4]>;

/// The number of times that policies may deny a request one after the other, where their limits depend on the hour.
const MOST_DENIALS: usize = 100;

impl Estimate {
    /// Prepares the estimate for a request with this number that asks this now.
    pub(crate) fn new(
        (own, asks): (Number, &QueuedCharges),
        keys: impl IntoIterator<Item = KeyOutlook>,
        is_patient: impl Fn(usize) -> bool,
        others: Vec<(Number, QueuedCharges)>,
        now: Instant,
    ) -> Self {
        let keys: SmallVec<[Waited; 4]> = keys
            .into_iter()
            .map(|key| Waited {
                is_patient: is_patient(key.policy),
                key,
                behind: BTreeMap::new(),
                passes_after: Micros::ZERO,
            })
            .collect();
        let after = |moment: Instant| Micros::from(moment.saturating_duration_since(now));
        let member = |(number, of): (Number, QueuedCharges)| {
            let mut member = Member {
                number,
                asks: SmallVec::new(),
                from: Micros::ZERO,
                is_own: number == own,
            };
            for ask in of {
                let is_shared = asks.iter().any(|own| own.line == ask.line);
                let key = keys.iter().position(|it| it.key.policy == ask.line.0);
                match key.filter(|_| is_shared) {
                    Some(key) => member.asks.push(KeyAsk {
                        key,
                        cost: ask.cost,
                        limit: ask.limit,
                    }),
                    // A key of its own, or one about which the store tells nothing.
                    None => member.from = member.from.max(after(ask.passes_at)),
                }
            }
            member
        };
        let own = (own, asks.clone());
        let mut later: Vec<_> = others.into_iter().chain([own]).map(member).collect();
        later.sort_by_key(|member| Reverse((member.from, member.number)));
        Self {
            keys,
            front: VecDeque::new(),
            later,
            clock: Micros::ZERO,
            is_behind_in: None,
        }
    }

    /// Lets the other requests go on until it is the turn of the request. Returns for each policy that denies it when
    /// that ends, none of them if it never passes.
    pub(crate) fn waits(mut self) -> SmallVec<[(usize, Micros); 4]> {
        while let Some((place, turn)) = self.next() {
            let Some(member) = self.front.remove(place) else {
                break;
            };
            self.clock = turn.after;
            if member.is_own {
                let denying = self.keys.iter().filter(|it| it.passes_after > Micros::ZERO);
                return denying.map(|it| (it.key.policy, it.passes_after)).collect();
            }
            if let Some(key) = self.is_behind_in {
                self.keys[key].deny_until(self.clock);
            }
            self.charge(&member);
        }
        SmallVec::new()
    }

    /// Charges a request whose turn has come, unless a policy refuses it.
    fn charge(&mut self, member: &Member) {
        let clock = self.clock;
        let mut asks = member.asks.iter();
        if asks.all(|ask| self.keys[ask.key].wait(*ask, clock) == Some(Micros::ZERO)) {
            for ask in &member.asks {
                self.keys[ask.key].key.charge(ask.cost, ask.limit, clock);
            }
        }
    }

    /// Returns the place of the request that goes on next, and when.
    fn next(&mut self) -> Option<(usize, Turn)> {
        loop {
            let next = self.first_turn();
            let until = next.as_ref().map(|(_, turn)| turn.after);
            let is_next = |it: &mut Member| until.is_none_or(|until| it.from <= until);
            let Some(member) = self.later.pop_if(is_next) else {
                return next;
            };
            self.clock = self.clock.max(member.from);
            self.come_to_the_front(member);
        }
    }

    fn come_to_the_front(&mut self, member: Member) {
        let place = self.front.partition_point(|it| it.number < member.number);
        self.front.insert(place, member);
    }

    /// Returns the first turn of all requests that are behind no other one.
    fn first_turn(&mut self) -> Option<(usize, Turn)> {
        for key in 0..self.keys.len() {
            self.let_first_look(key);
        }
        loop {
            let mut standing = Standing::new();
            let first = self.first_turn_at_the_front(&mut standing);
            if first.as_ref().is_some_and(|first| self.is_now(first)) {
                return first;
            }
            let is_before = |key: &Waited, place| {
                let (first, _) = key.behind.first_key_value()?;
                let mut before = standing.iter().filter(|(it, _)| *it == place);
                Some(before.all(|(_, number)| number > first))
            };
            let mut keys = self.keys.iter().zip(0..);
            match keys.position(|(key, place)| is_before(key, place) == Some(true)) {
                Some(key) => self.let_first_look(key),
                None => return first,
            }
        }
    }

    /// Lets the first request behind another one in this line find out whether it still is.
    fn let_first_look(&mut self, key: usize) {
        if let Some((_, member)) = self.keys[key].behind.pop_first() {
            if member.is_own {
                self.is_behind_in = None;
            }
            self.come_to_the_front(member);
        }
    }

    /// Lets the requests at the front stand in lines, each behind those before it.
    fn first_turn_at_the_front(&mut self, standing: &mut Standing) -> Option<(usize, Turn)> {
        let mut first: Option<(usize, Turn)> = None;
        let mut place = 0;
        while let Some(member) = self.front.get(place) {
            let is_taken = |ask: &&KeyAsk| standing.iter().any(|(key, _)| *key == ask.key);
            if let Some(KeyAsk { key, .. }) = member.asks.iter().find(is_taken).copied() {
                if let Some(member) = self.front.remove(place) {
                    if member.is_own {
                        self.is_behind_in = Some(key);
                    }
                    self.keys[key].behind.insert(member.number, member);
                }
                continue;
            }
            let (asks, number, is_own) = (member.asks.clone(), member.number, member.is_own);
            if let Some(turn) = self.turn(&asks, number, is_own) {
                standing.extend(turn.stands_in.map(|key| (key, number)));
                let is_first = |(before, other): &(usize, Turn)| {
                    // At that moment a waiting request is faster than one that comes back.
                    let waits = self.front[*before].number.has_joined();
                    turn.after < other.after || !waits && turn.after == other.after
                };
                if first.as_ref().is_none_or(is_first) {
                    first = Some((place, turn));
                }
                if first.as_ref().is_some_and(|first| self.is_now(first)) {
                    break;
                }
            }
            place += 1;
        }
        first
    }

    /// Returns whether this is the turn of a waiting request, and has come: no other turn is before it.
    fn is_now(&self, (place, turn): &(usize, Turn)) -> bool {
        turn.after == self.clock && self.front[*place].number.has_joined()
    }

    /// Returns when a request that asks this goes on, if no other request goes before it; `None` if it never does.
    fn turn(&mut self, asks: &[KeyAsk], number: Number, is_own: bool) -> Option<Turn> {
        let mut turn = Turn {
            after: self.clock,
            stands_in: None,
        };
        self.wait_for(asks, &mut turn, |key| key.is_patient, is_own)?;
        if is_own {
            // A policy that denies it only before its turn does not refuse it.
            for key in self.keys.iter_mut().filter(|key| !key.is_patient) {
                key.passes_after = Micros::ZERO;
            }
            let in_line = turn;
            self.wait_for(asks, &mut turn, |_| true, is_own)?;
            let waits = number.has_joined() && in_line.after == turn.after;
            turn.stands_in = in_line.stands_in.filter(|_| waits);
        }
        Some(turn)
    }

    /// Moves a turn to the moment at which all of these keys let the request pass.
    fn wait_for(
        &mut self,
        asks: &[KeyAsk],
        turn: &mut Turn,
        counts: impl Fn(&Waited) -> bool,
        is_own: bool,
    ) -> Option<()> {
        for _ in 0..MOST_DENIALS {
            let mut longest = (Micros::ZERO, 0);
            for ask in asks {
                let key = &mut self.keys[ask.key];
                if !counts(key) {
                    continue;
                }
                let wait = key.wait(*ask, turn.after)?;
                if wait > longest.0 {
                    longest = (wait, ask.key);
                }
                if is_own && wait > Micros::ZERO {
                    key.deny_until(turn.after.saturating_add(wait));
                }
            }
            let (wait, key) = longest;
            if wait == Micros::ZERO {
                return Some(());
            }
            turn.stands_in.get_or_insert(key);
            turn.after = turn.after.saturating_add(wait);
        }
        None
    }
}

impl Waited {
    fn wait(&mut self, ask: KeyAsk, after: Micros) -> Option<Micros> {
        self.key.wait(ask.cost, ask.limit, after)
    }

    fn deny_until(&mut self, after: Micros) {
        self.passes_after = self.passes_after.max(after);
    }
}
