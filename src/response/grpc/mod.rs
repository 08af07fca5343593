//! Refusals of gRPC calls.
//!
//! A call is refused in the header section alone ("trailers-only"), with `google.rpc` details that
//! clients of gRPC act on. Detection, code, details and options have a file each.

mod code;
mod content_type;
mod details;
mod options;
mod refusals;

pub use self::options::{AnswerInHttp, Grpc};

pub(super) use self::refusals::{GrpcRefusals, call_of};
