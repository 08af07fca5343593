//! A master, its replica, and the sentinels that watch them.

use redis::Value;

use super::redis::{Server, text, until};

/// The name of the master among the sentinels.
pub const NAME: &str = "mymaster";

/// A master and its replica under sentinels, which leave a master as it is however slow the machine is, until
/// the test tells them to look out.
#[derive(Debug)]
pub struct Watched {
    /// The master at the start.
    pub master: Server,
    /// Its replica at the start.
    pub replica: Server,
    /// The sentinels.
    pub sentinels: Vec<Server>,
}

impl Watched {
    /// Starts the servers with three sentinels, two of which decide, and waits until a failover would succeed.
    pub fn start() -> Self {
        Self::by(3)
    }

    /// The same with one sentinel. Of several, one that has not heard of a failover by hand may undo it: it
    /// sees a replica that calls itself a master.
    pub fn by_one() -> Self {
        Self::by(1)
    }

    fn by(count: usize) -> Self {
        // The replica is synchronized at once, and not after the usual five seconds.
        let at_once = ["--repl-diskless-sync-delay", "0"];
        let master = Server::start(&at_once);
        let port = master.port().to_string();
        let replica = ["--replicaof", "127.0.0.1", &port];
        let replica = Server::start(&[replica.as_slice(), &at_once].concat());
        until("the replica is in step", || {
            text(&replica.ask(&["INFO", "replication"])).contains("master_link_status:up")
        });
        let sentinels: Vec<Server> = (0..count).map(|_| sentinel(&port, count / 2 + 1)).collect();
        let others = (count - 1).to_string();
        for sentinel in &sentinels {
            until("the sentinels know each other", || {
                let master = told(sentinel, "MASTER");
                let replicas = told(sentinel, "REPLICAS");
                has(&master, "flags", "master")
                    && has(&master, "num-other-sentinels", &others)
                    && has(&replicas, "flags", "slave")
                    && has(&replicas, "master-link-status", "ok")
            });
        }
        for sentinel in &sentinels {
            set_pace(sentinel, &SEDATE);
        }
        Self {
            master,
            replica,
            sentinels,
        }
    }

    /// Returns the addresses of the sentinels.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::url).collect()
    }

    /// Makes the sentinel promote the replica, and the old master follow it and close its connections.
    pub fn fail_over(&self) {
        let [sentinel] = &self.sentinels[..] else {
            panic!("one sentinel fails over by hand: see `by_one`");
        };
        until("the replica is the master", || {
            let is_over = is_over(sentinel, &self.master);
            if !is_over && has(&told(sentinel, "MASTER"), "flags", "master") {
                let mut command = redis::cmd("SENTINEL");
                // The sentinel refuses if it has not heard of the replica for a moment.
                let _: redis::RedisResult<Value> = command
                    .arg(&["FAILOVER", NAME])
                    .query(&mut sentinel.connection());
            }
            is_over
        });
        // What the sentinel would send after a while.
        let port = self.replica.port().to_string();
        self.master.ask(&["REPLICAOF", "127.0.0.1", &port]);
        self.master.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    }

    /// Waits until the sentinels have found by themselves that the master is gone.
    pub fn until_failed_over(&self) {
        look_out(&self.sentinels);
        until("the sentinels have another master", || {
            is_over(&self.sentinels[0], &self.master)
        });
    }

    /// Waits until the replica has the data of the master.
    pub fn until_replicated(&self) {
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

/// Makes sentinels fail over a master that is silent for a second. It is for those that have gone: the master
/// of a busy machine may be silent for as long.
pub fn look_out(sentinels: &[Server]) {
    for sentinel in sentinels {
        // One that was started again has forgotten it.
        set_pace(sentinel, &SEDATE);
        let setting = ["down-after-milliseconds", "1000"];
        sentinel.ask(&[["SENTINEL", "SET", NAME].as_slice(), &setting].concat());
    }
}

fn is_over(sentinel: &Server, before: &Server) -> bool {
    !has(
        &told(sentinel, "MASTER"),
        "port",
        &before.port().to_string(),
    )
}

/// Sentinels find each other at once, and not after some seconds.
const BRISK: [&str; 4] = ["INFO-PERIOD", "1000", "PUBLISH-PERIOD", "100"];

/// A sentinel that has not heard of a failover takes the new master for a stray replica, and makes it follow the
/// old one after four of these periods. One that was not run for a while goes on, and does not stand back for
/// half a minute.
const SEDATE: [&str; 4] = ["PUBLISH-PERIOD", "15000", "TILT-PERIOD", "100"];

/// The settings exist from Redis 7.0 on. Without them, sentinels are slower.
fn set_pace(sentinel: &Server, pace: &[&str]) {
    let mut command = redis::cmd("SENTINEL");
    let _: redis::RedisResult<Value> = command
        .arg("DEBUG")
        .arg(pace)
        .query(&mut sentinel.connection());
}

fn sentinel(master: &str, quorum: usize) -> Server {
    let sentinel = Server::sentinel(&format!(
        "sentinel monitor {NAME} 127.0.0.1 {master} {quorum}\n\
         sentinel down-after-milliseconds {NAME} 600000\n\
         sentinel failover-timeout {NAME} 5000\n"
    ));
    set_pace(&sentinel, &BRISK);
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
