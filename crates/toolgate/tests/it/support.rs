//! What the tests of the binary share: a home of its own, a workspace, and the program run in it.

use std::{
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

/// How long anything may take before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A home and a workspace in a temporary folder.
pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["home", "work"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work").canonicalize().unwrap()
    }

    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// The program with nothing in its environment but what is needed to find programs and a home.
    pub fn toolgate(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolgate"));
        command
            .args(args)
            .current_dir(self.work())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.home())
            .env("TMPDIR", self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs it and returns its exit code (or the negated signal), standard output and standard error.
    pub fn run(&self, args: &[&str]) -> (i32, String, String) {
        outcome(self.toolgate(args).output().unwrap())
    }

    /// Writes a script for the scripted model and returns its path.
    pub fn script(&self, steps: &Value) -> String {
        let path = self.folder.path().join("script.json");
        std::fs::write(&path, steps.to_string()).unwrap();
        path.display().to_string()
    }

    /// The newest trace file.
    pub fn trace(&self) -> PathBuf {
        self.traces().pop().expect("a trace")
    }

    /// All trace files, the newest last.
    pub fn traces(&self) -> Vec<PathBuf> {
        let traces = self.home().join(".local/state/toolgate/traces");
        let days = std::fs::read_dir(&traces).unwrap().flatten();
        let mut files: Vec<_> =
            days.flat_map(|day| std::fs::read_dir(day.path()).unwrap().flatten()).map(|file| file.path()).collect();
        // Two files of one session may be as new as each other.
        files.sort_by_key(|file| (std::fs::metadata(file).unwrap().modified().unwrap(), file.clone()));
        files
    }

    /// The records of the newest trace that are records.
    pub fn records(&self) -> Vec<Value> {
        self.records_of(&self.trace())
    }

    /// The records of a trace that are records.
    pub fn records_of(&self, file: &std::path::Path) -> Vec<Value> {
        let bytes = std::fs::read(file).unwrap();
        bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }
}

pub fn outcome(output: Output) -> (i32, String, String) {
    use std::os::unix::process::ExitStatusExt;
    let code = output.status.code().unwrap_or_else(|| -output.status.signal().unwrap());
    (code, String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// Living processes whose command line holds a text.
pub fn running(text: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").contains(text)
    })
    .collect()
}

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
