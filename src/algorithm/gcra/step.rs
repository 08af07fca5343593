use super::Gcra;
use crate::algorithm::State;
use crate::algorithm::step::Step;
use crate::clock::Micros;

/// What was owed at one moment: whole requests, and a fraction in `Gcra::parts`.
///
/// It is kept in requests and not as the moment at which the debt is drained, so that it
/// survives a change of the rate.
#[derive(Clone, Copy)]
struct Debt {
    at: u64,
    whole: u64,
    part: u64,
}

impl From<State> for Debt {
    fn from(state: State) -> Self {
        let [at, whole, part] = state.words();
        Self { at, whole, part }
    }
}

impl From<Debt> for State {
    fn from(debt: Debt) -> Self {
        State::from_words([debt.at, debt.whole, debt.part])
    }
}

/// The sums below are in parts of a request. A debt is at most 2^32 requests of 2^45 parts (366
/// days in microseconds), and what drains is at most 2^64 µs times 2^32 parts: 128 bits hold
/// them all.
impl Gcra {
    fn in_parts(self, requests: u32) -> u128 {
        u128::from(requests) * u128::from(self.parts)
    }

    fn owed(self, state: State, now: Micros) -> u128 {
        let Debt { at, whole, part } = state.into();
        let then = u128::from(whole) * u128::from(self.parts) + u128::from(part);
        let drained = u128::from(now.get().saturating_sub(at)) * u128::from(self.drain);
        then.saturating_sub(drained)
    }

    /// The time in which this many parts drain, rounded up.
    fn time_to_drain(self, parts: u128) -> Option<Micros> {
        (self.drain > 0).then(|| Micros::wait(div_ceil(parts, self.drain)))
    }

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

    fn longest_wait(&self) -> Option<Micros> {
        match self.limit() {
            0 => None,
            limit => self.time_to_drain(self.in_parts(limit)),
        }
    }

    fn moved_back(&self, state: State, now: Micros) -> State {
        let debt = Debt::from(state);
        let at = debt.at.min(now.get());
        let capacity = u64::from(self.limit());
        let (whole, part) = match debt.whole {
            whole if whole < capacity => (whole, debt.part.min(self.parts - 1)),
            _ => (capacity, 0),
        };
        Debt { at, whole, part }.into()
    }

    fn admit(&self, state: State, now: Micros, cost: u32) -> Option<State> {
        if cost == 0 {
            return (self.limit() > 0).then_some(state);
        }
        let owed = self.owed(state, now) + self.in_parts(cost);
        (owed <= self.in_parts(self.limit())).then(|| {
            let (whole, part) = self.divided(owed);
            let at = now.get();
            Debt { at, whole, part }.into()
        })
    }

    fn remaining(&self, state: State, now: Micros) -> u32 {
        let free = self.in_parts(self.limit()) - self.owed(state, now);
        let (whole, _) = self.divided(free);
        whole.try_into().unwrap_or(self.limit())
    }

    fn reset_after(&self, state: State, now: Micros) -> Micros {
        self.time_to_drain(self.owed(state, now))
            .unwrap_or(Micros::ZERO)
    }

    fn retry_after(&self, state: State, now: Micros, cost: u32) -> Option<Micros> {
        if !(1..=self.limit()).contains(&cost) {
            return None;
        }
        let wanted = self.owed(state, now) + self.in_parts(cost);
        self.time_to_drain(wanted.saturating_sub(self.in_parts(self.limit())))
    }

    fn effective_window(&self, state: State, now: Micros) -> Option<Micros> {
        match (self.limit(), self.remaining(state, now)) {
            (0, _) => None,
            (_, 0) => self.retry_after(state, now, 1),
            (_, remaining) => self.time_to_drain(self.in_parts(remaining)),
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
