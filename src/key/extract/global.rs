use super::{Extractor, Head, Key, Keyed, Missing, Origin, Typed};

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
pub fn global() -> Extractor<Global> {
    Extractor::of(Global(()))
}

#[derive(Clone, Copy, Debug)]
pub struct Global(());

impl Origin for Global {
    fn identity(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

impl Typed for Global {
    type Value<'a> = ();

    fn value(&self, _: &Head<'_>) -> Result<(), Missing> {
        Ok(())
    }
}

impl Keyed for Global {
    fn key(&self, (): ()) -> Result<Key, Missing> {
        Ok(Key::GLOBAL)
    }
}
