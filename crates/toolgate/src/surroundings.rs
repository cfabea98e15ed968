//! What this process was started in: the one place that reads the environment.
#![allow(clippy::disallowed_methods)] // The one place that reads the environment, and looks programs up in it.

use std::{
    ffi::OsString,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use toolgate_runtime::process::{command_env::is_secret_name, login_env::LoginShell};

/// The mode bits that let somebody run a file.
const ANYBODY_RUNS: u32 = 0o111;

/// The environment, read once.
#[derive(Clone)]
pub(crate) struct Surroundings {
    vars: Vec<(OsString, OsString)>,
}

impl Surroundings {
    /// Reads the process's environment.
    pub(crate) fn read() -> Self {
        Self { vars: std::env::vars_os().collect() }
    }

    /// An environment of a test's own.
    #[cfg(test)]
    pub(crate) fn of(vars: &[(&str, &str)]) -> Self {
        Self { vars: vars.iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }

    /// A variable as text; an empty one counts as unset.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let (_, value) = self.vars.iter().find(|(known, _)| known == name)?;
        value.to_str().filter(|value| !value.is_empty()).map(str::to_owned)
    }

    /// Whether the terminal can only print, line after line.
    pub(crate) fn is_dumb(&self) -> bool {
        self.get("TERM").is_none_or(|term| term == "dumb")
    }

    /// Where a program is on the PATH that toolgate was started with. A relative folder on it counts for nothing: it would mean another
    /// one for each command.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        let folders = self.get("PATH")?;
        let mut places =
            folders.split(':').map(|folder| Path::new(folder).join(name)).filter(|path| path.is_absolute());
        places.find(|path| {
            path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & ANYBODY_RUNS != 0)
        })
    }

    /// Where a program is that a file names: a bare word is looked for on PATH, a path leads on from the file's folder.
    pub(crate) fn program_from(&self, folder: &Path, written: &str) -> Option<PathBuf> {
        if !written.contains('/') {
            return self.program(written);
        }
        match written.strip_prefix("~/") {
            Some(rest) => self.home().map(|home| home.join(rest)),
            None => Some(folder.join(written.trim_start_matches("./"))),
        }
    }

    /// Everything, for commands.
    pub(crate) fn vars(&self) -> Vec<(OsString, OsString)> {
        self.vars.clone()
    }

    /// Values that must not reach a trace: those of variables that look like secrets.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let secret = |(name, _): &&(OsString, OsString)| name.to_str().is_some_and(is_secret_name);
        self.vars.iter().filter(secret).filter_map(|(_, value)| value.to_str().map(str::to_owned)).collect()
    }

    /// The user's home directory.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.get("HOME").map(PathBuf::from)
    }

    /// Where toolgate keeps what it writes: `$XDG_STATE_HOME/toolgate`, by default `~/.local/state/toolgate`.
    pub(crate) fn state_folder(&self) -> Option<PathBuf> {
        let base = self.get("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        base.or_else(|| self.home().map(|home| home.join(".local/state"))).map(|base| base.join("toolgate"))
    }

    /// Where the user's configuration stands: `$XDG_CONFIG_HOME/toolgate`, by default `~/.config/toolgate`.
    pub(crate) fn config_folder(&self) -> Option<PathBuf> {
        let base = self.get("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        base.or_else(|| self.home().map(|home| home.join(".config"))).map(|base| base.join("toolgate"))
    }

    /// Another place for the administrator's configuration, for tests; never in a build for people.
    pub(crate) fn managed_config(&self) -> Option<PathBuf> {
        if cfg!(debug_assertions) { self.get("TOOLGATE_MANAGED_CONFIG").map(PathBuf::from) } else { None }
    }

    /// Other servers to ask than the usual ones of this machine, for tests; never in a build for people.
    pub(crate) fn local_servers(&self) -> Option<Vec<(String, String)>> {
        let said = if cfg!(debug_assertions) { self.get("TOOLGATE_LOCAL_SERVERS") } else { None };
        let pairs = said.as_deref()?.split(',').filter_map(|pair| pair.split_once('='));
        Some(pairs.map(|(name, url)| (name.to_owned(), url.to_owned())).collect())
    }

    /// Where temporary files go.
    pub(crate) fn temporary_folder(&self) -> PathBuf {
        std::env::temp_dir()
    }

    /// The record after which a test wants this process to be killed; never in a build for people.
    pub(crate) fn ordered_fault(&self) -> Option<u64> {
        let fault = if cfg!(debug_assertions) { self.get("TOOLGATE_FAULT") } else { None };
        fault?.strip_prefix("kill-after-record:")?.parse().ok()
    }

    /// The user's login shell; none without a home to start it in.
    pub(crate) fn login_shell(&self) -> Option<LoginShell> {
        let shell = self.get("SHELL").map(PathBuf::from).filter(|path| path.is_absolute());
        let shell = shell.unwrap_or_else(|| toolgate_runtime::process::table::DEFAULT_SHELL.into());
        let cache = self.get("XDG_RUNTIME_DIR").map(PathBuf::from);
        self.home().map(|home| LoginShell { shell, home, cache })
    }
}
