//! Key extractors: there is a file for each source of a key.
//!
//! `extractor.rs` has the type of all of them, with the methods that combine them.

mod and;
pub(crate) mod any;
mod api_key;
#[cfg(feature = "axum")]
mod axum;
mod bearer_token;
mod client_ip;
mod cookie;
mod credentials;
mod extension;
mod extractor;
mod from_fn;
mod global;
mod head;
mod header;
#[cfg(feature = "usage")]
mod json;
mod list;
mod map;
mod method;
mod networks;
mod or;
mod parts;
pub(crate) mod path;
mod peer_ip;
mod prefix;
mod query;
#[cfg(feature = "tonic")]
mod tonic;
mod traits;

pub use self::api_key::{api_key, try_api_key};
#[cfg(feature = "axum")]
pub use self::axum::{matched_path, route};
pub use self::bearer_token::{bearer_token, try_bearer_token};
pub use self::client_ip::{ClientIp, Forwarding, Proxies, SingleValue, client_ip};
pub use self::cookie::{cookie, try_cookie};
pub use self::extension::extension;
pub use self::extractor::{Extractor, KeyOf};
pub use self::from_fn::from_fn;
pub use self::global::global;
pub use self::head::Head;
pub use self::header::{header, try_header};
#[cfg(feature = "usage")]
pub use self::json::{JsonFields, Unread, json, mcp_name, try_json};
pub use self::method::method;
pub use self::or::Source;
pub(crate) use self::parts::{Parts, SharedParts};
pub use self::peer_ip::{Peer, peer_ip};
pub use self::query::query;
#[cfg(feature = "tonic")]
pub use self::tonic::{client_certificate, grpc_method, grpc_service, metadata, try_metadata};
pub use self::traits::Extract;

pub(crate) use self::credentials::credential_shown_by;
#[cfg(feature = "usage")]
pub(crate) use self::json::{
    AheadOfBody, JsonPath, LONGEST_NAME, NOT_READ, WantedFields, whole_number,
};
pub(crate) use self::path::is_plain;
#[cfg(feature = "tonic")]
pub(crate) use self::tonic::Pathless;

use self::and::And;
use self::extractor::{Keyed, Origin, Read, Typed};
use self::header::Header;
use self::map::Map;
use self::or::Or;
use self::peer_ip::PeerIp;
use self::prefix::Prefix;
use super::{Extracted, IntoKey, Key, Missing, Secret};
