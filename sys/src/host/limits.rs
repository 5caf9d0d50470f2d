//! What a container allows.
//!
//! What it is for: processor time and memory granted by cgroups of both versions. In: /proc/self/cgroup and mounts.
//! Out: the smallest limit on the way from the process's group to the root.
//! Invariants: a limit that cannot be read is no limit. Absent on purpose: cpusets, which the affinity shows already.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Where the groups are seen; a process may get into another group, but these mounts stay. Read once: the kernel writes the whole table anew for
/// each look, and a copy of 1 KB looked eight times.
static MOUNTS: OnceLock<String> = OnceLock::new();

/// Cores' worth of processor time, like 1.5; `None`: no limit.
pub(super) fn cpu_quota() -> Option<f64> {
    let own = own_groups();
    let v2 = groups(&own, "").into_iter().filter_map(|group| {
        let text = std::fs::read_to_string(group.join("cpu.max")).ok()?;
        let mut words = text.split_whitespace();
        ratio(words.next()?, words.next()?)
    });
    let v1 = groups(&own, "cpu").into_iter().filter_map(|group| {
        let quota = std::fs::read_to_string(group.join("cpu.cfs_quota_us")).ok()?;
        let period = std::fs::read_to_string(group.join("cpu.cfs_period_us")).ok()?;
        ratio(quota.trim(), period.trim())
    });
    v2.chain(v1).reduce(f64::min)
}

/// Bytes; `None`: no limit.
pub(super) fn memory_limit() -> Option<u64> {
    let read = |path: PathBuf| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let own = own_groups();
    let v2 = groups(&own, "").into_iter().filter_map(|group| read(group.join("memory.max")));
    let v1 = groups(&own, "memory").into_iter().filter_map(|group| read(group.join("memory.limit_in_bytes")));
    // Version 1 says "no limit" as the largest multiple of a page.
    v2.chain(v1).filter(|bytes| *bytes < 1 << 62).min()
}

/// `max` and -1 are no limit.
fn ratio(quota: &str, period: &str) -> Option<f64> {
    let (quota, period) = (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

/// The groups that the process is in now.
fn own_groups() -> String {
    std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// Folders of the process's group for one controller (empty: version 2) and of all groups above it.
fn groups(own: &str, controller: &str) -> Vec<PathBuf> {
    let mounts = MOUNTS.get_or_init(|| std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
    let (Some(group), Some((mount, root))) = (group_of(own, controller), mount_of(mounts, controller)) else {
        return Vec::new();
    };
    // In a container the mount may show only a part of the tree, and the process's path may begin above it.
    let below = Path::new(&group).strip_prefix(&root).unwrap_or(Path::new(""));
    let below = below.strip_prefix("/").unwrap_or(below);
    let start = mount.join(below);
    start.ancestors().take_while(|folder| folder.starts_with(&mount)).map(Path::to_path_buf).collect()
}

/// Lines like `4:cpu,cpuacct:/user.slice` and, for version 2, `0::/user.slice`.
fn group_of(text: &str, controller: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        names.split(',').any(|name| name == controller).then(|| path.to_owned())
    })
}

/// Lines like `31 24 0:27 /docker/x /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct`: where a controller is
/// mounted, and which part of its tree.
fn mount_of(text: &str, controller: &str) -> Option<(PathBuf, String)> {
    text.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, mount) = (fields.next()?, fields.next()?);
        let mut rest = after.split(' ');
        let (kind, options) = (rest.next()?, rest.nth(1)?);
        let fits = match controller {
            "" => kind == "cgroup2",
            name => kind == "cgroup" && options.split(',').any(|option| option == name),
        };
        fits.then(|| (PathBuf::from(mount), root.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found_in_the_kernels_lists() {
        let own = "4:cpu,cpuacct:/box\n1:name=systemd:/s\n0::/user.slice/a.scope\n";
        assert_eq!(group_of(own, "cpu").as_deref(), Some("/box"));
        assert_eq!(group_of(own, "").as_deref(), Some("/user.slice/a.scope"));
        assert_eq!(group_of(own, "memory"), None);
        let mounts = "31 24 0:27 /box /sys/fs/cgroup/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(mount_of(mounts, "cpu"), Some((PathBuf::from("/sys/fs/cgroup/cpu"), "/box".into())));
        assert_eq!(mount_of(mounts, ""), Some((PathBuf::from("/sys/fs/cgroup/unified"), "/".into())));
        assert_eq!(mount_of(mounts, "memory"), None);
    }

    #[test]
    fn no_limit_is_no_limit() {
        assert_eq!(ratio("max", "100000"), None);
        assert_eq!(ratio("-1", "100000"), None);
        assert_eq!(ratio("150000", "100000"), Some(1.5));
    }
}
