//! The kernel's files, under a root directory.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// The largest file that is read to its end. Of a larger file, this much is read.
const LARGEST: u64 = 256 * 1024;

/// Reads files by their path from a root.
pub(super) trait Files: Send {
    /// Returns the text of a file, or `None` if it does not exist or cannot be read.
    fn read(&self, path: &str) -> Option<String>;
}

/// The root of the kernel's files: `/` except in tests.
#[derive(Clone, Debug)]
pub(super) struct Directory(pub(super) PathBuf);

impl Files for Directory {
    fn read(&self, path: &str) -> Option<String> {
        let file = File::open(self.0.join(path.trim_start_matches('/'))).ok()?;
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes).ok()?;
        // The path of another process may not be UTF-8, and must not hide our own.
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Returns the number of a line `name number`.
pub(super) fn number_of(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    lines.find_map(|line| {
        let (found, number) = line.split_once(' ')?;
        (found == name).then(|| number.trim().parse().ok())?
    })
}

/// Returns how many numbers a list of the kernel has: six in `0-3,8,10-10`. Returns `None` if it is empty or
/// no such list.
pub(super) fn count_of_list(list: &str) -> Option<u32> {
    let mut count: u32 = 0;
    for range in list.trim().split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to): (u32, u32) = (from.parse().ok()?, to.parse().ok()?);
        let length = to.checked_sub(from)?.checked_add(1)?;
        count = count.checked_add(length)?;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_may_have_several_ranges() {
        for (list, count) in [("0", 1), ("0-3", 4), ("0,2-3\n", 3), ("0-3,8,10-11", 7)] {
            assert_eq!(count_of_list(list), Some(count), "{list}");
        }
        for list in ["", "3-1", "0-", "x", "0,,1", "0-4294967295"] {
            assert_eq!(count_of_list(list), None, "{list}");
        }
    }

    #[test]
    fn a_file_is_read_below_its_root() {
        let root = std::env::temp_dir().join(format!("trl-adapt-files-{}", std::process::id()));
        std::fs::create_dir_all(root.join("proc")).unwrap();
        std::fs::write(root.join("proc/meminfo"), "MemTotal: 5 kB\n").unwrap();
        let files = Directory(root.clone());
        assert_eq!(
            files.read("/proc/meminfo").as_deref(),
            Some("MemTotal: 5 kB\n")
        );
        assert_eq!(files.read("/proc/stat"), None);
        std::fs::remove_dir_all(root).unwrap();
    }
}
