//! A terminal for tests: the program runs on a pseudo-terminal, keys are typed into it, and what it shows is waited for.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{AsFd, OwnedFd},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Instant,
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Termios, Winsize, tcgetattr, tcsetwinsize},
};

use crate::support::{PATIENCE, until};

/// A program on a terminal. It is ended when this is dropped.
pub struct Pty {
    child: Child,
    keys: File,
    /// The program's side, kept open so that the modes can be looked at when the program is gone.
    line: OwnedFd,
    found: String,
    shown: Arc<Mutex<String>>,
    /// How much of what was shown has been waited for.
    seen: usize,
}

impl Pty {
    pub fn start(command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let line = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let size = Winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&line, size).unwrap();
        let found = modes(line.as_fd());
        let mut command = at_a_terminal(&command);
        for stream in [Command::stdin::<Stdio>, Command::stdout::<Stdio>, Command::stderr::<Stdio>] {
            stream(&mut command, line.try_clone().unwrap().into());
        }
        let child = command.spawn().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let master = File::from(master);
        let (keys, reader, all) = (master.try_clone().unwrap(), master, shown.clone());
        thread::spawn(move || collect(reader, &all));
        Self { child, keys, line: line.into(), found, shown, seen: 0 }
    }

    /// Types.
    pub fn keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until a text is shown behind everything that was waited for before.
    pub fn sees(&mut self, text: &str) {
        let start = Instant::now();
        loop {
            let shown = self.text();
            if let Some(at) = shown[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{text:?} does not appear; from where it was looked for:\n{}",
                &shown[self.seen..]
            );
            thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Everything that was shown, as it was written.
    pub fn raw(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    /// Everything that was shown, without control sequences.
    pub fn text(&self) -> String {
        plain(&self.raw())
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        tcsetwinsize(&self.line, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the program's end and gives its exit code. The terminal must be as it was found.
    pub fn ends(&mut self) -> i32 {
        let mut status = None;
        let child = &mut self.child;
        until("the program ends", || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(modes(self.line.as_fd()), self.found, "the terminal's modes; shown was:\n{}", self.text());
        status.unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `setsid --ctty` does what a terminal emulator does: the terminal belongs to the program's session, so Ctrl-C and a hang-up reach it.
/// It becomes the program, so its process is the program's.
fn at_a_terminal(command: &Command) -> Command {
    let mut leader = Command::new("setsid");
    leader.arg("--ctty").arg(command.get_program()).args(command.get_args());
    leader.env_clear().current_dir(command.get_current_dir().unwrap());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            leader.env(name, value);
        }
    }
    leader
}

fn collect(mut reader: File, shown: &Mutex<String>) {
    let mut bytes = Vec::new();
    let mut more = [0; 4096];
    while let Ok(length) = reader.read(&mut more) {
        if length == 0 {
            return;
        }
        // An editor asks where the cursor is, and every terminal answers.
        for _ in more[..length].windows(4).filter(|asked| asked == b"\x1b[6n") {
            let _ = reader.write_all(b"\x1b[1;1R");
        }
        bytes.extend_from_slice(&more[..length]);
        *shown.lock().unwrap() = String::from_utf8_lossy(&bytes).into_owned();
    }
}

fn modes(line: impl AsFd) -> String {
    let Termios { input_modes, output_modes, control_modes, local_modes, .. } = tcgetattr(line).unwrap();
    format!("{input_modes:?} {output_modes:?} {control_modes:?} {local_modes:?}")
}

/// A text without control sequences and carriage returns.
pub fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\x1b' => match rest.next() {
                Some('[') => while rest.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
                Some(']') => while rest.next().is_some_and(|c| c != '\x07' && c != '\\') {},
                _ => {}
            },
            '\r' => {}
            c => out.push(c),
        }
    }
    out
}
