use std::fmt;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

/// How the response to a request has ended, for a policy that [charges](crate::Policy::charge_when) by it.
///
/// It always has a status and headers: a request without an answer is not passed to a closure.
pub struct Ending<'a> {
    ended: &'a Ended,
}

/// The known facts about the end of a response.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) grpc_status: Option<u32>,
    pub(crate) bytes: u64,
    pub(crate) is_complete: bool,
    pub(crate) elapsed: Duration,
}

impl Ended {
    pub(crate) fn ending(&self) -> Ending<'_> {
        Ending { ended: self }
    }
}

impl Ending<'_> {
    /// Returns the status of the response. A gRPC call has `200` whether it succeeds or fails: see
    /// [`grpc_status`](Self::grpc_status).
    pub fn status(&self) -> StatusCode {
        self.ended.status
    }

    /// Returns the headers of the response, as the inner service has made them.
    pub fn headers(&self) -> &HeaderMap {
        &self.ended.headers
    }

    /// Returns the status of a gRPC call, from the trailers, or from the headers of a response without a
    /// body: 0 is `OK`. `None` if the call was broken off before, or the response is not one of gRPC.
    pub fn grpc_status(&self) -> Option<u32> {
        self.ended.grpc_status
    }

    /// Returns how many bytes of the body were sent.
    pub fn bytes(&self) -> u64 {
        self.ended.bytes
    }

    /// Returns whether the whole response was sent: its body has ended, or as many bytes were sent as its
    /// `content-length` declares. If not, the client has gone away, or the body has failed.
    pub fn is_complete(&self) -> bool {
        self.ended.is_complete
    }

    /// Returns the time from the decision about the request to the end of the response.
    pub fn elapsed(&self) -> Duration {
        self.ended.elapsed
    }
}

impl fmt::Debug for Ending<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ending")
            .field("status", &self.status())
            .field("grpc_status", &self.grpc_status())
            .field("bytes", &self.bytes())
            .field("is_complete", &self.is_complete())
            .field("elapsed", &self.elapsed())
            .finish_non_exhaustive()
    }
}
