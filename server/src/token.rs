//! The secret that tells an operator from others.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::AUTHORIZATION;
use subtle::ConstantTimeEq;
use tokio::time::sleep;
use tower_ratelimit::key::Head;

use crate::certificate::warn_of_readers;

/// The time between two looks at the file.
const AGAIN: Duration = Duration::from_secs(10);

/// The token of operators. Clones share it.
#[derive(Clone)]
pub struct Token {
    path: Arc<Path>,
    state: Arc<Mutex<TokenFile>>,
}

struct TokenFile {
    token: Arc<str>,
    /// What the file had when it was read last, or why it could not be read.
    newest: Result<Arc<str>, String>,
}

impl Token {
    /// Reads the token from a file, without the white space around it.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, and when it has fewer than 16 bytes.
    pub fn read(path: &Path) -> Result<Self, String> {
        let token = read(path)?;
        warn_of_readers("ops-token-file", path);
        let newest = Ok(token.clone());
        Ok(Self {
            path: PathBuf::from(path).into(),
            state: Arc::new(Mutex::new(TokenFile { token, newest })),
        })
    }

    /// Looks at the file for as long as the process runs.
    pub(crate) async fn follow(self) {
        loop {
            sleep(AGAIN).await;
            let token = self.clone();
            let _ = tokio::task::spawn_blocking(move || token.reload()).await;
        }
    }

    /// Takes what the file has now. With a mistake in it, the token stays.
    pub(crate) fn reload(&self) {
        let newest = read(&self.path);
        let mut state = self.lock();
        if state.newest == newest {
            return;
        }
        match &newest {
            Ok(token) => {
                tracing::info!("--ops-token-file was read again");
                warn_of_readers("ops-token-file", &self.path);
                state.token = token.clone();
            }
            Err(error) => tracing::warn!("the token stays as it was: {error}"),
        }
        state.newest = newest;
    }

    fn lock(&self) -> MutexGuard<'_, TokenFile> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        let token = self.lock().token.clone();
        token.as_bytes().ct_eq(other).into()
    }
}

/// Leaves out the token.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

fn read(path: &Path) -> Result<Arc<str>, String> {
    let wrong = |why: &str| format!("--ops-token-file: {}: {why}", path.display());
    let text = fs::read_to_string(path).map_err(|error| wrong(&error.to_string()))?;
    let text = text.trim();
    if text.len() < 16 {
        return Err(wrong(
            "it has fewer than 16 bytes; write a random token, such as that of `openssl rand -hex 16`",
        ));
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_file_is_followed_without_a_signal() {
        let path = std::env::temp_dir().join(format!("ratelimitd-token-{}", std::process::id()));
        fs::write(&path, "0123456789abcdef\n").unwrap();
        let token = Token::read(&path).unwrap();
        let following = tokio::spawn(token.clone().follow());
        fs::write(&path, "fedcba9876543210\n").unwrap();
        assert!(token.is(b"0123456789abcdef"));
        sleep(2 * AGAIN).await;
        assert!(token.is(b"fedcba9876543210") && !token.is(b"0123456789abcdef"));
        following.abort();
        fs::remove_file(path).unwrap();
    }
}
