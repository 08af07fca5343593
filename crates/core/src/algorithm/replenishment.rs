//! Properties that follow from how the units of an algorithm come back.

use super::Algorithm;
use super::kind::{Kind, Replenishment, match_kind};

impl Algorithm {
    /// Returns how units come back, or `None` if there is no limit.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn replenishment(&self) -> Option<Replenishment> {
        match_kind!(self, kind => Some(kind.replenishment()), None)
    }

    /// Returns whether it holds requests until their turn.
    pub(crate) fn shapes(&self) -> bool {
        match_kind!(self, kind => kind.shapes(), false)
    }

    /// Returns whether requests hold what they take to their end.
    pub(crate) fn limits_concurrency(&self) -> bool {
        self.replenishment() == Some(Replenishment::OnRelease)
    }

    /// Returns whether an outcome has a number that changes with the calendar or the hour.
    pub(crate) fn depends_on_a_calendar(&self) -> bool {
        matches!(self, Self::CalendarWindow(_) | Self::ByHours(_))
    }

    /// Returns whether it drains steadily, at the rate of its quota.
    pub(super) fn has_rate(&self) -> bool {
        self.replenishment() == Some(Replenishment::Steady)
    }

    /// Returns whether a state is a debt, which drains at the rate of a limit, steadily or by interval.
    pub(super) fn drains(&self) -> bool {
        matches!(
            self.replenishment(),
            Some(Replenishment::Steady | Replenishment::Interval)
        )
    }
}
