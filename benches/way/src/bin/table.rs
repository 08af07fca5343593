//! Reads the profiles of a few and of more requests, and prints what one request passes: calls, functions and files. It fails
//! if that has grown. `way-table PROFILES BOUNDS [--accept]`; `benches/count-way` makes the profiles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;
use std::{env, fmt, fs, io};

/// The requests of the two profiles of a layer. What they differ by is the way of this many requests.
const REQUESTS: [u64; 2] = [2, 12];

/// What decides and tells, and neither counts nor reads: the rooms that each request goes through.
const TRUNK: [&str; 7] = [
    "limiter/",
    "line/",
    "middleware/",
    "policy/",
    "store/charged.rs",
    "store/mod.rs",
    "store/outage/",
];

fn main() -> io::Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [profiles, bounds, rest @ ..] = &*arguments else {
        return Err(io::Error::other("which profiles, and which bounds?"));
    };
    let (ours, trunk) = ours(Path::new(profiles))?;
    let peer = of_layer(Path::new(profiles), "tower_governor", |file| {
        ["/tower_governor-", "/governor-", "/dashmap-"]
            .iter()
            .any(|it| file.contains(it))
    })?;
    let before = Bounds::read(&fs::read_to_string(bounds)?)?;
    println!("| one allowed request | calls | functions | files |\n|---|--:|--:|--:|");
    println!("| tower-ratelimit | {ours} |\n| of these the trunk | {trunk} |");
    println!("| tower_governor, with its own crates | {peer} |");
    println!(
        "| bound | {} |\n| bound of the trunk | {} |",
        before.all, before.trunk
    );
    let now = Bounds { all: ours, trunk };
    if now.exceeds(before) {
        println!(
            "\nThe way of a request has grown. A new step hangs on the way as it is: see ARCHITECTURE.md."
        );
        return Ok(ExitCode::FAILURE);
    }
    if rest.iter().any(|it| it == "--accept") {
        fs::write(bounds, now.written())?;
    } else if now != before {
        println!("\nIt is shorter than its bounds: `make way-accept` lowers them.");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the way through this crate, and that through its trunk.
fn ours(profiles: &Path) -> io::Result<(Way, Way)> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize()?;
    let folders = ["src", "crates/core/src"].map(|folder| format!("{}/{folder}/", root.display()));
    let inside = |file: &str| {
        let mut inside = folders
            .iter()
            .filter_map(|folder| file.strip_prefix(folder));
        inside.next().map(str::to_owned)
    };
    let all = of_layer(profiles, "tower-ratelimit", |file| inside(file).is_some())?;
    let trunk = of_layer(profiles, "tower-ratelimit", |file| {
        inside(file).is_some_and(|file| TRUNK.iter().any(|it| file.starts_with(it)))
    })?;
    Ok((all, trunk))
}

/// Returns the way of one request through the files of a layer that are its own.
fn of_layer(profiles: &Path, layer: &str, is_own: impl Fn(&str) -> bool) -> io::Result<Way> {
    let [few, more] = REQUESTS.map(|requests| -> io::Result<Profile> {
        let file = profiles.join(format!("{layer}.{requests}"));
        Ok(Profile::read(&fs::read_to_string(file)?, &is_own))
    });
    let way = more?.beside(&few?);
    if way.calls == 0 || way.functions == 0 {
        return Err(io::Error::other(format!("{layer}: nothing is counted")));
    }
    Ok(way)
}

/// What one request passes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Way {
    calls: u64,
    functions: u64,
    files: u64,
}

impl Way {
    fn exceeds(self, bound: Self) -> bool {
        self.calls > bound.calls || self.functions > bound.functions || self.files > bound.files
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            calls,
            functions,
            files,
        } = self;
        write!(f, "{calls} | {functions} | {files}")
    }
}

/// The calls of a project's functions in a profile, and the functions that ran.
#[derive(Debug, Default)]
struct Profile {
    calls: u64,
    /// Each with its file. A generic function is one for each of its types.
    functions: BTreeSet<(String, String)>,
}

impl Profile {
    /// Reads the output of callgrind, whose names are not compressed. The calls of all requests are counted in it, and the costs
    /// of those that are measured.
    fn read(text: &str, is_own: impl Fn(&str) -> bool) -> Self {
        let mut read = Self::default();
        let (mut file, mut function, mut callee) = ("", "", None);
        let mut is_cost_of_call = false;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fl=") {
                file = name;
            } else if let Some(name) = line.strip_prefix("fn=") {
                function = name;
            } else if let Some(name) = line.strip_prefix("cfi=").or(line.strip_prefix("cfl=")) {
                callee = Some(name);
            } else if let Some(calls) = line.strip_prefix("calls=") {
                if is_own(callee.take().unwrap_or(file)) {
                    read.calls += number(calls);
                }
                is_cost_of_call = true;
            } else if line.starts_with(|it: char| it.is_ascii_digit()) {
                let (_, cost) = line.split_once(' ').unwrap_or_default();
                if !is_cost_of_call && number(cost) > 0 && is_own(file) {
                    read.functions.insert((function.into(), file.into()));
                }
                is_cost_of_call = false;
            }
        }
        read
    }

    /// Returns the way of one request, by a profile of fewer requests.
    fn beside(&self, few: &Self) -> Way {
        let [before, requests] = REQUESTS;
        let more = self.calls.saturating_sub(few.calls);
        let files: BTreeSet<_> = self.functions.iter().map(|(_, file)| file).collect();
        Way {
            calls: more.div_ceil(requests - before),
            functions: self.functions.len() as u64,
            files: files.len() as u64,
        }
    }
}

/// Returns the first number of a line of counts.
fn number(counts: &str) -> u64 {
    let first = counts.split_whitespace().next();
    first.and_then(|it| it.parse().ok()).unwrap_or(0)
}

/// The longest way that passes. It only becomes shorter.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bounds {
    all: Way,
    trunk: Way,
}

impl Bounds {
    fn read(text: &str) -> io::Result<Self> {
        let mut rows = BTreeMap::new();
        for row in text.lines().filter(|row| !row.starts_with('#')) {
            let words: Vec<&str> = row.split_whitespace().collect();
            if let [name, calls, functions, files] = *words {
                let [calls, functions, files] = [calls, functions, files].map(number);
                rows.insert(
                    name,
                    Way {
                        calls,
                        functions,
                        files,
                    },
                );
            }
        }
        let row = |name: &str| {
            let row = rows.get(name).copied();
            row.ok_or_else(|| io::Error::other(format!("the bounds have no row `{name}`")))
        };
        Ok(Self {
            all: row("all")?,
            trunk: row("trunk")?,
        })
    }

    fn exceeds(self, bound: Self) -> bool {
        self.all.exceeds(bound.all) || self.trunk.exceeds(bound.trunk)
    }

    fn written(self) -> String {
        let row = |name: &str, way: Way| {
            format!("{name} {} {} {}\n", way.calls, way.functions, way.files)
        };
        let about = "# The longest way of one allowed request: calls, functions, files. `make way` fails above it.\n";
        format!(
            "{about}{}{}",
            row("all", self.all),
            row("trunk", self.trunk)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: &str = "events: Ir\n\nfl=/src/limiter/mod.rs\nfn=check\n1 0\ncfi=/src/store/mod.rs\ncfn=charge\ncalls=2 0\n1 9\n";
    const MORE: &str = "events: Ir\n\nfl=/src/limiter/mod.rs\nfn=check\n1 7\ncfi=/src/store/mod.rs\ncfn=charge\ncalls=12 0\n1 9\n\
        calls=30 0\n1 9\n\nfl=/src/store/mod.rs\nfn=charge\n4 2\n\nfl=/std/mem.rs\nfn=take\n4 2\ncalls=9 0\n1 9\n";

    fn way(calls: u64, functions: u64, files: u64) -> Way {
        Way {
            calls,
            functions,
            files,
        }
    }

    #[test]
    fn a_request_passes_what_more_requests_call_beyond_few() {
        let read = |text| Profile::read(text, |file| file.starts_with("/src/"));
        assert_eq!(read(FEW).functions.len(), 0, "nothing of it costs");
        assert_eq!(read(MORE).beside(&read(FEW)), way(4, 2, 2));
    }

    #[test]
    fn bounds_are_read_as_written_and_none_may_be_passed() {
        let bounds = Bounds {
            all: way(30, 20, 6),
            trunk: way(9, 7, 2),
        };
        assert_eq!(Bounds::read(&bounds.written()).unwrap(), bounds);
        assert!(!bounds.exceeds(bounds));
        for grown in [way(10, 7, 2), way(9, 8, 2), way(9, 7, 3)] {
            let trunk = Bounds {
                trunk: grown,
                ..bounds
            };
            assert!(trunk.exceeds(bounds), "{grown:?}");
        }
        assert!(Bounds::read("all 1 2 3").is_err());
    }
}
