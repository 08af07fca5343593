//! A log of requests.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;

use crate::BoxError;

/// A line of the log.
#[derive(Deserialize)]
pub(super) struct Request {
    /// Microseconds since 1970.
    pub(super) t_us: u64,
    pub(super) key: String,
    pub(super) cost: Option<u32>,
    pub(super) method: Option<String>,
    pub(super) path: Option<String>,
    pub(super) plan: Option<String>,
    #[serde(default)]
    pub(super) headers: HashMap<String, String>,
}

/// Opens a log, or standard input.
pub(super) fn open(path: &Path) -> Result<Box<dyn BufRead>, String> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let log = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Box::new(BufReader::new(log)))
}

/// Calls `next` with each request, and the number of its line. An error has that number.
pub(super) fn each(
    log: impl BufRead,
    mut next: impl FnMut(usize, Request) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    let mut last = 0;
    for (number, line) in (1..).zip(log.lines()) {
        let at = |error: BoxError| format!("line {number}: {error}");
        let line = line.map_err(|error| at(error.into()))?;
        if line.trim().is_empty() {
            continue;
        }
        let request = request(&line).map_err(|error| at(error.into()))?;
        if request.t_us < last {
            let back = last - request.t_us;
            eprintln!("line {number}: time steps back by {back} µs");
        }
        last = request.t_us;
        next(number, request).map_err(at)?;
    }
    Ok(())
}

fn request(line: &str) -> Result<Request, String> {
    serde_json::from_str(line).map_err(|error| {
        // The error would say "at line 1", because each line is a text of its own.
        let error = error.to_string();
        let what = error.split(" at line ").next().unwrap_or_default();
        format!("{what}: write a request such as {{\"t_us\":1700000000000000,\"key\":\"ann\",\"cost\":1}}")
    })
}
