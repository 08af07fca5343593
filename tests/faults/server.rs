//! Faults of a server.

use std::collections::HashMap;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};

use crate::run::Run;
use crate::scene::{Scene, Setting, store_key};
use crate::support::redis::{Folder, Server, ask, text};

fn over(setting: Setting, server: &Server) -> Scene {
    setting.start(|builder| builder.open(server.url()).unwrap())
}

/// The server counts on from what it has not forgotten.
fn nothing(_: u64) -> u32 {
    0
}

/// The counts of before the fault are counted anew.
fn once(_: u64) -> u32 {
    1
}

/// Runs a scene whose server fault lasts until it is mended.
fn meanwhile(server: &mut Server, begins: fn(&Server), ends: fn(&mut Server)) -> Run {
    let mut scene = over(Setting::new(), server).warm();
    scene.strike();
    begins(server);
    scene.lasts();
    ends(server);
    scene.recovers().felt_by_each_node()
}

#[test]
fn a_server_that_is_killed_and_comes_back_with_what_it_wrote_down() {
    let folder = Folder::new();
    let folder = folder.path().to_string_lossy();
    let mut server = Server::start(&["--appendonly", "yes", "--dir", &folder]);
    let mut scene = over(Setting::new(), &server).warm();
    scene.strike();
    server.kill();
    scene.lasts();
    server.restart();
    let run = scene.recovers().felt_by_each_node();
    run.loses(nothing)
        .row("`kill -9`, back with its append-only file");
}

#[test]
fn a_server_that_starts_again_with_nothing() {
    let mut server = Server::start(&[]);
    let mut scene = over(Setting::new(), &server).warm();
    scene.strike();
    server.restart();
    let run = scene.recovers().felt_by_each_node();
    run.loses(once).row("restart with empty data");
}

#[test]
fn a_server_that_is_not_there_when_the_nodes_start() {
    let mut server = Server::start(&[]);
    server.kill();
    let mut scene = over(Setting::new(), &server);
    scene.strike();
    scene.lasts();
    server.restart();
    let run = scene.recovers().felt_by_each_node();
    run.loses(nothing).row("not there at start");
}

#[test]
fn a_server_that_stands_still() {
    let mut server = Server::start(&[]);
    let run = meanwhile(&mut server, Server::freeze, |server| server.thaw());
    run.loses(nothing).row("`SIGSTOP`, as a black hole");
}

#[test]
fn a_server_that_hangs_up_on_its_clients_again_and_again() {
    let server = Server::start(&[]);
    let mut scene = over(Setting::new(), &server).warm();
    scene.strike();
    let mut connection = server.connection();
    scene.strikes_again(|| {
        ask(
            &mut connection,
            &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
        );
        true
    });
    // A connection that dies while it is idle costs no request, so a node may not notice it.
    let run = scene.recovers();
    run.loses(nothing)
        .row("`CLIENT KILL`, every few milliseconds");
}

#[test]
fn a_server_that_forgets_its_scripts_again_and_again() {
    let server = Server::start(&[]);
    let mut scene = over(Setting::patient(), &server).warm();
    scene.strike();
    let mut connection = server.connection();
    let mut flushed = 0;
    scene.strikes_again(|| {
        ask(&mut connection, &["SCRIPT", "FLUSH"]);
        flushed += 1;
        flushed >= 100
    });
    let run = scene.recovers().felt_by_keys(&[]);
    run.loses(nothing)
        .row("`SCRIPT FLUSH`, every few milliseconds");
}

#[test]
fn a_server_that_is_full_and_evicts_nothing() {
    let mut server = Server::start(&["--maxmemory-policy", "noeviction"]);
    let full = |server: &Server| drop(server.ask(&["CONFIG", "SET", "maxmemory", "1"]));
    let run = meanwhile(&mut server, full, |server| {
        server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    });
    run.loses(nothing).row("`maxmemory` reached, `noeviction`");
}

#[test]
fn a_key_with_another_type_of_value() {
    let server = Server::start(&[]);
    let mut scene = over(Setting::patient(), &server).warm();
    // No request has used this key yet.
    let key = store_key(1);
    server.ask(&["HSET", &key, "field", "value"]);
    scene.strike();
    scene.lasts();
    server.ask(&["DEL", &key]);
    let run = scene.recovers().felt_by_keys(&[1]);
    run.loses(nothing).row("another type under a key");
}

/// An evicted state makes its limit whole again once, and no more often.
#[test]
fn a_server_that_is_full_and_evicts_what_is_used_least() {
    let server = Server::start(&[
        "--maxmemory-policy",
        "allkeys-lru",
        "--notify-keyspace-events",
        "Ee",
    ]);
    let evictions = Evictions::of(&server);
    let mut scene = over(Setting::patient(), &server).warm();
    let memory = text(&server.ask(&["INFO", "memory"]));
    let most = number(&memory, "used_memory:") + 4_000_000;
    server.ask(&["CONFIG", "SET", "maxmemory", &most.to_string()]);
    scene.strike();
    let (mut connection, mut junk, value) = (server.connection(), 0, "x".repeat(100_000));
    scene.strikes_again(|| {
        let is_evicted = !evictions.of_ours().is_empty();
        if !is_evicted {
            ask(&mut connection, &["SET", &format!("junk:{junk}"), &value]);
            junk += 1;
        }
        is_evicted
    });
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    let run = scene.recovers().felt_by_keys(&[]);
    let evicted = evictions.all(&server);
    let times = |key: u64| evicted.get(&store_key(key)).copied().unwrap_or(0);
    run.loses(times).row("`maxmemory` reached, `allkeys-lru`");
}

/// A subscriber to the eviction of keys.
struct Evictions {
    counts: Arc<Mutex<HashMap<String, u32>>>,
    counting: Option<JoinHandle<()>>,
}

const LAST: &str = "last";

impl Evictions {
    fn of(server: &Server) -> Self {
        let mut connection = server.connection();
        let (ready, is_ready) = channel();
        let counts: Arc<Mutex<HashMap<String, u32>>> = Arc::default();
        let counted = Arc::clone(&counts);
        let counting = spawn(move || {
            let mut heard = connection.as_pubsub();
            heard.subscribe(&["__keyevent@0__:evicted", LAST]).unwrap();
            ready.send(()).unwrap();
            loop {
                let message = heard.get_message().unwrap();
                if message.get_channel_name() == LAST {
                    return;
                }
                let key: String = message.get_payload().unwrap();
                *counted.lock().unwrap().entry(key).or_default() += 1;
            }
        });
        is_ready.recv().unwrap();
        Self {
            counts,
            counting: Some(counting),
        }
    }

    /// Returns how often each state was evicted until now.
    fn of_ours(&self) -> HashMap<String, u32> {
        let mut counts = self.counts.lock().unwrap().clone();
        counts.retain(|key, _| !key.starts_with("junk:"));
        counts
    }

    /// Returns how often each state was evicted, when evictions have ended.
    fn all(mut self, server: &Server) -> HashMap<String, u32> {
        server.ask(&["PUBLISH", LAST, ""]);
        self.counting.take().expect("once").join().unwrap();
        self.of_ours()
    }
}

fn number(info: &str, name: &str) -> u64 {
    let line = info.lines().find_map(|line| line.strip_prefix(name));
    line.expect("it is told").trim().parse().unwrap()
}
