//! What a refused call of gRPC gets.

mod code;
mod content_type;
mod details;
mod options;
mod refusals;

pub use self::options::Grpc;

pub(super) use self::refusals::GrpcRefusals;
