//! Keyed hashes of secret values.
//!
//! A token must not stand in a store, a log or an error, and a plain hash of a short token can be
//! guessed. So extractors of tokens keep a keyed hash. Nodes of different versions share a store,
//! so the hash never changes.

use std::fmt;
use std::sync::{Arc, LazyLock};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{IntoKey, Key};
use crate::error::ConfigError;

/// The secret that hashes tokens and other secret values into keys.
///
/// The hash is HMAC-SHA-256, cut to 128 bits. A store contains no token, and a reader of the store
/// who does not know the secret cannot test whether a token was used.
///
/// Nodes that share a store must share the secret, so it comes from configuration there. By
/// default, extractors use [`Secret::of_the_process`], which is different in each process: each
/// node then counts apart, and counts anew after a restart.
///
/// In tower-ratelimit, `.key(key::bearer_token().hashed(&secret))` counts by a token.
#[derive(Clone)]
pub struct Secret(Arc<Hmac<Sha256>>);

impl Secret {
    const MIN_LEN: usize = 16;

    /// Makes a secret of these bytes, which should be random: at least 16, better 32.
    ///
    /// # Errors
    ///
    /// When there are fewer than 16 bytes. The error does not show them.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        let bytes = bytes.as_ref();
        let refused = || {
            ConfigError::new(
                "secret",
                format_args!("{} bytes long", bytes.len()),
                "give 16 random bytes or more",
            )
        };
        if bytes.len() < Self::MIN_LEN {
            return Err(refused());
        }
        let hash = Hmac::new_from_slice(bytes).map_err(|_| refused())?;
        Ok(Self(Arc::new(hash)))
    }

    /// Returns 256 random bits, made at the first call and then the same for the whole process.
    ///
    /// # Errors
    ///
    /// When the operating system provides no random bytes.
    pub fn of_the_process() -> Result<Self, ConfigError> {
        static RANDOM: LazyLock<Result<Secret, ConfigError>> = LazyLock::new(|| {
            let mut bytes = [0; 32];
            match getrandom::fill(&mut bytes) {
                Ok(()) => Secret::new(bytes),
                Err(error) => Err(ConfigError::new(
                    "secret",
                    format_args!("random ({error})"),
                    "mend the system's source of random bytes",
                )),
            }
        });
        RANDOM.clone()
    }

    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn is_of_the_process(&self) -> bool {
        Self::of_the_process().is_ok_and(|own| Arc::ptr_eq(&own.0, &self.0))
    }

    /// Returns the key for this value: the key that an extractor hashed with this secret makes of
    /// it.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::key::Secret;
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let secret = Secret::of_the_process()?;
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("token", FixedWindow::per_hour(1)))
    ///     .build_local()?;
    /// assert!(limiter.check(secret.hash("s.3cr3t"), 1).now().is_allowed());
    /// assert!(!limiter.check(secret.hash("s.3cr3t"), 1).now().is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn hash(&self, value: impl IntoKey) -> Key {
        Key::secret(self.half("", &value.into_key()))
    }

    fn half(&self, domain: &'static str, key: &Key) -> [u8; 16] {
        let mut hash = Hmac::clone(&self.0);
        hash.update(domain.as_bytes());
        key.with_bytes(|bytes| hash.update(bytes));
        let full: [u8; 32] = hash.finalize().into_bytes().into();
        let mut half = [0; 16];
        half.copy_from_slice(&full[..16]);
        half
    }
}

impl Secret {
    /// Returns a hash of the key for clients. It differs from the hash in a store.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn partition(&self, key: &Key) -> [u8; 16] {
        // A key begins with the number of its kind, which is never that of a letter.
        self.half("pk", key)
    }
}

/// Shows no part of the secret.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_of_the_process() {
            "Secret of the process"
        } else {
            "Secret"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> Secret {
        Secret::new([byte; 32]).unwrap()
    }

    #[test]
    fn a_hash_differs_by_value_kind_and_secret() {
        let long = "x".repeat(100);
        let keys = [
            "token".into_key(),
            secret(1).hash("token"),
            secret(2).hash("token"),
            secret(1).hash("tokens"),
            secret(1).hash(b"token"),
            secret(1).hash(secret(1).hash("token")),
            secret(1).hash(&*long),
            secret(1).hash(""),
        ];
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key), "{index}");
        }
        assert_eq!(secret(1).hash("token"), secret(1).hash("token"));
    }

    /// Nodes of different versions share a store, so the input and the hash never change: kind,
    /// length and value, by HMAC-SHA-256.
    #[test]
    fn hashes_stay_the_same_from_version_to_version() {
        let mut by_hand = Hmac::<Sha256>::new_from_slice(&[1; 32]).unwrap();
        by_hand.update(b"\x02\x05token");
        let full: [u8; 32] = by_hand.finalize().into_bytes().into();
        let mut half = [0; 16];
        half.copy_from_slice(&full[..16]);
        assert_eq!(secret(1).hash("token"), Key::secret(half));
    }

    #[test]
    fn a_client_and_a_store_see_different_hashes_of_a_key() {
        let key = "ann".into_key();
        let partition = secret(1).partition(&key);
        assert_ne!(Key::secret(partition), secret(1).hash(key));
        assert_ne!(Key::secret(partition), secret(1).hash(("pk", key)));
        assert_ne!(partition, secret(1).partition(&"bob".into_key()));
        assert_ne!(partition, secret(2).partition(&key));
        assert_ne!(partition, [0; 16]);
    }

    #[test]
    fn the_secret_of_the_process_is_one() {
        let [first, second] = [(); 2].map(|()| Secret::of_the_process().unwrap());
        assert_eq!(first.hash("token"), second.hash("token"));
        assert_ne!(first.hash("token"), secret(0).hash("token"));
    }

    #[test]
    fn fewer_than_16_bytes_are_refused_and_not_shown() {
        assert!(Secret::new([7; 16]).is_ok());
        let error = Secret::new("fifteen bytes !").unwrap_err();
        assert_eq!(
            error.to_string(),
            "`secret` cannot be 15 bytes long: give 16 random bytes or more",
        );
    }

    #[test]
    fn neither_a_secret_nor_what_it_hashes_is_shown() {
        let secret = Secret::new("correct horse battery").unwrap();
        let shown = format!("{secret:?} {:?}", secret.hash("token"));
        assert_eq!(shown, "Secret Key(secret)");
    }
}
