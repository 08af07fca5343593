//! The results, compared with the promises.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tower_ratelimit::RedisStore;

use crate::load::{CallRecord, Said, key_name};
use crate::node::{DEADLINE, LIMIT, SHARE, policy};
use crate::nodes::{NODES, Nodes};
use crate::shards::slot_of;
use crate::trouble::Trouble;

/// The delay of an answer after its deadline that a busy machine may cause. A client gives up after that.
const SCHEDULING: Duration = Duration::from_secs(10);

pub(crate) struct Account<'a> {
    pub(crate) answers: &'a [CallRecord],
    pub(crate) nodes: &'a Nodes,
    pub(crate) trouble: &'a Trouble,
    pub(crate) began: Instant,
}

/// The requests and answers of a key.
struct Life {
    from: Instant,
    to: Instant,
    shared: u32,
    alone: [u32; NODES],
}

/// The number of admitted requests of a key, and the most that it may admit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worst {
    pub(crate) admitted: u32,
    pub(crate) most: u32,
}

impl Worst {
    /// Returns the key that has used a larger share of its bound.
    fn max(self, other: Self) -> Self {
        let used = |of: &Self| u64::from(of.admitted) * 1_000 / u64::from(of.most.max(1));
        // The one with more counts if both are equal.
        let of = |worst: &Self| (used(worst), worst.most);
        if of(&self) < of(&other) { other } else { self }
    }
}

impl Account<'_> {
    /// Returns whether the node of a request was killed or stopped while the request waited.
    fn is_excused(&self, answer: &CallRecord) -> bool {
        self.nodes.was_away(answer.node, answer.began, answer.ended)
    }

    /// Returns the requests that were not answered in time, without those of a node that was away.
    pub(crate) fn not_answered(&self) -> Vec<String> {
        let wrong = self.answers.iter().filter(|answer| match &answer.said {
            // Not even a node that has just been started says so.
            Said::Wrong(_) => true,
            Said::Lost(_) => !self.is_excused(answer),
            _ => took(answer) > DEADLINE + SCHEDULING && !self.is_excused(answer),
        });
        let told = wrong.map(|answer| {
            let since = answer.began.duration_since(self.began);
            let (node, took) = (answer.node, took(answer));
            let key = key_name(answer.key);
            format!(
                "{since:?} after the start, node {node}, {key}: after {took:?} {:?}",
                answer.said
            )
        });
        told.collect()
    }

    /// Returns the keys that passed more requests than promised, and the key that came closest. The store
    /// lets the limit pass, once more for each time that it lost the count, and each node lets its share
    /// pass, once more for each time that it was killed.
    pub(crate) fn over_admitted(&self) -> (Vec<String>, Worst) {
        let anywhere = RedisStore::new("redis://127.0.0.1:1/").expect("this is an address");
        let (mut wrong, mut worst) = (Vec::new(), Worst::default());
        for (key, life) in self.lives() {
            let name = key_name(key);
            let in_redis = anywhere.store_key(&policy(), name.as_str());
            let slot = slot_of(&self.trouble.cluster, &in_redis);
            let losses = self.trouble.shards.losses(slot, life.from, life.to);
            let (mut admitted, mut most) = (life.shared, LIMIT * (1 + losses));
            if admitted > most {
                wrong.push(format!(
                    "{name}: the store let {admitted} pass, of {most} after {losses} losses"
                ));
            }
            for (node, alone) in life.alone.into_iter().enumerate() {
                let kills = self.nodes.kills(node, life.from, life.to);
                let share = SHARE * (1 + kills);
                if alone > share {
                    wrong.push(format!(
                        "{name}: node {node} let {alone} pass by itself, of {share} after {kills} kills"
                    ));
                }
                admitted += alone;
                most += share;
            }
            worst = worst.max(Worst { admitted, most });
        }
        (wrong, worst)
    }

    fn lives(&self) -> BTreeMap<u32, Life> {
        let mut lives = BTreeMap::new();
        for answer in self.answers {
            let life = lives.entry(answer.key).or_insert(Life {
                from: answer.began,
                to: answer.ended,
                shared: 0,
                alone: [0; NODES],
            });
            life.from = life.from.min(answer.began);
            life.to = life.to.max(answer.ended);
            match answer.said {
                Said::Admitted { is_degraded: false } => life.shared += 1,
                Said::Admitted { is_degraded: true } => life.alone[answer.node] += 1,
                _ => {}
            }
        }
        lives
    }

    /// Returns the median, and the longest time that is not excused.
    pub(crate) fn times(&self) -> [Duration; 2] {
        let answers = self.answers.iter();
        let answers = answers.filter(|answer| !self.is_excused(answer));
        let mut times: Vec<_> = answers.map(took).collect();
        times.sort_unstable();
        let longest = times.last().copied();
        let median = times.get(times.len() / 2).copied();
        [median, longest].map(Option::unwrap_or_default)
    }

    pub(crate) fn count(&self, which: impl Fn(&Said) -> bool) -> usize {
        let answers = self.answers.iter();
        answers.filter(|answer| which(&answer.said)).count()
    }
}

fn took(answer: &CallRecord) -> Duration {
    answer.ended.duration_since(answer.began)
}
