//! The descendants of a process, as `/proc` tells them: who they are, how to kill them all, whether one waits for input.
//!
//! A list is true at the moment it is made. Whoever acts on one does it right away, and does it again until the kernel itself says
//! that no child is left.
#![allow(clippy::disallowed_methods)] // The kernel tells about processes through files.

use std::{
    fs,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FileType, fstat, major, minor, stat},
    process::{Pid, Signal, kill_process},
};

use super::Living;

/// Passes that stop what was forked during the last one. A pass stops whoever forks, so two or three are enough for anything; the
/// bound is there because the processes are not ours to trust.
const STOP_PASSES: usize = 64;

/// All descendants of `root`, zombies included, parents before children. Subtrees that begin with one of `spared` are left out.
pub(super) fn descendants(root: u32, spared: &[u32]) -> Vec<u32> {
    // Without CONFIG_PROC_CHILDREN a process does not list its children, and each one must be asked for its parent.
    if !Path::new("/proc/thread-self/children").exists() {
        return descendants_by_parent(root, spared, &parents());
    }
    let mut found = Vec::new();
    children(root, spared, &mut found);
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        children(pid, spared, &mut found);
        next += 1;
    }
    found
}

/// Adds the children of all threads of a process.
fn children(pid: u32, spared: &[u32], found: &mut Vec<u32>) {
    for thread in threads(pid) {
        let listed = fs::read_to_string(thread.join("children")).unwrap_or_default();
        for child in listed.split_ascii_whitespace().filter_map(|number| number.parse().ok()) {
            // A process that changes its parent between two reads may be seen twice.
            if !spared.contains(&child) && !found.contains(&child) {
                found.push(child);
            }
        }
    }
}

/// Every process with its parent.
fn parents() -> Vec<(u32, u32)> {
    let numbers = entries(Path::new("/proc")).filter_map(|entry| entry.file_name()?.to_str()?.parse().ok());
    numbers.filter_map(|pid| Some((pid, Stat::of(pid)?.parent))).collect()
}

fn descendants_by_parent(root: u32, spared: &[u32], parents: &[(u32, u32)]) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        let children = parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid);
        let new: Vec<u32> = children.filter(|pid| !spared.contains(pid) && !found.contains(pid)).collect();
        found.extend(new);
        next += 1;
    }
    found.split_off(1)
}

/// The descendants of `root` that live, by name.
pub(super) fn living(root: u32) -> Vec<Living> {
    let all = descendants(root, &[]).into_iter();
    let living = all.filter_map(|pid| Some((pid, Stat::of(pid)?))).filter(|(_, stat)| stat.lives);
    living.map(|(pid, stat)| Living { pid, name: stat.name }).collect()
}

/// What `/proc/PID/stat` says of a process.
struct Stat {
    name: String,
    lives: bool,
    parent: u32,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// `PID (NAME) STATE PARENT …`; a name may hold anything, brackets and spaces too.
    fn parse(stat: &[u8]) -> Option<Self> {
        let open = stat.iter().position(|&byte| byte == b'(')?;
        let close = stat.iter().rposition(|&byte| byte == b')')?;
        let name = String::from_utf8_lossy(stat.get(open + 1..close)?).into_owned();
        let mut rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?.split_ascii_whitespace();
        let lives = !matches!(rest.next()?, "Z" | "X" | "x");
        Some(Self { name, lives, parent: rest.next()?.parse().ok()? })
    }
}

/// Sends a signal to all descendants of `root`, the calling process.
pub(super) fn signal(root: u32, signal: Signal) {
    for pid in descendants(root, &[]) {
        send(pid, signal);
    }
}

/// Kills all descendants of `root`, the calling process, except subtrees that begin with one of `spared`. They are stopped first,
/// until a scan finds nobody new, so that a process that forks cannot outrun the scan. The caller calls again while it has children.
pub(super) fn kill(root: u32, spared: &[u32]) {
    let mut stopped: Vec<u32> = Vec::new();
    for _ in 0..STOP_PASSES {
        let new: Vec<u32> = descendants(root, spared).into_iter().filter(|pid| !stopped.contains(pid)).collect();
        if new.is_empty() {
            break;
        }
        new.iter().for_each(|&pid| send(pid, Signal::STOP));
        stopped.extend(new);
    }
    // Stopped, they can neither end nor free their numbers, so the list from the scans still names the same processes.
    stopped.into_iter().for_each(|pid| send(pid, Signal::KILL));
}

/// One that is gone, or that another user owns, is not an error: the caller looks again.
fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Which file a command's standard input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Input {
    device: u64,
    inode: u64,
    terminal: bool,
}

impl Input {
    /// Of an open descriptor.
    pub(super) fn of(descriptor: impl AsFd) -> rustix::io::Result<Self> {
        fstat(descriptor).map(Self::of_stat)
    }

    fn of_stat(stat: rustix::fs::Stat) -> Self {
        let terminal = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
        Self { device: stat.st_dev, inode: stat.st_ino, terminal }
    }

    /// Whether a process's descriptor is this file. In a tree with a terminal, `/dev/tty` (device 5:0) is that terminal.
    fn is(self, pid: u32, descriptor: u64) -> bool {
        stat(format!("/proc/{pid}/fd/{descriptor}")).is_ok_and(|stat| {
            let same = Self::of_stat(stat) == self;
            same || self.terminal && (major(stat.st_rdev), minor(stat.st_rdev)) == (5, 0)
        })
    }
}

/// Whether a descendant of `root` is blocked in a read of this input.
pub(super) fn waits_for_input(root: u32, input: Input) -> bool {
    let all = descendants(root, &[]).into_iter();
    let mut threads = all.flat_map(|pid| threads(pid).map(move |thread| (pid, thread)));
    threads.any(|(pid, thread)| read_descriptor(&thread).is_some_and(|descriptor| input.is(pid, descriptor)))
}

/// The descriptor that a thread is blocked reading, if it is.
fn read_descriptor(thread: &Path) -> Option<u64> {
    match fs::read_to_string(thread.join("syscall")) {
        Ok(call) => descriptor_of_call(&call),
        // Hardened kernels hide the call from all but root. Where it sleeps is less guarded, but says no descriptor.
        Err(_) => {
            let place = fs::read_to_string(thread.join("wchan")).unwrap_or_default();
            matches!(place.trim_end(), "pipe_read" | "anon_pipe_read" | "n_tty_read" | "wait_woken").then_some(0)
        }
    }
}

/// `NUMBER 0xFIRST 0xSECOND …` of a blocked call, or `running`. A select on nothing but descriptor 0, without a limit, is how
/// readline waits for a line.
fn descriptor_of_call(call: &str) -> Option<u64> {
    let mut fields = call.split_ascii_whitespace();
    let number: libc::c_long = fields.next()?.parse().ok()?;
    let mut argument = || u64::from_str_radix(fields.next()?.trim_start_matches("0x"), 16).ok();
    let first = argument()?;
    if matches!(number, libc::SYS_read | libc::SYS_readv | libc::SYS_splice) {
        return Some(first);
    }
    #[cfg(target_arch = "x86_64")]
    let selects = matches!(number, libc::SYS_select | libc::SYS_pselect6);
    #[cfg(not(target_arch = "x86_64"))]
    let selects = number == libc::SYS_pselect6;
    let (_read, _write, _except, limit) = (argument()?, argument()?, argument()?, argument()?);
    (selects && first == 1 && limit == 0).then_some(0)
}

/// The folders of a process's threads.
fn threads(pid: u32) -> impl Iterator<Item = PathBuf> {
    entries(Path::new(&format!("/proc/{pid}/task")))
}

/// The paths in a folder; none when it is gone.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test fails by panicking.
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_the_rest_of_the_line() {
        let stat = Stat::parse(b"12 (a) Z 1 (b)) S 34 12 12 0").unwrap();
        assert_eq!((stat.name.as_str(), stat.lives, stat.parent), ("a) Z 1 (b)", true, 34));
        assert!(!Stat::parse(b"12 (sh) Z 34 12").unwrap().lives);
        assert!(Stat::parse(b"12 sh").is_none());
    }

    #[test]
    fn both_ways_find_the_same() {
        let mut child =
            std::process::Command::new("/bin/sh").args(["-c", "sleep 60 & sleep 60 & wait"]).spawn().unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let by_parent = loop {
            let found = descendants_by_parent(child.id(), &[], &parents());
            if found.len() == 2 {
                break found;
            }
            assert!(std::time::Instant::now() < until, "the shell never forked twice");
        };
        assert_eq!(descendants(child.id(), &[]), by_parent);
        assert_eq!(descendants(child.id(), &by_parent[..1]), by_parent[1..]);
        by_parent.iter().for_each(|&pid| send(pid, Signal::KILL));
        child.wait().unwrap();
    }

    #[test]
    fn only_reads_of_a_descriptor_count() {
        let call = |number: libc::c_long, rest: &str| descriptor_of_call(&format!("{number} {rest}\n"));
        assert_eq!(call(libc::SYS_read, "0x3 0x7f 0x20 0x0 0x0 0x0 0x7ffe 0x7f18"), Some(3));
        assert_eq!(call(libc::SYS_pselect6, "0x1 0x7f 0x0 0x0 0x0 0x7f 0x7ffe 0x7f18"), Some(0));
        assert_eq!(call(libc::SYS_pselect6, "0x1 0x7f 0x0 0x0 0x7f 0x7f 0x7ffe 0x7f18"), None);
        assert_eq!(call(libc::SYS_wait4, "0x0 0x7f 0x0 0x0 0x0 0x0 0x7ffe 0x7f18"), None);
        assert_eq!(descriptor_of_call("running\n"), None);
    }
}
