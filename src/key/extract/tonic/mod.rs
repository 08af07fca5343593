//! What a server of tonic tells about a call.

mod client_certificate;
mod connection;
mod grpc_method;
mod grpc_service;
mod metadata;

pub use self::client_certificate::client_certificate;
pub use self::grpc_method::grpc_method;
pub use self::grpc_service::grpc_service;
pub use self::metadata::{metadata, try_metadata};

pub(super) use self::connection::peer;
pub(crate) use self::grpc_method::Pathless;
