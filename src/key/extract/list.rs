use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use ahash::RandomState;

use tower_ratelimit_core::__internal::diagnose;

use super::networks::Networks;
use super::{Head, IntoKey, Key, Missing, Read, Typed};
use crate::error::ConfigError;

/// Returns whether the value of a source is listed.
pub(super) fn one_of<R: Read, K: IntoKey>(
    source: R,
    listed: impl IntoIterator<Item = K>,
) -> impl Fn(&Head<'_>) -> bool + Clone + Send + Sync + 'static {
    let listed: HashSet<Key, RandomState> = listed.into_iter().map(IntoKey::into_key).collect();
    let list = Arc::new((source, listed));
    move |head: &Head<'_>| holds(list.0.plain(head), |key| list.1.contains(&key))
}

/// Returns whether the address of a source is in one of these networks.
pub(super) fn within<R, N>(
    source: R,
    networks: N,
) -> Result<impl Fn(&Head<'_>) -> bool + Clone + Send + Sync + 'static, ConfigError>
where
    R: for<'a> Typed<Value<'a> = IpAddr>,
    N: IntoIterator<Item: AsRef<str>>,
{
    let networks = Networks::parse("within", networks)?;
    let list = Arc::new((source, networks));
    Ok(move |head: &Head<'_>| holds(list.0.list_value(head), |address| list.1.contains(address)))
}

/// A condition does not hold for an absent value. If the server has not provided it, the diagnostic
/// is logged.
fn holds<T>(read: Result<T, Missing>, condition: impl FnOnce(T) -> bool) -> bool {
    match read {
        Ok(value) => condition(value),
        Err(Missing::ByServer(diagnostic)) => {
            diagnose(&diagnostic);
            false
        }
        Err(_) => false,
    }
}
