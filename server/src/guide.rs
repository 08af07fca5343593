//! The guide: how to run the server.
//!
//! The pages are also files in the folder `server/docs` of the repository.

#[doc = include_str!("../docs/server.md")]
pub mod server {}

#[doc = include_str!("../docs/envoy.md")]
pub mod envoy {}

#[doc = include_str!("../docs/from-nginx.md")]
pub mod from_nginx {}

#[doc = include_str!("../docs/deploy.md")]
pub mod deploy {}
