//! The supervisor and its keepers as the runtime sees them: what a command gets, what is said of its end, and that nothing of it
//! survives an end, whatever it does and whoever is killed. Nothing here depends on tight timing: what must happen is polled for.

// A test fails by panicking, its helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    ffi::OsString,
    fs,
    future::Future,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use toolgate_runtime::process::{
    Command, Exit, Living, Processes, Running, Size, StartError, Status, Stdio,
    supervisor::{Program, Supervisor},
};

use crate::support::permit;

/// Far more than anything here takes, for a machine that is very busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// The variable that makes `stands_in_for_a_runtime` do its work, with the file to write to.
const STAND_IN: &str = "TOOLGATE_TEST_STAND_IN";

fn supervisor() -> Supervisor {
    Supervisor::new(Program { path: env!("CARGO_BIN_EXE_toolgate-supervisor").into(), args: Vec::new() })
}

fn bash(line: &str) -> Command {
    Command {
        program: "/bin/bash".into(),
        argv: ["bash", "--noprofile", "--norc", "-c", line].map(OsString::from).to_vec(),
        env: Arc::new(vec![OsString::from("PATH=/usr/local/bin:/usr/bin:/bin"), OsString::from("TERM=xterm")]),
        cwd: "/tmp".into(),
        umask: 0o022,
        stdio: Stdio::NoInput,
    }
}

fn with(stdio: Stdio, line: &str) -> Command {
    Command { stdio, ..bash(line) }
}

const TERMINAL: Stdio = Stdio::Terminal(Size { rows: 24, cols: 120 });

async fn start(supervisor: &Supervisor, command: Command) -> Running {
    supervisor.start(&permit(), command).await.unwrap()
}

async fn refused(supervisor: &Supervisor, command: Command) -> String {
    let result = tokio::time::timeout(PATIENCE, supervisor.start(&permit(), command)).await.unwrap();
    let Err(StartError(reason)) = result else { panic!("it started") };
    reason
}

async fn exit(running: &mut Running) -> Exit {
    let exit = tokio::time::timeout(PATIENCE, running.exit.wait_for(Option::is_some)).await;
    exit.expect("the command never ended").unwrap().clone().unwrap()
}

async fn output(running: &mut Running) -> String {
    let mut text = Vec::new();
    tokio::time::timeout(PATIENCE, running.output.read_to_end(&mut text)).await.expect("no end of the output").unwrap();
    String::from_utf8(text).unwrap()
}

/// Runs a line and returns all that it printed.
async fn said(supervisor: &Supervisor, command: Command) -> String {
    let mut running = start(supervisor, command).await;
    let text = output(&mut running).await;
    exit(&mut running).await;
    text
}

/// Reads lines until one holds the text, and returns what was read.
async fn read_until(running: &mut Running, text: &str) -> String {
    let mut read = String::new();
    let mut buffer = [0; 4096];
    while !read.contains(text) {
        let length = tokio::time::timeout(PATIENCE, running.output.read(&mut buffer)).await;
        let length = length.unwrap_or_else(|_| panic!("never said {text:?} but {read:?}")).unwrap();
        assert!(length > 0, "ended without {text:?}: {read:?}");
        read.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    read
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not in {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let started = Instant::now();
    (work.await, started.elapsed())
}

/// The state and the parent of a process, as `/proc` tells them.
fn stat(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// A zombie is as dead as anything; its reaper may be slow.
fn lives(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// The living processes whose command line holds this text.
fn with_text(text: &str) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let holds = |pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(text))
    };
    processes.filter(|pid: &u32| lives(*pid) && holds(pid)).collect()
}

fn comm(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// How many `sleep` of this length there are.
fn sleepers(mark: &str) -> usize {
    with_text(mark).into_iter().filter(|&pid| comm(pid) == "sleep").count()
}

/// A length of sleep that no other test uses, to find its process by.
fn marker(number: u32) -> String {
    format!("{}.{number:03}", 600_000 + std::process::id() % 100_000)
}

fn kill(pid: u32, signal: Signal) {
    // It may just have ended by itself.
    let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal);
}

/// Starts a command that says its keeper, and returns it with the supervisor's number.
async fn with_supervisor(supervisor: &Supervisor, line: &str) -> (Running, u32) {
    let mut running = start(supervisor, bash(&format!("echo keeper $PPID .; {line}"))).await;
    let said = read_until(&mut running, ".").await;
    let keeper = said.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
    (running, stat(keeper).unwrap().1)
}

fn names(living: &[Living]) -> Vec<&str> {
    let mut names: Vec<_> = living.iter().map(|process| process.name.as_str()).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn the_status_is_the_commands_own() {
    let supervisor = supervisor();
    for (line, status) in [
        ("exit 0", Status::Code(0)),
        ("exit 7", Status::Code(7)),
        ("exit 255", Status::Code(255)),
        ("kill -KILL $$", Status::Signal(9)),
        ("kill -TERM $$", Status::Signal(15)),
        ("kill -PIPE $$", Status::Signal(13)),
    ] {
        let mut running = start(&supervisor, bash(line)).await;
        assert_eq!(exit(&mut running).await, Exit { status, living: Vec::new() }, "{line}");
    }
}

#[tokio::test]
async fn the_output_is_whole_and_in_order() {
    let supervisor = supervisor();
    let text = said(&supervisor, bash("seq 100000; echo an error >&2; echo the end")).await;
    let numbers: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(text.len(), numbers.len() + "an error\nthe end\n".len());
    assert!(text.starts_with(&numbers) && text.ends_with("an error\nthe end\n"));
}

#[tokio::test]
async fn errors_can_come_apart_from_the_output() {
    let supervisor = supervisor();
    // More than a pipe holds on both, so each has to be read while the other is.
    let line = "cat; seq 50000 >&2; seq 50000; echo an error >&2";
    let mut running = start(&supervisor, with(Stdio::Apart, line)).await;
    running.input.take().unwrap().write_all(b"given\n").await.unwrap();
    let mut errors = running.errors.take().unwrap();
    let (mut said, mut said_apart) = (String::new(), String::new());
    let both = async { tokio::join!(running.output.read_to_string(&mut said), errors.read_to_string(&mut said_apart)) };
    let (read, read_apart) = tokio::time::timeout(PATIENCE, both).await.unwrap();
    assert!(read.is_ok() && read_apart.is_ok());
    let numbers: String = (1..=50_000).map(|number| format!("{number}\n")).collect();
    assert!(said == format!("given\n{numbers}") && said_apart == format!("{numbers}an error\n"));
    assert_eq!(exit(&mut running).await.status, Status::Code(0));
    assert!(start(&supervisor, with(Stdio::Pipes, "")).await.errors.is_none());
}

#[tokio::test]
async fn a_command_gets_what_was_chosen_and_nothing_else() {
    let supervisor = supervisor();
    let folder = tempfile::tempdir().unwrap();
    for stdio in [Stdio::NoInput, Stdio::Pipes, Stdio::Apart, TERMINAL] {
        // The fourth is the folder that is being listed.
        let listed = said(
            &supervisor,
            Command { program: "/bin/ls".into(), argv: vec!["ls".into(), "/proc/self/fd".into()], ..with(stdio, "") },
        )
        .await;
        assert_eq!(listed.split_ascii_whitespace().collect::<Vec<_>>(), ["0", "1", "2", "3"], "{stdio:?}");
    }

    let line = "pwd; umask; grep -E '^Sig(Blk|Ign)' /proc/self/status; cat";
    let text = said(&supervisor, Command { cwd: folder.path().into(), umask: 0o027, ..bash(line) }).await;
    let expected = format!("{}\n0027\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n", folder.path().display());
    assert_eq!(text, expected);
}

#[tokio::test]
async fn each_command_has_its_own_environment() {
    let supervisor = supervisor();
    // More environments than the supervisor remembers, the last of them larger than one message.
    let mut environments: Vec<Arc<Vec<OsString>>> = (0..6).map(|n| Arc::new(vec![format!("N={n}").into()])).collect();
    let many = (0..4000).map(|number| OsString::from(format!("VARIABLE_{number}={}", "x".repeat(60))));
    let longest = OsString::from(format!("LONG={}", "y".repeat(120_000)));
    environments.push(Arc::new(many.chain([longest]).collect()));
    for _ in 0..2 {
        for environment in &environments {
            let command = Command {
                program: "/usr/bin/env".into(),
                argv: vec!["env".into()],
                env: Arc::clone(environment),
                ..bash("")
            };
            let expected: String = environment.iter().map(|text| format!("{}\n", text.to_str().unwrap())).collect();
            assert!(said(&supervisor, command).await == expected, "{:?}", environment.first());
        }
    }
}

#[tokio::test]
async fn a_start_that_fails_says_what_and_why() {
    let supervisor = supervisor();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script");
    fs::write(&file, "neither a program nor a script").unwrap();
    let at = |program: PathBuf| Command { program, ..bash("") };
    let inside = |cwd: PathBuf| Command { cwd, ..bash("") };

    let missing = folder.path().join("missing");
    let reason = refused(&supervisor, inside(missing.clone())).await;
    assert_eq!(reason, format!("the working directory {} does not exist", missing.display()));
    let reason = refused(&supervisor, inside(file.clone())).await;
    assert!(reason.contains(&format!("{} cannot be entered: Not a directory", file.display())), "{reason}");
    let reason = refused(&supervisor, at(missing.clone())).await;
    assert_eq!(reason, format!("the program {} does not exist", missing.display()));
    let reason = refused(&supervisor, at(file.clone())).await;
    assert!(reason.contains(&format!("{} cannot be run: Permission denied", file.display())), "{reason}");
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let reason = refused(&supervisor, at(file.clone())).await;
    assert!(reason.contains(&format!("{} cannot be run: Exec format error", file.display())), "{reason}");
    fs::write(&file, "#!/no/such/shell\n").unwrap();
    let reason = refused(&supervisor, at(file.clone())).await;
    assert!(reason.contains(&format!("{} cannot be run: its interpreter does not exist", file.display())), "{reason}");
    let reason = refused(&supervisor, at("bash".into())).await;
    assert_eq!(reason, "the program bash is not an absolute path");

    let reason = refused(&supervisor, bash(&"x".repeat(200_000))).await;
    assert!(reason.contains("/bin/bash: argument 4 is too long: it has 200000 bytes"), "{reason}");
    let reason = refused(&supervisor, Command { argv: vec!["x".repeat(100_000).into(); 3], ..bash("") }).await;
    assert!(reason.contains("/bin/bash: the arguments are too long"), "{reason}");
    let variables = Arc::new(vec![OsString::from(format!("A{}=1", "B".repeat(120_000))); 40]);
    let reason = refused(&supervisor, Command { env: variables, ..bash("") }).await;
    assert!(reason.contains("/bin/bash cannot be run: Argument list too long"), "{reason}");
    let reason = refused(&supervisor, bash("echo a\0b")).await;
    assert!(reason.contains("argument 4 contains a NUL byte"), "{reason}");

    // None of this harmed the connection, and the longest line that the kernel takes is taken.
    let line = format!("echo fine # {}", "x".repeat(128 * 1024 - 1 - 12));
    assert_eq!(said(&supervisor, bash(&line)).await, "fine\n");
}

#[tokio::test]
async fn a_program_that_is_no_supervisor_is_an_error() {
    let supervisor = Supervisor::new(Program { path: "/no/such/program".into(), args: Vec::new() });
    let reason = refused(&supervisor, bash("true")).await;
    assert!(reason.contains("/no/such/program"), "{reason}");
    let supervisor = Supervisor::new(Program { path: "/bin/true".into(), args: Vec::new() });
    let reason = refused(&supervisor, bash("true")).await;
    assert!(reason.contains("the supervisor"), "{reason}");
}

#[tokio::test]
async fn descendants_are_named_and_ended() {
    let supervisor = supervisor();
    let mark = marker(1);
    let line = format!(
        "setsid sleep {mark} & (setsid sleep {mark} &) ; nohup sleep {mark} >/dev/null 2>&1 & disown -a; read x"
    );
    let mut running = start(&supervisor, with(Stdio::Pipes, &line)).await;
    eventually("all sleep", || sleepers(&mark) == 3).await;
    drop(running.input.take());
    let ended = exit(&mut running).await;
    assert_eq!((ended.status, names(&ended.living)), (Status::Code(1), vec!["sleep"; 3]));
    assert_eq!(names(&running.control.living()), ["sleep"; 3]);
    assert_eq!(with_text(&mark).len(), 3);

    let control = Arc::clone(&running.control);
    control.end();
    control.end();
    eventually("the tree is gone", || control.living().is_empty() && with_text(&mark).is_empty()).await;
    assert_eq!(ended, exit(&mut running).await, "an exit is told once");
}

#[tokio::test]
async fn closing_ends_everything_and_says_what() {
    let supervisor = supervisor();
    let mark = marker(2);
    let mut first = start(&supervisor, with(Stdio::Pipes, &format!("setsid sleep {mark} & disown; read x"))).await;
    eventually("the first sleeps", || sleepers(&mark) == 1).await;
    drop(first.input.take());
    exit(&mut first).await;
    let mut second = start(&supervisor, bash(&format!("echo up; exec sleep {mark}"))).await;
    read_until(&mut second, "up").await;
    eventually("both sleep", || sleepers(&mark) == 2).await;

    assert_eq!(names(&supervisor.close().await), ["sleep", "sleep"]);
    assert_eq!(with_text(&mark), Vec::<u32>::new());
    assert_eq!(exit(&mut second).await.status, Status::Signal(15));
    assert_eq!(supervisor.close().await, Vec::new());
    assert_eq!(said(&supervisor, bash("echo again")).await, "again\n", "a start after a close launches anew");
}

#[tokio::test]
async fn closing_leaves_no_zombie() {
    let supervisor = supervisor();
    let (running, pid) = with_supervisor(&supervisor, "sleep 600").await;
    drop(running);
    supervisor.close().await;
    assert_eq!(stat(pid), None);
}

#[tokio::test]
async fn dropping_a_command_ends_its_tree() {
    let supervisor = supervisor();
    let mark = marker(3);
    let running = start(&supervisor, bash(&format!("setsid sleep {mark} & exec sleep {mark}"))).await;
    eventually("both sleep", || sleepers(&mark) == 2).await;
    drop(running);
    eventually("both are gone", || with_text(&mark).is_empty()).await;
}

#[tokio::test]
async fn what_ignores_sigterm_is_killed_after_its_second() {
    let supervisor = supervisor();
    let mark = marker(4);
    let line = format!("trap '' TERM INT HUP; echo up; sleep {mark}; sleep {mark}");
    let mut running = start(&supervisor, bash(&line)).await;
    read_until(&mut running, "up").await;
    running.control.end();
    let (ended, took) = timed(exit(&mut running)).await;
    assert_eq!(ended.status, Status::Signal(9));
    assert!(took >= Duration::from_millis(900), "it had {took:?} to end by itself");
    eventually("all are gone", || with_text(&mark).is_empty() && running.control.living().is_empty()).await;
}

#[tokio::test]
async fn what_ends_at_sigterm_does_not_wait_for_the_second() {
    let supervisor = supervisor();
    let mut running =
        start(&supervisor, bash("trap 'echo asked; exit 3' TERM; echo up; while :; do sleep 0.01; done")).await;
    read_until(&mut running, "up").await;
    running.control.end();
    read_until(&mut running, "asked").await;
    assert_eq!(exit(&mut running).await.status, Status::Code(3));
    eventually("all are gone", || running.control.living().is_empty()).await;
}

#[tokio::test]
async fn a_stopped_tree_is_ended_too() {
    let supervisor = supervisor();
    let mut running = start(&supervisor, bash("trap 'exit 4' TERM; echo up; kill -STOP $$; exit 5")).await;
    read_until(&mut running, "up").await;
    let control = Arc::clone(&running.control);
    eventually("it is stopped", || {
        control.living().iter().all(|process| stat(process.pid).is_some_and(|stat| stat.0 == "T"))
    })
    .await;
    control.end();
    assert_eq!(exit(&mut running).await.status, Status::Code(4));
}

#[tokio::test]
async fn a_tree_that_ignores_everything_and_forks_is_ended() {
    let supervisor = supervisor();
    let mark = marker(5);
    let line = format!(
        "trap '' TERM INT HUP CHLD; spread() {{ (trap '' TERM HUP; : {mark}; for i in 1 2 3 4 5 6 7 8; do sleep 0.03; \
         (setsid sleep {mark} &); done; sleep {mark}) & }}; echo up; for i in 1 2 3 4 5 6 7 8 9 10; do spread; sleep 0.05; done; \
         while :; do (:) & sleep 0.005; done"
    );
    let mut running = start(&supervisor, bash(&line)).await;
    read_until(&mut running, "up").await;
    eventually("it spreads", || with_text(&mark).len() > 20).await;
    let control = Arc::clone(&running.control);
    control.end();
    assert_eq!(exit(&mut running).await.status, Status::Signal(9));
    eventually("all are gone", || control.living().is_empty() && with_text(&mark).is_empty()).await;
}

#[tokio::test]
async fn an_interrupt_reaches_the_foreground() {
    let supervisor = supervisor();
    for stdio in [Stdio::NoInput, TERMINAL] {
        let mut running = start(&supervisor, with(stdio, "echo up; sleep 600; echo not reached")).await;
        read_until(&mut running, "up").await;
        let control = Arc::clone(&running.control);
        eventually("it sleeps", || names(&control.living()).contains(&"sleep")).await;
        control.interrupt();
        assert_eq!(exit(&mut running).await.status, Status::Signal(2), "{stdio:?}");
        assert!(!output(&mut running).await.contains("not reached"));
        // Nobody is in the foreground any more, and nothing is hit in its place.
        control.interrupt();
    }
}

#[tokio::test]
async fn a_killed_supervisor_takes_its_trees_along() {
    let supervisor = supervisor();
    let mark = marker(6);
    let (mut running, pid) =
        with_supervisor(&supervisor, &format!("trap '' TERM; setsid sleep {mark} & sleep {mark}; sleep {mark}")).await;
    let (mut idle, _) = with_supervisor(&supervisor, &format!("setsid sleep {mark} & disown")).await;
    let ended = exit(&mut idle).await;
    eventually("all sleep", || sleepers(&mark) == 3).await;

    kill(pid, Signal::KILL);
    let (lost, took) = timed(exit(&mut running)).await;
    assert_eq!(lost, Exit { status: Status::Lost, living: Vec::new() });
    assert!(took < Duration::from_secs(5), "it was known only after {took:?}");
    assert_eq!(exit(&mut idle).await, ended, "what has ended has ended");
    assert_eq!(said(&supervisor, bash("echo again")).await, "again\n");
    eventually("all are gone", || with_text(&mark).is_empty()).await;
    assert_eq!(stat(pid), None, "it is reaped");
}

#[tokio::test]
async fn a_killed_keeper_is_answered_for() {
    let supervisor = supervisor();
    let mark = marker(7);
    let other = marker(8);
    let mut bystander = start(&supervisor, bash(&format!("echo up; exec sleep {other}"))).await;
    read_until(&mut bystander, "up").await;

    let mut running = start(&supervisor, bash(&format!("setsid sleep {mark} & kill -9 $PPID; sleep {mark}"))).await;
    assert_eq!(exit(&mut running).await.status, Status::Signal(9));
    let control = Arc::clone(&running.control);
    eventually("the strays are gone", || with_text(&mark).is_empty() && control.living().is_empty()).await;

    assert_eq!(with_text(&other).len(), 1, "another command's tree is no stray");
    assert_eq!(said(&supervisor, bash("echo again")).await, "again\n");
    assert_eq!(names(&supervisor.close().await), ["sleep"]);
}

#[tokio::test]
async fn a_killed_spare_is_replaced() {
    let supervisor = supervisor();
    let (running, pid) = with_supervisor(&supervisor, "sleep 600").await;
    drop(running);
    for _ in 0..3 {
        let spare = || {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
            let mut children = children.split_ascii_whitespace().map(|number| number.parse::<u32>().unwrap());
            children.find(|&pid| lives(pid))
        };
        // Once nothing else happens, the only child is the spare; what has just run may still be leaving.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut found = None;
        eventually("there is a spare", || {
            found = spare();
            found.is_some()
        })
        .await;
        let killed = found.unwrap();
        kill(killed, Signal::KILL);
        eventually("it is reaped", || stat(killed).is_none()).await;
        assert_eq!(said(&supervisor, bash("echo fine")).await, "fine\n");
    }
}

#[tokio::test]
async fn a_dropped_supervisor_ends_everything() {
    let supervisor = supervisor();
    let mark = marker(9);
    let mut running = start(&supervisor, bash(&format!("setsid sleep {mark} & exec sleep {mark}"))).await;
    eventually("both sleep", || sleepers(&mark) == 2).await;
    drop(supervisor);
    assert_eq!(exit(&mut running).await.status, Status::Signal(15));
    eventually("both are gone", || with_text(&mark).is_empty()).await;
}

/// Not a test: what `a_killed_runtime_leaves_nothing` starts and kills.
#[tokio::test]
#[ignore = "does nothing by itself"]
async fn stands_in_for_a_runtime() {
    let Some(told) = std::env::var_os(STAND_IN) else { return };
    let line = fs::read_to_string(&told).unwrap();
    let supervisor = supervisor();
    let _running = start(&supervisor, bash(&line)).await;
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_killed_runtime_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("line");
    let mark = marker(10);
    fs::write(&told, format!("trap '' TERM; setsid sleep {mark} & sleep {mark}; : {mark}")).unwrap();
    let mut runtime = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "supervisor::stands_in_for_a_runtime", "--ignored"])
        .env(STAND_IN, &told)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    eventually("the command runs", || with_text(&mark).len() == 3).await;
    let keeper = with_text(&mark).into_iter().filter_map(stat).map(|(_, parent)| parent);
    let keeper = keeper.into_iter().find(|&pid| comm(pid) == "toolgate-keeper").unwrap();
    let supervisor = stat(keeper).unwrap().1;

    runtime.kill().unwrap();
    runtime.wait().unwrap();
    eventually("everything is gone", || with_text(&mark).is_empty() && !lives(keeper) && !lives(supervisor)).await;
}

#[tokio::test]
async fn a_start_that_nobody_waits_for_is_ended() {
    let supervisor = supervisor();
    let mark = marker(11);
    let permit = permit();
    let dropped = supervisor.start(&permit, bash(&format!("exec sleep {mark}")));
    let _ = tokio::time::timeout(Duration::ZERO, dropped).await;
    assert_eq!(said(&supervisor, bash("echo after")).await, "after\n");
    eventually("it is gone", || with_text(&mark).is_empty()).await;
}

#[tokio::test]
async fn many_at_once_are_kept_apart() {
    let supervisor = Arc::new(supervisor());
    let runs: Vec<_> = (0..40)
        .map(|number| {
            let supervisor = Arc::clone(&supervisor);
            tokio::spawn(async move {
                let mut running = start(&supervisor, bash(&format!("echo {number}; exit {number}"))).await;
                assert_eq!(output(&mut running).await, format!("{number}\n"));
                assert_eq!(exit(&mut running).await.status, Status::Code(number));
            })
        })
        .collect();
    for run in runs {
        run.await.unwrap();
    }
}

#[tokio::test]
async fn the_name_of_a_command_is_only_the_shells() {
    let supervisor = supervisor();
    let mark = marker(12);
    let mut running = start(&supervisor, bash(&format!(": {mark}; echo up; sleep 600; :"))).await;
    read_until(&mut running, "up").await;
    // What it starts has its line for a moment too, and the same name.
    let found = with_text(&mark);
    assert!(!found.is_empty() && found.iter().all(|&pid| comm(pid) == "bash"), "{found:?}");
}

#[tokio::test]
async fn without_a_terminal_the_hosts_is_out_of_reach() {
    let supervisor = supervisor();
    for stdio in [Stdio::NoInput, Stdio::Pipes] {
        let text = said(&supervisor, with(stdio, "(exec </dev/tty) 2>&1; tty; cut -d' ' -f7 /proc/$$/stat")).await;
        assert!(text.contains("No such device or address") && text.ends_with("not a tty\n0\n"), "{text}");
    }
}

#[tokio::test]
async fn a_terminal_is_a_real_one() {
    let supervisor = supervisor();
    let line = "tty; stty size; echo to the terminal >/dev/tty; set -m; sleep 0.1 & fg %1 >/dev/null; echo foreground $?; \
                cat /proc/$$/stat | cut -d' ' -f5,6,8; echo $$";
    let mut running = start(&supervisor, with(TERMINAL, line)).await;
    let text = output(&mut running).await;
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("/dev/pts/"), "{text}");
    assert_eq!(lines[1..4], ["24 120", "to the terminal", "foreground 0"], "{text}");
    assert_eq!(lines[5], lines[4].split(' ').nth(1).unwrap(), "the shell leads its session: {text}");
    assert_eq!(exit(&mut running).await.status, Status::Code(0));

    let mut running = start(&supervisor, with(TERMINAL, "PS1='ready> ' bash --noprofile --norc --noediting -i")).await;
    let banner = read_until(&mut running, "ready> ").await;
    assert!(!banner.contains("no job control"), "{banner}");
    running.control.resize(Size { rows: 50, cols: 77 });
    let mut input = running.input.take().unwrap();
    input.write_all(b"stty size\n").await.unwrap();
    read_until(&mut running, "50 77").await;
    input.write_all(b"sleep 600\n").await.unwrap();
    let control = Arc::clone(&running.control);
    eventually("it sleeps", || names(&control.living()).contains(&"sleep")).await;
    control.interrupt();
    read_until(&mut running, "ready> ").await;
    input.write_all(b"exit 6\n").await.unwrap();
    assert_eq!(exit(&mut running).await.status, Status::Code(6));
}

#[tokio::test]
async fn waiting_for_the_given_input_is_seen() {
    let supervisor = supervisor();
    for (stdio, line) in [
        (Stdio::Pipes, "cat"),
        (Stdio::Pipes, "read x; echo $x"),
        (Stdio::Pipes, "sleep 600 & cat <&0; kill %1"),
        (Stdio::Pipes, "(exec 7<&0; exec cat /dev/fd/7)"),
        (TERMINAL, "cat"),
        (TERMINAL, "read -p 'really? ' x </dev/tty; echo $x"),
        (TERMINAL, "bash --noprofile --norc -i"),
        (TERMINAL, "read -e x; echo $x"),
    ] {
        let running = start(&supervisor, with(stdio, line)).await;
        eventually(&format!("{stdio:?} {line} waits"), || running.control.waits_for_input()).await;
    }
}

#[tokio::test]
async fn other_waiting_is_not_waiting_for_input() {
    let supervisor = supervisor();
    for (stdio, line) in [
        (Stdio::Pipes, "sleep 600"),
        (Stdio::Pipes, "sleep 600 | cat"),
        (Stdio::Pipes, "sleep 600 | while read -r line; do :; done"),
        (Stdio::NoInput, "sleep 600 | cat"),
        (TERMINAL, "sleep 600 | cat"),
    ] {
        let running = start(&supervisor, with(stdio, line)).await;
        let control = Arc::clone(&running.control);
        eventually("it sleeps", || names(&control.living()).contains(&"sleep")).await;
        for _ in 0..20 {
            assert!(!running.control.waits_for_input(), "{stdio:?} {line}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn input_arrives_and_its_end_too() {
    let supervisor = supervisor();
    let mut running = start(&supervisor, with(Stdio::Pipes, "cat; echo the end")).await;
    let mut input = running.input.take().unwrap();
    input.write_all(b"one\n").await.unwrap();
    read_until(&mut running, "one\n").await;
    eventually("cat waits again", || running.control.waits_for_input()).await;
    drop(input);
    assert_eq!(output(&mut running).await, "the end\n");
    assert!(!running.control.waits_for_input(), "what has ended does not wait");
}

#[tokio::test]
async fn nothing_of_the_runtime_is_left_open_in_the_supervisor() {
    let file = fs::File::open("/dev/zero").unwrap();
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
    let supervisor = supervisor();
    let mut running = start(&supervisor, bash("echo $PPID .; sleep 600")).await;
    let said = read_until(&mut running, ".").await;
    let keeper: u32 = said.split_ascii_whitespace().next().unwrap().parse().unwrap();
    let open = |pid: u32| {
        let folder = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")).unwrap();
        let mut links: Vec<String> =
            folder.filter_map(|entry| Some(fs::read_link(entry.ok()?.path()).ok()?.display().to_string())).collect();
        links.sort();
        links.iter_mut().for_each(|link| link.truncate(link.find(':').unwrap_or(link.len())));
        links
    };
    let control = Arc::clone(&running.control);
    eventually("the keeper has let go", || open(keeper) == ["/dev/null", "/dev/null", "socket"]).await;
    let of_supervisor = open(stat(keeper).unwrap().1);
    assert!(!of_supervisor.iter().any(|link| link == "/dev/zero" || link == "pipe"), "{of_supervisor:?}");
    drop(file);
    control.end();
}
