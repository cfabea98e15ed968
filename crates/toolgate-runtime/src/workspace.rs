//! The folder that tools are bound to, and how a spelled path becomes a place.
#![allow(clippy::disallowed_methods)] // The workspace is opened here.

use std::{
    io,
    path::{Component, Path, PathBuf},
};

use toolgate_core::tool::Place;

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

    /// The place that a path means: from the root where it is relative, lexically normalised. Nothing is looked up.
    pub fn place(&self, spelled: &str) -> Place {
        let mut path = PathBuf::new();
        for component in self.root.join(spelled).components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir => {
                    path.pop();
                }
                other => path.push(other),
            }
        }
        Place { spelled: spelled.to_owned(), path }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_absolute_and_normalised() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path()).unwrap();
        let root = workspace.root().to_owned();
        for (spelled, path) in
            [("a/./b", root.join("a/b")), ("a/../b", root.join("b")), ("/etc/../x", "/x".into()), ("", root.clone())]
        {
            assert_eq!(workspace.place(spelled).path, path);
        }
        assert!(Workspace::open(&root.join("missing")).is_err());
    }
}
