//! What the files mean, for people.

use std::fmt::{self, Write};
use std::path::Path;

use tower_ratelimit_config::Config;

use super::directory::{Mistakes, Texts};
use super::file::Domain;
use super::rules::Rule;
use super::statistics::Statistics;
use super::tables;
use crate::envoy::messages::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;

/// Returns the limits of all files of a directory, each in a line.
///
/// # Errors
///
/// When a file cannot be read or has a mistake.
pub fn understood(directory: &Path) -> Result<String, Mistakes> {
    let mut text = String::new();
    for domain in domains(directory)? {
        let mut rules = Vec::new();
        domain.top.each(&mut |rule| rules.push(rule));
        rules.sort_by_key(|rule| rule.line);
        // Writing to a text cannot fail.
        let _ = writeln!(text, "domain {}, {}:", domain.name, domain.file);
        for rule in rules {
            let line = rule.line.unwrap_or_default();
            let _ = writeln!(text, "  line {line}: {}: {}", rule.path, Shown(rule));
        }
    }
    Ok(text)
}

/// Returns what decides about a descriptor with these entries, a key and a value each, by a file of limits or all files of a
/// directory.
///
/// # Errors
///
/// When a file cannot be read or has a mistake, and when no file has the domain.
pub fn explain(
    path: &Path,
    name: &str,
    entries: Vec<(String, String)>,
) -> Result<String, Mistakes> {
    let domains = domains(path)?;
    let Some(domain) = domains.iter().find(|domain| domain.name == name) else {
        let known: Vec<&str> = domains.iter().map(|domain| &*domain.name).collect();
        let message = format!(
            "--domain: {} has no {name:?}; the domains are: {}",
            path.display(),
            known.join(", ")
        );
        return Err(Mistakes::of(message));
    };
    let entries = entries.into_iter().map(|(key, value)| Entry {
        key,
        value: value.into_bytes(),
    });
    let entries: Vec<Entry> = entries.collect();
    let descriptor = entries
        .iter()
        .map(|entry| format!("({}, {})", entry.key, entry.text()));
    let descriptor: String = descriptor.collect();
    Ok(match domain.top.find(&entries) {
        Some(found) => {
            let rule = found.rule;
            let state = match rule.algorithm() {
                None => String::new(),
                Some(_) => format!("  its state: policy {:?}\n", rule.policy.name()),
            };
            let line = rule.line.map(|line| format!(":{line}"));
            format!(
                "{descriptor}: {}\n  by {}{}: {}\n{state}",
                Shown(rule),
                domain.file,
                line.unwrap_or_default(),
                rule.path
            )
        }
        None => format!("{descriptor}: no limit\n  {}\n", why_not(domain, &entries)),
    })
}

/// Returns why entries have no limit.
fn why_not(domain: &Domain, entries: &[Entry]) -> String {
    let met = (1..=entries.len())
        .take_while(|number| domain.top.meets(&entries[..*number]))
        .count();
    match entries.get(met) {
        Some(entry) if met == 0 => {
            format!(
                "no descriptor at the top of {} has ({}, {})",
                domain.file,
                entry.key,
                entry.text()
            )
        }
        Some(entry) => {
            format!(
                "no descriptor of {} below that of the first {met} has ({}, {})",
                domain.file,
                entry.key,
                entry.text()
            )
        }
        None => format!(
            "the descriptor of {} has no `rate_limit`; a limit counts at the last entry alone",
            domain.file
        ),
    }
}

fn domains(path: &Path) -> Result<Vec<Domain>, Mistakes> {
    let statistics = Statistics::default();
    if path.is_dir() {
        return Texts::read(path)?.domains(&statistics);
    }
    let config = Config::read(path).map_err(|error| Mistakes::of(error.to_string()))?;
    let mut domains = tables::domains(&config.descriptors(), &statistics);
    for domain in &mut domains {
        domain.file = path.display().to_string();
    }
    Ok(domains)
}

/// A limit with all that it is beside its numbers.
struct Shown<'a>(&'a Rule);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(rule) = self;
        write!(f, "{}", rule.policy.algorithm())?;
        for (is_it, what) in [
            (
                rule.entries.iter().any(|its| its.is_together),
                "all values together",
            ),
            (rule.is_shadow, "in shadow"),
            (rule.is_quota, "a quota among others"),
            (rule.settles, "settles"),
        ] {
            if is_it {
                write!(f, ", {what}")?;
            }
        }
        if let Some(name) = &rule.name {
            write!(f, ", named {name}")?;
        }
        if !rule.replaces.is_empty() {
            write!(f, ", replaces {}", rule.replaces.join(", "))?;
        }
        Ok(())
    }
}
