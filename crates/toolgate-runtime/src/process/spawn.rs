//! From a request to an `execve`, and the few other calls that no safe library offers: fork, signal sets,
//! a terminal's signal, and the registration of a descriptor with tokio.
//!
//! This is the only file of the process side with unsafe code. A command is started by `clone(CLONE_VM | CLONE_VFORK)`: no page
//! table is copied, and the caller sleeps until the new program runs or the child has written into the shared memory why it does
//! not. Whatever the child needs is allocated before, so that it only makes system calls.

// Fork, clone, signal sets, one terminal ioctl and tokio's registration have no safe form. Each block says why it holds.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
    ptr,
    sync::atomic::{AtomicI32, Ordering},
    time::Duration,
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions, waitpid},
};
use tokio::io::unix::AsyncFd;

/// Bytes of the child's own stack. It makes a dozen system calls and no library call of any depth; pages that it does not reach
/// are never touched.
const STACK: usize = 64 * 1024;

/// What the signal calls here wait for; all of it stays blocked in the supervisor and its keepers.
const WAITED: [c_int; 4] = [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// The kernel's number of signals.
const SIGNALS: c_int = 64;

/// One program to start, with the descriptors it gets.
pub(super) struct Request {
    /// The program's path.
    pub(super) program: CString,
    /// Its arguments, `argv[0]` included.
    pub(super) argv: Vec<CString>,
    /// Where it runs.
    pub(super) cwd: CString,
    /// The file mode creation mask.
    pub(super) umask: u32,
    /// Whether `input` is a terminal that becomes the controlling one.
    pub(super) terminal: bool,
    /// Its standard input. Not below 3, as 0 to 2 of the caller are taken.
    pub(super) input: OwnedFd,
    /// Its standard output, and error where that is not apart. Not below 3 either.
    pub(super) output: OwnedFd,
    /// Its standard error, where that is apart. Not below 3 either.
    pub(super) errors: Option<OwnedFd>,
}

/// What failed, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    /// At which step.
    pub(super) stage: Stage,
    /// With which error.
    pub(super) errno: Errno,
}

/// The steps of a start. The numbers are what the protocol says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Stage {
    /// A process could not be made or prepared.
    Process = 1,
    /// The terminal could not become the controlling one.
    Terminal = 2,
    /// The descriptors could not be placed.
    Descriptors = 3,
    /// The directory could not be entered.
    Directory = 4,
    /// The program could not be executed.
    Program = 5,
}

impl Stage {
    /// The stage of a number, as the protocol says it.
    pub(super) fn of(number: i32) -> Self {
        match number {
            2 => Self::Terminal,
            3 => Self::Descriptors,
            4 => Self::Directory,
            5 => Self::Program,
            _ => Self::Process,
        }
    }
}

/// What the child reads, and where it writes its failure. Pointers, because the child must not allocate.
struct Plan {
    program: *const c_char,
    argv: *const *const c_char,
    environ: *const *const c_char,
    cwd: *const c_char,
    umask: u32,
    terminal: bool,
    input: RawFd,
    output: RawFd,
    errors: RawFd,
    no_signals: libc::sigset_t,
    stage: AtomicI32,
    errno: AtomicI32,
}

/// Starts a program in a session of its own and returns once it runs. The caller must have blocked its signals and must not have
/// a disposition that is ignored (see [`prepare_signals`]), as that would be inherited.
pub(super) fn spawn(request: &Request, environ: &[CString]) -> Result<Pid, Failure> {
    let argv = pointers(&request.argv);
    let environ = pointers(environ);
    let mut stack: Vec<u8> = Vec::with_capacity(STACK);
    let plan = Plan {
        program: request.program.as_ptr(),
        argv: argv.as_ptr(),
        environ: environ.as_ptr(),
        cwd: request.cwd.as_ptr(),
        umask: request.umask,
        terminal: request.terminal,
        input: request.input.as_raw_fd(),
        output: request.output.as_raw_fd(),
        errors: request.errors.as_ref().unwrap_or(&request.output).as_raw_fd(),
        no_signals: signal_set(&[]),
        stage: AtomicI32::new(0),
        errno: AtomicI32::new(0),
    };

    // SAFETY: the stack is ours, unused and large enough, and its top is aligned as the ABI wants. `plan` and all that it points
    // to live until after this call, and CLONE_VFORK holds this thread until the child has executed a program or ended, so
    // nothing is freed or changed under it. The child calls only what is safe after a fork.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(STACK);
        let top = top.sub(top.addr() % 16);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(run_child, top.cast::<c_void>(), flags, (&raw const plan).cast_mut().cast::<c_void>())
    };
    let Some(pid) = Pid::from_raw(pid.max(0)) else {
        return Err(Failure { stage: Stage::Process, errno: last_error() });
    };
    match plan.stage.load(Ordering::Acquire) {
        0 => Ok(pid),
        stage => {
            // It has already ended; without this it would stay a zombie.
            let _ = waitpid(Some(pid), WaitOptions::empty());
            Err(Failure {
                stage: Stage::of(stage),
                errno: Errno::from_raw_os_error(plan.errno.load(Ordering::Acquire)),
            })
        }
    }
}

/// The child's side of the clone: on its own stack, in the caller's memory, with its own descriptors and signal dispositions.
extern "C" fn run_child(plan: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a plan that outlives the child's use of it, and every pointer in it is a NUL-terminated string or a
    // null-terminated array of such. Only system calls are made: no allocation, no lock, nothing that could unwind.
    unsafe {
        let plan = &*plan.cast::<Plan>().cast_const();
        let stage = place(plan);
        plan.errno.store(*libc::__errno_location(), Ordering::Release);
        plan.stage.store(stage as i32, Ordering::Release);
        libc::_exit(127)
    }
}

/// The steps in their order. Returns only when one has failed, with `errno` set.
///
/// # Safety
/// The plan's pointers must hold, and this must run in a process of its own.
unsafe fn place(plan: &Plan) -> Stage {
    // SAFETY: system calls on the plan's descriptors and strings, which the caller vouches for.
    unsafe {
        // A session of its own: no controlling terminal of the host, and a process group whose number is the shell's.
        if libc::setsid() < 0 {
            return Stage::Process;
        }
        if libc::dup2(plan.input, 0) < 0 || libc::dup2(plan.output, 1) < 0 || libc::dup2(plan.errors, 2) < 0 {
            return Stage::Descriptors;
        }
        if plan.terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
            return Stage::Terminal;
        }
        // All that is left closes on exec anyway; this is the guarantee, and before kernel 5.9 it is refused.
        libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32);
        libc::umask(plan.umask as libc::mode_t);
        if libc::chdir(plan.cwd) < 0 {
            return Stage::Directory;
        }
        libc::sigprocmask(libc::SIG_SETMASK, &raw const plan.no_signals, ptr::null_mut());
        libc::execve(plan.program, plan.argv, plan.environ);
        Stage::Program
    }
}

/// The null-terminated array that `execve` wants.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| CStr::as_ptr(string)).chain([ptr::null()]).collect()
}

/// What a fork returned.
pub(super) enum Fork {
    /// In the caller: the child's id.
    Parent(Pid),
    /// In the child.
    Child,
}

/// A plain fork. The supervisor is small and has one thread, so this is cheap and the child may do whatever it likes.
pub(super) fn fork() -> Result<Fork, Errno> {
    // SAFETY: the supervisor has one thread, so no lock can be held by a thread that the child does not have.
    match unsafe { libc::fork() } {
        0 => Ok(Fork::Child),
        pid => Pid::from_raw(pid.max(0)).map(Fork::Parent).ok_or_else(last_error),
    }
}

/// Ends this process at once: no destructors, no exit handlers, which belong to the process that was forked from.
pub(super) fn leave(code: i32) -> ! {
    // SAFETY: it takes no pointer and does not return.
    unsafe { libc::_exit(code) }
}

/// Closes every descriptor from `first` on.
pub(super) fn close_from(first: u32) {
    // SAFETY: called by the supervisor at its very start, when nothing owns a descriptor from `first` on. Before kernel 5.9 it is
    // refused, and what toolgate opens closes on exec anyway.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0u32) };
}

/// Makes every disposition the default one, which commands inherit through an exec, and blocks what is waited for. The raw call is
/// used because the C library hides signals 32 and 33, which its own `posix_spawn` leaves ignored.
pub(super) fn prepare_signals() {
    // The kernel's `struct sigaction` is at most 32 bytes everywhere; all zero means SIG_DFL, no flags, an empty mask.
    let default = [0u64; 4];
    for signal in 1..=SIGNALS {
        // SAFETY: the structure is as large as the kernel reads, 8 bytes is its size of a signal set, and no old one is asked for.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), ptr::null::<u64>(), 8usize) };
    }
    let waited = signal_set(&WAITED);
    // SAFETY: a valid set in, nothing out.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const waited, ptr::null_mut()) };
}

/// A descriptor that is readable while one of the blocked signals is pending.
pub(super) fn signal_descriptor() -> Result<OwnedFd, Errno> {
    let waited = signal_set(&WAITED);
    // SAFETY: a valid set in; a descriptor that is not negative is new and ours.
    unsafe {
        match libc::signalfd(-1, &raw const waited, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(last_error()),
        }
    }
}

/// Takes the next of the blocked signals, sleeping for at most `limit`, or for ever without one. None when the time is over.
pub(super) fn wait_signal(limit: Option<Duration>) -> Option<Signal> {
    let waited = signal_set(&WAITED);
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: a valid set, no information asked for, and a time that is null or lives on this stack.
    Signal::from_named_raw(unsafe { libc::sigtimedwait(&raw const waited, ptr::null_mut(), limit) })
}

/// Sends a signal to the foreground process group of a terminal, by its master. The kernel picks the group in the same moment, so no
/// other process can be hit, and it works in a raw terminal and with a full input queue, where a typed `^C` does not.
pub(super) fn signal_terminal(master: impl AsFd, signal: Signal) {
    // SAFETY: the request takes a number, and the descriptor is open. A terminal without a foreground group is left alone.
    unsafe { libc::ioctl(master.as_fd().as_raw_fd(), libc::TIOCSIG, signal.as_raw()) };
}

/// Registers a descriptor with the tokio runtime that this is called in.
///
/// # Errors
/// When it is of a kind that nobody ever waits for, such as a file.
pub fn register(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names the same open descriptor for as long as the returned value owns it.
    Ok(unsafe { AsyncFd::register(descriptor) }?)
}

/// A signal set of these.
fn signal_set(signals: &[c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises all of the set, and the numbers are valid signals.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// The error of the last call.
fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
