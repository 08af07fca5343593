//! The cells of limits that depend on a plan, a resolver, a calendar or the hour.

use super::{Cell, CellBuilder, Unit};
use crate::figures::Figures;

/// Returns the cells with a target.
pub(super) fn cells(figures: &Figures) -> Vec<Cell> {
    let ns = CellBuilder::new(figures, Unit::Nanoseconds);
    let bytes = CellBuilder::new(figures, Unit::Bytes);
    let by_resolver = figures.find("limits/plan of a resolver");
    let by_closure = figures.find("limits/plan by closure");
    vec![
        verdict(ns, "plan by closure", "anchored window").at_most(1.25),
        Cell {
            ours: by_resolver.with(&by_closure, |all, closure| all - closure),
            ..ns.alone("plan of a resolver, added to that of a closure", "")
        }
        .at_most(120.0),
        verdict(ns, "calendar day", "fixed window").at_most(1.15),
        verdict(ns, "anchored window by hours", "anchored window").at_most(1.25),
        verdict(ns, "gcra by hours", "gcra").at_most(1.25),
        bytes
            .alone(
                "bytes per key with two plans, 1000000 keys",
                "memory/bytes per key/two plans",
            )
            .at_most(60.0),
    ]
}

/// Returns the cells of decisions with all numbers, which have no target.
pub(super) fn beside(figures: &Figures) -> Vec<Cell> {
    let ns = CellBuilder::new(figures, Unit::Nanoseconds);
    let pairs = [
        ("plan by closure", "anchored window"),
        ("plan of a resolver", "anchored window"),
        ("limits of a resolver", "anchored window"),
        ("calendar day", "fixed window"),
        ("anchored window by hours", "anchored window"),
        ("gcra by hours", "gcra"),
    ];
    let all_numbers = |(ours, peer): (&str, &str)| {
        let [ours, peer] = [ours, peer].map(|row| format!("{row}, all numbers"));
        verdict(ns, &ours, &peer)
    };
    pairs.into_iter().map(all_numbers).collect()
}

fn verdict(ns: CellBuilder<'_>, ours: &str, peer: &str) -> Cell {
    ns.cell(ours, &format!("limits/{ours}"), &format!("limits/{peer}"))
}
