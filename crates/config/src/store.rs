//! The store, and secrets by the name of an environment variable.

use std::env;

use super::own_store::OwnStore;
use super::shape::Shape;
use super::tree::{Node, Value};
use super::vocabulary::{Vocabulary, setting};
use super::walk::At;
use tower_ratelimit::store::MemoryStore;
#[cfg(feature = "redis")]
use tower_ratelimit::store::{Lease, RedisStore, RedisStoreBuilder};

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
        .says("How many nodes share the store.")
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

pub(super) static ENV: Vocabulary<()> = Vocabulary(&[setting("env")
    .says("The environment variable that has the value.")
    .together(Shape::Text)]);

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

const OF_REDIS: &[&str] = &[
    "prefix",
    "deadline",
    "remember_denials_for",
    "slot_life",
    "lease",
    "nodes",
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
    if let Some(nodes) = table.get("nodes").and_then(At::integer) {
        builder = builder.nodes(nodes);
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
        at.warn("the URL stands in the file, for all its readers to see; name an environment variable, { env = \"NAME\" }");
    }
    secret(at)
}

#[cfg(any(feature = "redis-cluster", feature = "redis-sentinel"))]
fn urls(at: &At<'_>) -> Option<Vec<String>> {
    let urls: Vec<_> = at.one_or_list().iter().map(url).collect();
    urls.into_iter().collect()
}

/// Reads a text, or that of an environment variable. No message shows it.
pub(super) fn secret(at: &At<'_>) -> Option<String> {
    if !at.is_table() {
        return at.text().map(str::to_owned);
    }
    let table = at.table(&ENV)?;
    let name = table.need("env", "name an environment variable")?;
    let variable = name.text()?;
    let is_name = !variable.is_empty() && !variable.contains(['=', '\0']);
    // In place of a name, the secret itself may stand there.
    let is_usual = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let shown = if variable.contains('_') && variable.chars().all(is_usual) {
        format!("the environment variable {variable:?}")
    } else {
        "this environment variable".to_owned()
    };
    match is_name.then(|| env::var(variable)) {
        Some(Ok(value)) => Some(value),
        Some(Err(env::VarError::NotUnicode(_))) => name.refuse(format!("{shown} is not text")),
        _ => name.refuse(format!("{shown} is not set; set it, or name another")),
    }
}

/// Returns a value as text, with the environment variables that it names.
pub(super) fn resolved(node: &Node) -> String {
    match &node.value {
        Value::List(list) => {
            let list: Vec<String> = list.iter().map(resolved).collect();
            format!("{list:?}")
        }
        Value::Table(entries) => {
            // A value that moves from the file into the environment has not changed.
            if let [only] = entries.as_slice()
                && let ("env", Value::Text(name)) = (&*only.name, &only.node.value)
            {
                return env::var(name).unwrap_or_default();
            }
            let fields = entries.iter();
            let mut fields: Vec<(&str, String)> = fields
                .map(|entry| (&*entry.name, resolved(&entry.node)))
                .collect();
            fields.sort_unstable();
            format!("{fields:?}")
        }
        Value::Text(text) => text.clone(),
        value => value.shown(),
    }
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
