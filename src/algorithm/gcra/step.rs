use super::Gcra;
use crate::algorithm::State;
use crate::algorithm::step::Step;
use crate::clock::Micros;

/// What was owed at one moment: whole requests, and a fraction in `Gcra::parts`.
///
/// It is kept in requests and not as the moment at which the debt is drained, so that it
/// survives a change of the rate.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Debt {
    at: u64,
    whole: u64,
    part: u64,
}

impl Debt {
    fn of(state: &State) -> Self {
        let [at, whole, part] = state.first();
        Self { at, whole, part }
    }

    fn words(self) -> [u64; 3] {
        [self.at, self.whole, self.part]
    }
}

/// The sums below are in parts of a request. A debt is at most 2^32 requests of 2^45 parts (366
/// days in microseconds), and what drains is at most 2^64 µs times 2^32 parts: 128 bits hold
/// them all.
impl Gcra {
    fn in_parts(self, requests: u32) -> u128 {
        u128::from(requests) * u128::from(self.parts)
    }

    fn owed(self, state: &State, now: Micros) -> u128 {
        self.owed_of(Debt::of(state), now)
    }

    fn owed_of(self, Debt { at, whole, part }: Debt, now: Micros) -> u128 {
        let then = u128::from(whole) * u128::from(self.parts) + u128::from(part);
        let drained = u128::from(now.get().saturating_sub(at)) * u128::from(self.drain);
        then.saturating_sub(drained)
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

    fn moved_back(&self, state: &State, now: Micros) -> Option<State> {
        let debt = Debt::of(state);
        let mut possible = Debt {
            at: debt.at.min(now.get()),
            part: debt.part.min(self.parts - 1),
            ..debt
        };
        // What has drained since then has drained, also of a debt from a larger capacity.
        if self.owed_of(possible, now) > self.in_parts(self.limit()) {
            possible = Debt {
                at: now.get(),
                whole: self.limit().into(),
                part: 0,
            };
        }
        (possible != debt).then(|| State::from_words(&possible.words()))
    }

    fn admits(&self, state: &State, now: Micros, cost: u32) -> bool {
        self.owed(state, now) + self.in_parts(cost) <= self.in_parts(self.limit())
    }

    fn charge(&self, state: &mut State, now: Micros, cost: u32) {
        let (whole, part) = self.divided(self.owed(state, now) + self.in_parts(cost));
        let at = now.get();
        state.set(Debt { at, whole, part }.words());
    }

    fn remaining(&self, state: &State, now: Micros) -> u32 {
        let free = self.in_parts(self.limit()) - self.owed(state, now);
        let (whole, _) = self.divided(free);
        whole.try_into().unwrap_or(self.limit())
    }

    fn reset_after(&self, state: &State, now: Micros) -> Micros {
        self.time_to_drain(self.owed(state, now))
    }

    fn retry_after(&self, state: &State, now: Micros, cost: u32) -> Micros {
        let room = self.in_parts(self.limit() - cost);
        self.time_to_drain(self.owed(state, now).saturating_sub(room))
    }

    fn effective_window(&self, state: &State, now: Micros) -> Micros {
        match self.remaining(state, now) {
            0 => self.next_unit(state, now),
            remaining => self.time_to_drain(self.in_parts(remaining)),
        }
    }
}

/// Within the bounds above nothing is cut here.
fn narrow(number: u128) -> u64 {
    number.try_into().unwrap_or(u64::MAX)
}

fn div_ceil(dividend: u128, divisor: u64) -> u128 {
    match u64::try_from(dividend) {
        Ok(dividend) => dividend.div_ceil(divisor).into(),
        Err(_) => dividend.div_ceil(divisor.into()),
    }
}
