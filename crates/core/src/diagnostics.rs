//! Diagnostics: mistakes in how a server is set up, each with a stable code and a remedy.
//!
//! Each is logged once, because a mistake of the setup concerns every request. [The page of
//! tower-ratelimit][diagnostics] has all codes, with their remedies.
//!
//! [diagnostics]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/diagnostics/index.html
use std::borrow::Cow;
use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

/// A mistake in how a server is set up, found while it runs.
///
/// It is logged once per process, with its code and the line of code that corrects it. A diagnostic of many
/// subjects is logged once for each of the last 500. A request without a key because of it is answered with
/// `500 Internal Server Error`, which says nothing of the cause, unless the policy's
/// [`OnMissingKey`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/policy/enum.OnMissingKey.html) says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Diagnostic {
    code: &'static str,
    subject: &'static str,
    problem: &'static str,
    remedy: &'static str,
}

impl Diagnostic {
    /// A diagnostic of your own, for a key extractor of your own.
    ///
    /// `code` stays the same for ever, so that people can search for it; `subject` is what the
    /// problem is about (a type, a header); `remedy` is the line of code that mends it.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub const fn new(
        code: &'static str,
        subject: &'static str,
        problem: &'static str,
        remedy: &'static str,
    ) -> Self {
        Self {
            code,
            subject,
            problem,
            remedy,
        }
    }

    /// Returns the stable code, such as `TRL001`.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Returns the subject, such as a policy or a path.
    pub fn subject(&self) -> &'static str {
        self.subject
    }

    /// Returns the mistake.
    pub fn problem(&self) -> &'static str {
        self.problem
    }

    /// Returns the line of code that mends it.
    pub fn remedy(&self) -> &'static str {
        self.remedy
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} ({}); {}",
            self.code, self.problem, self.subject, self.remedy
        )
    }
}

/// Logs a diagnostic as an error, the first time that it is met in this process.
// For `tower-ratelimit-ops`.
#[doc(hidden)]
pub fn diagnose(diagnostic: &Diagnostic) {
    log_once(Level::Error, diagnostic, diagnostic.subject().into());
}

/// Logs a warning about a subject with a name of its own, the first time for each name.
// For `tower-ratelimit-config`.
#[doc(hidden)]
pub fn warn_once_of(diagnostic: &Diagnostic, subject: String) {
    log_once(Level::Warning, diagnostic, subject.into());
}

/// Logs a warning about a subject of several lines, as lines; see [`Lines`].
// For `tower-ratelimit-config`.
#[doc(hidden)]
pub fn warn_once_in_lines(diagnostic: &Diagnostic, subject: String) {
    log_once(Level::WarningInLines, diagnostic, subject.into());
}

fn log_once(level: Level, diagnostic: &Diagnostic, subject: Cow<'static, str>) {
    static SAID: LazyLock<Mutex<LoggedDiagnostics>> = LazyLock::new(Mutex::default);
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    let new = said.note(diagnostic, subject);
    drop(said);
    if let Some(subject) = new {
        log(level, diagnostic, &subject);
    }
}

/// The logged diagnostics, by diagnostic and subject. A program may create any number of limiters, each with
/// a subject of its own, so it is bounded by generations: the old one is dropped when the young one is full.
///
/// A subject may be long, such as all mistakes of a file, so its hash is kept. Two subjects have the same
/// hash with a probability of less than one in 10^13.
#[derive(Default)]
struct LoggedDiagnostics {
    young: HashSet<u64>,
    old: HashSet<u64>,
    hasher: RandomState,
}

const MOST_SAID: usize = 1_000;

impl LoggedDiagnostics {
    /// Records a message, and returns the subject if it was not recorded yet.
    fn note(
        &mut self,
        diagnostic: &Diagnostic,
        subject: Cow<'static, str>,
    ) -> Option<Cow<'static, str>> {
        let met = self.hasher.hash_one((diagnostic, &*subject));
        if self.young.contains(&met) || self.old.contains(&met) {
            return None;
        }
        if self.young.len() >= MOST_SAID / 2 {
            mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(met).then_some(subject)
    }
}

/// A diagnostic that refuses no request. It is logged as a warning, the first time only.
#[derive(Debug)]
pub struct Warning {
    diagnostic: Diagnostic,
    was_said: AtomicBool,
}

impl Warning {
    /// Makes a warning that was not said yet.
    pub const fn new(diagnostic: Diagnostic) -> Self {
        Self {
            diagnostic,
            was_said: AtomicBool::new(false),
        }
    }

    /// Logs it if `is_so` holds, which is called only until the warning is logged.
    #[inline]
    pub fn log_if(&self, is_so: impl FnOnce() -> bool) {
        self.log_for(|| is_so().then_some(self.diagnostic.subject()));
    }

    /// Logs it for this subject, if there is one. `subject` is called only until the warning is logged.
    #[inline]
    pub fn log_for<S: AsRef<str>>(&self, subject: impl FnOnce() -> Option<S>) {
        // Read first: a write by every request would be shared by all processors.
        if !self.was_said.load(Ordering::Relaxed)
            && let Some(subject) = subject()
            && !self.was_said.swap(true, Ordering::Relaxed)
        {
            log(Level::Warning, &self.diagnostic, subject.as_ref());
        }
    }
}

#[derive(Clone, Copy)]
enum Level {
    Error,
    Warning,
    /// Of a subject of several lines.
    WarningInLines,
}

/// A text of several lines that was made here. A log escapes the line breaks of other subjects, so that a value with a
/// line break does not make a log line of its own. Here each line is escaped by itself, and each after the first is indented,
/// so that none begins as a log line does.
#[cfg_attr(
    not(feature = "tracing"),
    allow(dead_code, reason = "without a log there are no lines")
)]
struct Lines<'a>(&'a str);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, line) in self.0.split('\n').enumerate() {
            f.write_str(if number == 0 { "" } else { "\n  " })?;
            for character in line.chars() {
                match character {
                    '"' | '\'' | '\\' => write!(f, "{character}")?,
                    _ => write!(f, "{}", character.escape_debug())?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(feature = "tracing")]
fn log(level: Level, diagnostic: &Diagnostic, subject: &str) {
    macro_rules! log {
        ($event:ident, $subject:expr) => {
            tracing::$event!(
                code = diagnostic.code(),
                subject = $subject,
                remedy = diagnostic.remedy(),
                "{}",
                diagnostic.problem(),
            )
        };
    }
    match level {
        Level::Error => log!(error, subject),
        Level::Warning => log!(warn, subject),
        Level::WarningInLines => log!(warn, tracing::field::display(Lines(subject))),
    }
}

#[cfg(not(feature = "tracing"))]
fn log(_: Level, _: &Diagnostic, _: &str) {}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER_BINDS: Diagnostic =
        Diagnostic::new("TEST", "policies", "one never binds", "mend it");

    /// Once, 200,000 limiters with a warning each left 348 MB behind.
    #[test]
    fn the_record_of_logged_diagnostics_is_bounded_and_without_repeats() {
        let mut said = LoggedDiagnostics::default();
        for number in 0..200_000 {
            let subject = format!("limiter {number}");
            assert!(said.note(&NEVER_BINDS, subject.clone().into()).is_some());
            assert!(said.note(&NEVER_BINDS, subject.into()).is_none());
            assert!(said.young.len() + said.old.len() <= MOST_SAID);
        }
        for number in 199_500..200_000 {
            let subject = format!("limiter {number}");
            let new = said.note(&NEVER_BINDS, subject.into());
            assert!(new.is_none(), "{number}");
        }
    }
}
