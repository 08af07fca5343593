//! Finds credentials that reach a shared store as clients send them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::diagnostics::{Diagnostic, warn_once_of};
use crate::key::{Extract, Head, Key, Missing, credential_shown_by};

const IN_THE_CLEAR: Diagnostic = Diagnostic::new(
    "TRL015",
    "",
    "the store is shared, and a credential stands in its keys as clients send it",
    "keep a keyed hash of it: `key::api_key().hashed(&Secret::new(secret)?)`, or `.hashed(&secret)` of any other key; \
     in a file of limits: `key = \"api_key\"`, or `key = { hashed = { header = \"x-gateway-key\" } }`, and a `secret`",
);

/// Wraps the extractor of a policy over a shared store. An extractor that says what it reads is reported at
/// once; the keys of a closure are checked in requests.
pub(super) fn watched(policy: &str, key: Arc<dyn Extract>) -> Arc<dyn Extract> {
    if let Some(credential) = key.credential_in_the_clear() {
        warn(policy, &credential);
        return key;
    }
    Arc::new(Watched {
        key,
        policy: policy.to_owned(),
        looks: AtomicU32::new(LOOKS),
    })
}

fn warn(policy: &str, credential: &str) {
    warn_once_of(&IN_THE_CLEAR, format!("policy {policy:?}, {credential}"));
}

/// The number of requests to check. A check of every request would cost each of them some 100 ns.
const LOOKS: u32 = 1_000;

struct Watched {
    key: Arc<dyn Extract>,
    policy: String,
    /// The number of requests left to check.
    looks: AtomicU32,
}

impl Watched {
    #[cold]
    fn look(&self, head: &Head<'_>, key: &Key) {
        let one_less = |looks: u32| looks.checked_sub(1);
        let order = Ordering::Relaxed;
        if self.looks.fetch_update(order, order, one_less).is_err() {
            return;
        }
        if let Some(credential) = credential_shown_by(key, head.headers()) {
            self.looks.store(0, order);
            warn(&self.policy, &credential);
        }
    }
}

impl Extract for Watched {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        let key = self.key.extract(head)?;
        if self.looks.load(Ordering::Relaxed) > 0 {
            self.look(head, &key);
        }
        Ok(key)
    }

    fn identity(&self) -> Option<String> {
        self.key.identity()
    }

    fn is_of_this_process(&self) -> bool {
        self.key.is_of_this_process()
    }

    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.key.plain(head)
    }
}
