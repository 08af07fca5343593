//! A cell of the table: a number, a peer's number and a target.

use crate::figures::Rounds;

/// A cell, which is a line of the table.
#[derive(Clone, Debug)]
pub struct Cell {
    pub(super) name: String,
    pub(super) ours: Rounds,
    /// The number and the name of the peer.
    pub(super) peer: Option<(Rounds, String)>,
    pub(super) unit: Unit,
    pub(super) reach: Option<Reach>,
}

/// The unit of a number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Nanoseconds,
    Bytes,
    Count,
    /// A truth: one is yes.
    Truth,
    /// A rate of decisions per second.
    Rate,
}

/// The target of our number, divided by the peer's of the same round if there is one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reach {
    AtMost(f64),
    AtLeast(f64),
}

impl Cell {
    pub(super) fn at_most(self, reach: f64) -> Self {
        Self {
            reach: Some(Reach::AtMost(reach)),
            ..self
        }
    }

    pub(super) fn at_least(self, reach: f64) -> Self {
        Self {
            reach: Some(Reach::AtLeast(reach)),
            ..self
        }
    }

    /// Returns the median over the rounds of our number divided by the peer's.
    pub(super) fn ratio(&self) -> Option<f64> {
        let (peer, _) = self.peer.as_ref()?;
        self.ours.with(peer, |ours, peer| ours / peer).median()
    }

    pub(super) fn verdict(&self) -> &'static str {
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

    pub(super) fn columns(&self) -> [String; 6] {
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
    pub(super) fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtMost(most) => figure <= most,
            Self::AtLeast(least) => figure >= least,
        }
    }
}

impl Unit {
    pub(super) fn show(self, figure: f64) -> String {
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

/// Formats three digits, or all digits before the point.
pub(super) fn significant(figure: f64) -> String {
    let before = figure.abs().log10().floor().max(-3.0) as i32 + 1;
    let behind = usize::try_from(3 - before.max(-1)).unwrap_or(0);
    format!("{figure:.behind$}")
}

#[cfg(test)]
mod tests {
    use super::super::builder::CellBuilder;
    use super::super::cells;
    use super::*;
    use crate::figures::Figures;

    fn keyed(ours: f64, peer: f64) -> Cell {
        let mut figures = Figures::default();
        figures.insert("decision/hot key/ours", ours);
        figures.insert("decision/hot key/governor", peer);
        let ns = CellBuilder::new(&figures, Unit::Nanoseconds);
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
