//! The folder that tools are bound to, and the folders in it that commands run in.
#![allow(clippy::disallowed_methods)] // The workspace is opened here.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::files::normalised;

/// A session's folder.
#[derive(Debug, Clone)]
pub struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// Opens a folder; its links are resolved once, here.
    ///
    /// # Errors
    /// When it does not exist or is no folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root = path.canonicalize()?;
        if !root.is_dir() {
            return Err(io::Error::from(io::ErrorKind::NotADirectory));
        }
        Ok(Self { root })
    }

    /// The folder, absolute and without links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder that a spelling means, for a command to run in: from the root where it is relative, as its letters say. Nothing is
    /// looked up.
    pub fn folder(&self, spelled: &str) -> PathBuf {
        normalised(&self.root.join(spelled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_absolute_and_normalised() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path()).unwrap();
        let root = workspace.root().to_owned();
        for (spelled, path) in
            [("a/./b", root.join("a/b")), ("a/../b", root.join("b")), ("/etc/../x", "/x".into()), ("", root.clone())]
        {
            assert_eq!(workspace.folder(spelled), path);
        }
        assert!(Workspace::open(&root.join("missing")).is_err());
    }
}
