//! One table of what has been measured: ours, the peer's, and whether we are where we want to be.

mod builder;
mod cell;
mod limits;
mod redis;

use std::fmt;

use self::builder::{CellBuilder, rate, rates};
pub use self::cell::Cell;
use self::cell::Unit;
use crate::EACH_THREADS_KEYS;
use crate::figures::Figures;

/// Returns the cells with a target, and then those without one.
pub fn cells(figures: &Figures) -> Vec<Cell> {
    let [ns, bytes, count] = CellBuilder::of_each_unit(figures);
    let mut cells = vec![
        ns.decision("hot key, quanta", "hot key/ours", "hot key/governor")
            .at_most(0.6),
        ns.keyed("hot key refused, 2 threads").at_most(0.25),
        ns.keyed("10000 keys").at_most(0.6),
        ns.keyed("10000 keys, 2 threads").at_most(0.6),
        ns.keyed("1000000 keys").at_most(0.45),
        ns.keyed("1000000 keys, 2 threads").at_most(0.45),
        bytes
            .cell(
                "bytes per key, 1000000 keys",
                "memory/bytes per key/ours",
                "memory/bytes per key/governor",
            )
            .at_most(0.4),
    ];
    for algorithm in [
        "token bucket",
        "leaky bucket",
        "token bucket by interval",
        "fixed window",
        "anchored window",
        "sliding window",
    ] {
        cells.push(ns.algorithm("algorithms", algorithm).at_most(1.5));
    }
    for wider in [
        "sliding slots",
        "sliding log refused",
        "uneven quota refused",
    ] {
        cells.push(ns.algorithm("algorithms", wider).at_most(2.0));
    }
    for wider in ["sliding slots", "sliding log", "uneven quota"] {
        cells.push(ns.algorithm("slowly", wider).at_most(2.0));
    }
    cells.extend([
        ns.layer("no headers", "tower_governor").at_most(0.8),
        ns.layer("all headers", "tower_governor").at_most(0.4),
        ns.layer_by_quanta("no headers", "tower_governor")
            .at_most(1.7),
        ns.layer_by_quanta("all headers", "tower_governor")
            .at_most(0.9),
        ns.layer("refused", "tower_governor").at_most(0.02),
        ns.cell(
            "layer, refused, all of it, around a router",
            "layer/router/refused",
            "layer/router/allowed",
        )
        .at_most(1.0),
    ]);
    for verdict in ["allowed", "refused"] {
        for kind in ["verdict", "decision"] {
            let name = format!("allocations, {kind}, {verdict}");
            cells.push(
                count
                    .alone(&name, &format!("memory/{name}/ours"))
                    .at_most(0.0),
            );
        }
    }
    cells.extend([
        count.allocations("no headers").at_most(0.0),
        count.allocations("all headers").at_most(3.0),
        bytes
            .cell(
                "flood, memory after it",
                "memory/flood/bytes after",
                "memory/flood/bytes at the bound",
            )
            .at_most(1.01),
        ns.alone("flood, p99.9 of a decision", "memory/flood/p99.9")
            .at_most(5_000.0),
        CellBuilder::new(figures, Unit::Truth)
            .alone(
                "flood, a refused key stays refused",
                "memory/flood/still refused",
            )
            .at_least(1.0),
    ]);
    for keys in EACH_THREADS_KEYS {
        cells.push(rate(figures, keys, "2 threads").at_least(1.8));
    }
    cells.extend(limits::cells(figures));
    cells.extend(redis::cells(figures));
    cells.extend(beside(figures));
    cells.extend(limits::beside(figures));
    cells.extend(redis::beside(figures));
    cells
}

/// Returns the cells of a decision in Redis alone.
pub fn redis_cells(figures: &Figures) -> Vec<Cell> {
    let mut cells = redis::cells(figures);
    cells.extend(redis::beside(figures));
    cells
}

/// Returns the cells without a target, which explain the others.
fn beside(figures: &Figures) -> Vec<Cell> {
    let [ns, bytes, count] = CellBuilder::of_each_unit(figures);
    let mut cells = Vec::new();
    for keys in EACH_THREADS_KEYS {
        cells.push(rate(figures, keys, "2 threads, 2 limiters"));
        cells.push(rates(figures, keys, "least, 2 threads", "least, 1 thread"));
    }
    for cell in [
        "hot key",
        "10000 keys",
        "10000 keys, 2 threads",
        "1000000 keys",
        "1000000 keys, 2 threads",
    ] {
        let name = format!("{cell}, the least that any does");
        let [least, peer] = ["least", "governor"].map(|who| format!("{cell}/{who}"));
        cells.push(ns.decision(&name, &least, &peer));
    }
    for cell in ["hot key", "hot key refused"] {
        let peer = |name: &str, ours: &str, peer: &str| {
            let name = format!("{cell}, {name}");
            ns.decision(&name, &format!("{cell}/{ours}"), &format!("{cell}/{peer}"))
        };
        cells.push(peer("std", "ours, std", "governor, std"));
        cells.push(peer("std", "ours, std", "ratelimit, std"));
        cells.push(peer("std", "ours, std", "throttlecrab, std"));
        cells.push(peer("quanta, all numbers", "ours, all numbers", "governor"));
    }
    cells.extend([
        ns.keyed("hot key refused"),
        ns.keyed("hot key, 2 threads"),
        ns.cell(
            "decision, 10000 keys, throttlecrab's by std",
            "decision/10000 keys/ours",
            "decision/10000 keys/throttlecrab, std",
        ),
        bytes.cell(
            "bytes per key at most, while growing",
            "memory/bytes per key at most/ours",
            "memory/bytes per key at most/governor",
        ),
        ns.layer("all headers", "axum-governor"),
        ns.layer("refused", "axum-governor"),
        ns.alone("layer, bare service and request", "layer/bare"),
        ns.alone("layer, all of it, around a router", "layer/router/allowed"),
        ns.alone("a bare router", "layer/router/bare"),
        count.allocations("refused"),
    ]);
    let [new, refused] = ["flood", "flood of refused keys"];
    for (flood, time) in [
        (new, "p50"),
        (new, "p99"),
        (new, "longest"),
        (refused, "p50"),
        (refused, "p99"),
        (refused, "p99.9"),
        (refused, "longest"),
    ] {
        let figure = format!("memory/{flood}/{time}");
        cells.push(ns.alone(&format!("{flood}, {time}"), &figure));
    }
    for (flood, bytes_then) in [
        (new, "bytes at most"),
        (refused, "bytes after"),
        (refused, "bytes at most"),
    ] {
        let name = format!("{flood}, {bytes_then}");
        let [then, bound] =
            [bytes_then, "bytes at the bound"].map(|row| format!("memory/{flood}/{row}"));
        cells.push(bytes.cell(&name, &then, &bound));
    }
    let truth = CellBuilder::new(figures, Unit::Truth);
    let name = format!("{refused}, one of them stays refused");
    cells.push(truth.alone(&name, &format!("memory/{refused}/still refused")));
    for policies in [2, 4, 8] {
        for row in ["ours", "ours, all numbers"] {
            let name = format!("{policies} policies{}", row.trim_start_matches("ours"));
            let [several, one] = [policies, 1].map(|n| format!("decision/{n} policies/{row}"));
            cells.push(ns.cell(&name, &several, &one));
        }
    }
    cells
}

/// The table, as Markdown that is readable as it is.
#[derive(Debug)]
pub struct Table(pub Vec<Cell>);

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["cell", "ours", "peer", "ratio", "reach", ""].map(str::to_owned);
        let rows: Vec<_> = [head]
            .into_iter()
            .chain(self.0.iter().map(Cell::columns))
            .collect();
        let width = |column: usize| {
            let widths = rows.iter().map(|row| row[column].chars().count());
            widths.max().unwrap_or(0)
        };
        let widths: [usize; 6] = std::array::from_fn(width);
        for (place, row) in rows.iter().enumerate() {
            for (column, (text, width)) in row.iter().zip(widths).enumerate() {
                match column {
                    0 | 5 => write!(f, "| {text:<width$} ")?,
                    _ => write!(f, "| {text:>width$} ")?,
                }
            }
            writeln!(f, "|")?;
            if place == 0 {
                for (column, width) in widths.into_iter().enumerate() {
                    let colon = if matches!(column, 0 | 5) { "-" } else { ":" };
                    write!(f, "| {}{colon} ", "-".repeat(width.saturating_sub(1)))?;
                }
                writeln!(f, "|")?;
            }
        }
        let missed = self
            .0
            .iter()
            .filter(|cell| cell.verdict() == "missed")
            .count();
        let asked = self.0.iter().filter(|cell| cell.reach.is_some()).count();
        writeln!(f, "\n{missed} of {asked} missed.")
    }
}
