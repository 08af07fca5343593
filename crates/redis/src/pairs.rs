//! The pairs of a shard: what this node holds of a key under a policy and a limit, and the last answer about
//! it.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::mem;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::lease::{Grant, Pair, Terms, UnitsReport, UnitsRequest, Way};
use super::opened::OpenedPolicy;
use super::reply::KeyReply;
use tower_ratelimit_core::__internal::Hashed;
use tower_ratelimit_core::__internal::{KeyEpoch, SHARDS};
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::decision::{Outcome, Outcomes};
use tower_ratelimit_core::error::StoreError;
use tower_ratelimit_core::observe::LeaseStats;
use tower_ratelimit_core::store::Charge;

#[derive(Default)]
pub(super) struct Shard {
    pub(super) young: Pairs,
    pub(super) old: Pairs,
    pub(super) counts: Counts,
}

/// The counts of units since the start.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) granted: u64,
    pub(super) spent: u64,
    pub(super) given_back: u64,
    /// How many requests were decided here.
    pub(super) saved: u64,
}

pub(super) type Pairs = HashMap<u64, Entry, BuildHasherDefault<Hashed<SHARDS>>>;

pub(super) struct Entry {
    pub(super) of: PairId,
    pub(super) pair: Pair,
    /// The epoch of the key when the entry was made.
    pub(super) epoch: KeyEpoch,
    pub(super) last: Option<Box<LastAnswer>>,
    /// The requests that wait for the answer to a question on its way.
    pub(super) waiting: Vec<oneshot::Sender<Heard>>,
}

/// Tells a waiting request whether there is an answer. It is dropped if the request that has asked has gone
/// away.
pub(super) type Heard = Result<(), StoreError>;

/// How a request goes on that was not decided at once.
pub(super) enum Again {
    Decided(Local),
    /// A question is on its way.
    Wait(oneshot::Receiver<Heard>),
    Ask,
}

/// The result of a decision here.
pub(super) struct Local {
    pub(super) is_allowed: bool,
    /// The indices of the charges whose pairs have few units left, as bits: the first is the lowest bit.
    pub(super) low: u32,
}

/// The identity of a pair: a charge without its cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct PairId(pub(super) Charge);

/// The last answer of the server.
pub(super) struct LastAnswer {
    pub(super) reply: KeyReply,
    /// The outcome of a request, in which all units that nodes hold count as spent.
    pub(super) outcome: Outcome,
    pub(super) received: Micros,
}

/// A question about a pair.
#[derive(Debug)]
pub(super) struct LeaseRequest {
    /// The cost is that of the request that waits for the answer, or 0 if none waits.
    pub(super) charge: Charge,
    pub(super) ask: UnitsRequest,
    pub(super) epoch: KeyEpoch,
    pub(super) put: Micros,
}

pub(super) type LeaseRequests = SmallVec<[LeaseRequest; 1]>;

impl Shard {
    pub(super) fn unspent(&self, now: Micros) -> u64 {
        let pairs = self.young.values().chain(self.old.values());
        pairs.map(|entry| u64::from(entry.pair.left(now))).sum()
    }
}

impl Counts {
    pub(super) fn gives_back(&mut self, ask: &UnitsRequest) {
        let unspent = ask.tells.iter().map(|tell| u64::from(tell.unspent));
        self.given_back += unspent.sum::<u64>();
    }

    pub(super) fn add(&mut self, other: Self) {
        self.granted += other.granted;
        self.spent += other.spent;
        self.given_back += other.given_back;
        self.saved += other.saved;
    }

    /// Returns what happened to units, while this many are held.
    pub(super) fn stats(self, unspent: u64) -> LeaseStats {
        let ended = self.spent + self.given_back + unspent;
        let mut stats = LeaseStats::default();
        stats.held = unspent;
        stats.granted = self.granted;
        stats.spent = self.spent;
        stats.given_back = self.given_back;
        stats.lapsed = self.granted.saturating_sub(ended);
        stats.calls_saved = self.saved;
        stats
    }
}

impl Entry {
    /// Returns the result of this way, or `None` if the server has to be asked.
    #[inline]
    pub(super) fn follow(
        &mut self,
        way: Way,
        (charge, policies, now): (&Charge, &[OpenedPolicy], Micros),
        terms: Terms,
        counts: &mut Counts,
        outcomes: &mut Outcomes,
    ) -> Option<Local> {
        match way {
            Way::Spent { is_low } => {
                let is_spent = self.spend(charge, now, counts, outcomes);
                is_spent.then_some(Local {
                    is_allowed: true,
                    low: is_low.into(),
                })
            }
            Way::Refused(wait) => {
                let (last, counted) = (self.last.as_ref()?, policies.get(charge.policy)?);
                let later = now.saturating_sub(last.received);
                let outcome = last.denial((charge.cost, counted, later), wait, terms)?;
                outcomes.decided_at(last.reply.at().saturating_add(later));
                outcomes.push(charge.policy, outcome);
                counts.saved += 1;
                Some(Local {
                    is_allowed: false,
                    low: 0,
                })
            }
            Way::Wait | Way::Ask => None,
        }
    }

    /// Handles the loss of a question or its answer. Returns the requests that have waited for it.
    pub(super) fn failed(&mut self, ask: &UnitsRequest) -> Vec<oneshot::Sender<Heard>> {
        self.pair.failed(ask);
        self.woken(ask)
    }

    /// Returns the requests that have waited for this answer: only a question that leads has any.
    pub(super) fn woken(&mut self, ask: &UnitsRequest) -> Vec<oneshot::Sender<Heard>> {
        if !ask.leads {
            return Vec::new();
        }
        mem::take(&mut self.waiting)
    }

    /// Returns the outcome of spending this many units. If no outcome is known, returns `false` and spends
    /// nothing.
    #[inline]
    pub(super) fn spend(
        &mut self,
        charge: &Charge,
        now: Micros,
        counts: &mut Counts,
        outcomes: &mut Outcomes,
    ) -> bool {
        let Some(last) = &self.last else {
            self.pair.put_back(now, charge.cost);
            return false;
        };
        let later = now.saturating_sub(last.received);
        outcomes.decided_at(last.reply.at().saturating_add(later));
        let outcome = last.outcome.aged_by(later);
        let remaining = outcome.remaining().saturating_add(self.pair.left(now));
        outcomes.push(charge.policy, outcome.with_remaining(remaining));
        counts.spent += u64::from(charge.cost);
        counts.saved += 1;
        true
    }
}

impl LastAnswer {
    /// Returns a denial at a later moment, with a wait of at least this that is not shorter than the server's, or `None` if the server has
    /// to be asked: because its wait is not known, or can be longer by far. The wait of a tenant is enough if nobody else asks.
    fn denial(
        &self,
        (cost, counted, later): (u32, &OpenedPolicy, Micros),
        wait: Micros,
        terms: Terms,
    ) -> Option<Outcome> {
        if let Some(denial) = self.reply.denial_of_part(cost, counted, later) {
            return Some(waiting_for(denial, wait));
        }
        let outcome = self.reply.outcome_of(cost, counted, later);
        let denial = waiting_for(outcome, wait);
        let Some(announced) = denial.retry_micros() else {
            return Some(denial);
        };
        let longest = self
            .reply
            .longest_wait_of(cost, counted, later, terms.life)?;
        (longest <= announced.max(terms.covers)).then(|| waiting_for(denial, longest))
    }
}

impl PairId {
    pub(super) fn without_cost(charge: &Charge) -> Self {
        let free = Charge::new(charge.policy, charge.key, 0);
        Self(Charge {
            limit: charge.limit,
            weight: charge.weight,
            ..free
        })
    }

    pub(super) fn is(&self, charge: &Charge) -> bool {
        (self.0.policy, self.0.limit) == (charge.policy, charge.limit) && self.0.key == charge.key
    }

    pub(super) fn question(&self, ask: UnitsRequest, epoch: KeyEpoch, put: Micros) -> LeaseRequest {
        LeaseRequest {
            charge: self.0,
            ask,
            epoch,
            put,
        }
    }
}

pub(super) fn wake_each(waiting: Vec<oneshot::Sender<Heard>>, heard: Result<(), &StoreError>) {
    for request in waiting {
        // Sending fails if the request has gone away.
        let _ = request.send(heard.map_err(StoreError::copied));
    }
}

/// Returns a grant as a whole, to be given back.
pub(super) fn all_of(grant: Grant) -> UnitsRequest {
    let mut ask = UnitsRequest::default();
    ask.tells.push(UnitsReport {
        end: grant.end,
        spent: 0,
        unspent: grant.units,
    });
    ask
}

/// Returns a denial with a wait of at least this.
fn waiting_for(outcome: Outcome, wait: Micros) -> Outcome {
    if outcome.is_allowed() {
        return outcome.denied(Some(wait));
    }
    match outcome.retry_micros() {
        Some(announced) => outcome.denied(Some(announced.max(wait))),
        None => outcome,
    }
}
