/// The final charge of a request whose real cost is unknown.
///
/// This is a request that ends without an answer: the client has gone away, the inner service has failed or
/// panicked, or a [`Reservation`](crate::limiter::Reservation) was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnAbandoned {
    /// The charge on arrival.
    #[default]
    Estimate,
    /// Nothing: the whole charge is given back.
    Nothing,
    /// This many units.
    Units(u32),
}

impl OnAbandoned {
    /// Returns the units, if they are not those of the estimate.
    pub(crate) fn units(self) -> Option<u32> {
        match self {
            Self::Estimate => None,
            Self::Nothing => Some(0),
            Self::Units(units) => Some(units),
        }
    }
}
