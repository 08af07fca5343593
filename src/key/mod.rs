//! Who is being counted.
//!
//! A [`Key`] is a short value taken from a request by a key extractor: one of the functions of
//! this module, or a closure over the request's [`Head`].
//!
//! ```
//! use tower_ratelimit::key::{self, Head};
//! use tower_ratelimit::{Policy, TokenBucket};
//!
//! # #[derive(Clone)] struct User { id: u64 }
//! let by_address = Policy::new("address", TokenBucket::per_second(20)).key(key::client_ip());
//! let by_user = Policy::new("user", TokenBucket::per_second(5))
//!     .key(|head: &Head<'_>| head.extension::<User>().map(|user| user.id));
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
//! If the client left it out (a header), all who do so share one quota. If the server has not
//! provided it (the peer's address, an extension), the request is answered with
//! `500 Internal Server Error`, and the log says once which line of code is missing. A quota is
//! never shared by a whole site by accident.

mod into_key;
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
pub use self::value::Key;
