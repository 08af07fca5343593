use super::permit::Permit;
use crate::adapt::Passage;

/// What the end of a request teaches: a failure is classified before it is a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sample {
    /// It was served: the time that it took counts.
    Served,
    /// It failed because the service is overloaded. [`Traffic`](crate::adapt::Traffic) counts a failure.
    Overloaded,
    /// Nothing: it failed for a reason of its own, or it was refused.
    Nothing,
}

impl Sample {
    pub(crate) fn tell(self, permit: &mut Permit) {
        match self {
            Self::Served => permit.answered(),
            Self::Overloaded => permit.overloaded(),
            Self::Nothing => {}
        }
    }

    pub(crate) fn count(self, passage: &Passage) {
        match self {
            Self::Served => passage.answered(),
            Self::Overloaded => passage.failed(),
            Self::Nothing => {}
        }
    }
}
