//! What one run has measured: a number by name.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Numbers by the names under which they were measured, such as `decision/hot key/ours`.
#[derive(Clone, Debug, Default)]
pub struct Figures(BTreeMap<String, f64>);

impl Figures {
    pub fn insert(&mut self, name: impl Into<String>, figure: f64) {
        self.0.insert(name.into(), figure);
    }

    pub fn find(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, figure)| (name.as_str(), *figure))
    }

    /// Keeps the figures for the table, if this run makes one.
    pub fn save(&self, name: &str) -> io::Result<()> {
        let Some(folder) = folder() else {
            return Ok(());
        };
        fs::create_dir_all(&folder)?;
        let text = serde_json::to_string_pretty(&self.0)?;
        fs::write(folder.join(name).with_extension("figures"), text)
    }

    /// Everything that this run has measured: the medians of criterion, in nanoseconds, and what
    /// was saved.
    pub fn load(folder: &Path) -> io::Result<Self> {
        let mut figures = Self::default();
        figures.read(folder)?;
        Ok(figures)
    }

    fn read(&mut self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            for entry in fs::read_dir(path)? {
                self.read(&entry?.path())?;
            }
        } else if path.ends_with("new/benchmark.json") {
            let name = json(path)?["full_id"].as_str().map(str::to_owned);
            let estimates = json(&path.with_file_name("estimates.json"))?;
            let median = estimates["median"]["point_estimate"].as_f64();
            if let (Some(name), Some(median)) = (name, median) {
                self.insert(name, median);
            }
        } else if path.extension().is_some_and(|is| is == "figures") {
            let saved: BTreeMap<String, f64> = serde_json::from_value(json(path)?)?;
            self.0.extend(saved);
        }
        Ok(())
    }
}

/// Where the figures of this run are; criterion reads the same variable.
pub fn folder() -> Option<PathBuf> {
    env::var_os("CRITERION_HOME").map(PathBuf::from)
}

fn json(path: &Path) -> io::Result<Value> {
    Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
}
