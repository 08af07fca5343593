//! The figures of a run, and their table.

use std::fmt;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    pub(super) decisions: u64,
    pub(super) spends: u64,
    pub(super) local: u64,
    admitted: u64,
    by_plain: u64,
    refused: u64,
    refused_wrongly: u64,
    pub(super) calls: u64,
    pub(super) failed: u64,
    /// How many requests got no answer in their time.
    pub(super) degraded: u64,
    pub(super) faults: u64,
    /// How many units were spent that the plain algorithm would not have admitted, because of faults of the
    /// server.
    pub(super) in_excess: u64,
    pub(super) server_busy: f64,
    pub(super) lasted: u64,
    nodes: Vec<Share>,
    /// How many requests waited for a call for less than each power of two of microseconds.
    waits: [u64; 32],
    wrong_key: Option<u64>,
    pub(super) trace: Vec<String>,
}

/// How many units requests demanded of a node, how many it admitted, and how many the plain algorithm admits of the
/// same requests.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    demanded: u64,
    admitted: u64,
    by_plain: u64,
}

impl Report {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            nodes: vec![Share::default(); nodes],
            ..Self::default()
        }
    }

    pub(super) fn demanded(&mut self, node: usize, cost: u32) {
        self.decisions += 1;
        self.nodes[node].demanded += u64::from(cost);
    }

    pub(super) fn twin_admits(&mut self, node: usize, cost: u32) {
        self.by_plain += u64::from(cost);
        self.nodes[node].by_plain += u64::from(cost);
    }

    pub(super) fn is_local(&mut self, node: usize, cost: u32) {
        self.local += 1;
        self.admitted(node, cost);
    }

    pub(super) fn admitted(&mut self, node: usize, cost: u32) {
        self.spends += 1;
        self.admitted += u64::from(cost);
        self.nodes[node].admitted += u64::from(cost);
    }

    pub(super) fn refused(&mut self, is_false: bool) {
        self.refused += 1;
        self.refused_wrongly += u64::from(is_false);
    }

    pub(super) fn waited(&mut self, micros: u64) {
        let place = (64 - micros.leading_zeros()) as usize;
        self.waits[place.min(31)] += 1;
    }

    pub(super) fn wrong(&mut self, key: u64) {
        self.wrong_key = Some(key);
    }

    pub(super) fn is_wrong(&self) -> bool {
        self.wrong_key.is_some()
    }

    pub(super) fn wrong_key(&self) -> Option<u64> {
        self.wrong_key
    }

    /// Returns what was admitted, as a share of what the plain algorithm admits of the same requests.
    pub(super) fn utilisation(&self) -> f64 {
        part(self.admitted, self.by_plain)
    }

    /// Returns the share of requests that were refused.
    pub(super) fn refusals(&self) -> f64 {
        part(self.refused, self.decisions)
    }

    /// Returns the share of requests that got no answer in their time.
    pub(super) fn degraded(&self) -> f64 {
        part(self.degraded, self.decisions)
    }

    /// Returns the share of requests that were refused while the plain algorithm had room.
    pub(super) fn false_refusals(&self) -> f64 {
        part(self.refused_wrongly, self.decisions)
    }

    pub(super) fn calls_per_decision(&self) -> f64 {
        part(self.calls, self.decisions)
    }

    /// Returns Jain's index over the nodes, of the share of the demand that each admitted.
    pub(super) fn jain(&self) -> f64 {
        self.jain_of(|share| share.admitted)
    }

    /// Returns the same under the plain algorithm, which admits in the order in which requests come.
    pub(super) fn plain_jain(&self) -> f64 {
        self.jain_of(|share| share.by_plain)
    }

    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    fn jain_of(&self, admitted: impl Fn(&Share) -> u64) -> f64 {
        let shares = self.nodes.iter().filter(|share| share.demanded > 0);
        let shares: Vec<f64> = shares
            .map(|share| part(admitted(share), share.demanded))
            .collect();
        let sum: f64 = shares.iter().sum();
        let squares: f64 = shares.iter().map(|share| share * share).sum();
        sum * sum / (squares * shares.len() as f64)
    }

    /// Returns the time, in microseconds and a power of two, within which this many of a thousand decisions
    /// were made.
    fn quantile(&self, of_thousand: u64) -> u64 {
        let waited: u64 = self.waits.iter().sum();
        let mut below = self.decisions - waited.min(self.decisions);
        let share = self.decisions * of_thousand / 1_000;
        for (power, waits) in self.waits.iter().enumerate() {
            if below >= share {
                return 1 << power;
            }
            below += waits;
        }
        u64::MAX
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn part(of: u64, all: u64) -> f64 {
    of as f64 / all.max(1) as f64
}

/// The names of the columns.
pub(super) const HEAD: &str =
    " decisions    spends   saved     busy    util    false    Jain   plain   p99.9 over";

impl fmt::Display for Report {
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>10} {:>9} {:>5.1} % {:>6.1} % {:>7.4} {:>6.2} % {:>7.4} {:>7.4} {:>7} {:>4}",
            self.decisions,
            self.spends,
            100.0 * (1.0 - self.calls_per_decision()),
            100.0 * self.server_busy / self.lasted.max(1) as f64,
            self.utilisation(),
            100.0 * self.false_refusals(),
            self.jain(),
            self.plain_jain(),
            self.quantile(999),
            self.in_excess,
        )
    }
}
