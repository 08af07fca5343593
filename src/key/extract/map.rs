use std::fmt;

use super::from_fn::identity_of;
use super::{Extracted, Head, Key, KeyOf, Missing, Origin, Read, Typed};

/// A key that a closure makes from the value of a source.
#[derive(Clone, Copy)]
pub struct Map<R, F> {
    of: R,
    map: F,
}

impl<R, F> Map<R, F> {
    pub(super) fn new(of: R, map: F) -> Self {
        Self { of, map }
    }
}

impl<R, F, K> Origin for Map<R, F>
where
    R: Typed,
    F: for<'a> Fn(R::Value<'a>) -> K + Send + Sync + 'static,
    K: Extracted,
{
    fn identity(&self) -> Option<String> {
        let (reads, by) = (self.of.identity()?, identity_of::<F>()?);
        Some(format!("{reads} mapped by {by}"))
    }

    /// If the closure looks the value up, the policy can say so.
    fn chosen(&self) -> Option<String> {
        let chosen = self.of.chosen()?;
        Some(format!("{chosen} through a closure"))
    }
}

impl<R, F, K> Read for Map<R, F>
where
    R: Typed,
    F: for<'a> Fn(R::Value<'a>) -> K + Send + Sync + 'static,
    K: Extracted,
{
    fn read(&self, head: &Head<'_>) -> Result<Key, Missing> {
        (self.map)(self.of.value(head)?).extracted()
    }

    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        (self.map)(self.of.list_value(head)?).extracted()
    }
}

impl<R, F, K> KeyOf for Map<R, F>
where
    R: Typed,
    F: for<'a> Fn(R::Value<'a>) -> K + Send + Sync + 'static,
    K: Extracted,
{
    /// The argument of the closure.
    type Value<'a> = R::Value<'a>;

    fn make(&self, value: R::Value<'_>) -> Result<Key, Missing> {
        (self.map)(value).extracted()
    }
}

impl<R: fmt::Debug, F> fmt::Debug for Map<R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map")
            .field("of", &self.of)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{self, Extract, Extractor};

    /// Whether two policies with this value, mapped by one closure, have one key: of these, the stricter one alone binds.
    fn is_compared<R: Typed>(of: Extractor<R>) -> bool {
        let plain = of.source.identity().expect("it reads one value");
        let mapped = of.map(|_: R::Value<'_>| 1_u64).identity();
        mapped.is_some_and(|mapped| mapped.starts_with(&plain))
    }

    #[test]
    fn what_an_extractor_reads_is_known_behind_a_closure_too() {
        assert!(is_compared(key::header("x-tenant")));
        assert!(is_compared(key::client_ip()));
        assert!(is_compared(key::peer_ip()));
        assert!(is_compared(key::extension::<u64>()));
        assert!(is_compared(key::query("user")));
        assert!(is_compared(key::cookie("session")));
        assert!(is_compared(key::api_key()));
        assert!(is_compared(key::bearer_token()));
        assert!(is_compared(key::method()));
        #[cfg(feature = "axum")]
        assert!(is_compared(key::matched_path()));
        #[cfg(feature = "tonic")]
        {
            assert!(is_compared(key::client_certificate()));
            assert!(is_compared(key::grpc_method()));
            assert!(is_compared(key::grpc_service()));
            assert!(is_compared(key::metadata("x-tenant")));
        }
    }
}
