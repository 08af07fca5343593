//! The secret that tells an operator from others.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::AUTHORIZATION;
use subtle::ConstantTimeEq;
use tower_ratelimit::key::Head;

use crate::certificate::warn_of_readers;

/// The token of operators.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// Reads the token from a file, without the white space around it.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, and when it has fewer than 16 bytes.
    pub fn read(path: &Path) -> Result<Self, String> {
        let wrong = |why: &str| format!("--ops-token-file: {}: {why}", path.display());
        let text = fs::read_to_string(path).map_err(|error| wrong(&error.to_string()))?;
        let text = text.trim();
        if text.len() < 16 {
            return Err(wrong(
                "it has fewer than 16 bytes; write a random token, such as that of `openssl rand -hex 16`",
            ));
        }
        warn_of_readers("ops-token-file", path);
        Ok(Self(text.into()))
    }

    /// Returns whether a request has the token, as `Bearer` or as the password of `Basic`, which browsers ask for.
    pub(crate) fn is_in(&self, head: &Head<'_>) -> bool {
        let Some((scheme, rest)) = head
            .header(AUTHORIZATION.as_str())
            .and_then(|value| value.split_once(' '))
        else {
            return false;
        };
        let rest = rest.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return self.is(rest.as_bytes());
        }
        let decoded = scheme.eq_ignore_ascii_case("basic");
        let decoded = decoded.then(|| BASE64_STANDARD.decode(rest).ok()).flatten();
        let password = decoded.as_deref().and_then(|pair| {
            let colon = pair.iter().position(|byte| *byte == b':')?;
            Some(&pair[colon + 1..])
        });
        password.is_some_and(|password| self.is(password))
    }

    fn is(&self, other: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(other).into()
    }
}

/// Leaves out the token.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}
