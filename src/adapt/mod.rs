//! Limits that follow the load. DRAFT

mod kernel;
mod load;
mod signal;

pub use self::kernel::{Cpu, Kernel, Memory, Pressure, Resource};
pub use self::load::{Load, Loads};
pub use self::signal::{FromFn, Signal, from_fn};
