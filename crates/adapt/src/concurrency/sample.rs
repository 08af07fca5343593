/// How the end of a request counts: a failure is classified first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sample {
    /// The request was served: its latency counts.
    Served,
    /// The request failed because the service is overloaded. [`Traffic`](crate::Traffic) counts a
    /// failure.
    Overloaded,
    /// The request does not count: it failed for a reason of its own, or it was refused.
    Nothing,
}
