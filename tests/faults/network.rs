//! Faults of the connections to a server.

use std::time::Duration;

use crate::run::Run;
use crate::scene::{Scene, Setting};
use crate::support::proxy::{Half, Proxy};
use crate::support::redis::Server;

fn over(setting: Setting, proxy: &Proxy) -> Scene {
    setting
        .start(|builder| builder.open(proxy.url()).unwrap())
        .warm()
}

/// The server has counted every request that reached it.
fn nothing(_: u64) -> u32 {
    0
}

/// Runs a scene whose network fault lasts until it is mended.
fn meanwhile(setting: Setting, begins: fn(&mut Proxy), ends: fn(&mut Proxy)) -> Run {
    let server = Server::start(&[]);
    let mut proxy = Proxy::start(&server);
    let mut scene = over(setting, &proxy);
    scene.strike();
    begins(&mut proxy);
    scene.lasts();
    ends(&mut proxy);
    scene.recovers()
}

#[test]
fn answers_that_come_late_and_in_time() {
    let late = |proxy: &mut Proxy| proxy.delay(Duration::from_millis(50));
    let run = meanwhile(Setting::patient(), late, |proxy| {
        proxy.delay(Duration::ZERO);
    });
    let run = run.felt_by_keys(&[]);
    run.loses(nothing).row("answers 50 ms late");
}

#[test]
fn answers_that_come_after_the_deadline() {
    let late = |proxy: &mut Proxy| proxy.delay(Duration::from_millis(300));
    let run = meanwhile(Setting::new(), late, |proxy| proxy.delay(Duration::ZERO));
    let run = run.felt_by_each_node();
    run.loses(nothing)
        .row("answers 300 ms late, past the deadline");
}

#[test]
fn connections_on_which_nothing_arrives_any_more() {
    let swallows = |proxy: &mut Proxy| proxy.swallow(true);
    let run = meanwhile(Setting::new(), swallows, |proxy| proxy.swallow(false));
    let run = run.felt_by_each_node();
    run.loses(nothing).row("a network that drops packets");
}

#[test]
fn connections_that_are_closed_and_refused() {
    let run = meanwhile(Setting::new(), Proxy::refuse, Proxy::accept);
    let run = run.felt_by_each_node();
    run.loses(nothing).row("connections refused");
}

#[test]
fn connections_that_are_closed_again_and_again() {
    let server = Server::start(&[]);
    let mut proxy = Proxy::start(&server);
    let mut scene = over(Setting::new(), &proxy);
    scene.strike();
    scene.strikes_again(|| {
        proxy.cut();
        true
    });
    // A connection that dies while it is idle costs no request, so a node may not notice it.
    let run = scene.recovers();
    run.loses(nothing)
        .row("connections closed every few milliseconds");
}

#[test]
fn connections_on_which_no_answers_come_any_more() {
    let close = |proxy: &mut Proxy| proxy.half_close(Half::ToClient);
    // A connection that dies while it is idle costs no request, so a node may not notice it.
    let run = meanwhile(Setting::new(), close, |_| ());
    run.loses(nothing).row("half-closed: no answers");
}

#[test]
fn connections_on_which_no_requests_go_any_more() {
    let close = |proxy: &mut Proxy| proxy.half_close(Half::ToServer);
    let run = meanwhile(Setting::new(), close, |_| ()).felt_by_each_node();
    run.loses(nothing).row("half-closed: no requests");
}
