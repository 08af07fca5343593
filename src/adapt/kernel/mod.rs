//! Signals from the files of the Linux kernel, as a process in a container has to read them.
//!
//! What the machine does says little in a container, and the files of the first directory that looks right are those of
//! another group. So the cgroup of this very process is looked up, in either version, and its parents count where they
//! have limits. What cannot be read is absent. On other systems all of it is; a [closure](super::from_fn) takes its
//! place.

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
