use std::any::TypeId;
use std::fmt;

use super::combinators::{combinators, hashed};
use super::take::Take;
use super::{Extract, Extracted, Head, Key, KeyOf, Missing, Secret};

/// A key that a closure makes from the value of an extractor: what `map` returns.
///
/// The result of the closure must not borrow from the request: `IntoKey::into_key` copies without
/// allocating. If the extractor is hashed, the result is hashed too.
#[derive(Clone, Copy)]
pub struct Map<E, F> {
    of: E,
    map: F,
}

impl<E, F> Map<E, F> {
    pub(super) fn new(of: E, map: F) -> Self {
        Self { of, map }
    }
}

impl<E, F, K> Extract for Map<E, F>
where
    E: Take,
    F: for<'a> Fn(E::Out<'a>) -> K + Send + Sync + 'static,
    K: Extracted,
{
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok(self.of.seal((self.map)(self.of.take(head)?).extracted()?))
    }

    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        (self.map)(self.of.list_value(head)?).extracted()
    }

    /// Two closures of one type without captures return the same result.
    fn identity(&self) -> Option<String> {
        let is_pure = size_of::<F>() == 0;
        let reads = self.of.reads().filter(|_| is_pure)?;
        Some(format!("{reads} mapped by {:?}", TypeId::of::<F>()))
    }

    fn is_of_this_process(&self) -> bool {
        self.of.secret().is_some_and(Secret::is_of_the_process)
    }
}

impl<E, F, K> KeyOf for Map<E, F>
where
    E: Take,
    F: for<'a> Fn(E::Out<'a>) -> K + Send + Sync + 'static,
    K: Extracted,
{
    /// The argument of the closure.
    type Value<'a> = E::Out<'a>;

    fn make(&self, value: E::Out<'_>) -> Result<Key, Missing> {
        Ok(self.of.seal((self.map)(value).extracted()?))
    }
}

impl<E: fmt::Debug, F> fmt::Debug for Map<E, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map")
            .field("of", &self.of)
            .finish_non_exhaustive()
    }
}

combinators!(Map<E, F>; E, F);
hashed!(Map<E, F>; E, F);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key;

    /// Whether two policies with this value, mapped by one closure, have one key: of these, the stricter one alone binds.
    fn is_compared<E: Take + Extract>(of: E) -> bool {
        let plain = of.identity().expect("it reads one value");
        let mapped = Map::new(of, |_: E::Out<'_>| 1_u64).identity();
        mapped.is_some_and(|mapped| mapped.starts_with(&plain))
    }

    #[test]
    fn what_an_extractor_reads_is_known_behind_a_closure_too() {
        assert!(is_compared(key::header("x-tenant")));
        assert!(is_compared(key::client_ip()));
        assert!(is_compared(key::peer_ip()));
        assert!(is_compared(key::extension::<u64>()));
        #[cfg(feature = "tonic")]
        {
            assert!(is_compared(key::client_certificate()));
            assert!(is_compared(key::grpc_method()));
            assert!(is_compared(key::grpc_service()));
            assert!(is_compared(key::metadata("x-tenant")));
        }
    }
}
