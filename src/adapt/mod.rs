//! Limits that follow the load. DRAFT

mod control;
mod kernel;
mod load;
mod signal;
mod task;
mod traffic;

pub use self::control::{Aimd, Controller, Gradient, Steps, Target, Worst};
pub use self::kernel::{Cpu, Kernel, Memory, Pressure, Resource};
pub use self::load::{Load, Loads};
pub use self::signal::{FromFn, Signal, from_fn};
pub use self::task::{Adapt, AdaptBuilder};
pub use self::traffic::{Failures, InFlight, Latency, Passage, Traffic};
