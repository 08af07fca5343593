//! What a request of a tenant may take, and how it is told.

use crate::clock::Micros;
use crate::decision::Outcome;
use crate::store::fair::times::in_micros;

/// What a request of a tenant may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::store) struct Share {
    /// Whether the tenant has used more than its share.
    pub(super) has_debt: bool,
    /// Whether its request need not be claimed.
    pub(super) goes_ahead: bool,
    /// How many requests of one unit its claim lets pass.
    pub(super) claim: u32,
    /// The whole units below its share of the burst. A request of more need not be claimed.
    pub(super) portion: u32,
    /// The units that the others claim.
    pub(super) others: u32,
    /// Whether another tenant waits for room, so that an unused limit is left to it.
    pub(super) is_contended: bool,
    /// The time in which the tenant pays its debt, whatever others ask; if it has none, the time for which its claim has grown. Nothing, like
    /// `pace`, if the tenant is alone.
    pub(super) balance: Micros,
    /// The time in which it accrues a unit, whatever others ask.
    pub(super) pace: f64,
    /// The units of the whole limit.
    pub(super) limit: u32,
    /// The units of the tenant's turn, if it has one, and the time until then.
    pub(super) turn: u32,
    pub(super) turn_after: Micros,
    /// The units that are kept for the turns of others.
    pub(super) kept: u32,
}

/// How many parts a microsecond has, in bits.
const PARTS: u32 = 32;

/// The exponent of a pace that is told stands for so much less.
const BIAS: i32 = 2_000;

impl Share {
    /// The rule in Lua, for stores that run it where the state is.
    pub(in crate::store) const LUA: &str = include_str!("../shares.lua");

    /// Reads what the rule in Lua has told.
    pub(in crate::store) fn read(words: &[u64]) -> Option<Self> {
        let &[
            limit,
            has_debt,
            goes_ahead,
            claim,
            portion,
            others,
            is_contended,
            balance,
            mantissa,
            exponent,
            turn,
            turn_after,
            kept,
        ] = words
        else {
            return None;
        };
        Some(Self {
            has_debt: has_debt != 0,
            goes_ahead: goes_ahead != 0,
            claim: claim.try_into().ok()?,
            portion: portion.try_into().ok()?,
            others: others.try_into().ok()?,
            is_contended: is_contended != 0,
            balance: Micros::new(balance),
            pace: in_micros(Micros::new(mantissa))
                * 2_f64.powi(i32::from(u16::try_from(exponent).ok()?) - BIAS),
            limit: limit.try_into().ok()?,
            turn: turn.try_into().ok()?,
            turn_after: Micros::new(turn_after),
            kept: kept.try_into().ok()?,
        })
    }

    /// Writes into an outcome what is left for the tenant, and how long it waits. `taken` is what this request has taken.
    pub(in crate::store) fn tell(&self, outcome: &mut Outcome, (cost, taken): (u32, u32)) {
        let left = self.of(outcome.remaining(), taken);
        if outcome.is_allowed() {
            let delay = outcome.delay_micros();
            *outcome = outcome.with_remaining(left).delayed(delay);
        } else if !outcome.is_blocked() && !self.is_below(cost) {
            let has_room_after = outcome.retry_micros().unwrap_or_default();
            let wait = self.wait(cost, has_room_after);
            *outcome = outcome.with_remaining(left).denied(Some(wait));
        }
    }

    /// The whole of this limit, undivided.
    pub(in crate::store) fn whole(limit: u32) -> Self {
        Self {
            has_debt: false,
            goes_ahead: true,
            claim: u32::MAX,
            portion: limit,
            others: 0,
            is_contended: false,
            balance: Micros::ZERO,
            pace: 0.0,
            limit,
            turn: 0,
            turn_after: Micros::ZERO,
            kept: 0,
        }
    }

    /// Returns whether no request of this cost ever passes.
    pub(in crate::store) fn is_below(&self, cost: u32) -> bool {
        cost > self.limit
    }

    /// Returns the units that the limit needs to have, so that a request of this cost passes.
    pub(in crate::store) fn needs(&self, cost: u32) -> u32 {
        if cost == 0 || cost > self.limit || cost <= self.turn_of_now() {
            return cost;
        }
        let is_its_own = cost <= self.claim || self.goes_ahead || cost > self.portion;
        let beside_turns = cost.saturating_add(self.kept);
        let beside_others = cost.saturating_add(self.others);
        match (is_its_own && !self.has_debt, self.is_contended) {
            (true, _) => beside_turns,
            (false, true) => beside_others.max(beside_turns),
            (false, false) => beside_others.min(self.limit).max(beside_turns),
        }
    }

    /// Returns how many units the tenant may take, after it has taken some, if so many are left of a limit.
    pub(in crate::store) fn of(&self, left: u32, taken: u32) -> u32 {
        let beside_others = if left == self.limit && !self.is_contended {
            left
        } else {
            left.saturating_sub(self.others)
        };
        let claim = self.claim.saturating_sub(taken).min(left);
        let beside_turns = left.saturating_sub(self.kept);
        let of_turn = self.turn_of_now().min(left);
        claim.max(beside_others).min(beside_turns).max(of_turn)
    }

    pub(in crate::store::fair) fn turn_to(&mut self, turn: (u32, Micros)) {
        (self.turn, self.turn_after) = turn;
    }

    /// Returns the units of the turn that the tenant has now.
    pub(super) fn turn_of_now(&self) -> u32 {
        if self.turn_after == Micros::ZERO {
            self.turn
        } else {
            0
        }
    }

    /// Returns how long a refused request of this cost waits, if the limit has room for it after this time.
    pub(super) fn wait(&self, cost: u32, has_room_after: Micros) -> Micros {
        let of_own = self.own_wait(cost);
        of_own.max(has_room_after).max(Micros::new(1))
    }

    /// Returns the time until the turn of a request of this cost, or until the tenant claims that much.
    pub(super) fn own_wait(&self, cost: u32) -> Micros {
        if cost <= self.turn {
            self.turn_after
        } else {
            self.claims_after(cost)
        }
    }

    /// Returns the time after which the tenant claims this many units.
    pub(super) fn claims_after(&self, cost: u32) -> Micros {
        // One more, since virtual time is rounded.
        let accrued = (u128::from(cost) * in_parts(self.pace)).div_ceil(1 << PARTS) + 1;
        let accrued = Micros::new(accrued.try_into().unwrap_or(u64::MAX));
        if self.has_debt {
            self.balance.saturating_add(accrued)
        } else {
            accrued.saturating_sub(self.balance)
        }
    }
}

/// Returns a time in [parts](PARTS) of a microsecond.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time that is too long is cut"
)]
fn in_parts(time: f64) -> u128 {
    let time = time.min(9_007_199_254_740_991.0);
    let rest = (time.fract() * f64::from(1 << (PARTS / 2)) * f64::from(1 << (PARTS / 2))).ceil();
    (u128::from(time as u64) << PARTS) + u128::from(rest as u64)
}
