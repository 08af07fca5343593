use std::time::Duration;

use tower_ratelimit::error::ConfigError;
use tower_ratelimit::limiter::{Limiter, LimiterBuilder};
use tower_ratelimit::middleware::{RateLimitLayer, RateLimitLayerBuilder};
use tower_ratelimit::store::{Lease, Payers, RedisStore, RedisStoreBuilder, Store as _};
use tower_ratelimit_adapt::{AnswerTime, Signal};

use super::words::{LIVE, SENTINEL};
use crate::elsewhere::{nodes, secret};
use crate::walk::{At, TableAt};

/// A store in Redis.
#[derive(Clone, Debug)]
pub(crate) struct ReadRedis(Box<RedisStore>);

impl ReadRedis {
    /// Reads it of a table that names its place.
    pub(super) fn read(table: &TableAt<'_>) -> Option<Self> {
        let builder = options(table);
        let store = if let Some(at) = table.get("redis") {
            let url = url(at);
            at.made(builder.open(url?))
        } else if let Some(at) = table.get("cluster") {
            let urls = urls(at);
            at.made(builder.open_cluster(urls?))
        } else {
            sentinel(builder, table.get("sentinel")?)
        };
        Some(Self(Box::new(store?)))
    }

    pub(super) fn chooses_payers(&self) -> Payers {
        self.0.chooses_payers()
    }

    pub(super) fn limiter(&self, builder: LimiterBuilder) -> Result<Limiter, ConfigError> {
        builder.store(RedisStore::clone(&self.0)).build()
    }

    pub(super) fn layer(
        &self,
        builder: RateLimitLayerBuilder,
    ) -> Result<RateLimitLayer, ConfigError> {
        builder.store(RedisStore::clone(&self.0)).build()
    }

    /// Returns how its answer time is beside this one.
    pub(crate) fn answer_time(&self, target: Duration) -> Box<dyn Signal> {
        Box::new(AnswerTime::of(&self.0, target))
    }

    /// Logs in as a newer store does. Returns whether that is on the same servers; if not, nothing has changed.
    pub(super) fn renew_login(&self, newer: &Self) -> bool {
        self.0.renew_login(&newer.0).is_ok()
    }

    pub(crate) async fn give_leases_back(&self) {
        self.0.give_leases_back().await;
    }
}

/// Reads what stands beside the place of a store in Redis.
fn options(table: &TableAt<'_>) -> RedisStoreBuilder {
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
    if let Some(life) = time("slot_ttl") {
        builder = builder.slot_ttl(life);
    }
    if let Some(longest) = time("lease") {
        builder = builder.lease(Lease::up_to(longest));
    }
    with_nodes(builder, table)
}

fn with_nodes(mut builder: RedisStoreBuilder, table: &TableAt<'_>) -> RedisStoreBuilder {
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

/// Reads a URL that may contain a password. A URL in the file itself causes a warning.
fn url(at: &At<'_>) -> Option<String> {
    if at.is_text() {
        at.warn("the URL stands in the file, for all its readers to see; name an environment variable, { env = \"NAME\" }, or a file, { file = \"/run/secrets/NAME\" }");
    }
    secret(at)
}

fn urls(at: &At<'_>) -> Option<Vec<String>> {
    let urls: Vec<_> = at.one_or_list().iter().map(url).collect();
    urls.into_iter().collect()
}
