use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use ahash::RandomState;

use super::networks::Networks;
use super::take::Take;
use super::{Extract, Head, IntoKey, Key, Missing};
use crate::diagnostics::diagnose;
use crate::error::ConfigError;

/// Returns whether the value that an extractor reads is listed.
pub(super) fn one_of<E: Extract, K: IntoKey>(
    extractor: E,
    listed: impl IntoIterator<Item = K>,
) -> impl Fn(&Head<'_>) -> bool + Clone + Send + Sync + 'static {
    let listed: HashSet<Key, RandomState> = listed.into_iter().map(IntoKey::into_key).collect();
    let list = Arc::new((extractor, listed));
    move |head: &Head<'_>| holds(list.0.plain(head), |key| list.1.contains(&key))
}

/// Returns whether the address that an extractor reads is in one of these networks.
pub(super) fn within<E, N>(
    extractor: E,
    networks: N,
) -> Result<impl Fn(&Head<'_>) -> bool + Clone + Send + Sync + 'static, ConfigError>
where
    E: for<'a> Take<Out<'a> = IpAddr>,
    N: IntoIterator<Item: AsRef<str>>,
{
    let networks = Networks::parse("within", networks)?;
    let list = Arc::new((extractor, networks));
    Ok(move |head: &Head<'_>| holds(list.0.list_value(head), |address| list.1.contains(address)))
}

/// A condition does not hold for an absent value. If the server has not provided it, the diagnostic
/// is logged.
fn holds<T>(read: Result<T, Missing>, condition: impl FnOnce(T) -> bool) -> bool {
    match read {
        Ok(value) => condition(value),
        Err(Missing::ByClient) => false,
        Err(Missing::ByServer(diagnostic)) => {
            diagnose(&diagnostic);
            false
        }
    }
}
