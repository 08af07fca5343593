//! The files of `envoyproxy/ratelimit` as tables of a file of limits.

use std::fmt::Write;
use std::path::Path;

use tower_ratelimit::policy::Policy;
use tower_ratelimit::{Algorithm, OnStoreFailure};
use tower_ratelimit_config::Config;

use super::LONGEST_NAME;
use super::directory::{Mistakes, Texts};
use super::file::Domain;
use super::rules::{Descriptor, Level, Rule};
use super::statistics::Statistics;

/// A file of limits that is written from others.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Imported {
    /// The file, in TOML. What it cannot say stands in it as comments.
    pub file: String,
    /// What the file cannot say, each with its line.
    pub warnings: Vec<String>,
}

/// Returns a file of limits whose tables `envoy` decide as all files of a directory do.
///
/// # Errors
///
/// When a file cannot be read or has a mistake, and when no limit stands in the files.
pub fn import(directory: &Path) -> Result<Imported, Mistakes> {
    let domains = Texts::read(directory)?.domains(&Statistics::default())?;
    let mut writer = Writer::default();
    for domain in &domains {
        writer.domain(domain);
    }
    if writer.tables == 0 {
        let message = format!(
            "{}: no file has a limit that a request can have; there is nothing to write",
            directory.display()
        );
        return Err(Mistakes::of(message));
    }
    let Writer { file, warnings, .. } = writer;
    // What is written is read again at once, so that no mistake is found later.
    match file.parse::<Config>() {
        Ok(_) => Ok(Imported { file, warnings }),
        Err(error) => Err(Mistakes::of(format!(
            "the limits are none that a file of limits can have; write its tables by hand:\n{error}"
        ))),
    }
}

/// An entry of a descriptor, and the descriptor of the file that it meets.
#[derive(Clone, Copy)]
struct Step<'a> {
    key: &'a str,
    value: Option<&'a str>,
    descriptor: &'a Descriptor,
}

#[derive(Default)]
struct Writer<'a> {
    file: String,
    warnings: Vec<String>,
    tables: usize,
    /// The name of the file that is read, and the domain.
    from: &'a str,
    domain: &'a str,
}

impl<'a> Writer<'a> {
    fn domain(&mut self, domain: &'a Domain) {
        (self.from, self.domain) = (&domain.file, &domain.name);
        if !self.file.is_empty() {
            self.line("");
        }
        self.comment(&format!("The domain {} of {}.", domain.name, domain.file));
        if domain.name.len() > LONGEST_NAME {
            self.lacks(1, "the domain", "no request has one that is so long");
            return;
        }
        self.level(&domain.top, &mut Vec::new());
    }

    /// Writes the descriptors in the order of their file, in which patterns are looked at.
    fn level(&mut self, level: &'a Level, steps: &mut Vec<Step<'a>>) {
        let mut all = Vec::new();
        for (key, values) in &level.0 {
            let exact = values
                .exact
                .iter()
                .map(|(value, it)| (0, Some(&**value), it));
            let patterns = values.patterns.iter().enumerate();
            let patterns = patterns.map(|(place, (value, it))| (place, Some(&**value), it));
            let any = values.any.iter().map(|it| (0, None, it));
            let of_key = exact.chain(patterns).chain(any);
            all.extend(of_key.map(|(place, value, descriptor)| {
                let step = Step {
                    key,
                    value,
                    descriptor,
                };
                (descriptor.line, &**key, place, value, step)
            }));
        }
        all.sort_by_key(|(line, key, place, value, _)| (*line, *key, *place, *value));
        for (.., step) in all {
            steps.push(step);
            self.descriptor(steps);
            steps.pop();
        }
    }

    /// Writes the last of these steps, and what is below it.
    fn descriptor(&mut self, steps: &mut Vec<Step<'a>>) {
        let Some(Step {
            key, descriptor, ..
        }) = steps.last().copied()
        else {
            return;
        };
        if key.len() > LONGEST_NAME {
            let why = "no request has one that is so long";
            self.lacks(descriptor.line, "the key", why);
            return;
        }
        match &descriptor.rule {
            Some(rule) => self.table(steps, Some(rule)),
            // A table below it says that it is there.
            None if descriptor.below.0.is_empty() => self.table(steps, None),
            None => {}
        }
        self.level(&descriptor.below, steps);
    }

    /// Writes the table of these entries; without a rule, one that lets requests pass that would meet another limit.
    fn table(&mut self, steps: &[Step<'a>], rule: Option<&Rule>) {
        let line = steps.last().map_or(0, |step| step.descriptor.line);
        self.line("");
        if rule.is_some_and(|rule| rule.metadata.is_some()) {
            let why = "a table has none, so the answers for Envoy lack it";
            self.lacks(line, "metadata", why);
        }
        self.tables += 1;
        self.line("[[envoy]]");
        self.field("domain", &text(self.domain));
        let is_together = |step: &&Step<'_>| step.descriptor.is_shared;
        let mut patterns = steps
            .iter()
            .filter(|step| step.value.is_some_and(|value| value.contains('*')));
        // All of them or, each by itself, some.
        let are_together = patterns.clone().count() > 0 && patterns.all(|step| is_together(&step));
        let entries = steps.iter().enumerate().map(|(number, step)| {
            let is_shown = rule.is_some_and(|rule| rule.entries[number].is_shown);
            let is_shown = is_shown || step.descriptor.tells_value;
            entry(step, !are_together && is_together(&step), is_shown)
        });
        let entries: Vec<String> = entries.collect();
        self.field("entries", &format!("[{}]", entries.join(", ")));
        let Some(rule) = rule else {
            self.field("quota", "\"unlimited\"");
            self.field("mode", "\"off\"");
            return;
        };
        self.limit(&rule.policy);
        for (is_so, name, value) in [
            (are_together, "together", "true"),
            (rule.is_shadow, "mode", "\"shadow\""),
            (rule.is_quota, "alternative", "true"),
            (rule.settles, "charge", "\"after\""),
        ] {
            if is_so {
                self.field(name, value);
            }
        }
        if let Some(name) = &rule.name {
            self.field("name", &text(name));
        }
        if !rule.replaces.is_empty() {
            let names: Vec<String> = rule.replaces.iter().map(|name| text(name)).collect();
            self.field("replaces", &format!("[{}]", names.join(", ")));
        }
    }

    fn limit(&mut self, policy: &Policy) {
        if *policy.algorithm() == Algorithm::Unlimited {
            self.field("quota", "\"unlimited\"");
            return;
        }
        // An algorithm in text is its name, its quota and, after a word, another number.
        let said = policy.algorithm().to_string();
        let mut words = said.split(' ');
        for name in ["algorithm", "quota"] {
            if let Some(word) = words.next() {
                self.field(name, &text(word));
            }
        }
        while let (Some(name), Some(number)) = (words.next(), words.next()) {
            self.field(name, number);
        }
        match policy.store_failure() {
            OnStoreFailure::Allow => self.field("on_store_failure", "\"allow\""),
            OnStoreFailure::Refuse => self.field("on_store_failure", "\"refuse\""),
            _ => {}
        }
    }

    /// Tells what cannot be written: in the file, and as a warning.
    fn lacks(&mut self, line: usize, what: &str, why: &str) {
        let lack = format!("{}:{line}: {what} is left out: {why}", self.from);
        self.comment(&lack);
        self.warnings.push(lack);
    }

    fn comment(&mut self, text: &str) {
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        let text: String = text.chars().map(clean).collect();
        self.line(&format!("# {text}"));
    }

    fn field(&mut self, name: &str, value: &str) {
        self.line(&format!("{name} = {value}"));
    }

    fn line(&mut self, line: &str) {
        // Writing to a text cannot fail.
        let _ = writeln!(self.file, "{line}");
    }
}

/// Returns an entry as a table has it: as a text, if that says all.
fn entry(step: &Step<'_>, is_together: bool, is_shown: bool) -> String {
    if !step.key.contains('=') && !is_together && !is_shown {
        return match step.value {
            None => text(step.key),
            Some(value) => text(&format!("{}={value}", step.key)),
        };
    }
    let mut entry = format!("{{ key = {}", text(step.key));
    if let Some(value) = step.value {
        entry.extend([", value = ", &text(value)]);
    }
    for (is_so, name) in [(is_together, "together"), (is_shown, "in_metrics")] {
        if is_so {
            entry.extend([", ", name, " = true"]);
        }
    }
    entry + " }"
}

/// Returns a text in quotes. JSON and TOML have the same, but for one character.
fn text(text: &str) -> String {
    serde_json::Value::from(text)
        .to_string()
        .replace('\u{7f}', "\\u007f")
}
