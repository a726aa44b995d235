//! Where control groups with the CPU controller are.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::text;

/// Which of the kernel's two interfaces it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// The hierarchy with the CPU controller, at the group of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    pub(super) version: Version,
    /// Where it is mounted.
    mount: PathBuf,
    /// The group of this process there.
    pub(super) folder: PathBuf,
}

impl Hierarchy {
    /// `None` where there is none, or nothing says where.
    pub(super) fn of_this_process() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        Self::find(&mounts, &groups)
    }

    /// The controller is in one hierarchy: in one of version 1 if that is mounted with it, or else
    /// in that of version 2.
    fn find(mounts: &str, groups: &str) -> Option<Self> {
        let of_version = |version: Version| {
            let path = groups.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let controllers = fields.next()?;
                let has_it = match version {
                    Version::One => controllers.split(',').any(|name| name == "cpu"),
                    Version::Two => controllers.is_empty(),
                };
                has_it.then(|| fields.next()).flatten()
            })?;
            let mounted = mounts.lines().filter_map(Mount::parse);
            let mut mounted = mounted.filter(|mount| mount.has_controller(version));
            let mount = mounted.next()?;
            // In a container the mount may begin at its group, and the path outside of it.
            let below = Path::new(path).strip_prefix(mount.root);
            let below = below.unwrap_or_else(|_| Path::new(""));
            // Without a trailing slash where there is nothing below.
            let folder = Path::new(mount.point).join(below).components().collect();
            Some(Self {
                version,
                mount: mount.point.into(),
                folder,
            })
        };
        of_version(Version::One).or_else(|| of_version(Version::Two))
    }

    /// The group of this process and all that it is in, as far as they can be seen.
    pub(super) fn lineage(&self) -> Vec<PathBuf> {
        let all = self.folder.ancestors();
        let visible = all.take_while(|folder| folder.starts_with(&self.mount));
        visible.map(Path::to_owned).collect()
    }

    /// Has the CPU controller in a new group, in which processes and threads of this group are to
    /// be. Version 2 allows that beside processes in this group for a threaded one.
    pub(super) fn delegate(&self, group: &Path) -> io::Result<()> {
        if self.version == Version::One {
            return Ok(());
        }
        fs::write(group.join("cgroup.type"), "threaded")?;
        for folder in self.lineage().into_iter().rev() {
            let controllers = text(&folder, "cgroup.subtree_control")?;
            if !controllers.split_whitespace().any(|name| name == "cpu") {
                fs::write(folder.join("cgroup.subtree_control"), "+cpu")?;
            }
        }
        Ok(())
    }
}

/// A line of `/proc/self/mountinfo`, as far as it matters.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let mut file_system = file_system.split(' ');
        Some(Self {
            root: mount.next()?,
            point: mount.next()?,
            kind: file_system.next()?,
            options: file_system.nth(1)?,
        })
    }

    fn has_controller(&self, version: Version) -> bool {
        match version {
            Version::One => self.kind == "cgroup" && self.options.split(',').any(|it| it == "cpu"),
            Version::Two => self.kind == "cgroup2",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION_1: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,x rw,relatime shared:9 - cgroup cgroup rw,cpu,x\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    const VERSION_2: &str = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

    fn found(mounts: &str, groups: &str) -> Option<(Version, String)> {
        let hierarchy = Hierarchy::find(mounts, groups)?;
        let folder = hierarchy.folder.to_str().unwrap().to_owned();
        Some((hierarchy.version, folder))
    }

    #[test]
    fn the_hierarchy_with_the_controller_is_found() {
        let groups = "5:cpuacct:/a\n4:cpu,x:/jobs/7\n0::/b\n";
        let cpu = "/sys/fs/cgroup/cpu,x/jobs/7".to_owned();
        assert_eq!(found(VERSION_1, groups), Some((Version::One, cpu)));
        let scope = "/sys/fs/cgroup/user.slice/one.scope".to_owned();
        let groups = "0::/user.slice/one.scope\n";
        assert_eq!(found(VERSION_2, groups), Some((Version::Two, scope)));
        assert_eq!(found("", groups), None);
        assert_eq!(found(VERSION_2, "3:memory:/\n"), None);
    }

    #[test]
    fn a_mount_of_a_container_begins_at_its_group() {
        let mounts = "9 8 0:29 /docker/1f /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        let folder = "/sys/fs/cgroup/cpu/inner".to_owned();
        let expected = Some((Version::One, folder));
        assert_eq!(found(mounts, "1:cpu:/docker/1f/inner\n"), expected);
        let folder = "/sys/fs/cgroup/cpu".to_owned();
        let expected = Some((Version::One, folder));
        assert_eq!(found(mounts, "1:cpu:/elsewhere\n"), expected);
    }

    #[test]
    fn version_2_has_the_controller_handed_down_to_a_threaded_group() {
        let root = tempfile::tempdir().unwrap();
        let mounts = format!(
            "30 24 0:26 / {} rw - cgroup2 cgroup2 rw\n",
            root.path().display()
        );
        let hierarchy = Hierarchy::find(&mounts, "0::/job\n").unwrap();
        let group = hierarchy.folder.join("moonwire.1.1.0.server");
        fs::create_dir_all(&group).unwrap();
        let control = |folder: &Path| folder.join("cgroup.subtree_control");
        fs::write(control(root.path()), "memory cpu\n").unwrap();
        fs::write(control(&hierarchy.folder), "").unwrap();
        hierarchy.delegate(&group).unwrap();
        assert_eq!(text(&group, "cgroup.type").unwrap(), "threaded");
        let untouched = fs::read_to_string(control(root.path())).unwrap();
        assert_eq!(untouched, "memory cpu\n");
        let handed = fs::read_to_string(control(&hierarchy.folder)).unwrap();
        assert_eq!(handed, "+cpu");
    }

    #[test]
    fn the_lineage_ends_at_the_mount() {
        let hierarchy = Hierarchy::find(VERSION_2, "0::/a/b\n").unwrap();
        let lineage = hierarchy.lineage();
        let lineage: Vec<&str> = lineage.iter().filter_map(|it| it.to_str()).collect();
        let expected = ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"];
        assert_eq!(lineage, expected);
    }
}
