use super::random::Random;

/// Which faults happen, and how often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    pub(super) name: &'static str,
    /// The probability that a message is lost.
    pub(super) lost: f64,
    /// The probability that a message takes up to two deadlines longer.
    pub(super) late: f64,
    /// The mean time between two faults of `kinds`, in microseconds; 0 for never.
    pub(super) every: u64,
    /// The kinds of faults.
    pub(super) kinds: &'static [Fault],
}

/// One fault. Lengths are in microseconds; each fault has a random length up to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A node forgets everything, and restarts at once.
    Crash,
    /// A node is suspended.
    Suspension(u64),
    /// Half of the nodes do not reach the server.
    Partition(u64),
    /// The server answers nothing.
    Away(u64),
    /// The server continues with an older state of this age.
    Failover(u64),
    /// The server has lost everything.
    Empty,
    /// The server's clock steps back.
    Back(u64),
    /// The server's clock steps forward.
    Forward(u64),
}

pub(super) const NONE: Faults = Faults {
    name: "none",
    lost: 0.0,
    late: 0.0,
    every: 0,
    kinds: &[Fault::Crash],
};

pub(super) const NETWORK: Faults = Faults {
    name: "nodes and network",
    lost: 0.02,
    late: 0.05,
    every: 300_000,
    kinds: &[
        Fault::Crash,
        Fault::Suspension(1_500_000),
        Fault::Partition(700_000),
        Fault::Away(300_000),
    ],
};

pub(super) const SERVER: Faults = Faults {
    name: "server forgets",
    lost: 0.002,
    late: 0.002,
    every: 700_000,
    kinds: &[Fault::Failover(500_000), Fault::Empty],
};

pub(super) const CLOCK: Faults = Faults {
    name: "server's clock steps",
    lost: 0.002,
    late: 0.002,
    every: 700_000,
    kinds: &[
        Fault::Back(3_600_000_000),
        Fault::Back(400_000),
        Fault::Forward(2_000_000),
    ],
};

impl Faults {
    pub(super) fn draw(&self, random: &mut Random) -> Fault {
        let kind = *random.one_of(self.kinds);
        let mut some = |most| 1 + random.below(most);
        match kind {
            Fault::Suspension(most) => Fault::Suspension(some(most)),
            Fault::Partition(most) => Fault::Partition(some(most)),
            Fault::Away(most) => Fault::Away(some(most)),
            Fault::Failover(most) => Fault::Failover(some(most)),
            Fault::Back(most) => Fault::Back(some(most)),
            Fault::Forward(most) => Fault::Forward(some(most)),
            other => other,
        }
    }
}
