//! What a router of axum has found out about a request.

mod matched_path;
mod route;

pub use self::matched_path::matched_path;
pub use self::route::route;
