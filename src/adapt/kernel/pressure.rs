//! The share of time in which some task waits for a resource: the kernel's pressure stall information.

use std::time::Duration;

use super::cgroup::Cgroup;
use super::files::Files;
use crate::adapt::Load;

/// A resource for which tasks wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resource {
    /// A processor.
    Cpu,
    /// Memory, while the kernel frees some.
    Memory,
    /// Disks.
    Io,
}

impl Resource {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu pressure",
            Self::Memory => "memory pressure",
            Self::Io => "io pressure",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Io => "io",
        }
    }
}

/// For how long some task has waited, in microseconds since the machine started: of the cgroup, or of the machine. `None`
/// if the kernel does not count it.
pub(super) fn waited(files: &dyn Files, resource: Resource) -> Option<u64> {
    let file = resource.file();
    let own = Cgroup::unified(files).and_then(|cgroup| {
        let path = format!("{}/{file}.pressure", cgroup.own());
        total(&files.read(&path)?)
    });
    own.or_else(|| total(&files.read(&format!("/proc/pressure/{file}"))?))
}

/// The total of the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let mut fields = line.split(' ');
    fields.find_map(|field| field.strip_prefix("total=")?.parse().ok())
}

/// The load of two totals, this long apart. The kernel's own averages lag by ten seconds.
pub(super) fn since(now: u64, earlier: u64, elapsed: Duration) -> Option<Load> {
    let elapsed = u64::try_from(elapsed.as_micros()).ok()?;
    Load::of(now.checked_sub(earlier)?, elapsed)
}
