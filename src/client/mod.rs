//! The outgoing side: a layer around a client.

mod future;
mod held;
mod host;
mod layer;
mod line;
mod lines;
mod service;
mod standing;
mod told;

pub use self::future::HeedFuture;
pub use self::held::{HeedError, Held, Reason};
pub use self::host::host;
pub use self::layer::HeedLayer;
pub use self::service::Heed;
