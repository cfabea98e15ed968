//! The user's environment as their login shell makes it, read once.
//!
//! A command that ran `bash -lc` would read the user's profile every time; reading it once, beside the first model request, gives the
//! same variables for nothing. The shell gets no input, has a session of its own and five seconds. When it fails, commands get the
//! process's own environment and a warning says so.
#![allow(clippy::disallowed_methods)] // The cache of the login environment is kept here.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::{io::AsyncReadExt, sync::OnceCell};
use toolgate_core::call::Digest;

use super::{
    Command, Processes, Running, Stdio, Unasked,
    command_env::{EnvPolicy, command_env},
};

/// How long a profile may take. A slower one is broken, and a person is waiting.
const LONGEST: Duration = Duration::from_secs(5);

/// What was printed before the shell ended is in the pipe by then.
const AFTER_EXIT: Duration = Duration::from_millis(100);

/// How much a profile may print, its environment included.
const MOST_OUTPUT: u64 = 4 * 1024 * 1024;

/// How long another process may use what this one read.
const CACHE_AGE: Duration = Duration::from_secs(600);

/// Stands before what we asked for, because a profile may print whatever it likes.
const MARK: &[u8] = b"\0toolgate-login-env\0";

/// What the shell is asked for: the mark, the umask, the exported variables.
const SCRIPT: &str = r#"printf '\000toolgate-login-env\000'; umask; exec env -0"#;

/// The files that make a login shell's environment; a change of any makes a cached one stale.
const PROFILES: &[&str] = &[
    "/etc/environment",
    "/etc/profile",
    "/etc/profile.d",
    "/etc/zshenv",
    "/etc/zprofile",
    "~/.profile",
    "~/.bash_profile",
    "~/.bash_login",
    "~/.bashrc",
    "~/.zshenv",
    "~/.zprofile",
    "~/.config/fish/config.fish",
];

/// The user's login shell.
#[derive(Debug, Clone)]
pub struct LoginShell {
    /// The shell's path.
    pub shell: PathBuf,
    /// Where it starts.
    pub home: PathBuf,
    /// A folder in memory that only the user can read, for later processes; none without one.
    pub cache: Option<PathBuf>,
}

impl LoginShell {
    /// The shell, and all that it does.
    fn command(&self, env: Vec<OsString>) -> Unasked {
        let argv = [self.shell.clone().into_os_string(), "-l".into(), "-c".into(), SCRIPT.into()].to_vec();
        let (program, cwd) = (self.shell.clone(), self.home.clone());
        Unasked(Command { program, argv, env: Arc::new(env), cwd, umask: own_umask(), stdio: Stdio::NoInput })
    }
}

/// Where commands get their variables from.
pub struct EnvSource {
    base: Vec<(OsString, OsString)>,
    login: Option<LoginShell>,
    policy: EnvPolicy,
    captured: OnceCell<Captured>,
    /// The login shell's tree: a daemon that the profile started, such as an agent for keys, lives as long as the session.
    daemons: Mutex<Option<Running>>,
}

/// The variables and the umask of commands.
#[derive(Debug, Clone)]
pub struct Captured {
    /// Name and value.
    pub vars: Vec<(OsString, OsString)>,
    /// The file mode creation mask.
    pub umask: u32,
    /// Why the login shell could not be read, where it could not.
    pub warning: Option<String>,
}

impl EnvSource {
    /// `base` is the process's own environment: what the login shell starts from, and what commands get without one.
    pub fn new(base: Vec<(OsString, OsString)>, login: Option<LoginShell>, policy: EnvPolicy) -> Self {
        Self { base, login, policy, captured: OnceCell::new(), daemons: Mutex::default() }
    }

    /// Reads the login shell, once, however many ask.
    pub async fn captured(&self, processes: &dyn Processes) -> &Captured {
        self.captured.get_or_init(|| self.capture(processes)).await
    }

    /// What was read, if anybody has asked yet.
    pub fn read_already(&self) -> Option<&Captured> {
        self.captured.get()
    }

    /// The variables of a command.
    pub fn command_env(&self, captured: &Captured, terminal: bool) -> Vec<OsString> {
        command_env(captured.vars.iter().cloned(), &self.policy, terminal)
    }

    async fn capture(&self, processes: &dyn Processes) -> Captured {
        let own = |warning| Captured { vars: self.base.clone(), umask: own_umask(), warning };
        let Some(login) = &self.login else { return own(None) };
        let cache = login
            .cache
            .as_ref()
            .filter(|folder| is_private_memory(folder))
            .map(|folder| folder.join(format!("login-env-{}", key(login).as_str())));
        if let Some(captured) = cache.as_deref().and_then(read_cache) {
            return captured;
        }
        match tokio::time::timeout(LONGEST, self.read(login, processes)).await {
            Ok(Ok(captured)) => {
                if let Some(path) = cache {
                    // Nobody waits for it and nothing is lost without it.
                    let _ = write_cache(&path, &captured, &self.policy);
                }
                captured
            }
            Ok(Err(why)) => own(Some(format!("the login shell {} could not be read: {why}", login.shell.display()))),
            Err(_) => own(Some(format!("the login shell {} took longer than five seconds", login.shell.display()))),
        }
    }

    async fn read(&self, login: &LoginShell, processes: &dyn Processes) -> Result<Captured, String> {
        let env = self.base.iter().map(|(name, value)| [name.as_os_str(), value].join(OsStr::new("="))).collect();
        let mut running = processes.start_unasked(login.command(env)).await.map_err(|error| error.to_string())?;
        let mut bytes = Vec::new();
        let mut output = (&mut running.output).take(MOST_OUTPUT);
        // The shell's end ends the reading soon: a daemon that a profile starts may hold the pipe for ever.
        let mut exit = running.exit.clone();
        let gone = async {
            let _ = exit.wait_for(Option::is_some).await.map(drop);
            tokio::time::sleep(AFTER_EXIT).await;
        };
        tokio::select! {
            read = output.read_to_end(&mut bytes) => { read.map_err(|error| error.to_string())?; }
            () = gone => {}
        }
        let gone = running.exit.borrow().as_ref().is_some_and(|exit| exit.living.is_empty());
        if !gone {
            *self.daemons.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        }
        parse(&bytes).ok_or_else(|| "it did not print its environment".into())
    }
}

fn parse(bytes: &[u8]) -> Option<Captured> {
    let start = memchr::memmem::rfind(bytes, MARK)? + MARK.len();
    let rest = &bytes[start..];
    let line = memchr::memchr(b'\n', rest)?;
    let umask = u32::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?.trim(), 8).ok()?;
    let vars: Vec<_> = rest[line + 1..].split(|byte| *byte == 0).filter_map(variable).collect();
    (!vars.is_empty()).then_some(Captured { vars, umask, warning: None })
}

fn variable(bytes: &[u8]) -> Option<(OsString, OsString)> {
    let at = memchr::memchr(b'=', bytes).filter(|at| *at > 0)?;
    Some((OsString::from_vec(bytes[..at].to_vec()), OsString::from_vec(bytes[at + 1..].to_vec())))
}

fn own_umask() -> u32 {
    // Reading the mask means setting it; the two calls are next to each other and nothing else here creates files between them.
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::umask(mask);
    mask.as_raw_mode()
}

/// Names what a cached environment depends on: the shell, the home, and each profile's size and time.
fn key(login: &LoginShell) -> Digest {
    let mut text = format!("{}\0{}\0", login.shell.display(), login.home.display());
    for profile in PROFILES {
        let path = match profile.strip_prefix("~/") {
            Some(rest) => login.home.join(rest),
            None => PathBuf::from(profile),
        };
        if let Ok(meta) = fs::metadata(&path) {
            text.push_str(&format!("{}\0{}\0{}.{}\0", path.display(), meta.size(), meta.mtime(), meta.mtime_nsec()));
        }
    }
    Digest::of(text.as_bytes())
}

/// Whether a folder is the user's own and lives in memory: what is written there is gone with the machine.
fn is_private_memory(folder: &Path) -> bool {
    /// The kernel's number for tmpfs.
    const TMPFS: i64 = 0x0102_1994;
    let mine = fs::symlink_metadata(folder).is_ok_and(|meta| {
        meta.is_dir() && meta.uid() == rustix::process::getuid().as_raw() && meta.mode() & 0o077 == 0
    });
    mine && rustix::fs::statfs(folder).is_ok_and(|found| found.f_type == TMPFS)
}

fn read_cache(path: &Path) -> Option<Captured> {
    let meta = fs::symlink_metadata(path).ok()?;
    let fresh = meta
        .modified()
        .ok()
        .and_then(|time| SystemTime::now().duration_since(time).ok())
        .is_some_and(|age| age < CACHE_AGE);
    let mine = meta.uid() == rustix::process::getuid().as_raw() && meta.is_file() && meta.mode() & 0o077 == 0;
    (fresh && mine).then(|| fs::read(path).ok()).flatten().and_then(|bytes| parse(&bytes))
}

/// Writes what commands may see and nothing else: a secret never leaves memory.
fn write_cache(path: &Path, captured: &Captured, policy: &EnvPolicy) -> io::Result<()> {
    let mut bytes = MARK.to_vec();
    bytes.extend_from_slice(format!("{:04o}\n", captured.umask).as_bytes());
    for (name, value) in captured.vars.iter().filter(|(name, _)| policy.passes(&name.to_string_lossy())) {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
    }
    let new = path.with_extension(std::process::id().to_string());
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&bytes)?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_profile_prints_does_not_disturb() {
        let mut bytes = b"Welcome! A=B\n\0".to_vec();
        bytes.extend_from_slice(MARK);
        bytes.extend_from_slice(b"0027\nPATH=/bin\0MULTI=a\nb=c\0");
        let captured = parse(&bytes).unwrap();
        assert_eq!(captured.umask, 0o027);
        assert_eq!(captured.vars, [("PATH".into(), "/bin".into()), ("MULTI".into(), "a\nb=c".into())]);
        assert!(parse(b"Welcome!").is_none());
    }

    #[test]
    fn a_cache_holds_no_secret_and_is_read_by_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        let vars = vec![("A".into(), "1".into()), ("MY_TOKEN".into(), "hidden-value".into())];
        write_cache(&path, &Captured { vars, umask: 0o022, warning: None }, &EnvPolicy::default()).unwrap();
        assert!(!String::from_utf8_lossy(&fs::read(&path).unwrap()).contains("hidden-value"));
        assert_eq!(read_cache(&path).unwrap().vars, [("A".into(), "1".into())]);
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read_cache(&path).is_none());
    }
}
