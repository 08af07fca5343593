//! Log lines as data.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::mem;
use std::sync::{Arc, Mutex, Once};

use tracing::dispatcher::{Dispatch, set_global_default, with_default};
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

/// One line of a log.
#[derive(Clone, Debug)]
pub(crate) struct LogLine {
    pub(crate) level: Level,
    pub(crate) target: String,
    pub(crate) fields: BTreeMap<&'static str, String>,
}

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// A subscriber that keeps the lines of a test: those of its thread, and those of the threads that stores start there.
///
/// Another one, which keeps nothing, lives as long as the process. Without it, tests that end at the same moment
/// could turn off a line of another one.
pub(crate) struct Log(Option<Lines>);

type Lines = Arc<Mutex<Vec<LogLine>>>;

impl Log {
    /// Returns the lines that this thread, and those of its stores, log while `run` runs, without those of refusals.
    pub(crate) fn of<T>(run: impl FnOnce() -> T) -> (T, Vec<LogLine>) {
        let (output, mut lines) = Self::of_all(run);
        lines.retain(|line| line.target != "tower_ratelimit::refusal");
        (output, lines)
    }

    /// Returns all lines that this thread, and those of its stores, log while `run` runs.
    pub(crate) fn of_all<T>(run: impl FnOnce() -> T) -> (T, Vec<LogLine>) {
        static IS_THERE: Once = Once::new();
        IS_THERE.call_once(|| {
            set_global_default(Dispatch::new(Self(None))).expect("there is no other subscriber");
        });
        let lines = Lines::default();
        let output = with_default(&Dispatch::new(Self(Some(Arc::clone(&lines)))), run);
        let lines = mem::take(&mut *lines.lock().unwrap());
        (output, lines)
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tower_ratelimit")
    }

    fn event(&self, event: &Event<'_>) {
        if let Some(lines) = &self.0 {
            let mut line = LogLine {
                level: *event.metadata().level(),
                target: event.metadata().target().to_owned(),
                fields: BTreeMap::new(),
            };
            event.record(&mut line);
            lines.lock().unwrap().push(line);
        }
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
