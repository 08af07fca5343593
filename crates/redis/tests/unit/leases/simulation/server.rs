//! The server: one queue of calls, and the rule of `leased.rs`.

use std::collections::VecDeque;

use super::faults::Fault;
use super::scene::{Map, Scene};
use crate::lease::{LeaseReply, Leased, Terms, UnitsRequest};
use tower_ratelimit_core::__internal::Step;
use tower_ratelimit_core::algorithm::Algorithm;
use tower_ratelimit_core::clock::Micros;

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a property of the algorithm"
)]
pub(super) struct Server<S: Step> {
    rule: S,
    terms: Terms,
    pub(super) by_interval: bool,
    /// Whether the state has an entry for each moment or slot, and forgets expired entries when it is
    /// charged.
    pub(super) forgets_late: bool,
    /// Whether a count weighs more at an earlier moment.
    weighs: bool,
    /// Whether a window or an interval begins with a request. A step back moves it to the moment at which the server is
    /// next asked, and all that come after it begin otherwise than those of a server that is asked at the step: neither
    /// admits more, and no spend of one can be judged by the other. So here the server is asked at the step.
    is_anchored: bool,
    keys: Map<u64, KeyState<S>>,
    /// The states at some earlier moments, if it can fail over.
    before: Option<VecDeque<Known<S>>>,
    /// How far its clock is ahead.
    ahead: i64,
    away: u64,
    free_at: u64,
    pub(super) busy: f64,
}

/// All keys at one moment.
type Known<S> = (u64, Map<u64, KeyState<S>>);

struct KeyState<S: Step> {
    state: S::Form,
    leased: Leased,
    /// How much was charged and granted, ever.
    given: u64,
}

impl<S: Step> Clone for KeyState<S> {
    fn clone(&self) -> Self {
        Self {
            state: self.state.clone(),
            leased: self.leased.clone(),
            given: self.given,
        }
    }
}

/// The time of a call with one charge.
const CALL: f64 = 10.2;

/// How often the replica gets the state of the primary.
const REPLICATED_EVERY: u64 = 10_000;

impl<S: Step> Server<S> {
    pub(super) fn new(rule: S, terms: Terms, scene: &Scene) -> Self {
        let faults = scene.faults;
        let fails_over = |fault: &Fault| matches!(fault, Fault::Failover(_));
        let fails_over = faults.every > 0 && faults.kinds.iter().any(fails_over);
        let by_interval = scene.algorithm.to_string().contains("interval");
        Self {
            rule,
            terms,
            by_interval,
            forgets_late: matches!(
                scene.algorithm,
                Algorithm::SlidingLog(_) | Algorithm::SlidingSlots(_)
            ),
            weighs: matches!(scene.algorithm, Algorithm::SlidingWindow(_)),
            is_anchored: by_interval || matches!(scene.algorithm, Algorithm::AnchoredWindow(_)),
            keys: Map::default(),
            before: fails_over.then(VecDeque::new),
            ahead: 0,
            away: 0,
            free_at: 0,
            busy: 0.0,
        }
    }

    pub(super) fn time(&self, now: u64) -> Micros {
        Micros::new(now.saturating_add_signed(self.ahead))
    }

    pub(super) fn is_away(&self, now: u64) -> bool {
        now < self.away
    }

    /// Returns how long a question waits for those before it.
    pub(super) fn behind(&self, now: u64) -> u64 {
        self.free_at.saturating_sub(now)
    }

    /// Accepts a call. Returns when it is decided.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time in microseconds"
    )]
    pub(super) fn begin(&mut self, now: u64) -> u64 {
        let begins = now.max(self.free_at);
        self.busy += CALL;
        self.free_at = begins + CALL as u64;
        if let Some(before) = &mut self.before
            && before
                .back()
                .is_none_or(|(at, _)| at + REPLICATED_EVERY <= begins)
        {
            before.push_back((begins, self.keys.clone()));
            if before.len() > 60 {
                before.pop_front();
            }
        }
        begins
    }

    pub(super) fn answer(&mut self, key: u64, now: Micros, ask: &UnitsRequest) -> LeaseReply {
        let rule = &self.rule;
        let KeyState {
            state,
            leased,
            given,
        } = self.keys.entry(key).or_insert_with(|| KeyState {
            state: S::Form::default(),
            leased: Leased::default(),
            given: 0,
        });
        if let Some(moved) = rule.moved_back(state, now) {
            *state = moved;
        }
        leased.end(rule, state, now);
        leased.hear(rule, state, now, &ask.tells);
        if !leased.allows(rule, state, now, ask.cost) {
            let wait = leased.retry_after(rule, state, now, ask.cost);
            return LeaseReply {
                grant: None,
                denied: Some(wait.unwrap_or(Micros::LONGEST)),
                room: 0,
            };
        }
        if ask.cost > 0 {
            rule.charge(state, now, ask.cost);
        }
        let grant = leased.grant(rule, state, now, ask, self.terms);
        *given += u64::from(ask.cost) + grant.map_or(0, |grant| grant.units.into());
        LeaseReply {
            grant,
            denied: None,
            room: 0,
        }
    }

    /// Returns when a bucket by interval was refilled last, and its period and its tokens.
    pub(super) fn refilled(&self, key: u64) -> Option<(u64, (u64, u64))> {
        if !self.by_interval {
            return None;
        }
        let state = self.rule.write(self.keys.get(&key)?.state.clone());
        let anchor = *state.words().first()?;
        Some((anchor, self.interval()))
    }

    /// The tests have intervals of 100 ms, in which a tenth of the bucket arrives.
    fn interval(&self) -> (u64, u64) {
        let tokens = u64::from(self.rule.limit()) / 10;
        (self.rule.window().get() / 10, tokens.max(1))
    }

    /// Applies a fault. Returns how much of each key may be spent in excess because of it.
    pub(super) fn suffers(&mut self, fault: Fault, now: u64) -> Vec<(u64, u64)> {
        let given =
            |keys: &Map<u64, KeyState<S>>, key: &u64| keys.get(key).map_or(0, |kept| kept.given);
        match fault {
            Fault::Away(length) => self.away = now + length,
            Fault::Failover(ago) => {
                let Some(before) = &mut self.before else {
                    return Vec::new();
                };
                let since = before
                    .iter()
                    .rposition(|(at, _)| at + ago <= now)
                    .unwrap_or(0);
                let Some((_, known)) = before.get(since).cloned() else {
                    return Vec::new();
                };
                before.truncate(since + 1);
                let lost = self.keys.iter();
                let lost = lost.map(|(key, kept)| (*key, kept.given - given(&known, key)));
                let mut lost: Vec<_> = lost.collect();
                lost.sort_unstable();
                self.keys = known;
                return lost;
            }
            Fault::Empty => {
                let limit = u64::from(self.rule.limit());
                let mut lost: Vec<_> = self.keys.keys().map(|key| (*key, limit)).collect();
                lost.sort_unstable();
                self.keys.clear();
                if let Some(before) = &mut self.before {
                    before.clear();
                }
                return lost;
            }
            Fault::Back(length) if !self.weighs => {
                self.ahead -= i64::try_from(length).unwrap_or(0);
                let at = self.time(now);
                if self.is_anchored {
                    for kept in self.keys.values_mut() {
                        if let Some(moved) = self.rule.moved_back(&kept.state, at) {
                            kept.state = moved;
                        }
                    }
                }
            }
            Fault::Back(length) | Fault::Forward(length) => {
                let length = i64::try_from(length).unwrap_or(0);
                self.ahead += match fault {
                    Fault::Back(_) => -length,
                    _ => length,
                };
                let classes = self
                    .keys
                    .iter()
                    .map(|(key, kept)| (*key, kept.leased.units()));
                let mut classes: Vec<_> = classes.collect();
                classes.sort_unstable();
                return classes;
            }
            Fault::Crash | Fault::Suspension(_) | Fault::Partition(_) => {}
        }
        Vec::new()
    }
}
