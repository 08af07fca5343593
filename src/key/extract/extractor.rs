//! The type of all extractors of this room, with the methods that combine them. The methods are inherent, so that they
//! need no trait import.

use std::fmt;
use std::net::IpAddr;

use tower_ratelimit_core::__internal::or_panic;

use super::list;
use super::{And, Extract, Extracted, Head, IntoKey, Key, Map, Missing, Or, Prefix, Secret};
use crate::error::ConfigError;

/// A key extractor of [this module](crate::key): what its functions return.
///
/// `R` is what it reads. Only [`ClientIp`](super::ClientIp) has a name outside of this crate: a function that takes or returns
/// another extractor says `impl Extract`, and joins or maps it before. An extractor is cheap to clone.
#[derive(Clone)]
pub struct Extractor<R> {
    pub(super) source: R,
    /// The secret that hashes the key.
    pub(super) secret: Option<Secret>,
}

/// What an extractor reads.
pub trait Origin: Send + Sync + 'static {
    /// See [`Extract::identity`].
    fn identity(&self) -> Option<String>;

    /// See [`Extract::root`].
    fn root(&self) -> Option<String> {
        self.identity()
    }

    /// Describes the credential that it reads; see [`Extract::credential_in_the_clear`].
    fn credential(&self) -> Option<String> {
        None
    }

    /// See [`Extract::is_of_this_process`].
    fn is_of_this_process(&self) -> bool {
        false
    }

    /// See [`Extract::chosen_by_client`].
    fn chosen(&self) -> Option<String> {
        None
    }
}

/// The source of a key.
pub trait Read: Origin {
    /// Returns the key, before it is hashed.
    fn read(&self, head: &Head<'_>) -> Result<Key, Missing>;

    /// Returns the key that lists compare; see [`Extract::plain`].
    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.read(head)
    }
}

/// The source of a value with a type, which `map` passes to a closure, borrowed from the request.
pub trait Typed: Origin {
    type Value<'a>;

    fn value<'a>(&self, head: &Head<'a>) -> Result<Self::Value<'a>, Missing>;

    /// Returns the value that lists compare: the value, unless it replaces another one.
    fn list_value<'a>(&self, head: &Head<'a>) -> Result<Self::Value<'a>, Missing> {
        self.value(head)
    }
}

/// A source whose value makes the key, whether it is of a request or an operator has given it.
pub trait Keyed: Typed {
    fn key(&self, value: Self::Value<'_>) -> Result<Key, Missing>;
}

/// Makes the key for a value, without a request that has the value.
///
/// Extractors have the method `key_of`, which uses this trait, so that nothing has to be imported. The trait
/// documents the type of the value. See [keys for an operator](crate::key#keys-for-an-operator).
#[diagnostic::on_unimplemented(
    message = "`{Self}` makes no key of a value alone",
    note = "a closure reads a request: make one up that is like the client's, and call `Extract::extract(&extractor, &Head::of(&request))`"
)]
pub trait KeyOf {
    /// The value that the extractor reads from a request.
    type Value<'a>;

    /// Returns the key that counts a request with this value.
    ///
    /// # Errors
    ///
    /// When a request with this value has no key, as [`Extract::extract`] says.
    fn make(&self, value: Self::Value<'_>) -> Result<Key, Missing>;
}

impl<R: Keyed> Read for R {
    fn read(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.key(self.value(head)?)
    }
}

impl<R: Keyed> KeyOf for R {
    type Value<'a> = <R as Typed>::Value<'a>;

    fn make(&self, value: Self::Value<'_>) -> Result<Key, Missing> {
        self.key(value)
    }
}

impl<R> Extractor<R> {
    pub(super) fn of(source: R) -> Self {
        Self {
            source,
            secret: None,
        }
    }

    #[inline]
    fn seal(&self, plain: Key) -> Key {
        match &self.secret {
            Some(secret) => secret.hash(plain),
            None => plain,
        }
    }

    /// Sets the secret that hashes the key: 128 bits of a keyed hash stand in place of a secret value; see [`Secret`].
    ///
    /// [`api_key`](super::api_key()), [`bearer_token`](super::bearer_token()) and [`cookie`](super::cookie()) are hashed with
    /// [`Secret::of_the_process`] until then.
    pub fn hashed(self, secret: &Secret) -> Self {
        Self {
            secret: Some(secret.clone()),
            ..self
        }
    }

    /// Returns this key, or the other one if the client has left this one out.
    ///
    /// The key contains its source. A client that writes an address into a header is not counted as
    /// that address:
    ///
    /// ```
    /// use tower_ratelimit::key;
    /// use tower_ratelimit::{Policy, TokenBucket};
    ///
    /// #[derive(Clone)]
    /// struct User {
    ///     id: u64,
    /// }
    ///
    /// let user = key::extension::<User>().optional().map(|user: &User| user.id);
    /// let policy = Policy::new("caller", TokenBucket::per_second(5)).key(user.or(key::client_ip()));
    /// ```
    ///
    /// A client that chooses whether to send the first key chooses which of the two counts it, and a
    /// fresh value each time has a fresh quota each time. Take a verified first key, or declare a
    /// policy on the address beside it.
    ///
    /// The second key is read only if the client has left the first out. If the server has not provided
    /// the first, the result is [`Missing::ByServer`], so a server error does not move clients to
    /// another quota. The key is missing if both are missing.
    pub fn or<Other: Extract>(self, other: Other) -> Extractor<Or<Self, Other>>
    where
        R: Read,
    {
        Extractor::of(Or::new(self, other))
    }

    /// Returns this key and the other one as one key.
    ///
    /// The parts cannot run together: `("a", "b:c")` is not `("a:b", "c")`. The key is missing if
    /// either part is missing. All requests without a part then share one quota, whatever the other
    /// part is. To count them apart, give that part a substitute with `or`.
    ///
    /// ```
    /// use tower_ratelimit::key;
    /// use tower_ratelimit::{Policy, TokenBucket};
    ///
    /// let by_user = Policy::new("login", TokenBucket::per_minute(5))
    ///     .key(key::client_ip().and(key::query("user")));
    /// let by_address = Policy::new("logins", TokenBucket::per_minute(20)).key(key::client_ip());
    /// ```
    ///
    /// Each value of a part that the client chooses has a quota of its own. The second policy bounds
    /// how many users one address can try, and how many spellings of one user.
    pub fn and<Other: Extract>(self, other: Other) -> Extractor<And<Self, Other>>
    where
        R: Read,
    {
        Extractor::of(And::new(self, other))
    }

    /// Returns this key with a constant part before it.
    ///
    /// It separates values of one source that mean different things, for example in the branches of an
    /// [`or`](Self::or), or for one [`Limiter`](crate::Limiter) that serves several applications. As
    /// in [`and`](Self::and), the parts cannot run together.
    pub fn prefix(self, prefix: impl IntoKey) -> Extractor<Prefix<Self>>
    where
        R: Read,
    {
        Extractor::of(Prefix::new(prefix.into_key(), self))
    }

    /// Returns a key made by a closure from the value, which has a type.
    ///
    /// The result of the closure must not borrow from the request: `IntoKey::into_key` copies without
    /// allocating. If the extractor is hashed, the result is hashed too.
    pub fn map<F, K>(self, map: F) -> Extractor<Map<R, F>>
    where
        R: Typed,
        F: for<'a> Fn(R::Value<'a>) -> K + Send + Sync + 'static,
        K: Extracted,
    {
        Extractor {
            source: Map::new(self.source, map),
            secret: self.secret,
        }
    }

    /// Returns the key that counts a request with this value: what an operator gives a
    /// [`Limiter`](crate::Limiter) to block or to inspect a client. See
    /// [keys for an operator](crate::key#keys-for-an-operator).
    ///
    /// # Errors
    ///
    /// When a request with this value has no key.
    pub fn key_of(&self, value: R::Value<'_>) -> Result<Key, Missing>
    where
        R: KeyOf,
    {
        self.make(value)
    }

    /// Returns whether what is read is one of these: a condition for
    /// [`Policy::when`](crate::Policy::when), and for lists.
    ///
    /// The condition compares the value as it is read from the request, without hash,
    /// prefix and source. It does not hold if the request has no value.
    ///
    /// The listed values have the type of the value: text is never equal to an address, and
    /// an IPv6 [`IpAddr`] stands for its /64 network.
    pub fn one_of<K: IntoKey>(
        self,
        listed: impl IntoIterator<Item = K>,
    ) -> impl Fn(&Head<'_>) -> bool + Clone + Send + Sync + 'static
    where
        R: Read,
    {
        list::one_of(self.source, listed)
    }
}

/// Extractors of an address.
impl<R: for<'a> Typed<Value<'a> = IpAddr>> Extractor<R> {
    /// Returns the address, for a condition or a key of your own.
    ///
    /// # Errors
    ///
    /// When there is no address, and when a trusted proxy does not tell the address of the client.
    pub fn address(&self, head: &Head<'_>) -> Result<IpAddr, Missing> {
        self.source.value(head)
    }

    /// Returns whether the address is in one of these networks, or is one of these addresses: a
    /// condition for [`Policy::when`](crate::Policy::when), and for lists.
    ///
    /// The condition does not hold if there is no address, nor if a trusted proxy does not
    /// tell the address of the client. An IPv4-mapped IPv6 address is the IPv4 address.
    ///
    /// # Panics
    ///
    /// When one of them is not a network or an address, or when a network has bits behind
    /// its prefix (`10.1.2.3/8`). This is meant for literals, at start-up;
    /// [`try_within`](Self::try_within) returns an error.
    #[track_caller]
    pub fn within(
        self,
        networks: impl IntoIterator<Item: AsRef<str>>,
    ) -> impl Fn(&Head<'_>) -> bool + Clone + Send + Sync + 'static {
        or_panic(self.try_within(networks))
    }

    /// Returns whether the address is in one of these networks; see [`within`](Self::within).
    ///
    /// # Errors
    ///
    /// When one of them is not a network or an address, or when a network has bits behind
    /// its prefix.
    pub fn try_within(
        self,
        networks: impl IntoIterator<Item: AsRef<str>>,
    ) -> Result<impl Fn(&Head<'_>) -> bool + Clone + Send + Sync + 'static, ConfigError> {
        list::within(self.source, networks)
    }
}

impl<R: Read> Extract for Extractor<R> {
    #[inline]
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        Ok(self.seal(self.source.read(head)?))
    }

    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.source.plain(head)
    }

    fn identity(&self) -> Option<String> {
        self.source.identity()
    }

    fn root(&self) -> Option<String> {
        let root = self.source.root()?;
        Some(match &self.secret {
            None => root,
            Some(secret) => format!("{root} hashed as {:?}", secret.hash(Key::GLOBAL)),
        })
    }

    fn credential_in_the_clear(&self) -> Option<String> {
        self.source.credential().filter(|_| self.secret.is_none())
    }

    fn is_of_this_process(&self) -> bool {
        let secret = self.secret.as_ref();
        secret.is_some_and(Secret::is_of_the_process) || self.source.is_of_this_process()
    }

    fn chosen_by_client(&self) -> Option<String> {
        self.source.chosen()
    }
}

impl<R: KeyOf> KeyOf for Extractor<R> {
    type Value<'a> = R::Value<'a>;

    fn make(&self, value: R::Value<'_>) -> Result<Key, Missing> {
        Ok(self.seal(self.source.make(value)?))
    }
}

impl<R: fmt::Debug> fmt::Debug for Extractor<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.secret {
            None => self.source.fmt(f),
            Some(_) => f.debug_tuple("Hashed").field(&self.source).finish(),
        }
    }
}
