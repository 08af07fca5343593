//! A master, its replica, and the sentinels that watch them.

use redis::Value;

use super::redis::{Server, text, until};

/// The name of the master among the sentinels.
pub(crate) const NAME: &str = "mymaster";

/// A master under three sentinels, two of which decide.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) master: Server,
    pub(crate) replica: Server,
    pub(crate) sentinels: Vec<Server>,
}

impl Watched {
    /// Starts the servers, and waits until a failover would succeed.
    pub(crate) fn start() -> Self {
        // The replica is synchronized at once, and not after the usual five seconds.
        let at_once = ["--repl-diskless-sync-delay", "0"];
        let master = Server::start(&at_once);
        let port = master.port().to_string();
        let replica = ["--replicaof", "127.0.0.1", &port];
        let replica = Server::start(&[replica.as_slice(), &at_once].concat());
        until("the replica is in step", || {
            text(&replica.ask(&["INFO", "replication"])).contains("master_link_status:up")
        });
        let sentinels: Vec<Server> = (0..3).map(|_| sentinel(&port)).collect();
        for sentinel in &sentinels {
            until("the sentinels know each other", || {
                let master = told(sentinel, "MASTER");
                let replicas = told(sentinel, "REPLICAS");
                has(&master, "flags", "master")
                    && has(&master, "num-other-sentinels", "2")
                    && has(&replicas, "flags", "slave")
                    && has(&replicas, "master-link-status", "ok")
            });
        }
        Self {
            master,
            replica,
            sentinels,
        }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::url).collect()
    }

    /// Makes the sentinels promote the replica. They give up if they have not heard of it for a moment.
    pub(crate) fn fail_over(&self) {
        let sentinel = &self.sentinels[0];
        until("the replica is the master", || {
            let is_over = self.is_over();
            if !is_over && has(&told(sentinel, "MASTER"), "flags", "master") {
                let mut command = redis::cmd("SENTINEL");
                // The sentinel refuses if it cannot fail over yet.
                let _: redis::RedisResult<Value> = command
                    .arg(&["FAILOVER", NAME])
                    .query(&mut sentinel.connection());
            }
            is_over
        });
    }

    /// Waits until the sentinels have found by themselves that the master is gone.
    pub(crate) fn until_failed_over(&self) {
        until("the sentinels have another master", || self.is_over());
    }

    /// Waits until the old master is a replica of the new one. It closes all connections when it becomes one.
    pub(crate) fn until_the_master_before_follows(&self) {
        until("the master of before follows", || {
            let told = self.master.try_connect().and_then(|mut connection| {
                let mut command = redis::cmd("INFO");
                command.arg("replication").query::<String>(&mut connection)
            });
            told.is_ok_and(|told| told.contains("role:slave"))
        });
    }

    fn is_over(&self) -> bool {
        let old = self.master.port().to_string();
        !has(&told(&self.sentinels[0], "MASTER"), "port", &old)
    }

    /// Waits until the replica has the data of the master.
    pub(crate) fn until_replicated(&self) {
        let sent = offset(&self.master);
        until("all is replicated", || offset(&self.replica) >= sent);
    }
}

/// Returns the replication offset of a server.
fn offset(server: &Server) -> u64 {
    let info = text(&server.ask(&["INFO", "replication"]));
    let mut lines = info.lines();
    let offset = lines.find_map(|line| line.strip_prefix("master_repl_offset:"));
    let offset = offset.expect("every server tells it");
    offset.parse().expect("it is a number")
}

fn sentinel(master: &str) -> Server {
    let sentinel = Server::sentinel(&format!(
        "sentinel monitor {NAME} 127.0.0.1 {master} 2\n\
         sentinel down-after-milliseconds {NAME} 500\n\
         sentinel failover-timeout {NAME} 3000\n"
    ));
    // The setting exists from Redis 7.0 on. Without it, sentinels look around only every ten seconds, and
    // leave an old primary as it is for eight.
    let hasty = ["INFO-PERIOD", "1000", "PUBLISH-PERIOD", "100"];
    let mut command = redis::cmd("SENTINEL");
    let _: redis::RedisResult<Value> = command
        .arg("DEBUG")
        .arg(&hasty)
        .query(&mut sentinel.connection());
    sentinel
}

/// Returns the names and values that a sentinel tells of the master, or of its replicas.
fn told(sentinel: &Server, of: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut left = vec![sentinel.ask(&["SENTINEL", of, NAME])];
    while let Some(value) = left.pop() {
        match value {
            Value::Array(values) => left.extend(values.into_iter().rev()),
            value => words.push(text(&value)),
        }
    }
    words
}

fn has(told: &[String], name: &str, value: &str) -> bool {
    told.windows(2).any(|pair| pair == [name, value])
}
