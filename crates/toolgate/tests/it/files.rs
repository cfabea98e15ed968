//! The file tools where the system says no, as a user without rights and on a full disk; and where several edit one file: processes, and a
//! model in one answer.

use std::{
    fs::{self, File},
    os::{
        fd::AsRawFd,
        unix::{fs::PermissionsExt, process::CommandExt},
    },
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use serde_json::{Value, json};

use crate::support::{Place, outcome};

/// A user that owns nothing.
const NOBODY: u32 = 65_534;

/// One call by a user without rights, in a place that was made over to that user.
fn call(place: &Place, tool: &str, arguments: &Value) -> (i32, String) {
    let prepared = place.toolgate(&[]);
    let mut command = if is_root() {
        // The program may lie where that user cannot go, so it is started by its open file.
        let program = File::open(env!("CARGO_BIN_EXE_toolgate")).unwrap();
        rustix::io::fcntl_setfd(&program, rustix::io::FdFlags::empty()).unwrap();
        let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        std::mem::forget(program);
        command.uid(NOBODY).gid(NOBODY);
        command
    } else {
        Command::new(env!("CARGO_BIN_EXE_toolgate"))
    };
    command.args(["call", tool, &arguments.to_string()]).current_dir(place.work()).env_clear();
    for (name, value) in prepared.get_envs() {
        command.env(name, value.unwrap());
    }
    let (code, out, _) = outcome(command.output().unwrap());
    (code, out)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Gives everything below a folder to that user, and the folder too.
fn give(path: &std::path::Path) {
    if !is_root() {
        return;
    }
    std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if fs::symlink_metadata(path).unwrap().is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| give(&entry.unwrap().path()));
    }
}

fn place() -> Place {
    let place = Place::new();
    let work = place.work();
    fs::write(work.join("readonly"), "old\n").unwrap();
    fs::write(work.join("secret"), "old\n").unwrap();
    fs::create_dir(work.join("closed")).unwrap();
    fs::write(work.join("closed/open_file"), "old\n").unwrap();
    fs::create_dir(work.join("locked")).unwrap();
    fs::write(work.join("locked/in"), "old\n").unwrap();
    give(work.parent().unwrap());
    for (path, mode) in [("readonly", 0o444), ("secret", 0o000), ("closed", 0o555), ("locked", 0o000)] {
        fs::set_permissions(work.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    place
}

fn one_edit(path: &str) -> Value {
    json!({"path": path, "edits": [{"oldText": "old", "newText": "new"}]})
}

#[test]
fn what_a_user_may_not_do_is_said_and_nothing_is_damaged() {
    let place = place();
    for (tool, arguments, part) in [
        ("write", json!({"path": "readonly", "content": "new"}), "readonly: permission denied (EACCES)"),
        ("write", json!({"path": "closed/new", "content": "new"}), "closed/new: permission denied (EACCES)"),
        ("write", json!({"path": "locked/in", "content": "new"}), "permission denied (EACCES)"),
        ("write", json!({"path": "/proc/version", "content": "new"}), "permission denied (EACCES)"),
        ("edit", one_edit("readonly"), "readonly: permission denied (EACCES)"),
        ("edit", one_edit("secret"), "secret: permission denied (EACCES)"),
        ("edit", one_edit("locked/in"), "permission denied (EACCES)"),
        ("grep", json!({"path": "secret", "pattern": "old"}), "secret: permission denied (EACCES)"),
        ("grep", json!({"path": "locked", "pattern": "old"}), "locked: permission denied (EACCES)"),
        ("find", json!({"path": "locked", "pattern": "*"}), "locked: permission denied (EACCES)"),
        ("read", json!({"path": "secret"}), "secret: permission denied (EACCES)"),
        ("read", json!({"path": "locked/in"}), "permission denied (EACCES)"),
        ("ls", json!({"path": "locked"}), "permission denied (EACCES)"),
    ] {
        let (code, out) = call(&place, tool, &arguments);
        assert!(code == 1 && out.contains(part), "{tool} {arguments}: {code} {out}");
    }
    for (path, mode) in [("secret", 0o600), ("locked", 0o700)] {
        fs::set_permissions(place.work().join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    for path in ["readonly", "secret", "locked/in"] {
        assert_eq!(fs::read_to_string(place.work().join(path)).unwrap(), "old\n", "{path}");
    }
    // The folder takes no new names, but the file itself may be written: as any other program would.
    assert_eq!(call(&place, "edit", &one_edit("closed/open_file")).0, 0);
    assert_eq!(fs::read_to_string(place.work().join("closed/open_file")).unwrap(), "new\n");
    assert_eq!(call(&place, "write", &json!({"path": "closed/open_file", "content": "newer\n"})).0, 0);
    assert_eq!(fs::read_to_string(place.work().join("closed/open_file")).unwrap(), "newer\n");
    fs::set_permissions(place.work().join("closed"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_full_disk_leaves_the_old_file_whole() {
    let place = Place::new();
    let work = place.work();
    fs::create_dir(work.join("small")).unwrap();
    let content = "x".repeat(100_000);
    // A filesystem of its own, seen by this shell alone.
    let script = format!(
        "mount -t tmpfs -o size=64k tmpfs small && echo old > small/one && ln small/one small/other && echo old > small/alone
         for path in alone one new; do \"$0\" call write \"$(printf '{{\"path\":\"small/%s\",\"content\":\"%s\"}}' $path {content})\"; echo \"code $?\"; done
         cat small/one small/alone; ls -A small"
    );
    let mut command = Command::new("unshare");
    command.args(if is_root() { &["-m"][..] } else { &["-rm"] }).args([
        "sh",
        "-c",
        &script,
        env!("CARGO_BIN_EXE_toolgate"),
    ]);
    command.current_dir(&work).env("HOME", place.home()).env("TMPDIR", place.work().parent().unwrap());
    let (_, out, error) = outcome(command.output().unwrap());
    assert_eq!(out.matches("no space is left on the filesystem (ENOSPC)").count(), 3, "{out} {error}");
    assert_eq!(out.matches("code 1").count(), 3, "{out}");
    assert!(out.ends_with("old\nold\nalone\none\nother\n"), "{out}");
}

/// Edits of one file by each of the processes that edit it at the same time.
const EDITS: usize = 12;

#[test]
fn processes_that_edit_one_file_all_land_and_nobody_sees_half_of_it() {
    let place = Place::new();
    let file = place.work().join("f");
    let long = "x".repeat(100_000);
    let text = |one: usize, other: usize| format!("one {one}\n{long}\nother {other}\n");
    fs::write(&file, text(0, 0)).unwrap();
    std::os::unix::fs::symlink("f", place.work().join("link")).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut seen = 0;
            while !is_over.load(Ordering::SeqCst) {
                let found = fs::read_to_string(&file).unwrap();
                let is_whole = (0..=EDITS).any(|one| {
                    found.starts_with(&format!("one {one}\n{long}\nother "))
                        && (0..=EDITS).any(|other| found == text(one, other))
                });
                assert!(is_whole, "{} bytes", found.len());
                seen += 1;
            }
            seen
        });
        let edit = |name: &'static str, path: &'static str| {
            let place = &place;
            move || {
                for n in 0..EDITS {
                    let (old, new) = (format!("{name} {n}\n"), format!("{name} {}\n", n + 1));
                    let arguments = json!({"path": path, "edits": [{"oldText": old, "newText": new}]});
                    let (code, out, err) = place.run(&["call", "edit", &arguments.to_string()]);
                    assert_eq!(code, 0, "{out} {err}");
                }
            }
        };
        let (one, other) = (scope.spawn(edit("one", "f")), scope.spawn(edit("other", "link")));
        let ends = [one.join(), other.join()];
        is_over.store(true, Ordering::SeqCst);
        assert!(ends.iter().all(Result::is_ok) && watch.join().unwrap() > 0);
    });
    assert_eq!(fs::read_to_string(&file).unwrap(), text(EDITS, EDITS));
    assert_eq!(fs::read_dir(place.work()).unwrap().count(), 2, "no temporary file is left");
}

#[test]
fn a_model_edits_a_file_twenty_times_in_one_answer_and_another_one_in_utf_16() {
    let place = Place::new();
    let wide = |text: &str| format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let mut lines: Vec<String> = (1..=5000).map(|line| format!("This is line number {line}\n")).collect();
    fs::write(place.work().join("my.txt"), lines.concat()).unwrap();
    fs::write(place.work().join("wide.txt"), wide("one\r\ntw\u{f6} \u{4e2d}\r\n")).unwrap();
    let call =
        |path: &str, old: &str, new: &str| json!(["edit", {"path": path, "edits": [{"oldText": old, "newText": new}]}]);
    let mut calls = vec![call("wide.txt", "one\ntw\u{f6}", "one\n\u{1f600}\ntw\u{f6}")];
    for n in 0..20 {
        let new = if n % 2 == 0 { format!("{n}\n") } else { format!("{n} {}\n", "longer ".repeat(n)) };
        calls.push(call("my.txt", &lines[n * 200], &new));
        lines[n * 200] = new;
    }
    let script = place.script(&json!([{ "calls": calls }, { "text": "done" }]));
    let run = ["run", "go", "--api", "script", "--model", &script, "--tools", "coding", "--approve", "allow-all"];
    let (code, out, err) = place.run(&run);
    assert_eq!(code, 0, "{out} {err}");
    assert_eq!(fs::read_to_string(place.work().join("my.txt")).unwrap(), lines.concat());
    let expected = wide("one\r\n\u{1f600}\r\ntw\u{f6} \u{4e2d}\r\n");
    assert_eq!(fs::read(place.work().join("wide.txt")).unwrap(), expected);
    let records = place.records();
    let results: Vec<&Value> = records
        .iter()
        .map(|record| &record["payload"])
        .filter(|payload| payload["type"] == "tool_call_output" && payload["stop_reason"] == "completed")
        .collect();
    assert_eq!(results.len(), 21, "each call has its result: {results:?}");
    assert!(results.iter().all(|result| result["output"].as_str().unwrap().starts_with("Replaced 1 occurrence in")));
}
