//! A node renews the slots of its requests: all of them in one call, whatever happens to other keys and servers.

use std::mem;
use std::thread;
use std::time::Duration;

use futures_util::future::join_all;

use crate::scene::{ask, calls, node_of, over, patient};
use crate::slots::{LIFE, Node, at_once, members, set_of, short_lived};
use crate::support::redis::{Cluster, Server, until};

#[test]
fn all_slots_of_a_node_are_renewed_in_one_call() {
    let server = Server::start(&[]);
    let store = short_lived(&server);
    let node = Node::new(&store, [at_once(100)]);
    for key in 0..40 {
        assert!(node.takes(key) && node.takes(key));
    }
    let set = set_of(&store, 39);
    let end = || -> f64 {
        let members: Vec<(String, f64)> = ask(&server, &["ZRANGE", &set, "-1", "-1", "WITHSCORES"]);
        members.first().map_or(f64::MAX, |member| member.1)
    };
    let wait_for_a_renewal = || {
        let before = end();
        until("they are renewed", || end() > before);
    };
    // One more is made before this test looks if the machine does not run it.
    until("two renewals are two calls", || {
        wait_for_a_renewal();
        let before = calls(&server, "evalsha");
        wait_for_a_renewal();
        wait_for_a_renewal();
        calls(&server, "evalsha") == before + 2
    });
}

/// Returns when the last slot of a set ends, by the server's clock, and what time it is there.
fn end_and_now(server: &Server, set: &str) -> (f64, f64) {
    let members: Vec<(String, f64)> = ask(server, &["ZRANGE", set, "-1", "-1", "WITHSCORES"]);
    let (seconds, micros): (f64, f64) = ask(server, &["TIME"]);
    let end = members.first().map_or(0.0, |member| member.1);
    (end, seconds * 1e6 + micros)
}

/// Waits until these slots were renewed past two lives, and asserts that none of them ended. This begins anew if
/// the machine stood still: slots may end then.
pub(crate) fn are_renewed(slots: &[(&Server, String)], life: Duration) {
    let life = life.as_secs_f64() * 1e6;
    let (mut first, mut latest) = (None, 0.0);
    until("the slots were renewed past two lives", || {
        let told: Vec<(f64, f64)> = slots
            .iter()
            .map(|(server, set)| end_and_now(server, set))
            .collect();
        let now = told.iter().map(|(_, now)| *now).fold(0.0, f64::max);
        if now > latest + life / 5.0 {
            first = None;
        }
        latest = now;
        let are_taken = told.iter().all(|(end, now)| end > now);
        let Some(first) = &first else {
            first = are_taken.then_some(told);
            return false;
        };
        assert!(are_taken, "a slot has ended while its request goes on");
        let renewed = told.iter().zip(first);
        renewed
            .into_iter()
            .all(|((end, _), (first, _))| *end > first + 2.0 * life)
    });
}

#[test]
fn a_set_that_cannot_be_read_lets_no_slot_of_the_others_end() {
    let server = Server::start(&[]);
    let store = short_lived(&server);
    let node = Node::new(&store, [at_once(1)]);
    assert!((0..30).all(|key| node.takes(key)));
    let set = |key| set_of(&store, key);
    let _: () = ask(&server, &["SET", &set(29), "text"]);
    let others: Vec<_> = (0..29).map(|key| (&server, set(key))).collect();
    are_renewed(&others, LIFE);
    assert!(node.limiter.snapshot().store.failed_renewals > 0);
}

/// The renewals of a frozen server wait for their deadline, which is longer than a slot lasts.
#[test]
fn in_a_cluster_a_server_that_is_away_lets_no_slot_of_the_others_end() {
    const LIFE: Duration = Duration::from_secs(3);
    let cluster = Cluster::start();
    for server in &cluster.nodes {
        // Otherwise none of them answers while one is away.
        let _: () = ask(
            server,
            &["CONFIG", "SET", "cluster-require-full-coverage", "no"],
        );
    }
    let store = over(patient().slot_ttl(LIFE), &cluster);
    let node = Node::new(&store, [at_once(1)]);
    // On each server more than are renewed at once.
    let sets = (0..300).map(|key| {
        assert!(node.takes(key));
        set_of(&store, key)
    });
    let slots: Vec<_> = sets.map(|set| (node_of(&cluster, &set), set)).collect();
    let frozen = slots[0].0.port();
    slots[0].0.freeze();
    let others: Vec<_> = slots
        .into_iter()
        .filter(|(server, _)| server.port() != frozen)
        // All take longer to ask for than the machine may stand still.
        .step_by(4)
        .collect();
    are_renewed(&others, LIFE);
}

/// Returns the time of the processor that the server has used until now, in microseconds, and how many scripts it has run. Both
/// are of one moment: a renewal is in both, or in neither.
fn spent(server: &Server) -> (f64, u64) {
    let info: String = ask(server, &["INFO", "all"]);
    let (mut seconds, mut scripts) = (0.0, 0);
    for line in info.lines() {
        match line.split_once(':') {
            Some(("used_cpu_user" | "used_cpu_sys", used)) => {
                seconds += used.trim().parse::<f64>().unwrap();
            }
            Some(("cmdstat_evalsha", told)) => {
                let calls = told.strip_prefix("calls=").unwrap();
                scripts = calls.split(',').next().unwrap().parse().unwrap();
            }
            _ => {}
        }
    }
    (seconds * 1e6, scripts)
}

/// Returns how long the commands take that any renewal needs: an end for each member of each set.
fn bare_commands(server: &Server, sets: &[String]) -> f64 {
    let mut sets_and_members = Vec::new();
    for set in sets {
        let members: Vec<String> = ask(server, &["ZRANGE", set, "0", "-1"]);
        sets_and_members.push((format!("copy {set}"), members));
    }
    let mut connection = server.connection();
    let mut least = f64::MAX;
    for round in 0..4_u64 {
        let end = (1_700_000_000_000_000 + round).to_string();
        let mut commands = redis::pipe();
        for (copy, members) in &sets_and_members {
            let command = commands.cmd("ZADD").arg(copy);
            for member in members {
                command.arg(&end).arg(member);
            }
            command.ignore();
        }
        let before = spent(server).0;
        commands.query::<()>(&mut connection).unwrap();
        least = least.min(spent(server).0 - before);
    }
    least
}

#[test]
fn ten_thousand_slots_are_renewed_in_one_call_that_takes_less_than_their_commands_alone() {
    const KEYS: u64 = 100;
    let server = Server::start(&[]);
    let store = patient().slot_ttl(3 * LIFE).open(server.url()).unwrap();
    let node = Node::new(&store, [at_once(100)]);
    for _ in 0..100 {
        let each = (0..KEYS).map(|key| node.limiter.reserve(key, 1).into_future());
        for held in node.runtime.block_on(join_all(each)) {
            let held = held.unwrap();
            assert!(held.is_allowed());
            mem::forget(held);
        }
    }
    let mut renewals = Vec::new();
    until("it is measured", || {
        let (before, calls) = spent(&server);
        // Calls meanwhile would be measured, too.
        thread::sleep(LIFE);
        let (after, now) = spent(&server);
        if now == calls + 1 {
            renewals.push(after - before);
        }
        renewals.len() == 4
    });
    let sets: Vec<String> = (0..KEYS).map(|key| set_of(&store, key)).collect();
    until("there are ten thousand", || {
        sets.iter().map(|set| members(&server, set)).sum::<u64>() == 10_000
    });
    let renewal = renewals.into_iter().fold(f64::MAX, f64::min);
    let bare = bare_commands(&server, &sets);
    println!(
        "10,000 slots renewed in {renewal:.0} us of the server; its commands alone take {bare:.0} us"
    );
    // The server keeps the copies as lists, which take longer the longer they are.
    assert!(renewal < bare, "{renewal} and {bare} us");
}
