//! What the answer to a question changes at the node.

use tokio::sync::oneshot;

use super::Leases;
use crate::lease::LeaseReply;
use crate::opened::OpenedPolicy;
use crate::pairs::{
    Heard, LastAnswer, LeaseRequest, LeaseRequests, PairId, Shard, all_of, wake_each,
};
use crate::reply::ScriptReply;
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::decision::Outcomes;
use tower_ratelimit_core::error::StoreError;

impl Leases {
    /// Processes the answer of the server. A denial that this node remembers is part of the wait that is
    /// told.
    pub(crate) fn answered(
        &self,
        questions: LeaseRequests,
        answer: &ScriptReply,
        policies: &[OpenedPolicy],
        outcomes: &mut Outcomes,
    ) {
        for question in questions {
            let waiting = self.hear(&question, answer, policies, outcomes);
            wake_each(waiting, Ok(()));
        }
    }

    /// Processes the answer to a question. Returns the requests that have waited for it.
    fn hear(
        &self,
        question: &LeaseRequest,
        answer: &ScriptReply,
        policies: &[OpenedPolicy],
        outcomes: &mut Outcomes,
    ) -> Vec<oneshot::Sender<Heard>> {
        let (charge, now) = (question.charge, self.clock.now());
        let found = answer.of(charge.policy).zip(policies.get(charge.policy));
        let Some(((reply, counted), terms)) = found.zip(self.terms(charge.policy)) else {
            return self.ended(question);
        };
        let (mut shard, hash) = self.shard_of(&charge);
        let counts = &mut shard.counts;
        let grant = reply.grant();
        counts.granted += grant.map_or(0, |grant| grant.units.into());
        // The key was changed meanwhile: the answer is about what was before.
        if !self.changes.is_still(question.epoch) {
            if let Some(grant) = grant.filter(|grant| grant.units > 0) {
                let of = PairId::without_cost(&charge);
                let returned = of.question(all_of(grant), question.epoch, now);
                counts.gives_back(&returned.ask);
                self.returns().push(returned);
            }
            drop(shard);
            return self.ended(question);
        }
        let outcome = reply.told(counted, answer.is_allowed());
        if question.ask.units > 0 {
            self.small_limits.finds(charge.policy, outcome.limit());
        }
        let Some((entry, _)) = self.live(&mut shard, hash, &charge, now) else {
            return Vec::new();
        };
        if !answer.is_allowed() && !reply.denies() {
            return entry.failed(&question.ask);
        }
        let denied = reply
            .denies()
            .then(|| outcome.retry_micros().unwrap_or(Micros::LONGEST));
        let room = if reply.is_of_a_part() {
            outcome.remaining()
        } else {
            0
        };
        let heard = LeaseReply {
            grant,
            denied,
            room,
        };
        entry
            .pair
            .answered(question.put, now, (&question.ask, heard), terms);
        if denied.is_some()
            && let Some(pace) = entry.pair.refuses(now, charge.cost)
        {
            outcomes.wait_at_least(charge.policy, pace);
        }
        entry.last = Some(Box::new(LastAnswer {
            reply: reply.clone(),
            outcome,
            received: now,
        }));
        entry.woken(&question.ask)
    }

    /// Handles a missing answer. The requests that have waited for it get the error, or nothing if there is
    /// none.
    pub(crate) fn failed(&self, question: &LeaseRequest, error: Option<&StoreError>) {
        let waiting = self.ended(question);
        if let Some(error) = error {
            wake_each(waiting, Err(error));
        }
    }

    fn ended(&self, question: &LeaseRequest) -> Vec<oneshot::Sender<Heard>> {
        let (mut shard, hash) = self.shard_of(&question.charge);
        let Shard { young, old, .. } = &mut *shard;
        match young.get_mut(&hash).or_else(|| old.get_mut(&hash)) {
            // If the key was changed meanwhile, the pair may be another, with a question of its own.
            Some(entry) if entry.of.is(&question.charge) && entry.epoch == question.epoch => {
                entry.failed(&question.ask)
            }
            _ => Vec::new(),
        }
    }
}
