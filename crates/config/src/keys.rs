//! Keys: a word, a table for keys with a name, and combinations.

use super::bodies::field;
use super::body_fields::{Field, FieldOf};
use super::common::Common;
use super::shape::Shape;
use super::vocabulary::{Vocabulary, setting};
use super::walk::At;
use tower_ratelimit::__internal::AnyKey;
use tower_ratelimit::key::{self, ClientIp, Extract, Extractor, Secret};

/// Each entry is a key of its own. It is `None` after a mistake.
pub(super) static KEY: Vocabulary<Option<ReadKey>> = Vocabulary(&[
    setting("header")
        .says("The value of a header.")
        .of(Shape::Text, |_, at| {
            at.reads_header(at.text()?);
            Some(Some(ReadKey::of(at.made(key::try_header(at.text()?))?)))
        }),
    setting("cookie")
        .says("The value of a cookie, hashed.")
        .of(Shape::Text, |_, at| Some(at.common().cookie(at))),
    setting("query")
        .says("The value of a query parameter.")
        .of(Shape::Text, |_, at| {
            at.reads_query_field(at.text()?);
            Some(Some(ReadKey::of(key::query(at.text()?))))
        }),
    setting("json")
        .says("The text at this path of the request's JSON body, such as model or params.name.")
        .of(Shape::Text, |_, at| {
            let path = field(at, FieldOf::Text)?;
            Some(Some(ReadKey::of(at.made(key::try_json(path))?)))
        }),
    setting("metadata")
        .says("The value of a metadata key of a gRPC call.")
        .of(Shape::Text, |_, at| Some(metadata(at))),
    setting("api_key")
        .says("The API key in this header, hashed.")
        .of(Shape::Text, |_, at| {
            Some(at.common().api_key(at, Some(at.text()?)))
        }),
    setting("client_ip")
        .says("The address of the client.")
        .of(Shape::Table(&CLIENT_IP), |_, at| {
            Some(at.common().client_ip_with(at).map(ReadKey::address))
        }),
    setting("function")
        .says("A key that code has registered.")
        .of(Shape::Text, |_, at| {
            Some(at.registered::<AnyKey>().map(ReadKey::of))
        }),
    setting("all_of")
        .says("Several keys as one.")
        .of(Shape::List(&Shape::Named("key")), |_, at| {
            Some(at.common().fold(at, &at.list()?, both))
        }),
    setting("first_of")
        .says("The first of them that the request has.")
        .of(Shape::List(&Shape::Named("key")), |_, at| {
            Some(at.common().fold(at, &at.list()?, either))
        }),
    setting("hashed")
        .says("A key as 128 bits of a keyed hash.")
        .of(Shape::Named("key"), |_, at| Some(at.common().hashed(at))),
]);

static CLIENT_IP: Vocabulary<Extractor<ClientIp>> = Vocabulary(&[
    setting("ipv6_prefix")
        .says("The number of bits of an IPv6 address that identify a client.")
        .of(Shape::Integer, |key, at| {
            at.made(key.try_ipv6_prefix(at.integer()?))
        }),
    setting("unwrap_ipv4")
        .says("The prefixes of translators from IPv4 to IPv6.")
        .of(Shape::List(&Shape::Text), |key, at| {
            at.made(key.try_unwrap_ipv4(at.texts()?))
        }),
    setting("without_fallback")
        .says(
            "Does not count the proxy if it sends no client address: the request has no key then.",
        )
        .flag(Extractor::<ClientIp>::without_fallback),
]);

/// A key, and whether it is an address.
#[derive(Clone, Debug)]
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
        if !table.has_one() {
            if table.has_unknown() {
                return None;
            }
            return at.refuse("a key has one field; combine several with `all_of` or `first_of`");
        }
        let mut key = None;
        KEY.apply(&table, &mut key)?;
        key
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
            "mcp_name" => {
                for header in ["mcp-method", "mcp-name"] {
                    at.reads_header(header);
                }
                at.walk.reads_field(Field {
                    path: "params.name".to_owned(),
                    is: FieldOf::McpName,
                });
                ReadKey::of(key::mcp_name())
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

    fn cookie(&self, at: &At<'_>) -> Option<ReadKey> {
        at.reads_cookie(at.text()?);
        let cookie = at.made(key::try_cookie(at.text()?))?;
        Some(match &self.secret {
            Some(secret) => ReadKey::of(cookie.hashed(secret)),
            None => ReadKey::of(cookie),
        })
    }

    fn hashed(&self, at: &At<'_>) -> Option<ReadKey> {
        let secret = match &self.secret {
            Some(secret) => secret.clone(),
            None => at.made(Secret::of_the_process())?,
        };
        let key = AnyKey::new(self.key(at)?.key);
        Some(ReadKey::of(key.hashed(&secret)))
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
        let mut key = self.client_ip();
        CLIENT_IP.apply(&table, &mut key)?;
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

#[cfg(feature = "tonic")]
fn metadata(at: &At<'_>) -> Option<ReadKey> {
    at.reads_header(at.text()?);
    Some(ReadKey::of(at.made(key::try_metadata(at.text()?))?))
}

#[cfg(not(feature = "tonic"))]
fn metadata(at: &At<'_>) -> Option<ReadKey> {
    at.refuse("\"metadata\" needs feature `tonic` of tower-ratelimit")
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
    "mcp_name",
];
