//! A second work tree of this repository, for defects that are put in on purpose.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::place;

/// A line of the product with what to break it into; it must occur exactly once.
pub(crate) struct Defect {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) right: &'static str,
    pub(crate) wrong: &'static str,
}

impl Defect {
    /// The file that it belongs into, and what that says.
    pub(crate) fn find(&self, tree: &Path) -> Result<(PathBuf, String)> {
        let path = tree.join(self.path);
        let text = std::fs::read_to_string(&path).with_context(|| self.path)?;
        let found = text.matches(self.right).count();
        ensure!(
            found == 1,
            "{}: `{}` occurs {found} times",
            self.path,
            self.right
        );
        Ok((path, text))
    }
}

/// The committed state in a folder of its own, so that nobody's files are touched; removed when
/// dropped.
pub(crate) struct WorkTree(PathBuf);

impl WorkTree {
    /// In this folder of the target folder.
    pub(crate) fn new(folder: &str) -> Result<Self> {
        let tree = Self(place::target()?.join(folder));
        tree.remove();
        let added = git(&["worktree", "add", "--detach", "--force"])
            .arg(&tree.0)
            .status()?;
        ensure!(added.success(), "git worktree add failed");
        Ok(tree)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Puts a defect in, until what is returned is dropped.
    pub(crate) fn plant(&self, defect: &Defect) -> Result<Planted> {
        let (path, text) = defect.find(&self.0)?;
        std::fs::write(&path, text.replace(defect.right, defect.wrong))?;
        Ok(Planted { path, text })
    }

    fn remove(&self) {
        git(&["worktree", "remove", "--force"])
            .arg(&self.0)
            .stderr(Stdio::null())
            .status()
            .ok();
    }
}

impl Drop for WorkTree {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A file with a defect.
pub(crate) struct Planted {
    path: PathBuf,
    /// What it says without.
    text: String,
}

impl Drop for Planted {
    fn drop(&mut self) {
        // If it cannot be written, the next defect of the file is not found where it should be.
        std::fs::write(&self.path, &self.text).ok();
    }
}

fn git(arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.current_dir(place::root()).args(arguments);
    command
}
