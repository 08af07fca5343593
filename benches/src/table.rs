//! One table of what has been measured: ours, the peer's, and whether we are where we want to be.

mod limits;
mod redis;

use std::fmt;

use crate::EACH_THREADS_KEYS;
use crate::figures::{Figures, Rounds};

/// A line of the table.
#[derive(Clone, Debug)]
pub struct Cell {
    name: String,
    ours: Rounds,
    /// The other number, and whose it is.
    peer: Option<(Rounds, String)>,
    unit: Unit,
    reach: Option<Reach>,
}

/// What a number is of.
#[derive(Clone, Copy, Debug)]
enum Unit {
    Nanoseconds,
    Bytes,
    Count,
    /// One is yes.
    Truth,
    /// Decisions in a second.
    Rate,
}

/// What ours, divided by the peer's of the same round if there is one, has to be.
#[derive(Clone, Copy, Debug)]
enum Reach {
    AtMost(f64),
    AtLeast(f64),
}

/// The cells with a target come first; those without one follow.
pub fn cells(figures: &Figures) -> Vec<Cell> {
    let ns = Source {
        figures,
        unit: Unit::Nanoseconds,
    };
    let bytes = Source {
        figures,
        unit: Unit::Bytes,
    };
    let count = Source {
        figures,
        unit: Unit::Count,
    };
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
        Source {
            figures,
            unit: Unit::Truth,
        }
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

/// Those of a decision in Redis alone.
pub fn redis_cells(figures: &Figures) -> Vec<Cell> {
    let mut cells = redis::cells(figures);
    cells.extend(redis::beside(figures));
    cells
}

/// What has no figure to reach, and explains those that have.
fn beside(figures: &Figures) -> Vec<Cell> {
    let ns = Source {
        figures,
        unit: Unit::Nanoseconds,
    };
    let bytes = Source {
        figures,
        unit: Unit::Bytes,
    };
    let count = Source {
        figures,
        unit: Unit::Count,
    };
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
    let truth = Source {
        figures,
        unit: Unit::Truth,
    };
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

/// Where cells take their numbers from.
#[derive(Clone, Copy)]
struct Source<'a> {
    figures: &'a Figures,
    unit: Unit,
}

impl Source<'_> {
    fn alone(self, name: &str, ours: &str) -> Cell {
        Cell {
            name: name.to_owned(),
            ours: self.figures.find(ours),
            peer: None,
            unit: self.unit,
            reach: None,
        }
    }

    /// One figure beside another.
    fn cell(self, name: &str, ours: &str, peer: &str) -> Cell {
        let whose = peer.rsplit('/').next().unwrap_or(peer);
        Cell {
            peer: Some((self.figures.find(peer), whose.to_owned())),
            ..self.alone(name, ours)
        }
    }

    fn decision(self, name: &str, ours: &str, peer: &str) -> Cell {
        self.cell(
            name,
            &format!("decision/{ours}"),
            &format!("decision/{peer}"),
        )
    }

    fn keyed(self, cell: &str) -> Cell {
        let name = format!("{cell}, quanta");
        self.decision(&name, &format!("{cell}/ours"), &format!("{cell}/governor"))
    }

    fn algorithm(self, cell: &str, name: &str) -> Cell {
        let label = match cell {
            "slowly" => format!("{name} allowed"),
            _ => name.to_owned(),
        };
        let [ours, gcra] = [name, "gcra"].map(|name| format!("{cell}/{name}"));
        self.decision(&label, &ours, &gcra)
    }

    /// What layers add to the bare service.
    fn layer(self, cell: &str, peer: &str) -> Cell {
        let bare = self.figures.find("layer/bare");
        let added = |who: &str| {
            let all = self.figures.find(&format!("layer/{cell}/{who}"));
            all.with(&bare, |all, bare| all - bare)
        };
        Cell {
            name: format!("layer, {cell}, added"),
            ours: added("ours"),
            peer: Some((added(peer), peer.to_owned())),
            unit: self.unit,
            reach: None,
        }
    }

    /// What is allocated for a request, with the peer's number for comparison only: what is to be
    /// reached is a number and no ratio.
    fn allocations(self, cell: &str) -> Cell {
        let find = |who: &str| {
            self.figures
                .find(&format!("memory/allocations, {cell}/{who}"))
        };
        let mut name = format!("allocations, layer, {cell}");
        if let Some(peer) = find("tower_governor").median() {
            name.push_str(&format!(" (tower_governor: {peer})"));
        }
        Cell {
            ours: find("ours"),
            ..self.alone(&name, "")
        }
    }
}

/// What two threads get done beside what one does, each with so many keys of its own.
fn rate(figures: &Figures, keys: u32, both: &str) -> Cell {
    rates(figures, keys, both, "1 thread")
}

fn rates(figures: &Figures, keys: u32, both: &str, one: &str) -> Cell {
    let rate = |row: &str, threads: f64| {
        let each = figures.find(&format!("decision/distinct keys/{keys}/{row}"));
        each.map(|each| threads * 1e9 / each)
    };
    Cell {
        name: format!("distinct keys, {keys} each, {both}"),
        ours: rate(both, 2.0),
        peer: Some((rate(one, 1.0), one.to_owned())),
        unit: Unit::Rate,
        reach: None,
    }
}

impl Cell {
    fn at_most(self, reach: f64) -> Self {
        Self {
            reach: Some(Reach::AtMost(reach)),
            ..self
        }
    }

    fn at_least(self, reach: f64) -> Self {
        Self {
            reach: Some(Reach::AtLeast(reach)),
            ..self
        }
    }

    /// The median of what ours is of the peer's in each round.
    fn ratio(&self) -> Option<f64> {
        let (peer, _) = self.peer.as_ref()?;
        self.ours.with(peer, |ours, peer| ours / peer).median()
    }

    fn verdict(&self) -> &'static str {
        let figure = match self.peer {
            Some(_) => self.ratio(),
            None => self.ours.median(),
        };
        match (self.reach, figure) {
            (None, _) => "",
            (Some(_), None) => "not measured",
            (Some(reach), Some(figure)) if reach.holds(figure) => "ok",
            (Some(_), Some(_)) => "missed",
        }
    }

    fn columns(&self) -> [String; 6] {
        let show = |rounds: &Rounds| match rounds.median() {
            Some(figure) => self.unit.show(figure),
            None => "–".into(),
        };
        let peer = match &self.peer {
            Some((rounds, whose)) => format!("{} ({whose})", show(rounds)),
            None => String::new(),
        };
        let reach = match (self.reach, &self.peer) {
            (None, _) => String::new(),
            (Some(Reach::AtMost(most)), Some(_)) => format!("≤ {most}"),
            (Some(Reach::AtLeast(least)), Some(_)) => format!("≥ {least}"),
            (Some(Reach::AtMost(0.0)), None) => "0".into(),
            (Some(Reach::AtMost(most)), None) => format!("≤ {}", self.unit.show(most)),
            (Some(Reach::AtLeast(least)), None) => self.unit.show(least),
        };
        [
            self.name.clone(),
            show(&self.ours),
            peer,
            self.ratio().map_or(String::new(), significant),
            reach,
            self.verdict().to_owned(),
        ]
    }
}

impl Reach {
    fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtMost(most) => figure <= most,
            Self::AtLeast(least) => figure >= least,
        }
    }
}

impl Unit {
    fn show(self, figure: f64) -> String {
        let scaled = |units: [(&str, f64); 3]| {
            let fits = units.iter().find(|(_, size)| figure.abs() >= *size);
            let (unit, size) = fits.unwrap_or(&units[2]);
            format!("{} {unit}", significant(figure / size))
        };
        match self {
            Self::Nanoseconds => scaled([("ms", 1e6), ("µs", 1e3), ("ns", 1.0)]),
            Self::Bytes => scaled([("MB", 1e6), ("kB", 1e3), ("B", 1.0)]),
            Self::Rate => scaled([("million/s", 1e6), ("thousand/s", 1e3), ("/s", 1.0)]),
            Self::Count => format!("{figure}"),
            Self::Truth if figure == 1.0 => "yes".into(),
            Self::Truth => "no".into(),
        }
    }
}

/// Three digits, or all those before the point.
fn significant(figure: f64) -> String {
    let before = figure.abs().log10().floor().max(-3.0) as i32 + 1;
    let behind = usize::try_from(3 - before.max(-1)).unwrap_or(0);
    format!("{figure:.behind$}")
}

/// The table, as Markdown that can be read as it is.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn keyed(ours: f64, peer: f64) -> Cell {
        let mut figures = Figures::default();
        figures.insert("decision/hot key/ours", ours);
        figures.insert("decision/hot key/governor", peer);
        let ns = Source {
            figures: &figures,
            unit: Unit::Nanoseconds,
        };
        ns.keyed("hot key").at_most(0.6)
    }

    #[test]
    fn a_ratio_is_ok_up_to_what_is_to_be_reached() {
        assert_eq!(keyed(60.0, 100.0).verdict(), "ok");
        assert_eq!(keyed(61.0, 100.0).verdict(), "missed");
    }

    #[test]
    fn what_was_not_measured_is_not_ok() {
        let cells = cells(&Figures::default());
        let asked = cells.iter().filter(|cell| cell.reach.is_some());
        assert!(asked.clone().count() > 20);
        assert!(asked.clone().all(|cell| cell.verdict() == "not measured"));
    }

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!(Unit::Nanoseconds.show(9.6543), "9.65 ns");
        assert_eq!(Unit::Nanoseconds.show(15_547.0), "15.5 µs");
        assert_eq!(Unit::Bytes.show(1_358_958_397.0), "1359 MB");
        assert_eq!(significant(0.02), "0.0200");
        assert_eq!(significant(0.0), "0.0000");
    }
}
