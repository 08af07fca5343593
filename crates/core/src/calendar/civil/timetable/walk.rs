use std::sync::Arc;

use super::{BLOCK, Stretch, Timetable};
use crate::clock::Micros;

/// Consecutive stretches.
///
/// A walk ends after a number of steps, because a request waits for it. A stretch is one step. A block, which
/// may have to be computed, is as many steps as its computation takes.
#[derive(Debug)]
pub(crate) struct Walk {
    timetable: Timetable,
    /// The beginning of the next stretch, or `None` after the last.
    next: Option<Micros>,
    present: Option<Present>,
    steps: usize,
}

/// The block that the walk is in.
#[derive(Debug)]
struct Present {
    number: u64,
    block: Arc<[Stretch]>,
    /// The index of the next stretch.
    place: usize,
}

/// The steps of a block.
const STEPS: usize = 32;

impl Timetable {
    /// Returns the stretches from this moment on, for this many steps: see [`Walk`].
    pub(crate) fn walk(self, from: Micros, steps: usize) -> Walk {
        Walk {
            timetable: self,
            next: Some(from),
            present: None,
            steps,
        }
    }
}

impl Walk {
    /// Returns how many steps are left.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    fn stretch(&mut self, at: Micros) -> Stretch {
        let number = at.get() / BLOCK;
        if let Some(present) = &mut self.present
            && present.number == number
            && let Some(stretch) = present.block.get(present.place)
        {
            present.place += 1;
            return *stretch;
        }
        self.steps = self.steps.saturating_sub(STEPS);
        self.present = self.timetable.known_block(number).map(|block| {
            let place = block.partition_point(|stretch| stretch.span.until <= at) + 1;
            Present {
                number,
                block,
                place,
            }
        });
        self.timetable.stretch(at)
    }
}

impl Iterator for Walk {
    type Item = Stretch;

    #[inline]
    fn next(&mut self) -> Option<Stretch> {
        let at = self.next?;
        self.steps = self.steps.checked_sub(1)?;
        let stretch = self.stretch(at);
        let is_last = stretch.span.until == Micros::new(u64::MAX);
        self.next = (!is_last).then_some(stretch.span.until);
        Some(stretch)
    }
}
