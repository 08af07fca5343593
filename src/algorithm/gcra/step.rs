use super::Gcra;
use crate::algorithm::State;
use crate::algorithm::step::{Fixed, Step};
use crate::clock::Micros;

/// What was owed at one moment, in parts of a request: see `Gcra::parts`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Debt {
    at: u64,
    owed: u128,
}

/// The sums below are in parts of a request. A debt is at most 2^32 requests of 2^45 parts (366
/// days in microseconds), and what drains is at most 2^64 µs times 2^32 parts: 128 bits hold
/// them all.
impl Gcra {
    fn in_parts(self, requests: u32) -> u128 {
        u128::from(requests) * u128::from(self.parts)
    }

    fn owed(self, debt: Debt, now: Micros) -> u128 {
        let drained = u128::from(now.get().saturating_sub(debt.at)) * u128::from(self.drain);
        debt.owed.saturating_sub(drained)
    }

    /// The time in which so many parts drain, rounded up. A rate of 0 has a limit of 0, whose
    /// waits nobody is told.
    fn time_to_drain(self, parts: u128) -> Micros {
        Micros::wait(div_ceil(parts, self.drain.max(1)))
    }

    /// Whole requests, and parts of one.
    fn divided(self, parts: u128) -> (u64, u64) {
        if let Ok(parts) = u64::try_from(parts) {
            return (parts / self.parts, parts % self.parts);
        }
        let divisor = u128::from(self.parts);
        (narrow(parts / divisor), narrow(parts % divisor))
    }
}

impl Step for Gcra {
    type Kept = Debt;

    /// A state is kept in requests, and not as the moment at which the debt is drained, so that
    /// it survives a change of the rate.
    fn read(&self, state: State) -> Debt {
        let [at, whole, part] = state.first();
        let part = part.min(self.parts - 1);
        let owed = u128::from(whole) * u128::from(self.parts) + u128::from(part);
        Debt { at, owed }
    }

    fn write(&self, Debt { at, owed }: Debt) -> State {
        let (whole, part) = self.divided(owed);
        State::unless_new([at, whole, part])
    }

    fn limit(&self) -> u32 {
        match self.drain {
            0 => 0,
            _ => self.burst,
        }
    }

    fn window(&self) -> Micros {
        self.time_to_drain(self.in_parts(self.limit()))
    }

    fn longest_wait(&self) -> Micros {
        self.window()
    }

    fn moved_back(&self, debt: &Debt, now: Micros) -> Option<Debt> {
        let mut possible = Debt {
            at: debt.at.min(now.get()),
            ..*debt
        };
        // What has drained since then has drained, also of a debt from a larger capacity.
        let capacity = self.in_parts(self.limit());
        if self.owed(possible, now) > capacity {
            possible = Debt {
                at: now.get(),
                owed: capacity,
            };
        }
        (possible != *debt).then_some(possible)
    }

    fn admits(&self, debt: &Debt, now: Micros, cost: u32) -> bool {
        self.owed(*debt, now) + self.in_parts(cost) <= self.in_parts(self.limit())
    }

    fn charge(&self, debt: &mut Debt, now: Micros, cost: u32) {
        *debt = Debt {
            at: now.get(),
            owed: self.owed(*debt, now) + self.in_parts(cost),
        };
    }

    fn remaining(&self, debt: &Debt, now: Micros) -> u32 {
        let free = self.in_parts(self.limit()) - self.owed(*debt, now);
        let (whole, _) = self.divided(free);
        whole.try_into().unwrap_or(self.limit())
    }

    fn distance(&self, debt: &Debt, now: Micros) -> u64 {
        narrow(self.owed(*debt, now))
    }

    fn reset_after(&self, debt: &Debt, now: Micros) -> Micros {
        self.time_to_drain(self.owed(*debt, now))
    }

    fn retry_after(&self, debt: &Debt, now: Micros, cost: u32) -> Micros {
        let room = self.in_parts(self.limit() - cost);
        self.time_to_drain(self.owed(*debt, now).saturating_sub(room))
    }

    fn effective_window(&self, debt: &Debt, now: Micros) -> Micros {
        match self.remaining(debt, now) {
            0 => self.next_unit(debt, now),
            remaining => self.time_to_drain(self.in_parts(remaining)),
        }
    }
}

impl Fixed for Gcra {
    #[expect(clippy::cast_possible_truncation, reason = "two halves of one number")]
    fn words(&self, Debt { at, owed }: Debt) -> [u64; 3] {
        [at, (owed >> u64::BITS) as u64, owed as u64]
    }

    fn of_words(&self, [at, high, low]: [u64; 3]) -> Debt {
        let owed = u128::from(high) << u64::BITS | u128::from(low);
        Debt { at, owed }
    }

    fn packs_until(&self) -> Micros {
        let room = u128::from(u64::MAX).saturating_sub(self.in_parts(self.limit()));
        Micros::new(narrow(room / u128::from(self.drain.max(1))))
    }

    /// The theoretical arrival time, the moment at which all debt is drained, in units in which
    /// it is exact: microseconds times `drain`.
    fn pack(&self, Debt { at, owed }: Debt) -> u64 {
        at * self.drain + narrow(owed)
    }

    fn unpack(&self, arrival: u64, latest: Micros) -> Debt {
        let at = latest.get();
        Debt {
            at,
            owed: arrival.saturating_sub(at * self.drain).into(),
        }
    }
}

/// What does not fit is as much as does.
fn narrow(number: u128) -> u64 {
    number.try_into().unwrap_or(u64::MAX)
}

fn div_ceil(dividend: u128, divisor: u64) -> u128 {
    match u64::try_from(dividend) {
        Ok(dividend) => dividend.div_ceil(divisor).into(),
        Err(_) => dividend.div_ceil(divisor.into()),
    }
}
