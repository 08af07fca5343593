//! Reads fields of a request's JSON body before the limits are asked, and passes the body on unchanged.

mod answer;
mod body;
mod future;
mod layer;
mod reading;
mod service;
mod stream_usage;

pub use self::answer::ReadJsonBody;
pub use self::body::ReadBody;
pub use self::future::ReadJsonFuture;
pub use self::layer::ReadJsonLayer;
pub use self::reading::Unreadable;
pub use self::service::ReadJson;

use super::current_enforcer::CurrentEnforcer;
use super::enforcer::{Ahead, LookingAhead};
use super::{GuardedBody, RateLimitLayer};
