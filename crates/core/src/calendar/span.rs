use crate::clock::Micros;

/// A half-open interval of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Micros,
    pub(crate) until: Micros,
}

impl Span {
    pub(crate) fn length(self) -> Micros {
        self.until.saturating_sub(self.from)
    }
}

/// A half-open span of time with one interval of a timetable, or with none. The next stretch may have the
/// same interval: no stretch is longer than a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) span: Span,
    /// The index of the interval in the list, counted from 1; 0 for none.
    pub(crate) place: u8,
}
