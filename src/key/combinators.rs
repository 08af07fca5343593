//! The methods of extractors. They are inherent, so that they need no trait import.

/// The methods of every extractor.
macro_rules! combinators {
    ($extractor:ty $(; $($generics:tt)+)?) => {
        impl $(<$($generics)+>)? $extractor {
            /// This key, or the other one if the client has left this one out; see
            /// [`Or`](crate::key::Or).
            ///
            /// The key contains its source, so a client that writes an address into a header is not
            /// counted as that address. The client chooses whether it sends the first key. If the
            /// first key is not verified, a fresh value each time has a fresh quota each time.
            pub fn or<Other>(self, other: Other) -> crate::key::Or<Self, Other>
            where
                Self: crate::key::Extract,
                Other: crate::key::Extract,
            {
                crate::key::Or::new(self, other)
            }

            /// This key and the other one as one key; see [`And`](crate::key::And).
            pub fn and<Other>(self, other: Other) -> crate::key::And<Self, Other>
            where
                Self: crate::key::Extract,
                Other: crate::key::Extract,
            {
                crate::key::And::new(self, other)
            }

            /// This key with a constant part before it; see [`Prefix`](crate::key::Prefix).
            pub fn prefix(self, prefix: impl crate::key::IntoKey) -> crate::key::Prefix<Self>
            where
                Self: crate::key::Extract,
            {
                crate::key::Prefix::new(prefix.into_key(), self)
            }

            /// Returns the key that counts a request with this value: what an operator gives a
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

            /// Returns whether what is read is one of these: a condition for
            /// [`Policy::when`](crate::Policy::when), and for lists.
            ///
            /// The condition compares the value as it is read from the request, without hash,
            /// prefix and source. It does not hold if the request has no value.
            ///
            /// The listed values have the type of the value: text is never equal to an address, and
            /// an IPv6 [`IpAddr`](std::net::IpAddr) stands for its /64 network.
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

/// The method of extractors that do not hash by themselves.
macro_rules! hashed {
    ($extractor:ty $(; $($generics:tt)+)?) => {
        impl $(<$($generics)+>)? $extractor {
            /// 128 bits of a keyed hash in place of this key, for secret values; see
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

/// The method of extractors that read a typed value.
macro_rules! map {
    ($extractor:ty, $value:ty $(; $($generics:tt)+)?) => {
        impl $(<$($generics)+>)? $extractor {
            /// Returns a key made by a closure from the value; see [`Map`](crate::key::Map).
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

/// The methods of extractors that read an address.
macro_rules! within {
    ($extractor:ty) => {
        impl $extractor {
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
            #[doc = concat!("[`try_within`](", stringify!($extractor), "::try_within) returns an error.")]
            #[track_caller]
            pub fn within(
                self,
                networks: impl IntoIterator<Item: AsRef<str>>,
            ) -> impl Fn(&crate::key::Head<'_>) -> bool + Clone + Send + Sync + 'static {
                crate::error::or_panic(self.try_within(networks))
            }

            /// Returns whether the address is in one of these networks; see
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
