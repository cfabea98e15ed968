//! The file tools through the door, on real files.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
};

use serde_json::{Value, json};
use toolgate_core::outcome::StopReason;
use toolgate_runtime::environment::CallEnd;

use crate::support::House;

/// A house whose files are what the shell line makes.
async fn house(setup: &str) -> House {
    let house = House::new();
    let made = house.sh(setup).await;
    assert_eq!(made.stop_reason, Some(StopReason::Completed), "{}", made.output);
    house
}

/// The output of one call, and whether it completed.
async fn call(house: &House, name: &str, arguments: Value) -> (String, bool) {
    let output = house.call(name, arguments).await;
    (output.output, output.stop_reason == Some(StopReason::Completed))
}

async fn read(house: &House, arguments: Value) -> (String, bool) {
    call(house, "read", arguments).await
}

#[tokio::test]
async fn read_shows_windows_and_says_how_to_go_on() {
    let house = house(
        "seq 100 > s; seq 2500 > long; : > empty; printf 'one\\ntwo' > open; yes 'x' | head -3 | tr -d '\\n' > x",
    )
    .await;
    for (arguments, output, completed) in [
        (json!({"path": "x"}), "xxx", true),
        (json!({"path": "open"}), "one\ntwo", true),
        (json!({"path": "empty"}), "(empty file) empty has 0 lines", true),
        (json!({"path": "s", "limit": 2}), "1\n2\n[lines 1-2 of 100; 98 more lines; go on with offset 3]", true),
        (json!({"path": "s", "offset": 99}), "99\n100", true),
        (
            json!({"path": "s", "offset": 41, "limit": 1}),
            "41\n[lines 41-41 of 100; 59 more lines; go on with offset 42]",
            true,
        ),
        (
            json!({"path": "s", "offset": 100, "limit": "1", "line_numbers": true}),
            "[argument /limit read as a number]\n   100\t100",
            true,
        ),
        (json!({"path": "s", "offset": 101}), "[offset 101 is past the end of s (100 lines)]", false),
    ] {
        let (found, done) = read(&house, arguments.clone()).await;
        let found = if arguments["limit"] == "1" { put_first(&found) } else { found };
        assert_eq!((found.as_str(), done), (output, completed), "{arguments}");
    }
    let (found, _) = read(&house, json!({"path": "long"})).await;
    assert!(
        found.ends_with("\n2000\n[lines 1-2000 of 2500; 500 more lines; go on with offset 2001]"),
        "{}",
        &found[found.len() - 90..]
    );
    for wrong in [
        json!({"path": "s", "limit": 0}),
        json!({"path": "s", "offset": 0}),
        json!({"path": "s", "offset": -1}),
        json!({}),
    ] {
        let (found, done) = read(&house, wrong.clone()).await;
        assert!(!done && found.contains("Invalid arguments for read"), "{wrong}: {found}");
    }
}

/// Notes of the check stand behind the output; here they are wanted in front.
fn put_first(output: &str) -> String {
    let (text, note) = output.rsplit_once('\n').unwrap();
    format!("{note}\n{text}")
}

#[tokio::test]
async fn read_says_what_is_no_text_file() {
    let house = house(
        "mkfifo pipe; ln -s pipe to_pipe; ln -s nowhere dead; ln -s round round; mkdir -p folder/sub; touch folder/a; head -c 4096 /bin/ls > b.bin; \
         python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; touch report.txt; echo x > notes",
    )
    .await;
    for (path, part) in [
        ("/dev/zero", "/dev/zero is a device, not a file"),
        ("/dev/urandom", "a device"),
        ("/dev/tty", "a device"),
        ("/proc/kmsg", "a device"),
        ("pipe", "pipe is a named pipe, not a file"),
        ("to_pipe", "a named pipe"),
        ("sock", "a socket"),
        (".", "is a folder, not a file; it holds b.bin, dead, folder/, notes"),
        ("folder", "it holds a, sub/"),
        ("dead", "dead does not exist; the workspace has"),
        ("round", "goes round in links"),
        ("reprot.txt", "does not exist; the workspace has report.txt"),
        ("folder/x/y", "does not exist; folder has a, sub/"),
        ("notes/x", "does not exist: notes is a file, not a folder"),
        ("b.bin", "b.bin is a binary file (a program (ELF), 4.1 kB)"),
        ("a\0b", "NUL"),
    ] {
        let (found, done) = read(&house, json!({"path": path})).await;
        assert!(!done && found.contains(part), "{path}: {found}");
    }
}

#[tokio::test]
async fn files_that_are_made_while_they_are_read_come_to_an_end() {
    let house = House::new();
    let (found, done) = read(&house, json!({"path": "/proc/self/status"})).await;
    assert!(done && found.starts_with("Name:"), "{found}");
    let (found, done) = read(&house, json!({"path": "/proc/version"})).await;
    assert!(done && found.contains("Linux version"), "{found}");
}

#[tokio::test]
async fn read_file_is_the_other_parents_form() {
    let house = house("printf 'one\\r\\ntwo\\r\\n' > crlf; seq 3000 > s; python3 -c 'print(\"y\"*3000)' > wide; : > empty; head -c 100 /bin/ls > b").await;
    for (arguments, output) in [
        (json!({"file_path": "crlf"}), "     1\tone\n     2\ttwo\n[file uses CRLF line endings]".to_owned()),
        (
            json!({"file_path": "s", "offset": 2.9, "limit": 1}),
            "     2\t2\n[lines 2-2 of 3000; 2998 more lines; go on with offset 3]".to_owned(),
        ),
        (
            json!({"file_path": "s", "offset": -7, "limit": 1}),
            "     1\t1\n[lines 1-1 of 3000; 2999 more lines; go on with offset 2]".to_owned(),
        ),
        (json!({"file_path": "wide"}), format!("     1\t{}… [line truncated]", "y".repeat(2000))),
        (json!({"file_path": "empty"}), "(empty file) empty has 0 lines".to_owned()),
    ] {
        assert_eq!(call(&house, "read_file", arguments.clone()).await, (output, true), "{arguments}");
    }
    let (found, _) = call(&house, "read_file", json!({"file_path": "s"})).await;
    assert!(found.contains("\n  2000\t2000\n[lines 1-2000 of 3000; "), "2000 lines are the default");
    for (arguments, part) in [
        (json!({"file_path": "s", "limit": 0}), "Invalid arguments"),
        (json!({"file_path": "s", "offset": "x"}), "Invalid arguments"),
        (json!({"file_path": "s", "offset": 9999}), "past the end of s (3000 lines)"),
        (json!({"file_path": "b"}), "binary file"),
    ] {
        let (found, done) = call(&house, "read_file", arguments.clone()).await;
        assert!(!done && found.contains(part), "{arguments}: {found}");
    }
}

#[tokio::test]
async fn any_name_can_be_listed_and_read() {
    let house = House::new();
    let names: [&[u8]; 6] = [b"plain", b"two\nlines", b"caf\xe9", b"\xff", b"-x", b"#.md"];
    for name in names {
        fs::write(house.work().join(OsStr::from_bytes(name)), "content").unwrap();
    }
    fs::create_dir(house.work().join("Folder")).unwrap();
    symlink("Folder", house.work().join("link")).unwrap();
    symlink("nowhere", house.work().join("dead")).unwrap();
    let (listed, _) = call(&house, "ls", json!({})).await;
    assert_eq!(listed, "#.md\n-x\n\"caf\\xe9\"\ndead\nFolder/\nlink/\nplain\n\"two\\nlines\"\n\"\\xff\"\n");
    for line in listed.lines().filter(|line| !line.ends_with('/') && *line != "dead") {
        assert_eq!(read(&house, json!({"path": line})).await, ("content".into(), true), "{line}");
    }
    let (listed, _) = call(&house, "ls", json!({"limit": 2})).await;
    assert_eq!(listed, "#.md\n-x\n[2 of 9 names; limit=4 shows more]");
    assert_eq!(call(&house, "ls", json!({"path": "Folder"})).await.0, "(empty folder)");
    for (path, part) in [("plain", "plain is a file, not a folder"), ("nope", "does not exist")] {
        let (found, done) = call(&house, "ls", json!({"path": path})).await;
        assert!(!done && found.contains(part), "{found}");
    }
}

#[tokio::test]
async fn what_was_decided_on_is_what_is_opened() {
    let house = House::new();
    fs::write(house.folder.path().join("secret"), "secret").unwrap();
    fs::write(house.work().join("a"), "mine").unwrap();
    symlink("a", house.work().join("link")).unwrap();
    assert_eq!(read(&house, json!({"path": "link"})).await, ("mine".into(), true));
    // A link that leaves is outside, and opened there.
    symlink("../secret", house.work().join("out")).unwrap();
    assert_eq!(read(&house, json!({"path": "out"})).await, ("secret".into(), true));
    assert_eq!(read(&house, json!({"path": "~/secret"})).await, ("secret".into(), true));
}

#[tokio::test]
async fn write_makes_and_overwrites_and_shows_what_changed() {
    let house = House::new();
    let long: String = (0..2000).map(|n| format!("{n}\n")).collect();
    for (arguments, said) in [
        (
            json!({"path": "new/folder/a", "content": "one\ntwo\n"}),
            "Created new/folder/a (2 lines, 8 bytes)".to_owned(),
        ),
        (
            json!({"path": "new/folder/a", "content": "one\ntwo\n"}),
            "Overwrote new/folder/a (2 lines, 8 bytes)\n(content unchanged)".to_owned(),
        ),
        (
            json!({"path": "new/folder/a", "content": "one\nTWO\n"}),
            "Overwrote new/folder/a (2 lines, 8 bytes)\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO".to_owned(),
        ),
        (
            json!({"path": "new/folder/a", "content": long}),
            "Overwrote new/folder/a (2000 lines, 8890 bytes)\n+2000/−2 lines (too many to show)".to_owned(),
        ),
        (json!({"path": "e", "content": ""}), "Created e (0 lines, 0 bytes)".to_owned()),
    ] {
        assert_eq!(call(&house, "write", arguments).await, (said, true));
    }
    assert_eq!(
        call(&house, "write_file", json!({"file_path": "w", "content": "x"})).await,
        ("Created w (1 lines, 1 bytes)".into(), true)
    );
    assert_eq!(fs::read_to_string(house.work().join("new/folder/a")).unwrap(), long);
    let (found, done) = call(&house, "write", json!({"path": "x"})).await;
    assert!(!done && found.contains("`content` is required") && !house.work().join("x").exists(), "{found}");
    for (path, part) in
        [(".", "is a folder, not a file"), ("e/x", "e is a file, not a folder"), ("/dev/null", "is a device")]
    {
        let (found, done) = call(&house, "write", json!({"path": path, "content": ""})).await;
        assert!(!done && found.contains(part), "{path}: {found}");
    }
    let left: Vec<_> = fs::read_dir(house.work()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "no temporary file is left: {left:?}");
}

#[tokio::test]
async fn write_keeps_what_belongs_to_the_file() {
    let house = house(
        "printf 'l1\\r\\nl2\\r\\n' > crlf; printf 'a\\r\\nb\\n' > mixed; echo old > script; chmod 750 script; echo real > real; ln -s real link; \
         echo two > one_name; ln one_name other_name; setfattr -n user.note -v kept script 2>/dev/null || true",
    )
    .await;
    let write =
        async |path: &str, content: &str| call(&house, "write", json!({"path": path, "content": content})).await;
    let bytes = |path: &str| fs::read(house.work().join(path)).unwrap();
    let (said, _) = write("crlf", "x\ny\n").await;
    assert!(said.ends_with("[the file's CRLF line endings were kept]"), "{said}");
    assert_eq!(bytes("crlf"), b"x\r\ny\r\n");
    write("mixed", "x\ny\n").await;
    assert_eq!(bytes("mixed"), b"x\ny\n", "where the ends are mixed the content is literal");
    write("script", "new\n").await;
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(house.work().join("script")).unwrap().permissions());
    assert_eq!((bytes("script"), mode & 0o7777), (b"new\n".to_vec(), 0o750));
    write("link", "new\n").await;
    assert!(fs::symlink_metadata(house.work().join("link")).unwrap().is_symlink());
    assert_eq!(bytes("real"), b"new\n", "the link's target is written");
    write("one_name", "new\n").await;
    assert_eq!(bytes("other_name"), b"new\n", "both names are still of one file");
    symlink("made/here", house.work().join("dangling")).unwrap();
    write("dangling", "x").await;
    assert_eq!(bytes("made/here"), b"x");
}

#[tokio::test]
async fn a_change_by_somebody_else_is_told_by_content() {
    let house = house("echo one > a").await;
    let write = async |content: &str| call(&house, "write", json!({"path": "a", "content": content})).await;
    read(&house, json!({"path": "a"})).await;
    house.sh("touch -d '2001-01-01' a").await;
    assert!(write("two\n").await.1, "touched is not changed");
    assert!(write("three\n").await.1, "and its own change is none");
    house.sh("echo theirs > a").await;
    let (found, done) = write("four\n").await;
    assert!(!done && found.contains("has changed since it was read here"), "{found}");
    assert_eq!(fs::read_to_string(house.work().join("a")).unwrap(), "theirs\n");
    read(&house, json!({"path": "a"})).await;
    assert!(write("four\n").await.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_one_answer_that_touch_the_same_file_keep_their_order() {
    let house = House::new();
    symlink("a", house.work().join("alias")).unwrap();
    for round in 0..20 {
        let calls = [
            ("write", json!({"path": "a", "content": format!("{round} first")})),
            ("read", json!({"path": "alias"})),
            ("write", json!({"path": "alias", "content": format!("{round} second")})),
            ("ls", json!({})),
            ("read", json!({"path": "a"})),
        ];
        let calls = calls.map(|(name, arguments)| house.tool_call(name, &arguments.to_string())).to_vec();
        let ends = house.env.call_all(calls, &house.interrupt).await.unwrap();
        let outputs: Vec<String> = ends
            .into_iter()
            .map(|end| if let CallEnd::Closed(output, _) = end { output.output } else { panic!("open") })
            .collect();
        assert_eq!(
            (outputs[1].as_str(), outputs[4].as_str()),
            (&*format!("{round} first"), &*format!("{round} second"))
        );
        assert_eq!(outputs[3], "a\nalias\n");
    }
}
