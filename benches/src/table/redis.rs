//! The cells of a decision in Redis.

use super::{Cell, CellBuilder, Unit};
use crate::figures::Figures;

const MINIMAL: &str = "minimal script";

/// Returns the cells with a target.
pub(super) fn cells(figures: &Figures) -> Vec<Cell> {
    let ns = CellBuilder::new(figures, Unit::Nanoseconds);
    vec![
        p50(figures, "gcra", "INCR", 1).at_most(1.5),
        rate(figures, "gcra", MINIMAL, 64).at_least(0.65),
        p50(figures, "four policies", "gcra", 1).at_most(2.0),
        each(figures, "four policies", "gcra", 64).at_most(3.0),
        ns.alone("redis, a remembered denial", "redis/remembered denial")
            .at_most(200.0),
        served(figures, "anchored window, plan", "anchored window").at_most(1.1),
        served(figures, "calendar day", "fixed window").at_most(1.1),
        served(figures, "fixed window by hours", "fixed window").at_most(1.1),
        served(figures, "gcra by hours", "gcra").at_most(1.1),
        ns.cell(
            "redis, a leased unit",
            "redis/leased unit",
            "redis/remembered denial",
        )
        .at_most(1.3),
    ]
}

/// Returns a cell for the server's time of a decision with a variable limit, beside the same with one limit.
fn served(figures: &Figures, ours: &str, peer: &str) -> Cell {
    cell(figures, Unit::Nanoseconds, "server", ours, peer, 64)
}

/// Returns the cost of a round trip alone, and of each algorithm.
pub(super) fn beside(figures: &Figures) -> Vec<Cell> {
    let mut cells = Vec::new();
    let rows = [
        "PING",
        "INCR",
        "empty script",
        MINIMAL,
        "gcra",
        "token bucket",
        "leaky bucket",
        "leaky queue",
        "token bucket by interval",
        "fixed window",
        "anchored window",
        "sliding window",
        "sliding slots",
        "sliding log",
        "four policies",
        "anchored window, plan",
        "calendar day",
        "fixed window by hours",
        "gcra by hours",
    ];
    for row in rows {
        for concurrency in [1, 64] {
            cells.push(spread(figures, row, concurrency));
        }
        cells.push(rate(figures, row, MINIMAL, 64));
        for who in ["server", "client"] {
            cells.push(cell(figures, Unit::Nanoseconds, who, row, MINIMAL, 64));
        }
    }
    cells
}

fn p50(figures: &Figures, ours: &str, peer: &str, concurrency: u32) -> Cell {
    cell(figures, Unit::Nanoseconds, "p50", ours, peer, concurrency)
}

fn rate(figures: &Figures, ours: &str, peer: &str, concurrency: u32) -> Cell {
    cell(figures, Unit::Rate, "rate", ours, peer, concurrency)
}

/// Returns a cell for one figure of two rows.
fn cell(
    figures: &Figures,
    unit: Unit,
    what: &str,
    ours: &str,
    peer: &str,
    concurrency: u32,
) -> Cell {
    let find = |row: &str| figures.find(&format!("redis/{row}/{concurrency}/{what}"));
    let peer = (ours != peer).then(|| (find(peer), peer.to_owned()));
    Cell {
        name: format!("redis, {ours}, {concurrency} at once, {what}"),
        ours: find(ours),
        peer,
        unit,
        reach: None,
    }
}

/// Returns the p50 of a row beside its p99.
fn spread(figures: &Figures, row: &str, concurrency: u32) -> Cell {
    let find = |what: &str| figures.find(&format!("redis/{row}/{concurrency}/{what}"));
    Cell {
        name: format!("redis, {row}, {concurrency} at once, p50"),
        ours: find("p50"),
        peer: Some((find("p99"), "p99".to_owned())),
        unit: Unit::Nanoseconds,
        reach: None,
    }
}

/// Returns a cell for the time of each request at this concurrency.
fn each(figures: &Figures, ours: &str, peer: &str, concurrency: u32) -> Cell {
    let find = |row: &str| {
        let rate = figures.find(&format!("redis/{row}/{concurrency}/rate"));
        rate.map(|rate| 1e9 / rate)
    };
    Cell {
        name: format!("redis, {ours}, {concurrency} at once, each"),
        ours: find(ours),
        peer: Some((find(peer), peer.to_owned())),
        unit: Unit::Nanoseconds,
        reach: None,
    }
}
