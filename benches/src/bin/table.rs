//! Prints the results of the benchmarks as one table. The table marks missed targets, and the program never
//! fails for them: times on a shared machine are noise. `table redis` prints the cells of Redis alone.

use std::env;
use std::fs;
use std::io;
use std::process::Command;
use std::thread;

use tower_ratelimit_benches::figures::{Figures, folder};
use tower_ratelimit_benches::table::{Table, cells, redis_cells};

fn main() -> io::Result<()> {
    let folder = folder().ok_or_else(|| io::Error::other("CRITERION_HOME is not set"))?;
    let figures = Figures::load(&folder)?;
    if figures.is_empty() {
        return Err(io::Error::other(format!(
            "nothing was measured in {folder:?}"
        )));
    }
    let cells = match env::args().nth(1).as_deref() {
        Some("redis") => redis_cells(&figures),
        _ => cells(&figures),
    };
    println!("\n{}\n\n{}", machine(), Table(cells));
    Ok(())
}

fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |line| line.trim_start_matches(['\t', ' ', ':']));
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let rustc = Command::new(rustc).arg("--version").output();
    let rustc = rustc.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
    let rustc = rustc.unwrap_or_else(|_| "an unknown compiler".to_owned());
    format!("{processors} processors ({model}), {rustc}")
}
