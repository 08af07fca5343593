//! The methods of extractors. They are inherent, so that nobody has to import a trait.

/// What every extractor has.
macro_rules! combinators {
    ($extractor:ty $(; $($generics:tt)+)?) => {
        impl $(<$($generics)+>)? $extractor {
            /// This key, or if the client has left it out, the other one; see
            /// [`Or`](crate::key::Or).
            ///
            /// The key says which source it is of, so that nobody who writes an address into a
            /// header is counted as that address. Mind what a client can choose: whether it sends
            /// the first, and if nobody verifies it, a fresh value with a fresh quota each time.
            pub fn or<Other>(self, other: Other) -> crate::key::Or<Self, Other>
            where
                Self: crate::key::Extract,
                Other: crate::key::Extract,
            {
                crate::key::Or::new(self, other)
            }

            /// This key and the other one, as one; see [`And`](crate::key::And).
            pub fn and<Other>(self, other: Other) -> crate::key::And<Self, Other>
            where
                Self: crate::key::Extract,
                Other: crate::key::Extract,
            {
                crate::key::And::new(self, other)
            }

            /// This key, with a constant part before it; see [`Prefix`](crate::key::Prefix).
            pub fn prefix(self, prefix: impl crate::key::IntoKey) -> crate::key::Prefix<Self>
            where
                Self: crate::key::Extract,
            {
                crate::key::Prefix::new(prefix.into_key(), self)
            }

            /// The key that counts a request with this value: what an operator gives a
            /// [`Limiter`](crate::Limiter) to block or to inspect a client. See
            /// [keys for an operator](crate::key#keys-for-an-operator).
            ///
            /// # Errors
            ///
            /// When a request with this value has no key.
            pub fn key_of(
                &self,
                value: <Self as crate::key::KeyOf>::Value<'_>,
            ) -> Result<crate::key::Key, crate::key::Missing>
            where
                Self: crate::key::KeyOf,
            {
                crate::key::KeyOf::make(self, value)
            }

            /// Whether what is read is one of these: a condition for
            /// [`Policy::when`](crate::Policy::when), and for lists.
            ///
            /// Compared is what is read of the request, before it is hashed, has a prefix, or says
            /// which source it is of. The condition does not hold where nothing can be read.
            ///
            /// They are of the type of what is read: text is no address, and an
            /// [`IpAddr`](std::net::IpAddr) of IPv6 stands for its /64 network.
            pub fn one_of<K: crate::key::IntoKey>(
                self,
                listed: impl IntoIterator<Item = K>,
            ) -> impl Fn(&crate::key::Head<'_>) -> bool + Clone + Send + Sync + 'static
            where
                Self: crate::key::Extract,
            {
                crate::key::list::one_of(self, listed)
            }
        }
    };
}

/// What every extractor has that is not hashed by itself.
macro_rules! hashed {
    ($extractor:ty $(; $($generics:tt)+)?) => {
        impl $(<$($generics)+>)? $extractor {
            /// 128 bits of a keyed hash in place of this key, for what must not be seen; see
            /// [`Secret`](crate::key::Secret).
            pub fn hashed(self, secret: &crate::key::Secret) -> crate::key::Hashed<Self>
            where
                Self: crate::key::Extract,
            {
                crate::key::Hashed::new(secret.clone(), self)
            }
        }
    };
}

/// What every extractor has that reads a value of a type of its own.
macro_rules! map {
    ($extractor:ty, $value:ty $(; $($generics:tt)+)?) => {
        impl $(<$($generics)+>)? $extractor {
            /// What the closure makes of the value; see [`Map`](crate::key::Map).
            pub fn map<F, K>(self, map: F) -> crate::key::Map<Self, F>
            where
                F: Fn($value) -> K + Send + Sync + 'static,
                K: crate::key::Extracted,
            {
                crate::key::Map::new(self, map)
            }
        }
    };
}

/// What every extractor has that reads an address.
macro_rules! within {
    ($extractor:ty) => {
        impl $extractor {
            /// Whether the address is in one of these networks (or is one of these addresses): a
            /// condition for [`Policy::when`](crate::Policy::when), and for lists.
            ///
            /// It does not hold where there is no address, nor where a trusted proxy does not tell
            /// the client's. An address of IPv4 that is mapped into IPv6 is that address of IPv4.
            ///
            /// # Panics
            ///
            /// When one of them is not a network or an address, or when a network has bits behind
            /// its prefix (`10.1.2.3/8`). This is meant for literals, at start-up;
            #[doc = concat!("[`try_within`](", stringify!($extractor), "::try_within) returns an error.")]
            #[track_caller]
            pub fn within(
                self,
                networks: impl IntoIterator<Item: AsRef<str>>,
            ) -> impl Fn(&crate::key::Head<'_>) -> bool + Clone + Send + Sync + 'static {
                crate::error::or_panic(self.try_within(networks))
            }

            /// Whether the address is in one of these networks; see
            #[doc = concat!("[`within`](", stringify!($extractor), "::within).")]
            ///
            /// # Errors
            ///
            /// When one of them is not a network or an address, or when a network has bits behind
            /// its prefix.
            pub fn try_within(
                self,
                networks: impl IntoIterator<Item: AsRef<str>>,
            ) -> Result<
                impl Fn(&crate::key::Head<'_>) -> bool + Clone + Send + Sync + 'static,
                crate::error::ConfigError,
            > {
                crate::key::list::within(self, networks)
            }
        }
    };
}

pub(super) use {combinators, hashed, map, within};
