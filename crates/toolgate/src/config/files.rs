//! Where configurations stand, and how their files are read.
#![allow(clippy::disallowed_methods)] // Configurations and the file of keys are read here.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::node::{LARGEST, Node};
use crate::{failure::Failure, surroundings::Surroundings};

/// What an administrator sets for everybody.
const MANAGED: &str = "/etc/toolgate/config.yaml";

/// The files of the layers, there or not.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    /// None without a home.
    pub(crate) user: Option<PathBuf>,
    pub(crate) project: PathBuf,
    pub(crate) managed: PathBuf,
    /// The file of keys; none without a home.
    pub(crate) keys: Option<PathBuf>,
}

/// Where the files of the layers stand for a workspace.
pub(crate) fn paths(surroundings: &Surroundings, workspace: &Path) -> Paths {
    let folder = surroundings.config_folder();
    Paths {
        user: folder.as_ref().map(|folder| folder.join("config.yaml")),
        project: workspace.join(".toolgate/config.yaml"),
        managed: surroundings.managed_config().unwrap_or_else(|| MANAGED.into()),
        keys: folder.map(|folder| folder.join("keys.yaml")),
    }
}

/// The text of a file; none when there is no such file.
pub(crate) fn read(path: &Path) -> Result<Option<String>, Failure> {
    let wrong = |what: &str| {
        Failure::configuration(format!("{}: {what}", path.display()))
            .hint("repair the file, or move it away; toolgate config path shows where configurations stand")
    };
    // Looked at first: opening a pipe would wait for its writer.
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(wrong(&format!("it cannot be read: {error}"))),
    };
    if meta.is_dir() {
        return Err(wrong("it is a folder, and a configuration is a file"));
    }
    if !meta.is_file() {
        return Err(wrong("it is no ordinary file"));
    }
    if meta.len() > LARGEST {
        return Err(wrong(&format!("it has {} bytes, and a configuration has {LARGEST} at most", meta.len())));
    }
    let bytes = fs::read(path).map_err(|error| wrong(&format!("it cannot be read: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let line =
            1 + error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        let place = Failure::configuration(format!("{}:{line}: it is no UTF-8 text", path.display()));
        place.hint("write the file as UTF-8; a binary file is no configuration")
    })?;
    if let Some(at) = text.find('\0') {
        let line = 1 + text[..at].matches('\n').count();
        return Err(Failure::configuration(format!("{}:{line}: it holds a NUL and is no text", path.display()))
            .hint("a binary file is no configuration"));
    }
    Ok(Some(text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned)))
}

/// Providers' keys by the provider's name, from a file that only its owner can read. Empty when there is none.
pub(super) fn keys(paths: &Paths) -> Result<BTreeMap<String, String>, Failure> {
    let Some(path) = &paths.keys else { return Ok(BTreeMap::new()) };
    let Some(text) = read(path)? else { return Ok(BTreeMap::new()) };
    let readable = fs::metadata(path).is_ok_and(|meta| meta.mode() & 0o077 != 0);
    if readable {
        return Err(Failure::configuration(format!(
            "{}: it holds keys, and others than its owner can read it",
            path.display()
        ))
        .hint(format!("chmod 600 {}", path.display())));
    }
    let keys = Node::parse(&text).and_then(|tree| tree.read::<BTreeMap<String, String>>());
    keys.map_err(|wrong| {
        // What is wrong may quote what stands there, and what stands there is a key.
        let line = wrong.line.map_or_else(String::new, |line| format!(":{line}"));
        Failure::configuration(format!("{}{line}: it is no map of keys by provider", path.display()))
            .hint("each line is PROVIDER: KEY, the key in quotes")
    })
}
