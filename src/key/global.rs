use super::combinators::{combinators, hashed};
use super::{Extract, Head, Key, KeyOf, Missing};

/// One key for all requests: they share one quota.
///
/// ```
/// use tower_ratelimit::{Policy, TokenBucket, key};
///
/// let policy = Policy::new("site", TokenBucket::per_second(1_000)).key(key::global());
/// ```
///
/// One client alone can use all of it: declare a policy on the address beside it.
/// [`Key::GLOBAL`] is the same key outside of extractors.
pub fn global() -> Global {
    Global(())
}

/// The extractor that [`global`] returns.
#[derive(Clone, Copy, Debug)]
pub struct Global(());

impl Extract for Global {
    fn extract(&self, _: &Head<'_>) -> Result<Key, Missing> {
        Ok(Key::GLOBAL)
    }

    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

impl KeyOf for Global {
    type Value<'a> = ();

    fn make(&self, (): ()) -> Result<Key, Missing> {
        Ok(Key::GLOBAL)
    }
}

combinators!(Global);
hashed!(Global);
