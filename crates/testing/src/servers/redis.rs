//! A `redis-server`, and a cluster of them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Client, Connection, Value};

/// Ends the server when the process that started it has gone, for any reason: its end of the pipe is closed
/// then.
const GUARD: &str = r#""$@" >/dev/null 2>&1 & echo $!; read -r _; kill -9 $! 2>/dev/null; wait"#;

/// The time after which a test has failed. A test that passes never waits for its end, so that it may be longer than
/// any pause of a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A `redis-server`.
#[derive(Debug)]
pub struct Server {
    guard: Child,
    /// Closing this pipe ends the server.
    alive: Option<ChildStdin>,
    pid: u32,
    port: u16,
    started: Started,
}

/// The command line of a server, without its port.
#[derive(Clone, Debug)]
struct Started {
    arguments: Vec<String>,
    /// Holds the folder.
    _folder: Arc<Folder>,
}

impl Server {
    /// Starts a server with these options and the common ones.
    pub fn start(options: &[&str]) -> Self {
        Self::start_from(None, options)
    }

    /// Starts a sentinel with these lines in its configuration file, to which it writes.
    pub fn sentinel(lines: &str) -> Self {
        Self::start_from(Some(lines), &["--sentinel"])
    }

    fn start_from(lines: Option<&str>, options: &[&str]) -> Self {
        let folder = Folder::new();
        let mut arguments = Vec::new();
        if let Some(lines) = lines {
            let file = folder.0.join("redis.conf");
            fs::write(&file, lines).expect("the folder is there");
            arguments.push(file.to_string_lossy().into_owned());
        }
        let all = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        let dir = ["--dir", &*folder.0.to_string_lossy()];
        let options = all.iter().chain(&dir).chain(options);
        arguments.extend(options.map(ToString::to_string));
        let started = Started {
            arguments,
            _folder: Arc::new(folder),
        };
        Self::come_up(free_port, &started)
    }

    fn come_up(port: impl Fn() -> u16, started: &Started) -> Self {
        let begun = Instant::now();
        loop {
            let mut server = Self::spawn(port(), started.clone());
            if server.comes_up() {
                return server;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "no redis-server came up: is it installed?"
            );
        }
    }

    fn spawn(port: u16, started: Started) -> Self {
        let mut guard = Command::new("sh")
            .args(["-c", GUARD, "guard", "redis-server"])
            .args(&started.arguments)
            .args(["--port", &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let mut pid = String::new();
        let told = guard.stdout.take().expect("it is piped");
        BufReader::new(told)
            .read_line(&mut pid)
            .expect("the shell tells a number");
        Self {
            alive: guard.stdin.take(),
            guard,
            pid: pid.trim().parse().expect("the shell tells a number"),
            port,
            started,
        }
    }

    /// Returns whether the server answers. It does not if another process took the port first.
    fn comes_up(&mut self) -> bool {
        let started = Instant::now();
        while started.elapsed() < PATIENCE / 4 {
            let answer = self.try_connect().and_then(|mut connection| {
                let info: String = redis::cmd("INFO").arg("server").query(&mut connection)?;
                Ok(info)
            });
            if let Ok(info) = answer {
                return info.contains(&format!("process_id:{}\r", self.pid));
            }
            sleep(Duration::from_millis(2));
        }
        false
    }

    /// Opens a connection.
    ///
    /// # Errors
    ///
    /// When the server does not accept it.
    pub fn try_connect(&self) -> redis::RedisResult<Connection> {
        Client::open(self.url())?.get_connection()
    }

    /// Returns its address, as a store takes it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Returns the port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts a replica of the server, and waits until it has the data of its primary.
    pub fn replica(&self) -> Self {
        let replica = Self::start(&["--replicaof", "127.0.0.1", &self.port.to_string()]);
        until("the replica follows", || replica.follows());
        replica
    }

    fn follows(&self) -> bool {
        text(&self.ask(&["INFO", "replication"])).contains("master_link_status:up")
    }

    /// Kills the server, and waits until no client can connect any more.
    pub fn kill(&self) {
        self.signal("KILL");
        until("it is gone", || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err()
        });
    }

    /// Ends a running server, and starts it again on its port with the data in its folder.
    pub fn restart(&mut self) {
        self.end();
        *self = Self::come_up(|| self.port, &self.started);
    }

    fn end(&mut self) {
        drop(self.alive.take());
        // The result does not matter: the server may have ended before.
        let _ = self.guard.wait();
    }

    /// Suspends the server: it keeps its connections open and does not answer.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// Lets a suspended server go on.
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        signal(self.pid, name);
    }

    /// Opens a connection to a server that runs.
    pub fn connection(&self) -> Connection {
        self.try_connect().expect("the server is there")
    }

    /// Returns the answer to a command, given as words.
    pub fn ask(&self, words: &[&str]) -> Value {
        ask(&mut self.connection(), words)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Sends a signal, such as `STOP`, to a process.
pub fn signal(process: u32, name: &str) {
    let mut kill = Command::new("kill");
    let sent = kill.args(["-s", name, &process.to_string()]).status();
    assert!(
        sent.is_ok_and(|status| status.success()),
        "{name} to {process}"
    );
}

/// Waits until a condition holds.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "not in time: {what}");
        sleep(Duration::from_millis(2));
    }
}

/// Returns an answer that is text.
pub fn text(answer: &Value) -> String {
    let Value::BulkString(text) = answer else {
        panic!("it is told in text, and not as {answer:?}");
    };
    String::from_utf8_lossy(text).into_owned()
}

/// Returns the answer to a command, given as words.
pub fn ask(connection: &mut Connection, words: &[&str]) -> Value {
    let (name, arguments) = words.split_first().expect("a command has a name");
    let mut command = redis::cmd(name);
    command.arg(arguments);
    command.query(connection).expect("the command is good")
}

/// A cluster of three primaries, each with a replica if it was started so.
#[derive(Debug)]
pub struct Cluster {
    /// The primaries, then their replicas in the same order.
    pub nodes: Vec<Server>,
}

/// A folder of one server: a server takes the data in it for its own past. A replica leaves the data of its
/// primary there.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes an empty folder.
    #[expect(clippy::new_without_default, reason = "it makes something")]
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("trl-redis-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // A process that had this number before may have left a folder.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a folder can be made");
        Self(path)
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The test does not depend on the removal.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The number of slots of a cluster.
pub const SLOTS: u16 = 16_384;
/// The number of primaries of a [`Cluster`].
pub const PRIMARIES: usize = 3;

impl Cluster {
    /// Starts a cluster whose nodes do not give up one that stands still for a while.
    pub fn start() -> Self {
        Self::of(PRIMARIES, "60000")
    }

    /// Starts a cluster with a replica of each primary, which takes over when its primary was silent for a
    /// second.
    pub fn with_replicas() -> Self {
        let cluster = Self::of(2 * PRIMARIES, "1000");
        let (primaries, replicas) = cluster.nodes.split_at(PRIMARIES);
        for (primary, replica) in primaries.iter().zip(replicas) {
            let primary = text(&primary.ask(&["CLUSTER", "MYID"]));
            let mut replicate = redis::cmd("CLUSTER");
            replicate.arg("REPLICATE").arg(primary);
            // The nodes know each other's names after they have met.
            until("the replica knows its primary", || {
                replicate.query::<()>(&mut replica.connection()).is_ok()
            });
        }
        for node in &cluster.nodes {
            until("every node knows who is a replica", || {
                let nodes = text(&node.ask(&["CLUSTER", "NODES"]));
                nodes.matches("slave").count() == PRIMARIES
            });
        }
        for replica in replicas {
            until("the replica follows", || replica.follows());
        }
        cluster
    }

    fn of(count: usize, patience: &str) -> Self {
        let nodes: Vec<Server> = (0..count).map(|_| Self::node(patience)).collect();
        for (index, node) in nodes.iter().enumerate().take(PRIMARIES) {
            let share = |index: usize| u16::try_from(index * usize::from(SLOTS) / PRIMARIES);
            let slots: Vec<String> = (share(index).unwrap()..share(index + 1).unwrap())
                .map(|slot| slot.to_string())
                .collect();
            let mut words = vec!["CLUSTER", "ADDSLOTS"];
            words.extend(slots.iter().map(String::as_str));
            node.ask(&words);
            node.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
        for node in &nodes[1..] {
            let (port, bus) = (node.port().to_string(), (node.port() + BUS).to_string());
            nodes[0].ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        let cluster = Self { nodes };
        cluster.wait_until("cluster_state:ok");
        cluster.wait_until(&format!("cluster_known_nodes:{count}"));
        cluster
    }

    fn node(patience: &str) -> Server {
        Server::start(&[
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            patience,
            "--repl-diskless-sync-delay",
            "0",
        ])
    }

    /// Waits until every node tells this about the cluster.
    pub fn wait_until(&self, told: &str) {
        for node in &self.nodes {
            until("the cluster comes up", || {
                text(&node.ask(&["CLUSTER", "INFO"])).contains(told)
            });
        }
    }

    /// Returns the addresses of all nodes.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }
}

/// The distance from a node's port to the port on which nodes talk to each other.
const BUS: u16 = 10_000;

/// The ports below those that a system assigns to clients, so that a server that restarts finds its port
/// free.
const PORTS: Range<u32> = 12_000..22_000;

/// Returns a port that was free a moment ago, whose bus port was free too.
pub fn free_port() -> u16 {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    // Other processes look for ports as well, and begin elsewhere.
    let first = std::process::id().wrapping_mul(97);
    loop {
        let number = first.wrapping_add(NUMBER.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + number % (PORTS.end - PORTS.start);
        let port = u16::try_from(port).expect("it is one");
        let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if is_free(port) && is_free(port + BUS) {
            return port;
        }
    }
}
