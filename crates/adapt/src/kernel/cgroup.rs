//! The cgroups of this process.
//!
//! `/proc/self/cgroup` has the path of the cgroup in its hierarchy, and `/proc/self/mountinfo` the directory
//! where that hierarchy is mounted, and which part of it. The two agree in a cgroup namespace of one's own
//! and in that of the host. A process that was moved can be outside the mounted part, and then the mount
//! itself is the nearest directory that it sees.

use super::files::Files;

/// The directories of one cgroup: its own first, and then its parents up to the mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cgroup {
    directories: Vec<String>,
}

impl Cgroup {
    /// Returns the cgroup of this process in version 2, where all controllers share a hierarchy.
    pub(super) fn unified(files: &dyn Files) -> Option<Self> {
        let path = path_of(files, |id, controllers| id == "0" && controllers.is_empty())?;
        let mount = mount_of(files, |kind, _| kind == "cgroup2")?;
        Some(Self::of(&path, &mount))
    }

    /// Returns the cgroup of this process in version 1, where each controller may have a hierarchy of its
    /// own.
    pub(super) fn of_controller(files: &dyn Files, controller: &str) -> Option<Self> {
        let has = |list: &str| list.split(',').any(|name| name == controller);
        let path = path_of(files, |_, controllers| has(controllers))?;
        let mount = mount_of(files, |kind, options| kind == "cgroup" && has(options))?;
        Some(Self::of(&path, &mount))
    }

    fn of(path: &str, mount: &Mount) -> Self {
        let mut directory = mount.point.trim_end_matches('/').to_owned();
        let mut directories = vec![directory.clone()];
        for part in below(path, &mount.root).unwrap_or_default().split('/') {
            if !part.is_empty() {
                directory = format!("{directory}/{part}");
                directories.push(directory.clone());
            }
        }
        directories.reverse();
        Self { directories }
    }

    /// Returns its own directory and those of its parents, from the inside out.
    pub(super) fn directories(&self) -> impl Iterator<Item = &str> {
        self.directories.iter().map(String::as_str)
    }

    /// Returns its own directory.
    pub(super) fn own(&self) -> &str {
        self.directories.first().map_or("", String::as_str)
    }
}

/// Returns the kernel's text about the cgroups of this process, which changes when the process is moved.
pub(super) fn of_process(files: &dyn Files) -> Option<String> {
    files.read("/proc/self/cgroup")
}

struct Mount {
    root: String,
    point: String,
}

/// Returns the path in the first matching line of `/proc/self/cgroup` (`id:controllers:path`).
fn path_of(files: &dyn Files, is_meant: impl Fn(&str, &str) -> bool) -> Option<String> {
    let text = of_process(files)?;
    text.lines().find_map(|line| {
        let (id, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        is_meant(id, controllers).then(|| path.to_owned())
    })
}

/// Returns the first mount with a matching kind and options. A line of `/proc/self/mountinfo` is `id parent
/// device root point options … - kind source options`.
fn mount_of(files: &dyn Files, is_meant: impl Fn(&str, &str) -> bool) -> Option<Mount> {
    let text = files.read("/proc/self/mountinfo")?;
    text.lines().find_map(|line| {
        let (mounted, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.nth(1)?);
        let mut mounted = mounted.split(' ').skip(3);
        let (root, point) = (mounted.next()?, mounted.next()?);
        is_meant(kind, options).then(|| Mount {
            root: unescaped(root),
            point: unescaped(point),
        })
    })
}

/// Returns the part of a path below a root, or `None` if it is elsewhere, or leads out of it.
fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(root.trim_end_matches('/'))?;
    let is_below = rest.is_empty() || rest.starts_with('/');
    (is_below && !rest.split('/').any(|part| part == "..")).then_some(rest)
}

/// The kernel writes a blank as `\040`.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(code) if code.is_ascii() => {
                plain.push(code.into());
                plain.push_str(&part[3..]);
            }
            _ => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_below_a_root_by_whole_parts() {
        assert_eq!(below("/a/b", "/"), Some("/a/b"));
        assert_eq!(below("/a/b", "/a"), Some("/b"));
        assert_eq!(below("/a", "/a"), Some(""));
        assert_eq!(below("/ab", "/a"), None);
        assert_eq!(below("/../other", "/"), None);
    }

    #[test]
    fn a_blank_in_a_path_is_read() {
        assert_eq!(unescaped(r"/sys/my\040group"), "/sys/my group");
        assert_eq!(unescaped(r"/a\b\9"), r"/a\b\9");
        assert_eq!(unescaped(r"\377é\04"), r"\377é\04");
    }
}
