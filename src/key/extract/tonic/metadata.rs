use std::borrow::Cow;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::{HeaderName, InvalidHeaderName};

use tower_ratelimit_core::__internal::or_panic;

use crate::error::ConfigError;
use crate::key::extract::header::text_or_bytes;
use crate::key::extract::{
    Extractor, Head, IntoKey, Key, KeyOf, Missing, Origin, Read, Typed, credentials,
};

/// The value of a metadata key of a call. If there are several values, the first counts.
///
/// For a key that ends in `-bin` it is the decoded base64, with or without padding. For any other
/// key it is the text, as for a [`header`](crate::key::header()).
///
/// A client chooses its metadata: a policy on unverified metadata alone is a bypass, because each
/// fresh value has a fresh quota. Clients that do not send the key, or send invalid base64, share
/// one quota.
///
/// # Panics
///
/// When `name` is not a valid metadata key. This is meant for a literal, at start-up;
/// [`try_metadata`] returns an error.
///
/// ```
/// use tower_ratelimit::{Policy, TokenBucket, key};
///
/// let policy = Policy::new("tenant", TokenBucket::per_second(50)).key(key::metadata("tenant-bin"));
/// ```
#[track_caller]
pub fn metadata(name: &str) -> Extractor<Metadata> {
    or_panic(try_metadata(name))
}

/// Returns the extractor; see [`metadata`].
///
/// # Errors
///
/// When `name` is not a valid metadata key.
pub fn try_metadata(name: &str) -> Result<Extractor<Metadata>, ConfigError> {
    let name = name.parse().map_err(|_: InvalidHeaderName| {
        ConfigError::quoting("metadata", name, "give a key such as tenant or tenant-bin")
    })?;
    Ok(Extractor::of(Metadata { name }))
}

#[derive(Clone, Debug)]
pub struct Metadata {
    name: HeaderName,
}

/// Servers have to accept base64 with and without padding (gRPC over HTTP/2, `Binary-Header`).
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

impl Metadata {
    fn is_binary(&self) -> bool {
        self.name.as_str().ends_with("-bin")
    }

    fn key(&self, value: &[u8]) -> Key {
        if self.is_binary() {
            value.into_key()
        } else {
            text_or_bytes(value)
        }
    }
}

impl Origin for Metadata {
    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }

    fn chosen(&self) -> Option<String> {
        Some(format!("metadata {}", self.name))
    }

    fn credential(&self) -> Option<String> {
        credentials::in_header(&self.name)
    }
}

impl Typed for Metadata {
    /// Decoded bytes are owned, and text is borrowed.
    type Value<'a> = Cow<'a, [u8]>;

    fn value<'a>(&self, head: &Head<'a>) -> Result<Cow<'a, [u8]>, Missing> {
        let value = head.headers().get(&self.name).ok_or(Missing::ByClient)?;
        let value = value.as_bytes();
        if !self.is_binary() {
            return Ok(Cow::Borrowed(value));
        }
        // One header may hold several values.
        let mut values = value.split(|byte| *byte == b',');
        let first = values.next().unwrap_or_default().trim_ascii();
        let decoded = BASE64.decode(first).map_err(|_| Missing::ByClient)?;
        Ok(Cow::Owned(decoded))
    }
}

impl Read for Metadata {
    fn read(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok(self.key(&self.value(head)?))
    }
}

impl KeyOf for Metadata {
    /// The value; for a key that ends in `-bin`, the bytes that its base64 encodes.
    type Value<'a> = &'a [u8];

    fn make(&self, value: &[u8]) -> Result<Key, Missing> {
        Ok(self.key(value))
    }
}
