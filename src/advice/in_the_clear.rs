//! Finds keys that should not be in a store of several processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tower_ratelimit_core::__internal::warn_once_of;

use crate::diagnostics::Diagnostic;
use crate::key::{Extract, Head, Key, Missing, credential_shown_by};
use crate::policy::{Http, Policy};

const IN_THE_CLEAR: Diagnostic = Diagnostic::new(
    "TRL015",
    "",
    "the store is shared, and a credential stands in its keys as clients send it",
    "keep a keyed hash of it: `key::api_key().hashed(&Secret::new(secret)?)`, or `.hashed(&secret)` of any other key; \
     in a file of limits: `key = \"api_key\"`, or `key = { hashed = { header = \"x-gateway-key\" } }`, and a `secret`",
);

const OWN_SECRET: Diagnostic = Diagnostic::new(
    "TRL013",
    "",
    "the store is shared, and the key is hashed with a secret that this process alone has, so that each counts by itself",
    "hash it with a secret from configuration, `.hashed(&Secret::new(secret)?)`, the same for all; \
     in a file of limits: `secret = { env = \"RATE_LIMIT_SECRET\" }`",
);

/// Warns of a key that should not be in a store of several processes: it shows a credential, or other processes make
/// different keys.
pub(crate) fn warn_of_sharing(policy: &mut Policy<Http>) {
    let name = policy.name().to_owned();
    let key = policy.extractor();
    if key.is_of_this_process() {
        warn_once_of(&OWN_SECRET, format!("policy {name:?}"));
    }
    *key = checked(&name, Arc::clone(key));
}

/// Wraps the extractor of a policy over a shared store. An extractor that says what it reads is reported at
/// once; the keys of a closure are checked in requests.
fn checked(policy: &str, key: Arc<dyn Extract>) -> Arc<dyn Extract> {
    if let Some(credential) = key.credential_in_the_clear() {
        warn(policy, &credential);
        return key;
    }
    Arc::new(CheckedKey {
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

struct CheckedKey {
    key: Arc<dyn Extract>,
    policy: String,
    /// The number of requests left to check.
    looks: AtomicU32,
}

impl CheckedKey {
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

impl Extract for CheckedKey {
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

    fn root(&self) -> Option<String> {
        self.key.root()
    }

    fn is_of_this_process(&self) -> bool {
        self.key.is_of_this_process()
    }

    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.key.plain(head)
    }
}
