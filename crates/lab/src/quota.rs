//! The CPU time that control groups leave to this process.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// The tightest limit on the CPU time of this process, `QUOTA PERIOD` in microseconds; `None`
/// without one. A limit of any ancestor counts, in both versions of the interface.
pub(crate) fn cpu_quota() -> Option<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    quota_in(Path::new("/sys/fs/cgroup"), &groups)
}

/// `groups` is the text of `/proc/self/cgroup`: a line `NUMBER:CONTROLLERS:PATH` a hierarchy.
fn quota_in(root: &Path, groups: &str) -> Option<String> {
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next().unwrap_or_default();
        let path = fields.next().unwrap_or_default();
        match controllers {
            "" => limits_of_version_2(root, path),
            _ if controllers.split(',').any(|name| name == "cpu") => {
                limits_of_version_1(&root.join("cpu"), path)
            }
            _ => Vec::new(),
        }
    });
    let tightest = limits.min_by(|one, other| {
        let share = |(quota_us, period_us): &(u64, u64)| *quota_us as f64 / *period_us as f64;
        share(one).total_cmp(&share(other))
    });
    tightest.map(|(quota_us, period_us)| format!("{quota_us} {period_us}"))
}

fn limits_of_version_2(root: &Path, path: &str) -> Vec<(u64, u64)> {
    let limit = |folder: PathBuf| {
        let text = fs::read_to_string(folder.join("cpu.max")).ok()?;
        let (quota, period) = text.trim().split_once(' ')?;
        // A group without a limit says `max`, which is no number.
        Some((quota.parse().ok()?, period.parse().ok()?))
    };
    lineage(root, path).into_iter().filter_map(limit).collect()
}

fn limits_of_version_1(root: &Path, path: &str) -> Vec<(u64, u64)> {
    let number = |file: PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let limit = |folder: PathBuf| {
        // A group without a limit says -1, which is no unsigned number.
        let quota = number(folder.join("cpu.cfs_quota_us"))?;
        Some((quota, number(folder.join("cpu.cfs_period_us"))?))
    };
    lineage(root, path).into_iter().filter_map(limit).collect()
}

/// The folder of a group and those of all its ancestors below `root`, itself included.
fn lineage(root: &Path, path: &str) -> Vec<PathBuf> {
    let mut folders = vec![root.to_owned()];
    for part in Path::new(path).components() {
        if let (Component::Normal(name), Some(parent)) = (part, folders.last()) {
            folders.push(parent.join(name));
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_tightest_limit_of_all_ancestors_counts() {
        let root = tree(&[
            ("a/cpu.max", "50000 100000\n"),
            ("a/b/cpu.max", "max 100000\n"),
            ("cpu.max", "300000 100000\n"),
        ]);
        let quota = quota_in(root.path(), "0::/a/b\n");
        assert_eq!(quota.as_deref(), Some("50000 100000"));
        assert_eq!(
            quota_in(root.path(), "0::/").as_deref(),
            Some("300000 100000")
        );
    }

    #[test]
    fn the_first_version_is_read_too() {
        let root = tree(&[
            ("cpu/job/cpu.cfs_quota_us", "80000\n"),
            ("cpu/job/cpu.cfs_period_us", "100000\n"),
            ("cpu/cpu.cfs_quota_us", "-1\n"),
            ("cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        let groups = "5:memory:/job\n1:cpu:/job\n0::/\n";
        assert_eq!(
            quota_in(root.path(), groups).as_deref(),
            Some("80000 100000")
        );
        assert_eq!(quota_in(root.path(), "1:cpu:/\n"), None);
    }
}
