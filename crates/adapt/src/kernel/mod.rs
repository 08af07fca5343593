//! Signals from the files of the Linux kernel, for a process that may be in a container.
//!
//! The load of the machine says little in a container, and the first directory that looks right may be that
//! of another group. So the cgroup of this very process is looked up, in either version, and its parents
//! count where they have limits. A number that cannot be read is absent. On other systems all are absent; use
//! a [closure](super::from_fn) there.

mod cgroup;
mod cpu;
mod files;
mod memory;
mod pressure;
mod signals;
#[cfg(test)]
mod tests;

pub use self::pressure::Resource;
pub use self::signals::{Cpu, Kernel, Memory, Pressure};
