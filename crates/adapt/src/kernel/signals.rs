//! The signals: files that are read repeatedly, and the previous counts.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::cgroup;
use super::cpu::{Usage, UsageSource};
use super::files::{Directory, Files};
use super::memory;
use super::pressure::{Resource, Waited};
use crate::{Load, Signal};

/// The files of the kernel.
///
/// ```
/// use tower_ratelimit_adapt::{Kernel, Signal};
///
/// let kernel = Kernel::new();
/// let signals: [Box<dyn Signal>; 2] = [Box::new(kernel.cpu()), Box::new(kernel.memory())];
/// assert_eq!(signals[0].name(), "cpu");
/// ```
#[derive(Clone, Debug)]
pub struct Kernel {
    root: PathBuf,
}

impl Kernel {
    /// Reads the files of this machine, under `/`.
    pub fn new() -> Self {
        Self::at("/")
    }

    /// Reads files under another directory, such as a copy of them for a test: `proc/self/cgroup`,
    /// `sys/fs/cgroup/…`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the signal `cpu`, how busy the processors are: the worst of
    ///
    /// - the share that this process's cgroup uses of the processors that it may use,
    /// - the share that the cgroup and each of its parents use of their quotas, and
    /// - the share of periods in which one of these was throttled.
    ///
    /// Without cgroups, it is the share of time in which the machine is busy. The first reading only counts,
    /// and is absent.
    pub fn cpu(&self) -> Cpu {
        Cpu {
            files: Box::new(self.directory()),
            found: None,
            counted: None,
        }
    }

    /// Returns the signal `memory`, how much of the memory is in use: the largest share of its limit that the
    /// cgroup or one of its parents uses, without the files that the kernel drops when memory is short.
    /// Without a limit, it is that of the machine.
    pub fn memory(&self) -> Memory {
        Memory {
            files: Box::new(self.directory()),
        }
    }

    /// Returns the share of time in which a task of the cgroup has waited for this resource, or a task of the
    /// machine if the kernel does not count that of the cgroup. The first reading only counts, and is absent.
    pub fn pressure(&self, resource: Resource) -> Pressure {
        Pressure {
            files: Box::new(self.directory()),
            resource,
            waited: None,
        }
    }

    fn directory(&self) -> Directory {
        Directory(self.root.clone())
    }
}

impl Default for Kernel {
    fn default() -> Self {
        Self::new()
    }
}

/// See [`Kernel::cpu`].
pub struct Cpu {
    files: Box<dyn Files>,
    found: Option<Found>,
    counted: Option<(Duration, Usage)>,
}

/// The source of the numbers. It is looked up again when the process is in another cgroup, and when the
/// numbers are gone.
struct Found {
    source: UsageSource,
    /// The kernel's text about the cgroups of the process at that time.
    cgroups: Option<String>,
}

impl Found {
    fn is_cgroup(&self) -> bool {
        !self.source.is_machine()
    }
}

impl Signal for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn read(&mut self, now: Duration) -> Option<Load> {
        let Some(counted) = self.count() else {
            self.counted = None;
            return None;
        };
        let (then, earlier) = self.counted.replace((now, counted))?;
        let (_, counted) = self.counted.as_ref()?;
        counted.since(&earlier, now.checked_sub(then)?)
    }
}

impl Cpu {
    /// Reads the counts from the same source as before, or otherwise from the present one. The load of the
    /// machine says nothing about a cgroup, so the machine does not replace a cgroup that has no numbers any
    /// more.
    fn count(&mut self) -> Option<Usage> {
        let files = &*self.files;
        let cgroups = cgroup::of_process(files);
        if let Some(found) = &self.found {
            let is_moved = cgroups.is_some() && cgroups != found.cgroups;
            if !is_moved && let Some(counted) = found.source.read(files) {
                return Some(counted);
            }
            // The counts of another cgroup are not an earlier moment of this one.
            self.counted = None;
        }
        let source = UsageSource::find(files);
        let was_cgroup = self.found.as_ref().is_some_and(Found::is_cgroup);
        if was_cgroup && source.is_machine() {
            return None;
        }
        let found = self.found.insert(Found { source, cgroups });
        found.source.read(files)
    }
}

/// See [`Kernel::memory`].
pub struct Memory {
    files: Box<dyn Files>,
}

impl Signal for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn read(&mut self, _: Duration) -> Option<Load> {
        memory::load(&*self.files)
    }
}

/// See [`Kernel::pressure`].
pub struct Pressure {
    files: Box<dyn Files>,
    resource: Resource,
    waited: Option<(Duration, Waited)>,
}

impl Signal for Pressure {
    fn name(&self) -> &'static str {
        self.resource.name()
    }

    fn read(&mut self, now: Duration) -> Option<Load> {
        let Some(waited) = Waited::read(&*self.files, self.resource) else {
            self.waited = None;
            return None;
        };
        let (then, earlier) = self.waited.replace((now, waited))?;
        let (_, waited) = self.waited.as_ref()?;
        waited.since(&earlier, now.checked_sub(then)?)
    }
}

#[cfg(test)]
impl Cpu {
    pub(super) fn of(files: impl Files + 'static) -> Self {
        Self {
            files: Box::new(files),
            found: None,
            counted: None,
        }
    }
}

#[cfg(test)]
impl Memory {
    pub(super) fn of(files: impl Files + 'static) -> Self {
        let files = Box::new(files);
        Self { files }
    }
}

#[cfg(test)]
impl Pressure {
    pub(super) fn of(files: impl Files + 'static, resource: Resource) -> Self {
        Self {
            files: Box::new(files),
            resource,
            waited: None,
        }
    }
}

macro_rules! debug {
    ($($signal:ident)+) => {
        $(
            impl fmt::Debug for $signal {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.debug_struct(stringify!($signal)).finish_non_exhaustive()
                }
            }
        )+
    };
}
debug!(Cpu Memory Pressure);
