use std::fmt;

/// What has come of a run.
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
    pub(super) faults: u64,
    /// How many units were spent that the plain algorithm would not have admitted, because of faults of the server.
    pub(super) in_excess: u64,
    pub(super) server_busy: f64,
    pub(super) lasted: u64,
    /// Of each node, the units that it admitted, and those that the plain algorithm admits.
    nodes: Vec<(u64, u64)>,
    /// How many requests waited less than so many powers of two of microseconds for a call.
    waits: [u64; 32],
    wrong_key: Option<u64>,
    pub(super) trace: Vec<String>,
}

impl Report {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            nodes: vec![(0, 0); nodes],
            ..Self::default()
        }
    }

    pub(super) fn asked(&mut self) {
        self.decisions += 1;
    }

    pub(super) fn twin_admits(&mut self, node: usize, cost: u32) {
        self.by_plain += u64::from(cost);
        self.nodes[node].1 += u64::from(cost);
    }

    pub(super) fn is_local(&mut self, node: usize, cost: u32) {
        self.local += 1;
        self.admitted(node, cost);
    }

    pub(super) fn admitted(&mut self, node: usize, cost: u32) {
        self.spends += 1;
        self.admitted += u64::from(cost);
        self.nodes[node].0 += u64::from(cost);
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

    /// What was admitted, of what the plain algorithm admits of the same requests.
    pub(super) fn utilisation(&self) -> f64 {
        part(self.admitted, self.by_plain)
    }

    /// The share of requests that were refused while the plain algorithm had room.
    pub(super) fn false_refusals(&self) -> f64 {
        part(self.refused_wrongly, self.decisions)
    }

    pub(super) fn calls_per_decision(&self) -> f64 {
        part(self.calls, self.decisions)
    }

    /// Jain's index over the nodes, of what was admitted of what the plain algorithm admits.
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    pub(super) fn jain(&self) -> f64 {
        let shares = self.nodes.iter().filter(|(_, plain)| *plain > 0);
        let shares: Vec<f64> = shares
            .map(|(got, plain)| *got as f64 / *plain as f64)
            .collect();
        let sum: f64 = shares.iter().sum();
        let squares: f64 = shares.iter().map(|share| share * share).sum();
        sum * sum / (squares * shares.len() as f64)
    }

    /// Under which time so many of a thousand decisions were made, in microseconds: a power of two.
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

impl fmt::Display for Report {
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>10} {:>9} {:>6.2} % {:>7.4} {:>6.1} % {:>7.4} {:>6.2} % {:>7.4} {:>7}",
            self.decisions,
            self.spends,
            100.0 * part(self.local, self.decisions),
            self.calls_per_decision(),
            100.0 * self.server_busy / self.lasted.max(1) as f64,
            self.utilisation(),
            100.0 * self.false_refusals(),
            self.jain(),
            self.quantile(999),
        )
    }
}
