//! How much of the memory is in use that this process may use.
//!
//! The charge of a cgroup includes files that the kernel caches, and drops at once when memory is short. So
//! the working set counts: the charge without the inactive files.

use super::cgroup::Cgroup;
use super::files::{Files, number_of};
use crate::Load;

/// A larger limit of version 1 means no limit: it is 2^63 − 1, rounded down to whole pages.
const NO_LIMIT: u64 = 1 << 60;

/// The names of the files in one version.
struct Names {
    charged: &'static str,
    limit: &'static str,
    inactive: &'static str,
}

const UNIFIED: Names = Names {
    charged: "memory.current",
    limit: "memory.max",
    inactive: "inactive_file",
};

const FIRST: Names = Names {
    charged: "memory.usage_in_bytes",
    limit: "memory.limit_in_bytes",
    inactive: "total_inactive_file",
};

/// Returns the largest share of a limit that the cgroup or one of its parents uses. Without a limit below the
/// memory of the machine, it is that of the machine. Returns `None` if it is unknown.
pub(super) fn load(files: &dyn Files) -> Option<Load> {
    let machine = files.read("/proc/meminfo");
    let kilobytes = |name: &str| {
        let mut lines = machine.as_deref()?.lines();
        let number = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        number
            .trim()
            .trim_end_matches("kB")
            .trim_end()
            .parse::<u64>()
            .ok()
    };
    let total = kilobytes("MemTotal");
    let bytes = total.and_then(|total| total.checked_mul(1_024));
    let most = bytes.unwrap_or(NO_LIMIT).min(NO_LIMIT);

    let first = Cgroup::of_controller(files, "memory");
    let unified = Cgroup::unified(files);
    let of_first = first.and_then(|cgroup| worst(files, &cgroup, &FIRST, most));
    let limited = of_first.or_else(|| worst(files, &unified?, &UNIFIED, most));
    limited.or_else(|| {
        let available = kilobytes("MemAvailable")?;
        let total = total?;
        Load::of(total.saturating_sub(available), total)
    })
}

fn worst(files: &dyn Files, cgroup: &Cgroup, names: &Names, most: u64) -> Option<Load> {
    let loads = cgroup.directories().filter_map(|directory| {
        let read = |file: &str| files.read(&format!("{directory}/{file}"));
        let limit: u64 = read(names.limit)?.trim().parse().ok()?;
        if limit >= most {
            return None;
        }
        let charged: u64 = read(names.charged)?.trim().parse().ok()?;
        let inactive = read("memory.stat").and_then(|stat| number_of(&stat, names.inactive));
        Load::of(charged.saturating_sub(inactive.unwrap_or(0)), limit)
    });
    loads.max()
}
