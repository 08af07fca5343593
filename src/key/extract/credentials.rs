//! The names under which clients send credentials.

use http::HeaderMap;
use http::header::{COOKIE, HeaderName};

use super::Key;

/// Header fields whose value is a credential as a rule: with it another can act as the client.
const HEADERS: &[&str] = &[
    // HTTP: RFC 9110, sections 11.6.2 and 11.7.2. Sessions: RFC 6265, section 5.4.
    "authorization",
    "proxy-authorization",
    "cookie",
    // The spellings of an API key that frameworks and gateways read unless told otherwise.
    "x-api-key",
    "x-apikey",
    "api-key",
    "apikey",
    "x-api-token",
    "x-auth-key",
    "x-auth-token",
    "x-access-token",
    "x-session-token",
    // Those of vendors: AWS, Azure, GitLab, Google Cloud, HashiCorp Vault, and proxies that pass on the
    // token of a login.
    "cf-access-jwt-assertion",
    "ocp-apim-subscription-key",
    "private-token",
    "x-amz-security-token",
    "x-amzn-oidc-data",
    "x-forwarded-access-token",
    "x-functions-key",
    "x-goog-api-key",
    "x-vault-token",
];

/// Query parameters with credentials as a rule. `access_token` is RFC 6750, section 2.3. A `key` or a `code`
/// is too often something else.
const PARAMETERS: &[&str] = &[
    "access_token",
    "api-key",
    "api_key",
    "apikey",
    "auth_token",
    "token",
];

/// Describes the credential in the key of a header of this name, if its value is one.
pub(super) fn in_header(name: &HeaderName) -> Option<String> {
    let is_credential = HEADERS.contains(&name.as_str());
    is_credential.then(|| format!("header {name}"))
}

/// Describes a credential among these headers that is in the key as it was sent.
pub(crate) fn credential_shown_by(key: &Key, headers: &HeaderMap) -> Option<String> {
    let shown = headers.iter().find(|(name, value)| {
        let value = value.as_bytes();
        // The credential may follow a scheme. A cookie may be anything; only all of them together are a
        // credential.
        let space = value.iter().position(|byte| *byte == b' ');
        let token = space
            .filter(|_| **name != COOKIE)
            .map(|at| &value[at + 1..]);
        let is_shown = |part: &[u8]| part.len() >= SHORTEST && key.shows(part);
        HEADERS.contains(&name.as_str()) && (is_shown(value) || token.is_some_and(is_shown))
    });
    let (name, _) = shown?;
    in_header(name)
}

/// A shorter text may be in a key by chance.
const SHORTEST: usize = 8;

/// Names the query parameter, if credentials are usually sent in it.
pub(super) fn in_parameter(name: &str) -> Option<String> {
    let is_credential = PARAMETERS
        .iter()
        .any(|listed| name.eq_ignore_ascii_case(listed));
    is_credential.then(|| format!("query parameter {name}"))
}
