//! Chooses which of several parts is charged.

use std::cmp::Reverse;

use smallvec::SmallVec;

use super::{Decision, Part};
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::policy::Alternative;
use crate::store::alternatives::wait_by;
use crate::store::memory::page_snapshot::Changed;

impl Decision<'_> {
    pub(super) fn has_alternatives(&self) -> bool {
        self.parts.iter().any(|part| part.alternative.is_some())
    }

    /// Chooses the first part of each group that has room, and passes over the others. Returns whether each group lets
    /// the request pass.
    pub(super) fn choose(&mut self) -> bool {
        self.choose_by(|part| part.allowed && part.blocked.is_none())
    }

    /// Chooses the first part of each group that has any units to give.
    pub(super) fn choose_giver(&mut self, now: Micros) -> Result<(), Changed> {
        for part in &mut self.parts {
            if part.alternative.is_some() {
                part.allowed = part.most == 0 || part.remaining(now)? > 0;
            }
        }
        self.choose();
        Ok(())
    }

    fn choose_by(&mut self, has_room: impl Fn(&Part<'_>) -> bool) -> bool {
        let mut all_pass = true;
        for place in 0..self.parts.len() {
            let Some(mine) = self.parts[place].alternative else {
                continue;
            };
            let group = self.group_of(mine);
            let payer = group.filter(|(_, part)| has_room(part));
            let payer = payer.map(|(rank, _)| rank).min();
            self.parts[place].is_passed = match payer {
                Some(rank) => rank != mine.rank,
                None => mine.is_optional,
            };
            all_pass &= payer.is_some() || mine.is_optional;
        }
        all_pass
    }

    /// Returns the parts of a group, each with its rank.
    fn group_of(&self, one: Alternative) -> impl Iterator<Item = (u8, &Part<'_>)> {
        let parts = self.parts.iter();
        parts.filter_map(move |part| {
            let its = part.alternative.filter(|its| its.group == one.group)?;
            Some((its.rank, part))
        })
    }

    /// Drops the outcomes of each group but that with the shortest wait. Of equals, the first part stays.
    pub(super) fn keep_soonest(&self, outcomes: &mut Outcomes) {
        let wait_of = |part: &Part<'_>| {
            let mut each = outcomes.iter();
            let (_, outcome) = each.find(|(policy, _)| *policy == part.policy)?;
            Some(Reverse(wait_by(outcome, part.probe.cost)))
        };
        let mut dropped: SmallVec<[usize; 8]> = SmallVec::new();
        for part in self.parts.iter().filter(|part| !part.is_passed) {
            let Some(mine) = part.alternative else {
                continue;
            };
            let told = self.group_of(mine).filter(|(_, part)| !part.is_passed);
            let best = told.max_by_key(|(rank, part)| (wait_of(part), Reverse(*rank)));
            if best.is_some_and(|(rank, _)| rank != mine.rank) {
                dropped.push(part.policy);
            }
        }
        outcomes.retain(|policy, _| !dropped.contains(&policy));
    }
}

impl Part<'_> {
    /// Makes it one of several parts, of which one is charged.
    pub(in crate::store::memory) fn one_of(self, alternative: Option<Alternative>) -> Self {
        Self {
            alternative,
            ..self
        }
    }
}
