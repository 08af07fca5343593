//! The layer for HTTP services.
//!
//! docs later

mod body;
mod builder;
mod future;
mod gate;
mod layer;
mod service;

pub use self::body::ResponseBody;
pub use self::builder::RateLimitLayerBuilder;
pub use self::future::ResponseFuture;
pub use self::layer::RateLimitLayer;
pub use self::service::RateLimit;
