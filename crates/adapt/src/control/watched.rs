//! The loads that a controller watches, smoothed, with a memory for absent ones.

use std::borrow::Cow;
use std::time::Duration;

use super::smooth::Smoothed;
use crate::{Load, Loads};

/// One signal in the memory of a controller.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    name: Cow<'static, str>,
    known: Option<Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    smoothed: Smoothed,
    seen: Duration,
}

impl Watched {
    pub(super) fn new(name: Cow<'static, str>) -> Self {
        Self { name, known: None }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Adds a reading of the signal. An absent signal keeps its last load for this long; then it is unknown.
    pub(super) fn take(
        &mut self,
        now: Duration,
        loads: &Loads,
        smoothing: Duration,
        keep: Duration,
    ) {
        match (loads.get(&self.name), &mut self.known) {
            (Some(load), Some(known)) => {
                known.smoothed.take(load, now, smoothing);
                known.seen = now;
            }
            (Some(load), known) => {
                *known = Some(Known {
                    smoothed: Smoothed::new(load, now),
                    seen: now,
                });
            }
            (None, known) => {
                if known.is_some_and(|known| now.saturating_sub(known.seen) >= keep) {
                    *known = None;
                }
            }
        }
    }

    /// Returns the smoothed load, or `None` if it is unknown.
    pub(super) fn load(&self) -> Option<Load> {
        Some(self.known?.smoothed.load())
    }
}
