//! Servers of the tests' own: each on a port that was free, and gone with the test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Client, Connection, Value};

/// Ends the server when whoever started it is gone, however that came: its end of the pipe is closed then.
const GUARD: &str = r#""$@" >/dev/null 2>&1 & echo $!; read -r _; kill -9 $! 2>/dev/null; wait"#;

const PATIENCE: Duration = Duration::from_secs(20);

/// A `redis-server`.
#[derive(Debug)]
pub(crate) struct Server {
    guard: Child,
    /// Closed to end the server.
    alive: Option<ChildStdin>,
    pid: u32,
    port: u16,
    started: Started,
}

/// What a server was started with, but for its port.
#[derive(Clone, Debug)]
struct Started {
    arguments: Vec<String>,
    folder: Arc<Folder>,
}

impl Server {
    /// Starts one, with these options beside those that all have.
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::start_from(None, options)
    }

    /// Starts a sentinel, with these lines in the file of its options, to which it writes.
    pub(crate) fn sentinel(lines: &str) -> Self {
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
            folder: Arc::new(folder),
        };
        Self::come_up(free_port, &started)
    }

    /// Ends it if it runs, and starts it again on its port, with what is in its folder.
    pub(crate) fn restart(&mut self) {
        self.end();
        *self = Self::come_up(|| self.port, &self.started);
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
                "no redis-server came up; `make test` installs it where it is missing"
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

    /// Whether it answers; it does not if somebody else was quicker to take the port.
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

    fn try_connect(&self) -> redis::RedisResult<Connection> {
        Client::open(self.url())?.get_connection()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The process, to send it signals.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends it a signal: `KILL`, `STOP`, `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let (signal, pid) = (format!("-{name}"), self.pid.to_string());
        let sent = Command::new("kill").args([signal, pid]).status();
        assert!(sent.expect("there is a `kill`").success());
    }

    fn end(&mut self) {
        drop(self.alive.take());
        // Whether it was there yet is all one.
        let _ = self.guard.wait();
    }

    pub(crate) fn connection(&self) -> Connection {
        self.try_connect().expect("the server is there")
    }

    /// The answer to a command, given as words.
    pub(crate) fn ask(&self, words: &[&str]) -> Value {
        ask(&mut self.connection(), words)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// The answer to a command, given as words.
pub(crate) fn ask(connection: &mut Connection, words: &[&str]) -> Value {
    let (name, arguments) = words.split_first().expect("a command has a name");
    let mut command = redis::cmd(name);
    command.arg(arguments);
    command.query(connection).expect("the command is good")
}

/// A cluster of three primaries.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Server>,
}

/// A folder of a server's own: what it finds there of another one, it takes for its own past. A replica leaves there
/// what its primary had.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("trl-redis-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // Of a process that had this number before.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a folder can be made");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Whether it goes is all one to the test.
        let _ = fs::remove_dir_all(&self.0);
    }
}

const SLOTS: u16 = 16_384;

impl Cluster {
    pub(crate) fn start() -> Self {
        let nodes: Vec<Server> = (0..3).map(|_| Self::node()).collect();
        for (index, node) in nodes.iter().enumerate() {
            let share = |index: usize| u16::try_from(index * usize::from(SLOTS) / 3).unwrap();
            let slots: Vec<String> = (share(index)..share(index + 1))
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
        cluster.wait_until("cluster_known_nodes:3");
        cluster
    }

    fn node() -> Server {
        Server::start(&["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"])
    }

    /// Waits until every node tells this of the cluster.
    pub(crate) fn wait_until(&self, told: &str) {
        let started = Instant::now();
        for node in &self.nodes {
            loop {
                let info = node.ask(&["CLUSTER", "INFO"]);
                let Value::BulkString(info) = info else {
                    panic!("a cluster tells of itself in text, and not {info:?}");
                };
                if String::from_utf8_lossy(&info).contains(told) {
                    break;
                }
                assert!(started.elapsed() < PATIENCE, "no cluster came up");
                sleep(Duration::from_millis(10));
            }
        }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }
}

/// Nodes talk to each other on a port that is so much higher.
const BUS: u16 = 10_000;

/// A port that nobody listened on a moment ago, and for a cluster's node neither the other one.
pub(crate) fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let bus = port.checked_add(BUS);
        if bus.is_some_and(|bus| TcpListener::bind((Ipv4Addr::LOCALHOST, bus)).is_ok()) {
            return port;
        }
    }
}
