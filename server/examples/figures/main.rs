//! What the server costs, in processor time: `make envoy-calls`, `make settled-answers` and
//! `make proxied-requests`.
//!
//! Each server is a process of its own. The servers take turns, and a ratio is the median over all rounds, since a machine has slow
//! phases.

mod envoy_calls;
mod hostile;
mod process;
mod proxied_requests;
mod settled_answers;

use std::env;
use std::error::Error;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    match env::args().nth(1).as_deref() {
        Some("bare") => runtime.block_on(envoy_calls::bare()),
        Some("envoy-calls") => runtime.block_on(envoy_calls::measure()),
        Some("proxied-requests") => runtime.block_on(proxied_requests::measure()),
        Some("settled-answers") => runtime.block_on(settled_answers::measure()),
        other => Err(format!(
            "{:?} is no measurement; write envoy-calls, proxied-requests or settled-answers",
            other.unwrap_or_default()
        )
        .into()),
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
