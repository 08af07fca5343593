//! The results of one run: numbers by name.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Results by name, such as `decision/hot key/ours`.
#[derive(Clone, Debug, Default)]
pub struct Figures(BTreeMap<String, Rounds>);

/// A number for each round of a run.
///
/// A shared machine has phases of some seconds in which everything takes twice as long. So the paths that are
/// compared are measured again and again, within seconds each time, and compared round by round: such a phase
/// then meets both sides, or one round of many.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rounds(Vec<f64>);

impl Rounds {
    /// Returns the middle number; the upper of both middle ones, if their number is even.
    pub fn median(&self) -> Option<f64> {
        let mut figures = self.0.clone();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied()
    }

    pub fn map(&self, act: impl Fn(f64) -> f64) -> Self {
        self.0.iter().copied().map(act).collect()
    }

    /// Combines the numbers of each round of two results. Returns nothing if they have different numbers of
    /// rounds.
    pub fn with(&self, other: &Self, act: impl Fn(f64, f64) -> f64) -> Self {
        if self.0.len() != other.0.len() {
            return Self::default();
        }
        let both = self.0.iter().zip(&other.0);
        both.map(|(here, there)| act(*here, *there)).collect()
    }
}

impl FromIterator<f64> for Rounds {
    fn from_iter<I: IntoIterator<Item = f64>>(figures: I) -> Self {
        Self(figures.into_iter().collect())
    }
}

impl Figures {
    /// Adds the result of one round.
    pub fn insert(&mut self, name: impl Into<String>, figure: f64) {
        let Rounds(rounds) = self.0.entry(name.into()).or_default();
        rounds.push(figure);
    }

    /// Returns the results under this name.
    pub fn find(&self, name: &str) -> Rounds {
        self.0.get(name).cloned().unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the medians.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        let medians = self
            .0
            .iter()
            .filter_map(|(name, rounds)| Some((name, rounds.median()?)));
        medians.map(|(name, median)| (name.as_str(), median))
    }

    /// Saves the figures for the table, if this run makes one.
    pub fn save(&self, name: &str) -> io::Result<()> {
        let Some(folder) = folder() else {
            return Ok(());
        };
        fs::create_dir_all(&folder)?;
        let text = serde_json::to_string_pretty(&self.0)?;
        fs::write(folder.join(name).with_extension("figures"), text)
    }

    /// Reads the results of this run: the medians of criterion in nanoseconds, with a folder for each round,
    /// and the saved figures.
    pub fn load(folder: &Path) -> io::Result<Self> {
        let mut figures = Self::default();
        figures.read(folder)?;
        Ok(figures)
    }

    fn read(&mut self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            let entries = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path()));
            let mut entries: Vec<_> = entries.collect::<Result<_, _>>()?;
            // The first round comes first, under every name.
            entries.sort();
            for entry in entries {
                self.read(&entry)?;
            }
        } else if path.ends_with("new/benchmark.json") {
            let name = json(path)?["full_id"].as_str().map(str::to_owned);
            let estimates = json(&path.with_file_name("estimates.json"))?;
            let median = estimates["median"]["point_estimate"].as_f64();
            let (Some(name), Some(median)) = (name, median) else {
                return Err(io::Error::other(format!("no median beside {path:?}")));
            };
            self.insert(name, median);
        } else if path.extension().is_some_and(|is| is == "figures") {
            let saved: BTreeMap<String, Rounds> = serde_json::from_value(json(path)?)?;
            self.0.extend(saved);
        }
        Ok(())
    }
}

/// Returns the folder with the figures of this run; criterion reads the same variable.
pub fn folder() -> Option<PathBuf> {
    env::var_os("CRITERION_HOME").map(PathBuf::from)
}

fn json(path: &Path) -> io::Result<Value> {
    Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds<const N: usize>(figures: [f64; N]) -> Rounds {
        figures.into_iter().collect()
    }

    #[test]
    fn a_round_that_was_disturbed_moves_no_median() {
        let quiet = rounds([10.0, 11.0, 900.0, 12.0, 9.0]);
        assert_eq!(quiet.median(), Some(11.0));
        assert_eq!(Rounds::default().median(), None);
    }

    #[test]
    fn numbers_of_one_round_are_compared_with_each_other() {
        let ours = rounds([10.0, 20.0, 20.0, 10.0, 10.0]);
        let peers = rounds([20.0, 40.0, 40.0, 40.0, 20.0]);
        let ratio = ours.with(&peers, |ours, peers| ours / peers);
        assert_eq!(ratio, rounds([0.5, 0.5, 0.5, 0.25, 0.5]));
        assert_eq!(ratio.median(), Some(0.5));
        assert_eq!(ours.with(&rounds([1.0]), |ours, _| ours), Rounds::default());
    }

    #[test]
    fn each_folder_of_a_run_is_a_round() {
        let folder = env::temp_dir().join(format!("figures of {}", std::process::id()));
        for (round, median) in [("2", 7.0), ("1", 5.0)] {
            let row = folder.join(round).join("a row").join("new");
            fs::create_dir_all(&row).unwrap();
            fs::write(
                row.join("benchmark.json"),
                r#"{"full_id": "decision/a row"}"#,
            )
            .unwrap();
            let estimates = format!(r#"{{"median": {{"point_estimate": {median}}}}}"#);
            fs::write(row.join("estimates.json"), estimates).unwrap();
        }
        fs::write(
            folder.join("redis.figures"),
            r#"{"redis/a row": [3.0, 2.0]}"#,
        )
        .unwrap();
        let figures = Figures::load(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(figures.find("decision/a row"), rounds([5.0, 7.0]));
        assert_eq!(figures.find("redis/a row"), rounds([3.0, 2.0]));
        assert_eq!(figures.find("nobody"), Rounds::default());
    }
}
