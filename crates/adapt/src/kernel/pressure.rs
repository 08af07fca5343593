//! The share of time in which some task waits for a resource: the kernel's pressure stall information.

use std::time::Duration;

use super::cgroup::Cgroup;
use super::files::Files;
use crate::Load;

/// A resource for which tasks wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resource {
    /// A processor.
    Cpu,
    /// Memory, while the kernel frees some.
    Memory,
    /// Input and output, such as disks.
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

/// How long some task has waited, and where that was read: from the cgroup or the machine.
#[derive(Clone, Debug)]
pub(super) struct Waited {
    path: String,
    /// In microseconds since the machine started.
    total: u64,
}

impl Waited {
    /// Reads the time of the cgroup, or of the machine. Returns `None` if the kernel does not count it.
    pub(super) fn read(files: &dyn Files, resource: Resource) -> Option<Self> {
        let file = resource.file();
        let at = |path: String| {
            let total = total(&files.read(&path)?)?;
            Some(Self { path, total })
        };
        let cgroup = Cgroup::unified(files);
        let own = cgroup.and_then(|cgroup| at(format!("{}/{file}.pressure", cgroup.own())));
        own.or_else(|| at(format!("/proc/pressure/{file}")))
    }

    /// Returns the load since an earlier moment, this long ago. Returns `None` if the two readings have
    /// different sources, as when the process was moved. The kernel's own averages lag by ten seconds.
    pub(super) fn since(&self, earlier: &Self, elapsed: Duration) -> Option<Load> {
        if self.path != earlier.path {
            return None;
        }
        let elapsed = u64::try_from(elapsed.as_micros()).ok()?;
        Load::of(self.total.checked_sub(earlier.total)?, elapsed)
    }
}

/// Parses the total of the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let mut fields = line.split(' ');
    fields.find_map(|field| field.strip_prefix("total=")?.parse().ok())
}
