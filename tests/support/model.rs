//! The slow and obvious limiter: a list keeps every admitted request, and a search finds each number.

use std::fmt::Debug;
use std::slice;
use std::sync::Arc;

use tower_ratelimit::Micros;

use super::debt::Pace;
use super::driver::Seen;

/// An admitted request: its time, in microseconds since the epoch, and its cost.
///
/// The numbers are wide enough that no sum or product of them overflows, and signed, since a window can move
/// back to before the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) at: i128,
    pub(crate) cost: i128,
}

/// One algorithm, as statements about the list of admitted requests, oldest first.
pub(crate) trait Rule: Debug + Send + Sync {
    /// Returns the most that is admitted at one instant; 0 denies everything.
    fn limit(&self) -> i128;

    /// Returns whether a request of this cost, at least 1, is allowed now.
    fn allows(&self, admitted: &[Admitted], at: i128, cost: i128) -> bool;

    /// Returns whether no admitted request counts any more.
    fn is_new(&self, admitted: &[Admitted], at: i128) -> bool;

    /// Settles units after the fact, as far as the algorithm counts them.
    fn settle(&self, admitted: &mut Vec<Admitted>, at: i128, units: i128);

    /// Moves requests of the future back to now, by law 8.
    fn step_back(&self, admitted: &mut Vec<Admitted>, at: i128);

    /// Returns the pace of a bucket, whose debt under several limits is more than the admitted requests.
    fn pace(&self) -> Option<Pace> {
        None
    }

    /// Drops what a charge now makes the algorithm forget for good, even if the clock steps back later.
    fn forget(&self, admitted: &mut Vec<Admitted>, at: i128);

    /// Returns whether no wait is longer than the longest wait that the algorithm tells. Months differ in
    /// length.
    fn longest_wait_is_a_bound(&self) -> bool {
        false
    }

    /// Returns the most that is admitted in any closed span of this length, by law 1.
    fn most_within(&self, span: i128) -> i128;
}

/// One key under one rule.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    rule: Arc<dyn Rule>,
    admitted: Vec<Admitted>,
}

impl Model {
    pub(crate) fn new(rule: Arc<dyn Rule>) -> Self {
        Self {
            rule,
            admitted: Vec::new(),
        }
    }

    /// Returns the same past under another rule, which counts admitted requests in the same way.
    pub(crate) fn under(self, rule: Arc<dyn Rule>) -> Self {
        Self { rule, ..self }
    }

    /// Moves to now.
    fn step_back(&mut self, at: i128) {
        self.rule.step_back(&mut self.admitted, at);
    }

    /// Charges units without a request.
    pub(crate) fn settle(&mut self, at: u64, units: u32) {
        if units > 0 && self.rule.limit() > 0 {
            let at = at.into();
            self.step_back(at);
            self.rule.forget(&mut self.admitted, at);
            self.rule.settle(&mut self.admitted, at, units.into());
        }
    }

    pub(crate) fn decide(&mut self, at: u64, cost: u32) -> Seen {
        decide_all(slice::from_mut(self), at, cost)[0]
    }

    pub(crate) fn allows(&self, at: i128, cost: i128) -> bool {
        match cost {
            0 => self.rule.limit() > 0,
            _ => self.rule.allows(&self.admitted, at, cost),
        }
    }

    /// Removes the latest admitted units, as if no request had come.
    pub(crate) fn refund(&mut self, at: u64, units: u32) {
        self.step_back(at.into());
        let mut left = i128::from(units);
        while let Some(last) = self.admitted.last_mut() {
            let given_back = left.min(last.cost);
            last.cost -= given_back;
            left -= given_back;
            if last.cost > 0 {
                break;
            }
            self.admitted.pop();
        }
    }

    fn charge(&mut self, at: i128, cost: i128) {
        self.rule.forget(&mut self.admitted, at);
        self.admitted.push(Admitted { at, cost });
    }

    fn tell(&self, at: i128, cost: i128, allowed: bool) -> Seen {
        let never = !Self::new(Arc::clone(&self.rule)).allows(at, cost);
        let retry = || shortest_wait(|wait| self.allows(at + wait, cost));
        Seen {
            allowed,
            limit: u32::try_from(self.rule.limit()).unwrap(),
            remaining: most_admitted(self.rule.limit(), |count| self.allows(at, count)),
            reset_after: shortest_wait(|wait| self.rule.is_new(&self.admitted, at + wait)),
            retry_after: (!allowed && !never).then(retry),
        }
    }
}

/// Moves every model to now, and charges all or none, by laws 8 and 10.
pub(crate) fn decide_all(models: &mut [Model], at: u64, cost: u32) -> Vec<Seen> {
    if cost == 0 {
        return decided(&mut models.to_vec(), at.into(), 0);
    }
    decided(models, at.into(), cost.into())
}

fn decided(models: &mut [Model], at: i128, cost: i128) -> Vec<Seen> {
    for model in &mut *models {
        model.step_back(at);
    }
    let verdicts: Vec<bool> = models.iter().map(|model| model.allows(at, cost)).collect();
    if cost > 0 && !verdicts.contains(&false) {
        for model in &mut *models {
            model.charge(at, cost);
        }
    }
    let told = models.iter().zip(verdicts);
    told.map(|(model, allowed)| model.tell(at, cost, allowed))
        .collect()
}

/// Charges the first member that has room, with all that are always charged, or nothing. Returns the payer, or the wait after which
/// the request passes.
pub(crate) fn decide_first_of(
    always: &mut [Model],
    members: &mut [Model],
    at: u64,
    cost: u32,
) -> Result<usize, Option<u64>> {
    let (at, cost) = (i128::from(at), i128::from(cost));
    for model in always.iter_mut().chain(&mut *members) {
        model.step_back(at);
    }
    let passes = |always: &[Model], members: &[Model], at| {
        always.iter().all(|model| model.allows(at, cost))
            && members.iter().any(|model| model.allows(at, cost))
    };
    if passes(always, members, at) {
        let mut each = members.iter();
        let payer = each.position(|model| model.allows(at, cost)).unwrap();
        for model in &mut *always {
            model.charge(at, cost);
        }
        members[payer].charge(at, cost);
        return Ok(payer);
    }
    let unused = |models: &[Model]| -> Vec<Model> {
        let rules = models.iter().map(|model| Arc::clone(&model.rule));
        rules.map(Model::new).collect()
    };
    let ever = passes(&unused(always), &unused(members), at);
    Err(ever.then(|| shortest_wait(|wait| passes(always, members, at + wait))))
}

/// Charges units beyond an estimate to the member that has paid and those after it: each takes what it has room for, and the last one
/// all that is left.
pub(crate) fn spill(members: &mut [Model], payer: usize, at: u64, units: u32) {
    let mut left = units;
    for model in &mut members[payer..] {
        model.step_back(at.into());
        let room = most_admitted(model.rule.limit(), |count| model.allows(at.into(), count));
        let takes = room.min(left);
        if takes > 0 {
            model.charge(at.into(), takes.into());
        }
        left -= takes;
    }
    if let Some(last) = members.last_mut() {
        last.settle(at, left);
    }
}

/// Returns the first wait from which on something holds, at most the longest wait that is ever told.
pub(super) fn shortest_wait(holds: impl Fn(i128) -> bool) -> u64 {
    let longest = i128::from(Micros::LONGEST.get());
    first(longest, holds).try_into().unwrap()
}

pub(super) fn most_admitted(limit: i128, allows: impl Fn(i128) -> bool) -> u32 {
    let denied = first(limit + 1, |count| count > 0 && !allows(count));
    u32::try_from(denied - 1).unwrap()
}

/// Returns the first number from 0 for which something holds, by halving, or `last` if there is none.
fn first(last: i128, holds: impl Fn(i128) -> bool) -> i128 {
    let (mut low, mut high) = (0, last);
    while low < high {
        let middle = i128::midpoint(low, high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

pub(crate) fn sum<'a>(admitted: impl IntoIterator<Item = &'a Admitted>) -> i128 {
    admitted.into_iter().map(|request| request.cost).sum()
}

/// Adds a charge after the fact to a window that has counted this much, up to 2^32 - 1.
pub(crate) fn count(admitted: &mut Vec<Admitted>, at: i128, units: i128, counted: i128) {
    let cost = units.min(i128::from(u32::MAX) - counted);
    admitted.push(Admitted { at, cost });
}

/// Moves all requests back by the same positive time.
pub(crate) fn shift(admitted: &mut [Admitted], by: i128) {
    for request in admitted {
        request.at -= by.max(0);
    }
}

/// Moves requests of the future to now.
pub(crate) fn clamp(admitted: &mut [Admitted], at: i128) {
    for request in admitted {
        request.at = request.at.min(at);
    }
}
