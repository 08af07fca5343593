//! The name of a tool in a request of the Model Context Protocol, whose headers repeat what its body says.
//!
//! The headers are those of its Streamable HTTP of 2026-07-28.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};

use super::fields::{JsonFields, Unread, WantedFields};
use super::{Extractor, Head, IntoKey, Key, KeyOf, Missing, Origin, Read, Typed};
use crate::error::ConfigError;

const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

const METHOD_FIELD: &str = "method";
const NAME_FIELD: &str = "params.name";
const URI_FIELD: &str = "params.uri";

/// The fields of a body that the headers repeat.
const FIELDS: [&str; 3] = [METHOD_FIELD, NAME_FIELD, URI_FIELD];

/// What stands around the base64 of a value that no header can have as it is.
const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";

/// The name of the tool or of the prompt, or the address of the resource, for which a request of the Model Context Protocol asks.
///
/// It is read from the body, by a [`ReadJsonLayer`](crate::middleware::ReadJsonLayer::mcp) outside, which also refuses requests whose headers say
/// something else. Without that layer it is read from the header `Mcp-Name`, plain or in base64: then a client can name another tool in the
/// header than in the body, unless the server compares them.
///
/// Requests without a name, such as `tools/list`, are of no tool. They share one quota, and are one of the other operations.
///
/// ```
/// use tower_ratelimit::plan::Operations;
/// use tower_ratelimit::{AnchoredWindow, Policy, key};
///
/// let calls = Policy::new("tools", AnchoredWindow::per_minute(600))
///     .key(key::bearer_token())
///     .operation(key::mcp_name())
///     .operations(Operations::new().limit("send_mail", AnchoredWindow::per_minute(5)));
/// ```
pub fn mcp_name() -> Extractor<McpName> {
    Extractor::of(McpName)
}

#[derive(Clone, Debug)]
pub struct McpName;

impl Origin for McpName {
    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }

    fn chosen(&self) -> Option<String> {
        Some("the name of what is called".to_owned())
    }
}

impl Typed for McpName {
    type Value<'a> = Cow<'a, str>;

    fn value<'a>(&self, head: &Head<'a>) -> Result<Cow<'a, str>, Missing> {
        let fields = head.extension::<JsonFields>();
        let read = fields
            .filter(|fields| fields.knows(NAME_FIELD) && fields.unread() != Some(Unread::Unwanted));
        let name = match read {
            Some(fields) => named(fields).map(Cow::Borrowed),
            None => header(head.headers(), &NAME).unwrap_or_default(),
        };
        name.ok_or(Missing::ByClient)
    }
}

impl Read for McpName {
    fn read(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok(self.value(head)?.into_key())
    }
}

impl KeyOf for McpName {
    type Value<'a> = &'a str;

    fn make(&self, value: &str) -> Result<Key, Missing> {
        Ok(value.into_key())
    }
}

/// Returns the name that the body has.
fn named(fields: &JsonFields) -> Option<&str> {
    let is_of_a_resource = fields
        .text(METHOD_FIELD)
        .is_some_and(|method| method.starts_with("resources/"));
    fields.text(if is_of_a_resource {
        URI_FIELD
    } else {
        NAME_FIELD
    })
}

impl WantedFields {
    /// Adds the fields that headers of the protocol repeat.
    pub(crate) fn mcp(&mut self) -> Result<(), ConfigError> {
        self.also_in_headers();
        FIELDS.into_iter().try_for_each(|path| self.text(path))
    }
}

impl JsonFields {
    /// Returns the fields of a request with these headers.
    pub(crate) fn under(self, headers: &HeaderMap) -> Self {
        if self.are_in_headers() && !agree(headers, &self) {
            self.mismatched()
        } else {
            self
        }
    }
}

/// Returns whether the headers say what the body says, as far as they are there.
fn agree(headers: &HeaderMap, fields: &JsonFields) -> bool {
    let method = fields.text(METHOD_FIELD);
    let is = |name: &HeaderName, value: Option<&str>| match header(headers, name) {
        Ok(Some(text)) => Some(&*text) == value,
        Ok(None) => true,
        Err(Garbled) => false,
    };
    // The protocol says what the name is for these methods alone.
    let has_name = matches!(
        method,
        Some("tools/call" | "prompts/get" | "resources/read")
    );
    is(&METHOD, method) && (!has_name || is(&NAME, named(fields)))
}

/// A header that has several values, or none that can be read.
#[derive(Debug)]
struct Garbled;

/// Returns the text of a header, without its coding.
fn header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<Cow<'h, str>>, Garbled> {
    let mut values = headers.get_all(name).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return Ok(None),
        (Some(value), None) => value.to_str().map_err(|_| Garbled)?,
        (Some(_), Some(_)) => return Err(Garbled),
    };
    let coded = value
        .get(..PREFIX.len())
        .filter(|prefix| prefix.eq_ignore_ascii_case(PREFIX))
        .and_then(|_| value.get(PREFIX.len()..)?.strip_suffix(SUFFIX));
    let Some(coded) = coded else {
        return Ok(Some(value.into()));
    };
    let decoded = STANDARD.decode(coded).map_err(|_| Garbled)?;
    let text = String::from_utf8(decoded).map_err(|_| Garbled)?;
    Ok(Some(text.into()))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(values: &[&'static str]) -> Result<Option<String>, Garbled> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(NAME, HeaderValue::from_static(value));
        }
        header(&headers, &NAME).map(|text| text.map(Cow::into_owned))
    }

    #[test]
    fn a_name_in_base64_is_decoded() {
        for (value, name) in [
            ("search", "search"),
            ("=?base64?c2VhcmNo?=", "search"),
            ("=?BASE64?c2VhcmNo?=", "search"),
            ("=?base64?dMO2w7Zs?=", "tööl"),
            ("=?base64??=", ""),
            // The sentinel itself, as a client has to send it.
            ("=?base64?PT9iYXNlNjQ/eD89?=", "=?base64?x?="),
            ("=?base64?c2VhcmNo", "=?base64?c2VhcmNo"),
            ("=?utf-8?c2VhcmNo?=", "=?utf-8?c2VhcmNo?="),
        ] {
            assert_eq!(read(&[value]).unwrap().as_deref(), Some(name), "{value}");
        }
        assert_eq!(read(&[]).unwrap(), None);
        for garbled in [
            &["search", "search"][..],
            &["=?base64?c2VhcmN?="],
            &["=?base64?c2Vh cmNo?="],
            &["=?base64?/w==?="],
        ] {
            assert!(read(garbled).is_err(), "{garbled:?}");
        }
    }
}
