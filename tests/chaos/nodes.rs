//! The three nodes, and how they are started, killed and stopped.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::mem::take;
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::node::{AS_NODE, CROWD, PANIC};
use crate::support::redis::signal;

pub(crate) const NODES: usize = 3;

/// A node that has not begun something within this time is busy.
const SOON: Duration = Duration::from_millis(200);

/// Ends the node when this process ends, for any reason and even if the node is stopped: the operating system then
/// closes our end of the pipe.
const GUARD: &str = r#""$@" & read -r _; kill -9 $! 2>/dev/null; wait"#;

/// All nodes, for the threads that send requests and for the one that kills.
#[derive(Debug)]
pub(crate) struct Nodes {
    urls: Vec<String>,
    each: [Mutex<Node>; NODES],
    panics: Arc<Mutex<Vec<String>>>,
}

#[derive(Debug, Default)]
struct Node {
    process: Option<Process>,
    /// The address of the node, unless it is killed.
    address: Option<String>,
    away: Vec<Away>,
}

/// A time in which a node was killed or stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Away {
    from: Instant,
    to: Option<Instant>,
    is_killed: bool,
}

impl Away {
    fn overlaps(&self, from: Instant, to: Instant) -> bool {
        self.from <= to && self.to.is_none_or(|end| from <= end)
    }
}

impl Nodes {
    /// Starts the nodes of a service over this cluster.
    pub(crate) fn start(urls: Vec<String>) -> Self {
        let nodes = Self {
            urls,
            each: Default::default(),
            panics: Arc::default(),
        };
        for number in 0..NODES {
            nodes.come_up(number);
        }
        nodes
    }

    fn come_up(&self, number: usize) {
        let (process, port) = Process::start(number, &self.urls, &self.panics);
        let mut node = self.node(number);
        node.process = Some(process);
        node.address = Some(format!("http://127.0.0.1:{port}/"));
    }

    pub(crate) fn address(&self, number: usize) -> Option<String> {
        self.node(number).address.clone()
    }

    pub(crate) fn is_away(&self, number: usize) -> bool {
        let node = self.node(number);
        node.away.last().is_some_and(|away| away.to.is_none())
    }

    pub(crate) fn kill(&self, number: usize) {
        let mut node = self.node(number);
        node.goes_away(true);
        node.address = None;
        node.signal("KILL");
    }

    pub(crate) fn start_again(&self, number: usize) {
        self.come_up(number);
        self.node(number).is_back();
    }

    pub(crate) fn stop(&self, number: usize) {
        let mut node = self.node(number);
        node.goes_away(false);
        node.signal("STOP");
    }

    pub(crate) fn go_on(&self, number: usize) {
        let mut node = self.node(number);
        node.signal("CONT");
        node.is_back();
    }

    /// Makes a node charge this many keys at once, and returns whether the node was there.
    pub(crate) fn crowd(&self, number: usize, keys: u32) -> bool {
        let Some(address) = self.address(number).filter(|_| !self.is_away(number)) else {
            return false;
        };
        let at = address.trim_start_matches("http://").trim_end_matches('/');
        let asked = TcpStream::connect(at).and_then(|mut stream| {
            stream.set_read_timeout(Some(SOON))?;
            write!(
                stream,
                "GET {CROWD}{keys} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n"
            )?;
            // The node has begun by then: it stops when the receiver has gone.
            stream.read(&mut [0])
        });
        asked.is_ok()
    }

    /// Returns the memory of each node, where the system tells it.
    pub(crate) fn memory(&self) -> Vec<u64> {
        let nodes = (0..NODES).filter_map(|number| {
            let pid = self.node(number).process.as_ref()?.pid;
            let told = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
            let pages: u64 = told.split(' ').nth(1)?.parse().ok()?;
            Some(pages * 4_096)
        });
        nodes.collect()
    }

    /// Returns whether the node was killed or stopped at any moment between these.
    pub(crate) fn was_away(&self, number: usize, from: Instant, to: Instant) -> bool {
        let node = self.node(number);
        node.away.iter().any(|away| away.overlaps(from, to))
    }

    /// Returns how often it was killed between these moments, which lost the counts of the node itself.
    pub(crate) fn kills(&self, number: usize, from: Instant, to: Instant) -> u32 {
        let node = self.node(number);
        let kills = node.away.iter().filter(|away| away.is_killed);
        let kills = kills.filter(|away| away.overlaps(from, to)).count();
        u32::try_from(kills).expect("they are few")
    }

    /// Ends the nodes, and reports their panics.
    pub(crate) fn end(&self) -> Vec<String> {
        for number in 0..NODES {
            let process = self.node(number).process.take();
            drop(process);
        }
        take(&mut *lock(&self.panics))
    }

    fn node(&self, number: usize) -> MutexGuard<'_, Node> {
        lock(&self.each[number])
    }
}

impl Node {
    fn goes_away(&mut self, is_killed: bool) {
        self.away.push(Away {
            from: Instant::now(),
            to: None,
            is_killed,
        });
    }

    fn is_back(&mut self) {
        if let Some(away) = self.away.last_mut() {
            away.to = Some(Instant::now());
        }
    }

    fn signal(&self, name: &str) {
        let process = self.process.as_ref().expect("it was started");
        signal(process.pid, name);
    }
}

#[derive(Debug)]
struct Process {
    guard: Child,
    /// Closed to end the node.
    alive: Option<ChildStdin>,
    reader: Option<JoinHandle<()>>,
    pid: u32,
}

impl Process {
    /// Starts a node, and waits until it reports its port.
    fn start(number: usize, urls: &[String], panics: &Arc<Mutex<Vec<String>>>) -> (Self, String) {
        let itself = env::current_exe().expect("this program is somewhere");
        let mut guard = Command::new("sh")
            .args(["-c", GUARD, "guard"])
            .arg(itself)
            .args([AS_NODE, &number.to_string()])
            .args(urls)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let alive = guard.stdin.take();
        let mut told = BufReader::new(guard.stdout.take().expect("it is piped"));
        let mut line = String::new();
        told.read_line(&mut line).expect("it writes text");
        let Some((pid, port)) = line.trim().split_once(' ') else {
            panic!("a node tells its process and its port, and not {line:?}");
        };
        let pid = pid.parse().expect("the process is a number");
        let port = port.to_owned();
        let panics = Arc::clone(panics);
        let process = Self {
            guard,
            alive,
            reader: Some(thread::spawn(move || hear(number, told, &panics))),
            pid,
        };
        (process, port)
    }
}

fn hear(number: usize, told: BufReader<ChildStdout>, panics: &Mutex<Vec<String>>) {
    for line in told.lines().map_while(Result::ok) {
        if let Some(panic) = line.strip_prefix(PANIC) {
            lock(panics).push(format!("node {number}: {panic}"));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.alive.take());
        // The result does not matter: the node may not exist.
        let _ = self.guard.wait();
        if let Some(reader) = self.reader.take() {
            // It ends with the pipe, and has printed everything by then.
            let _ = reader.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
