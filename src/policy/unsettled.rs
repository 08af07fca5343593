/// What a request is charged in the end, if nothing has said what it really cost.
///
/// That is the end of a request without an answer: the client has gone, the inner service has failed or panicked, or a
/// [`Reservation`](crate::limiter::Reservation) was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unsettled {
    /// What it was charged when it came.
    #[default]
    Estimate,
    /// Nothing: all of it is given back.
    Nothing,
    /// This many units.
    Units(u32),
}

impl Unsettled {
    /// The units, if they are not those of the estimate.
    pub(crate) fn units(self) -> Option<u32> {
        match self {
            Self::Estimate => None,
            Self::Nothing => Some(0),
            Self::Units(units) => Some(units),
        }
    }
}
