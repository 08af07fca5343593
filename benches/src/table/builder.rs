//! Builds the cells of the table.

use super::cell::{Cell, Unit};
use crate::figures::Figures;

/// Builds cells of one unit from the figures of a run.
#[derive(Clone, Copy)]
pub(super) struct CellBuilder<'a> {
    figures: &'a Figures,
    unit: Unit,
}

impl<'a> CellBuilder<'a> {
    pub(super) fn new(figures: &'a Figures, unit: Unit) -> Self {
        Self { figures, unit }
    }

    pub(super) fn of_each_unit(figures: &'a Figures) -> [Self; 3] {
        [Unit::Nanoseconds, Unit::Bytes, Unit::Count].map(|unit| Self::new(figures, unit))
    }
    pub(super) fn alone(self, name: &str, ours: &str) -> Cell {
        Cell {
            name: name.to_owned(),
            ours: self.figures.find(ours),
            peer: None,
            unit: self.unit,
            reach: None,
        }
    }

    /// Returns a cell for a figure beside another.
    pub(super) fn cell(self, name: &str, ours: &str, peer: &str) -> Cell {
        let whose = peer.rsplit('/').next().unwrap_or(peer);
        Cell {
            peer: Some((self.figures.find(peer), whose.to_owned())),
            ..self.alone(name, ours)
        }
    }

    pub(super) fn decision(self, name: &str, ours: &str, peer: &str) -> Cell {
        self.cell(
            name,
            &format!("decision/{ours}"),
            &format!("decision/{peer}"),
        )
    }

    pub(super) fn keyed(self, cell: &str) -> Cell {
        let name = format!("{cell}, quanta");
        self.decision(&name, &format!("{cell}/ours"), &format!("{cell}/governor"))
    }

    pub(super) fn algorithm(self, cell: &str, name: &str) -> Cell {
        let label = match cell {
            "slowly" => format!("{name} allowed"),
            _ => name.to_owned(),
        };
        let [ours, gcra] = [name, "gcra"].map(|name| format!("{cell}/{name}"));
        self.decision(&label, &ours, &gcra)
    }

    /// Returns a cell for the time that layers add to the bare service.
    pub(super) fn layer(self, cell: &str, peer: &str) -> Cell {
        let name = format!("layer, {cell}, added");
        self.added(&name, cell, "ours", peer)
    }

    /// Returns the same under the clock that the peer reads by default.
    pub(super) fn layer_by_quanta(self, cell: &str, peer: &str) -> Cell {
        let name = format!("layer, {cell}, quanta, added");
        self.added(&name, cell, "ours, quanta", peer)
    }

    fn added(self, name: &str, cell: &str, ours: &str, peer: &str) -> Cell {
        let bare = self.figures.find("layer/bare");
        let added = |who: &str| {
            let all = self.figures.find(&format!("layer/{cell}/{who}"));
            all.with(&bare, |all, bare| all - bare)
        };
        Cell {
            name: name.to_owned(),
            ours: added(ours),
            peer: Some((added(peer), peer.to_owned())),
            unit: self.unit,
            reach: None,
        }
    }

    /// Returns a cell for the allocations of a request, with the peer's number for comparison only: the
    /// target is a number and no ratio.
    pub(super) fn allocations(self, cell: &str) -> Cell {
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

/// Returns a cell for the throughput of two threads beside that of one, each with this many keys of its own.
pub(super) fn rate(figures: &Figures, keys: u32, both: &str) -> Cell {
    rates(figures, keys, both, "1 thread")
}

pub(super) fn rates(figures: &Figures, keys: u32, both: &str, one: &str) -> Cell {
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
