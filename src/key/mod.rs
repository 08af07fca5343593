//! Who is being counted.
//!
//! A [`Key`] is a short value taken from a request by a key extractor: one of the functions of
//! this module, or a closure over the request's [`Head`].
//!
//! ```
//! use tower_ratelimit::key::{self, Head, IntoKey, Key};
//! use tower_ratelimit::{Policy, TokenBucket};
//!
//! /// Put into the request's extensions by the layer that authenticates, outside this one.
//! #[derive(Clone)]
//! struct UserId(u64);
//!
//! impl IntoKey for UserId {
//!     fn into_key(self) -> Key {
//!         self.0.into_key()
//!     }
//! }
//!
//! let by_address = Policy::new("address", TokenBucket::per_second(20)).key(key::client_ip());
//! let by_user = Policy::new("user", TokenBucket::per_second(5)).key(key::extension::<UserId>());
//! let by_tenant = Policy::new("tenant", TokenBucket::per_second(50))
//!     .key(|head: &Head<'_>| head.header("x-tenant").map(IntoKey::into_key));
//! ```
//!
//! # What a client can choose
//!
//! A client chooses the headers that it sends. A policy on an unverified header alone is a
//! bypass: whoever sends a fresh value each time has a fresh quota each time. Take such a key
//! from something that was verified (an [`extension`] that authentication has put there), or
//! declare a policy on the address beside it.
//!
//! # When there is no key
//!
//! If the client left it out (a header), all who do so share one quota, and so do all for whom a
//! closure returns `None`. If the server has not provided it (the peer's address, an
//! [`extension`]), the request is answered with `500 Internal Server Error`, and the log says once
//! which line of code is missing, so that a quota is not shared by a whole site by accident. A
//! closure says the same by returning [`Missing::ByServer`].
//!
//! Where some requests have an identity and others have none, say to which a policy applies:
//! `.when(|head| head.extension::<UserId>().is_some())`.
//!
//! # Limits for each plan
//!
//! A policy for each plan, and a condition:
//!
//! ```
//! use tower_ratelimit::key::{self, Head};
//! use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer};
//!
//! #[derive(Clone, Copy, PartialEq)]
//! enum Plan {
//!     Free,
//!     Paid,
//! }
//!
//! let plan = |plan: Plan, name: &str, limit: u32| {
//!     Policy::new(name, FixedWindow::per_day(limit))
//!         .key(key::client_ip())
//!         .when(move |head| head.extension::<Plan>() == Some(&plan))
//! };
//! let layer = RateLimitLayer::builder()
//!     .policy(plan(Plan::Free, "free", 1_000))
//!     .policy(plan(Plan::Paid, "paid", 100_000))
//!     .build()?;
//! # Ok::<(), tower_ratelimit::ConfigError>(())
//! ```

mod into_key;
mod secret;
mod value;

#[cfg(feature = "http")]
mod client_ip;
#[cfg(feature = "http")]
mod extension;
#[cfg(feature = "http")]
mod extract;
#[cfg(feature = "http")]
mod head;
#[cfg(feature = "http")]
mod header;
#[cfg(feature = "http")]
mod peer_ip;

#[cfg(feature = "http")]
pub use self::client_ip::{ClientIp, client_ip};
#[cfg(feature = "http")]
pub use self::extension::{Extension, extension};
#[cfg(feature = "http")]
pub use self::extract::{Extract, Extracted, Missing};
#[cfg(feature = "http")]
pub use self::head::Head;
#[cfg(feature = "http")]
pub use self::header::{Header, header};
pub use self::into_key::IntoKey;
#[cfg(feature = "http")]
pub use self::peer_ip::{PeerIp, peer_ip};
pub use self::secret::Secret;
pub use self::value::Key;
