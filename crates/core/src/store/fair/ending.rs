//! How a request ends under a limit that is divided.

use crate::clock::Micros;

/// How a request ends under a limit that is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Ending {
    Passed,
    /// The limit has refused it, which is whole again after this time, and nothing else but other divided limits.
    Refused(Micros),
    /// It takes nothing of the limit, whatever room that has.
    Elsewhere,
}
