//! The store.

use super::elsewhere::NUMBER;
#[cfg(feature = "redis")]
use super::elsewhere::{nodes, secret};
use super::own_store::OwnStore;
use super::shape::Shape;
use super::vocabulary::{Vocabulary, setting};
use super::walk::At;
#[cfg(feature = "redis")]
use tower_ratelimit::store::{Lease, RedisStore, RedisStoreBuilder};
use tower_ratelimit::store::{MemoryStore, Payers, Store};

pub(super) static STORE: Vocabulary<()> = Vocabulary(&[
    setting("max_keys")
        .says("How many keys the store in this process holds.")
        .together(Shape::Integer),
    setting("redis")
        .says("The URL of a server.")
        .together(Shape::Named("secret")),
    setting("cluster")
        .says("The URLs of nodes of a cluster.")
        .together(Shape::OneOrList(&Shape::Named("secret"))),
    setting("sentinel")
        .says("A master behind Sentinel.")
        .together(Shape::Table(&SENTINEL)),
    setting("prefix")
        .says("What all keys in Redis begin with.")
        .together(Shape::Text),
    setting("deadline")
        .says("How long a call to Redis may take.")
        .together(Shape::Duration),
    setting("remember_denials_for")
        .says("How long a denial is remembered in this process.")
        .together(Shape::Duration),
    setting("slot_life")
        .says(
            "The time for which a concurrency slot in Redis lasts without renewal; the default \
             is 15 seconds.",
        )
        .together(Shape::Duration),
    setting("lease")
        .says(
            "The longest life of leased units, which a node takes at once and spends itself; the \
             default is no leases.",
        )
        .together(Shape::Duration),
    setting("nodes")
        .says(
            "How many nodes share the store: a number, \"live\" if they are to be counted, or the environment \
             variable that has the number.",
        )
        .together(Shape::Any(&[
            Shape::Integer,
            Shape::Word(&LIVE),
            Shape::Table(&NUMBER),
        ])),
    setting("nodes_at_least")
        .says("What the count of live nodes is at least; a node that starts while the store is away takes it.")
        .together(Shape::Integer),
]);

static SENTINEL: Vocabulary<()> = Vocabulary(&[
    setting("master")
        .says("The name or the URL of the master.")
        .together(Shape::Named("secret")),
    setting("servers")
        .says("The URLs of the sentinels.")
        .together(Shape::OneOrList(&Shape::Named("secret"))),
]);

/// The number of nodes is the one that is counted.
const LIVE: [&str; 1] = ["live"];

/// The store of a file.
#[derive(Clone, Debug)]
pub(super) enum ReadStore {
    Memory(MemoryStore),
    Own(OwnStore),
    #[cfg(feature = "redis")]
    Redis(Box<RedisStore>),
}

impl Default for ReadStore {
    fn default() -> Self {
        Self::Memory(MemoryStore::new())
    }
}

impl ReadStore {
    /// Returns between which policies it chooses the one that pays.
    pub(super) fn chooses_payers(&self) -> Payers {
        match self {
            Self::Memory(store) => store.chooses_payers(),
            Self::Own(store) => store.payers,
            #[cfg(feature = "redis")]
            Self::Redis(store) => store.chooses_payers(),
        }
    }
}

const OF_REDIS: &[&str] = &[
    "prefix",
    "deadline",
    "remember_denials_for",
    "slot_life",
    "lease",
    "nodes",
    "nodes_at_least",
];
const PLACES: &[&str] = &["redis", "cluster", "sentinel"];

/// Reads the store.
pub(super) fn store(at: &At<'_>) -> Option<ReadStore> {
    if at.walk.functions().store.is_some() {
        return at.refuse("code has registered the store; leave it out");
    }
    let table = at.table(&STORE)?;
    for (index, place) in PLACES.iter().enumerate() {
        table.either("max_keys", place);
        for other in &PLACES[index + 1..] {
            table.either(place, other);
        }
    }
    let place = PLACES.iter().find_map(|place| table.get(place));
    if place.is_some() {
        return redis(&table);
    }
    for field in OF_REDIS {
        if let Some(at) = table.get(field).filter(|_| !table.has_unknown()) {
            at.refuse::<()>(format!(
                "`{field}` is for Redis; add `redis`, `cluster` or `sentinel`, or leave it out"
            ));
        }
    }
    let store = MemoryStore::new();
    Some(ReadStore::Memory(match table.get("max_keys") {
        Some(at) => store.max_keys(at.integer()?),
        None => store,
    }))
}

#[cfg(not(feature = "redis"))]
fn redis(table: &super::walk::TableAt<'_>) -> Option<ReadStore> {
    table
        .at
        .refuse("a store in Redis needs feature `redis` of tower-ratelimit")
}

#[cfg(feature = "redis")]
fn redis(table: &super::walk::TableAt<'_>) -> Option<ReadStore> {
    let builder = options(table);
    let store = if let Some(at) = table.get("redis") {
        let url = url(at);
        at.made(builder.open(url?))
    } else if let Some(at) = table.get("cluster") {
        cluster(builder, at)
    } else {
        sentinel(builder, table.get("sentinel")?)
    };
    store.map(|store| ReadStore::Redis(Box::new(store)))
}

/// Reads what stands beside the place of a store in Redis.
#[cfg(feature = "redis")]
fn options(table: &super::walk::TableAt<'_>) -> RedisStoreBuilder {
    let time = |field: &str| table.get(field).and_then(At::duration);
    let mut builder = RedisStore::builder();
    if let Some(prefix) = table.get("prefix").and_then(At::text) {
        builder = builder.prefix(prefix);
    }
    if let Some(deadline) = time("deadline") {
        builder = builder.deadline(deadline);
    }
    if let Some(longest) = time("remember_denials_for") {
        builder = builder.remember_denials_for(longest);
    }
    if let Some(life) = time("slot_life") {
        builder = builder.slot_life(life);
    }
    if let Some(longest) = time("lease") {
        builder = builder.lease(Lease::up_to(longest));
    }
    with_nodes(builder, table)
}

#[cfg(feature = "redis")]
fn with_nodes(
    mut builder: RedisStoreBuilder,
    table: &super::walk::TableAt<'_>,
) -> RedisStoreBuilder {
    let given = table.get("nodes");
    let is_counted = given.is_some_and(At::is_text);
    if let Some(at) = given.filter(|_| is_counted) {
        if at.one_of(&LIVE.map(|word| (word, ()))).is_some() {
            builder = builder.nodes_live();
        }
    } else if let Some(nodes) = given.and_then(nodes) {
        builder = builder.nodes(nodes);
    }
    match table.get("nodes_at_least") {
        Some(at) if !is_counted => {
            at.refuse::<()>(
                "only a count has a least one; write nodes = \"live\", or leave it out",
            );
        }
        Some(at) => {
            if let Some(least) = nodes(at) {
                builder = builder.nodes_at_least(least);
            }
        }
        None => {}
    }
    builder
}

#[cfg(feature = "redis-cluster")]
fn cluster(builder: RedisStoreBuilder, at: &At<'_>) -> Option<RedisStore> {
    let urls = urls(at);
    at.made(builder.open_cluster(urls?))
}

#[cfg(all(feature = "redis", not(feature = "redis-cluster")))]
fn cluster(_: RedisStoreBuilder, at: &At<'_>) -> Option<RedisStore> {
    at.refuse("a cluster needs feature `redis-cluster` of tower-ratelimit")
}

#[cfg(feature = "redis-sentinel")]
fn sentinel(builder: RedisStoreBuilder, at: &At<'_>) -> Option<RedisStore> {
    let table = at.table(&SENTINEL)?;
    let master = table
        .need("master", "give the name of the master")
        .and_then(secret);
    let servers = table
        .need("servers", "give the URLs of the sentinels")
        .and_then(urls);
    at.made(builder.open_sentinel(&master?, servers?))
}

#[cfg(all(feature = "redis", not(feature = "redis-sentinel")))]
fn sentinel(_: RedisStoreBuilder, at: &At<'_>) -> Option<RedisStore> {
    at.refuse("Sentinel needs feature `redis-sentinel` of tower-ratelimit")
}

/// Reads a URL that may contain a password. A URL in the file itself causes a warning.
#[cfg(feature = "redis")]
fn url(at: &At<'_>) -> Option<String> {
    if at.is_text() {
        at.warn("the URL stands in the file, for all its readers to see; name an environment variable, { env = \"NAME\" }, or a file, { file = \"/run/secrets/NAME\" }");
    }
    secret(at)
}

#[cfg(any(feature = "redis-cluster", feature = "redis-sentinel"))]
fn urls(at: &At<'_>) -> Option<Vec<String>> {
    let urls: Vec<_> = at.one_or_list().iter().map(url).collect();
    urls.into_iter().collect()
}

impl ReadStore {
    /// Returns whether nodes share it.
    pub(super) fn is_shared(&self) -> bool {
        match self {
            Self::Memory(_) => false,
            Self::Own(store) => store.is_shared,
            #[cfg(feature = "redis")]
            Self::Redis(_) => true,
        }
    }
}
