//! The memory of the judge does not grow with the number of requests.

use std::time::Duration;

use allocation_counter::measure;
use ratelimit_loadtest::drive::Tally;

use crate::server::{Lie, Server};
use crate::simulation::stream;

/// Returns the most bytes at one time while this many requests are counted and judged, always in ten minutes.
fn bytes(server: fn() -> Server, clients: u32, requests: u32) -> u64 {
    const LENGTH: Duration = Duration::from_secs(600);
    let counted = measure(|| {
        let server = server();
        let policy = Some(server.algorithm);
        let mut tally = Tally::default();
        let gap = LENGTH / requests;
        let judgement = stream(server, policy, clients, gap, requests, |answer| {
            tally.count(answer.verdict, answer.sent, answer.sent, answer.received);
        });
        assert_eq!(tally.total(), u64::from(requests));
        assert!(!judgement.checks.is_empty());
    });
    counted.bytes_max
}

#[test]
fn ten_times_as_many_requests_need_as_much_memory() {
    // Each client has few requests, which are enough to fill its memory.
    type Case = (&'static str, fn() -> Server, u32);
    let each: [Case; 4] = [
        (
            "most are refused",
            || Server::honest("anchored-window 10/1s"),
            1,
        ),
        (
            "all are allowed",
            || Server::honest("token-bucket 1000/1s"),
            1,
        ),
        ("two clients", || Server::honest("gcra 8/1s"), 2),
        (
            "each wait is a lie",
            || Server::lying("fixed-window 10/1s", Lie::Wait(0)),
            1,
        ),
    ];
    for (name, server, clients) in each {
        let few = bytes(server, clients, 20_000);
        let many = bytes(server, clients, 200_000);
        // A bounded list may end with more capacity than it needs.
        assert!(many < few + few / 4, "{name}: {few} bytes, then {many}");
    }
}
