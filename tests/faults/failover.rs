//! A replica takes the place of its primary, and a primary becomes a replica.

use std::time::Duration;

use tokio::runtime::Runtime;
use tower_ratelimit::{Limiter, Policy, RedisStore, TokenBucket};

use crate::scene::Setting;
use crate::support::proxy::Proxy;
use crate::support::redis::{Server, free_port, until};
use crate::support::sentinel::{NAME, Watched};

/// Requests that were not replicated yet are counted anew.
fn once(_: u64) -> u32 {
    1
}

/// Adds an hour to the first word of each state, which is a moment.
const AN_HOUR_LATER: &str = "
for _, key in ipairs(redis.call('KEYS', '*')) do
  local begun, rest = string.match(redis.call('GET', key), '^(%d+)(.*)$')
  redis.call('SET', key, string.format('%d', begun + 3600e6) .. rest, 'PX', 7200000)
end";

#[test]
fn an_address_that_leads_to_another_server() {
    promoted("failover by address", |_| ());
}

/// The clock of the server that died seems to have been ahead.
#[test]
fn an_address_that_leads_to_a_server_whose_clock_is_an_hour_behind() {
    promoted(
        "failover by address, to a clock an hour behind",
        |replica| {
            replica.ask(&["EVAL", AN_HOUR_LATER, "0"]);
        },
    );
}

/// A key with a spent bucket gets a token each second, whatever the clock of the new server says.
struct Spent(Runtime, Limiter);

impl Spent {
    fn at(url: &str) -> Self {
        let store = RedisStore::builder().remember_denials_for(Duration::ZERO);
        let store = store.deadline(Duration::from_secs(5)).open(url).unwrap();
        let policy = Policy::new("bucket", TokenBucket::per_minute(60));
        let limiter = Limiter::builder().policy(policy).store(store);
        let spent = Self(Runtime::new().unwrap(), limiter.build().unwrap());
        while spent.is_let_pass() {}
        spent
    }

    fn is_let_pass(&self) -> bool {
        let told = self.0.block_on(self.1.check("ann", 1).into_future());
        told.is_ok_and(|decision| decision.is_allowed() && !decision.is_degraded())
    }
}

fn promoted(fault: &str, and: impl Fn(&Server)) {
    let primary = Server::start(&[]);
    let replica = primary.replica();
    let mut proxy = Proxy::start(&primary);
    let spent = Spent::at(&proxy.url());
    let setting = Setting::new();
    let scene = setting.start(|builder| builder.open(proxy.url()).unwrap());
    let mut scene = scene.warm();
    scene.strike();
    primary.kill();
    scene.lasts();
    replica.ask(&["REPLICAOF", "NO", "ONE"]);
    and(&replica);
    proxy.lead_to(&replica);
    let run = scene.recovers().felt_by_each_node();
    run.loses(once).row(fault);
    until("no client is locked out", || spent.is_let_pass());
}

/// A replica reads and does not write: a request over the limit is denied, and any other is degraded.
#[test]
fn a_server_that_becomes_a_replica_for_a_while() {
    let server = Server::start(&[]);
    let setting = Setting::new();
    let scene = setting.start(|builder| builder.open(server.url()).unwrap());
    let mut scene = scene.warm();
    scene.strike();
    // No server listens on this port, so the replica keeps its data.
    let nobody = free_port().to_string();
    server.ask(&["REPLICAOF", "127.0.0.1", &nobody]);
    scene.lasts();
    server.ask(&["REPLICAOF", "NO", "ONE"]);
    let run = scene.recovers().felt_by_each_node();
    run.loses(|_| 0).row("a primary that becomes read-only");
}

fn watched(fault: &str, strike: fn(&mut Server)) {
    let mut watched = Watched::start();
    let urls = watched.urls();
    let urls = || urls.iter().map(String::as_str);
    let setting = Setting::new();
    let scene = setting.start(|builder| builder.open_sentinel(NAME, urls()).unwrap());
    let mut scene = scene.warm();
    scene.strike();
    strike(&mut watched.master);
    watched.until_failed_over();
    scene.lasts();
    let run = scene.recovers().felt_by_each_node();
    run.loses(once).row(fault);
}

#[test]
fn a_master_whose_death_its_sentinels_find() {
    watched("failover by Sentinel, `kill -9`", |master| master.kill());
}

#[test]
fn a_master_that_stands_still_until_its_sentinels_find() {
    watched("failover by Sentinel, `SIGSTOP`", |master| master.freeze());
}
