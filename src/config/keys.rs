//! Keys: a word, a table for keys with a name, and combinations.

use super::fields::{CLIENT_IP, KEY};
use super::walk::{At, Table};
use crate::factor::FactorCell;
use crate::key::{self, AnyKey, ClientIp, Extract, Extractor, Forwarding, Proxies, Secret};

/// The settings that the keys and the policies of a file share.
#[derive(Clone, Debug, Default)]
pub(super) struct Common {
    /// The factor of the policies that follow the load.
    pub(super) factor: Option<FactorCell>,
    pub(super) proxies: Option<(Proxies, Forwarding)>,
    pub(super) secret: Option<Secret>,
}

/// A key, and whether it is an address.
#[derive(Debug)]
pub(super) struct ReadKey {
    pub(super) key: AnyKey,
    pub(super) is_address: bool,
}

impl ReadKey {
    fn of(key: impl Extract) -> Self {
        Self {
            key: AnyKey::new(key),
            is_address: false,
        }
    }

    fn address(key: impl Extract) -> Self {
        Self {
            is_address: true,
            ..Self::of(key)
        }
    }
}

impl Common {
    pub(super) fn client_ip(&self) -> Extractor<ClientIp> {
        match &self.proxies {
            Some((proxies, forwarding)) => {
                key::client_ip().behind(proxies.clone(), forwarding.clone())
            }
            None => key::client_ip(),
        }
    }

    /// Reads a key.
    pub(super) fn key(&self, at: &At<'_>) -> Option<ReadKey> {
        if at.is_text() {
            return self.word(at);
        }
        if at.is_list() {
            return self.fold(at, &at.list()?, both);
        }
        if !at.is_table() {
            return at.expected(
                "a key; write \"client_ip\", { header = \"x-tenant\" } or a list of keys",
            );
        }
        let table = at.table(&KEY)?;
        self.table(&table)
    }

    fn word(&self, at: &At<'_>) -> Option<ReadKey> {
        Some(match at.text()? {
            "client_ip" => ReadKey::address(self.client_ip()),
            "peer_ip" => ReadKey::address(key::peer_ip()),
            "method" => ReadKey::of(key::method()),
            "global" => ReadKey::of(key::global()),
            "api_key" => self.api_key(at, None)?,
            "bearer_token" => {
                at.reads_header("authorization");
                let token = at.made(key::try_bearer_token())?;
                match &self.secret {
                    Some(secret) => ReadKey::of(token.hashed(secret)),
                    None => ReadKey::of(token),
                }
            }
            #[cfg(feature = "axum")]
            "matched_path" => ReadKey::of(key::matched_path()),
            #[cfg(feature = "axum")]
            "route" => ReadKey::of(key::route()),
            #[cfg(feature = "tonic")]
            "grpc_method" => ReadKey::of(key::grpc_method()),
            #[cfg(feature = "tonic")]
            "grpc_service" => ReadKey::of(key::grpc_service()),
            #[cfg(feature = "tonic")]
            "client_certificate" => ReadKey::of(key::client_certificate()),
            #[cfg(not(feature = "axum"))]
            word @ ("matched_path" | "route") => {
                return at.refuse(format!("{word:?} needs feature `axum` of tower-ratelimit"));
            }
            #[cfg(not(feature = "tonic"))]
            word @ ("grpc_method" | "grpc_service" | "client_certificate") => {
                return at.refuse(format!("{word:?} needs feature `tonic` of tower-ratelimit"));
            }
            word => return at.unknown("key", word, WORDS),
        })
    }

    fn table(&self, table: &Table<'_>) -> Option<ReadKey> {
        let Some((field, at)) = table.only() else {
            if table.has_unknown() {
                return None;
            }
            return table
                .at
                .refuse("a key has one field; combine several with `all_of` or `first_of`");
        };
        Some(match field {
            "header" => {
                at.reads_header(at.text()?);
                ReadKey::of(at.made(key::try_header(at.text()?))?)
            }
            "cookie" => {
                at.reads_cookie(at.text()?);
                let cookie = at.made(key::try_cookie(at.text()?))?;
                match &self.secret {
                    Some(secret) => ReadKey::of(cookie.hashed(secret)),
                    None => ReadKey::of(cookie),
                }
            }
            "query" => {
                at.reads_query_field(at.text()?);
                ReadKey::of(key::query(at.text()?))
            }
            #[cfg(feature = "tonic")]
            "metadata" => {
                at.reads_header(at.text()?);
                ReadKey::of(at.made(key::try_metadata(at.text()?))?)
            }
            "api_key" => self.api_key(at, Some(at.text()?))?,
            "client_ip" => ReadKey::address(self.client_ip_with(at)?),
            "function" => {
                let key = at.registered()?;
                ReadKey {
                    key,
                    is_address: false,
                }
            }
            "all_of" => self.fold(at, &at.list()?, both)?,
            "first_of" => self.fold(at, &at.list()?, either)?,
            "hashed" => {
                let secret = match &self.secret {
                    Some(secret) => secret.clone(),
                    None => at.made(Secret::of_the_process())?,
                };
                ReadKey {
                    key: AnyKey::new(self.key(at)?.key).hashed(&secret),
                    is_address: false,
                }
            }
            field => {
                return at.refuse(format!(
                    "{field:?} needs feature `tonic` of tower-ratelimit"
                ));
            }
        })
    }

    fn api_key(&self, at: &At<'_>, header: Option<&str>) -> Option<ReadKey> {
        let mut key = at.made(key::try_api_key())?;
        at.reads_header(header.unwrap_or("x-api-key"));
        if let Some(header) = header {
            key = at.made(key.try_from_header(header))?;
        }
        Some(match &self.secret {
            Some(secret) => ReadKey::of(key.hashed(secret)),
            None => ReadKey::of(key),
        })
    }

    fn client_ip_with(&self, at: &At<'_>) -> Option<Extractor<ClientIp>> {
        let table = at.table(&CLIENT_IP)?;
        // Each is read, so that all mistakes are reported.
        let prefix = table.may("ipv6_prefix", |at| {
            at.made(self.client_ip().try_ipv6_prefix(at.whole()?))
        });
        let unwrapped = table.may("unwrap_ipv4", |at| {
            let texts = at.texts()?;
            at.made(self.client_ip().try_unwrap_ipv4(texts.clone()))?;
            Some((at, texts))
        });
        let without_fallback = table.may("without_fallback", At::flag);
        let mut key = prefix?.unwrap_or_else(|| self.client_ip());
        if let Some((at, texts)) = unwrapped? {
            key = at.made(key.try_unwrap_ipv4(texts))?;
        }
        if without_fallback? == Some(true) {
            key = key.without_fallback();
        }
        Some(key)
    }

    /// Reads the keys of a list, all of them even if one is wrong, and combines them.
    fn fold(
        &self,
        at: &At<'_>,
        list: &[At<'_>],
        join: impl Fn(AnyKey, AnyKey) -> AnyKey,
    ) -> Option<ReadKey> {
        if list.is_empty() {
            return at.refuse("a list of keys needs a key");
        }
        let keys: Vec<_> = list.iter().map(|at| self.key(at)).collect();
        let keys: Vec<ReadKey> = keys.into_iter().collect::<Option<_>>()?;
        let is_address = matches!(keys.as_slice(), [only] if only.is_address);
        let key = keys.into_iter().map(|read| read.key).reduce(join)?;
        Some(ReadKey { key, is_address })
    }
}

fn both(one: AnyKey, other: AnyKey) -> AnyKey {
    AnyKey::new(one.and(other))
}

fn either(one: AnyKey, other: AnyKey) -> AnyKey {
    AnyKey::new(one.or(other))
}

/// Returns the networks of a list, or one alone. Each is checked at its place.
pub(super) fn networks<'w>(at: &At<'w>) -> Option<Vec<&'w str>> {
    let each = at.one_or_list();
    let each: Vec<_> = each
        .iter()
        .map(|at| {
            let text = at.text()?;
            match key::peer_ip().try_within([text]) {
                Ok(_) => Some(text),
                Err(_) => at
                    .expected("a network; write one such as 10.0.0.0/8 or fd00::/8, or an address"),
            }
        })
        .collect();
    each.into_iter().collect()
}

const WORDS: &[&str] = &[
    "client_ip",
    "peer_ip",
    "method",
    "global",
    "api_key",
    "bearer_token",
    "matched_path",
    "route",
    "grpc_method",
    "grpc_service",
    "client_certificate",
];
