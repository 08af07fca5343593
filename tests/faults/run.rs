//! The answers of a scene, and the assertions about them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::scene::{LIMIT, NODES, Phase, SHARE};

/// The good answers of a task in a row that count as full service.
const FULL: usize = 20;

/// An answer to a request, with its time.
#[derive(Clone, Debug)]
pub(crate) struct CallRecord {
    pub(crate) key: u64,
    /// The phase in which the request was sent.
    pub(crate) phase: Phase,
    pub(crate) began: Instant,
    pub(crate) took: Duration,
    pub(crate) said: Said,
    pub(crate) is_degraded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Allowed,
    Denied,
    Failed,
}

/// Returns whether the answers end with full service to requests of this phase.
pub(crate) fn are_well(answers: &[CallRecord], phase: Phase) -> bool {
    let last = answers.iter().rev().take(FULL);
    let well = last.filter(|answer| answer.phase == phase && !answer.is_degraded);
    well.count() == FULL
}

/// The answers to all requests of a scene.
pub(crate) struct Run {
    /// The answers of each task, with its node.
    pub(crate) answers: Vec<(u32, Vec<CallRecord>)>,
    pub(crate) struck: Instant,
    pub(crate) mended: Instant,
    /// The worst excess over a limit, and the allowed excess.
    pub(crate) over: Option<(u32, u32)>,
}

impl Run {
    /// Returns the time from the end of the fault to the first good answers in a row of each task.
    pub(crate) fn time_to_recover(&self) -> Duration {
        let backs = self.answers.iter().map(|(_, answers)| {
            let after: Vec<&CallRecord> = answers
                .iter()
                .filter(|answer| answer.phase == Phase::After)
                .collect();
            let is_well = |row: &[&CallRecord]| row.iter().all(|answer| !answer.is_degraded);
            let first = after.windows(FULL).position(is_well);
            match first.expect("it has come back") {
                0 => Duration::ZERO,
                first => {
                    let back = after[first].began + after[first].took;
                    back.duration_since(self.mended)
                }
            }
        });
        backs.max().unwrap_or_default()
    }

    fn all(&self) -> impl Iterator<Item = &CallRecord> {
        self.answers.iter().flat_map(|(_, answers)| answers)
    }

    /// Returns whether the fault was there when the answer came.
    fn is_since(&self, answer: &CallRecord) -> bool {
        answer.began + answer.took >= self.struck
    }

    /// Asserts that every node has had to do without the store, so that there was a fault.
    pub(crate) fn felt_by_each_node(self) -> Self {
        for node in 0..NODES {
            let mut of_node = self.answers.iter().filter(|(of, _)| *of == node);
            let is_felt = of_node.any(|(_, answers)| {
                let mut since = answers.iter().filter(|answer| self.is_since(answer));
                since.any(|answer| answer.is_degraded)
            });
            assert!(is_felt, "node {node} has not noticed anything");
        }
        self
    }

    /// Asserts that only requests for these keys have had to do without the store.
    pub(crate) fn felt_by_keys(self, keys: &[u64]) -> Self {
        let degraded = self.all().filter(|answer| answer.is_degraded);
        let felt: BTreeSet<u64> = degraded.map(|answer| answer.key).collect();
        assert_eq!(felt, keys.iter().copied().collect());
        self
    }

    /// Asserts the bound on what each key let pass: the limit, once more for each time that the store lost
    /// its count, and the share of each node that was alone.
    pub(crate) fn loses(mut self, times: impl Fn(u64) -> u32) -> Self {
        let keys: BTreeSet<u64> = self.all().map(|answer| answer.key).collect();
        let mut over = (0, 0);
        for key in keys {
            let limit = LIMIT * (1 + times(key));
            let shared = self.allowed(key, |_, answer| !answer.is_degraded);
            assert!(shared <= limit, "key {key}: {shared} of {limit}");
            for node in 0..NODES {
                let alone = self.allowed(key, |of, answer| of == node && answer.is_degraded);
                assert!(alone <= SHARE, "key {key}, node {node}: {alone}");
            }
            let admitted = self.allowed(key, |_, _| true);
            let most = limit + NODES * SHARE;
            assert!(admitted <= most, "key {key}: {admitted} of {most}");
            let asked = self.all().filter(|answer| answer.key == key).count();
            assert!(
                asked > most as usize,
                "key {key} was not asked about often enough: {asked}"
            );
            over = over.max((admitted.saturating_sub(LIMIT), most - LIMIT));
        }
        self.over = Some(over);
        self
    }

    fn allowed(&self, key: u64, which: impl Fn(u32, &CallRecord) -> bool) -> u32 {
        let counts = self.answers.iter().map(|(node, answers)| {
            let answers = answers.iter().filter(|answer| {
                answer.key == key && answer.said == Said::Allowed && which(*node, answer)
            });
            answers.count()
        });
        u32::try_from(counts.sum::<usize>()).unwrap()
    }

    /// Prints the row of the scene in the table.
    pub(crate) fn row(&self, fault: &str) {
        let answered = self.all().count();
        let failed = self.all().filter(|answer| answer.said == Said::Failed);
        let failed = failed.count();
        assert!(failed == 0, "{failed} of {answered} have failed");
        let usual = self.all().filter(|answer| answer.phase == Phase::Before);
        let usual = median(usual.map(|answer| answer.took).collect());
        let back = self.mended + self.time_to_recover();
        let since = self.all().filter(|answer| self.is_since(answer));
        let (meanwhile, later): (Vec<&CallRecord>, Vec<&CallRecord>) =
            since.partition(|answer| answer.began <= back);
        let felt = if meanwhile.is_empty() {
            later
        } else {
            meanwhile
        };
        let times: Vec<Duration> = felt.iter().map(|answer| answer.took).collect();
        let longest = times.iter().max().copied().unwrap_or_default();
        let (over, most) = self.over.expect("the bound was looked at");
        println!(
            "\n| {fault} | {} | {} | {} of {answered} | {over} of {most} | {} |",
            millis(median(times).saturating_sub(usual)),
            millis(longest.saturating_sub(usual)),
            answered - failed,
            millis(self.time_to_recover()),
        );
    }
}

pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

pub(crate) fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}
