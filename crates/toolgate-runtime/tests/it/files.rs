//! The file tools through the door, on real files.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
};

use serde_json::{Value, json};
use toolgate_core::{config::ToolDefinition, outcome::StopReason};
use toolgate_runtime::{
    environment::CallEnd,
    registry::{Registry, named},
    tools::builtin,
};

use crate::support::{House, Plan};

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
        "seq 100 > s; seq 2500 > long; seq 2000 > just; yes $(printf 'x%.0s' $(seq 200)) | head -500 > wide; : > empty; printf 'one\\ntwo' > open; yes 'x' | head -3 | tr -d '\\n' > x",
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
        // More than can be counted is past the end too, and never the first line.
        (json!({"path": "s", "offset": 1e20}), "[offset 18446744073709551615 is past the end of s (100 lines)]", false),
        (json!({"path": "s", "offset": 100, "limit": 1e20}), "100", true),
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
    let (found, _) = read(&house, json!({"path": "just"})).await;
    assert!(found.ends_with("\n1999\n2000"), "what just fits is all there is to say");
    let (found, _) = read(&house, json!({"path": "wide"})).await;
    assert!(
        found.ends_with("x\n[lines 1-254 of 500 (the most for one answer); 246 more lines; go on with offset 255]"),
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

#[tokio::test]
async fn how_to_go_on_is_said_whatever_the_bound_and_the_size() {
    let small = |name: &str| {
        let (tools, mut registry) = (builtin(), Registry::default());
        let (tool, form) = named(&tools, name).unwrap();
        let entry: ToolDefinition = serde_json::from_value(json!({"name": name, "maxOutputLength": 40})).unwrap();
        registry.add_as(tool.clone(), entry.applied_to(form).unwrap()).unwrap();
        House::build(Plan { registry: Some(registry), ..Plan::default() })
    };
    for (name, path, shown) in [("read", "path", "0\n1\n2\n"), ("read_file", "file_path", "     1\t0\n     2\t1\n")] {
        let house = small(name);
        fs::write(house.work().join("f"), (0..100).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        let (mut next, mut lines) = (1, 0);
        while next <= 100 {
            let (found, done) = call(&house, name, json!({path: "f", "offset": next})).await;
            assert!(done && (next > 1 || found.starts_with(shown)), "{found}");
            let Some((text, note)) = found.rsplit_once("\n[lines ") else {
                lines += found.lines().count();
                break;
            };
            assert!(text.len() <= 40, "{found}");
            lines += text.lines().count();
            let (_, offset) = note.rsplit_once("go on with offset ").unwrap();
            next = offset.trim_end_matches(']').parse().unwrap();
            assert_eq!(lines + 1, next, "{found}");
        }
        assert_eq!(lines, 100, "{name}: every line is shown once");
    }
    // Lines far behind the window are not counted, and a window stands as far behind as anybody likes.
    let house = house("seq 3000000 > many; seq 1000000 | head -c -1 > open").await;
    let (found, _) = read(&house, json!({"path": "many", "limit": 1})).await;
    assert!(found.starts_with("1\n[lines 1-1 of more than 1") && found.ends_with("; go on with offset 2]"), "{found}");
    for (path, offset, output) in [("many", 2_999_999, "2999999\n3000000"), ("open", 1_000_000, "1000000")] {
        assert_eq!(read(&house, json!({"path": path, "offset": offset})).await, (output.into(), true));
    }
    let (found, _) = read(&house, json!({"path": "open", "offset": 2_000_000})).await;
    assert_eq!(found, "[offset 2000000 is past the end of open (1000000 lines)]");
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
        ("dead", "dead does not exist: it is a link to nowhere, and nothing is there"),
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
async fn no_tool_opens_what_is_no_file() {
    let house = house(
        "mkfifo pipe; ln -s pipe to_pipe; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; \
         ln -s /dev/zero zero; ln -s /proc/kmsg kmsg; ln -s b a; ln -s a b; mkdir folder",
    )
    .await;
    for (path, part) in [
        ("pipe", "is a named pipe, not a file"),
        ("to_pipe", "is a named pipe, not a file"),
        ("folder/../pipe", "is a named pipe, not a file"),
        ("sock", "is a socket, not a file"),
        ("/dev/zero", "is a device, not a file"),
        ("zero", "is a device, not a file"),
        ("/proc/kmsg", "is a device, not a file"),
        ("kmsg", "is a device, not a file"),
        ("a", "goes round in links"),
        ("a/x", "goes round in links"),
    ] {
        for (tool, arguments) in [
            ("read", json!({"path": path})),
            ("read_file", json!({"file_path": path})),
            ("edit", json!({"path": path, "edits": [{"oldText": "a", "newText": "b"}]})),
            ("edit_file", json!({"file_path": path, "old_string": "a", "new_string": "b"})),
            ("write", json!({"path": path, "content": "b"})),
            ("write_file", json!({"file_path": path, "content": "b"})),
            ("grep", json!({"path": path, "pattern": "a"})),
        ] {
            let (found, done) = call(&house, tool, arguments).await;
            assert!(!done && found.contains(part), "{tool} {path}: {found}");
        }
    }
}

#[tokio::test]
async fn the_exact_name_is_meant_and_a_look_alike_only_where_it_is_alone() {
    let house = House::new();
    let put = |name: &str, content: &str| {
        let path = house.work().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    put("Screenshot at 3.00.00\u{202f}p.m..txt", "narrow");
    put("a\u{a0}b.txt", "NBSP");
    put("a b.txt", "SPACE");
    put("it\u{2019}s.md", "curly");
    put("cafe\u{301}.txt", "apart");
    put("d\u{a0}e/f\u{2009}g", "deep");
    put("q\u{a0}r", "one");
    put("q\u{202f}r", "two");
    for (path, output) in [
        ("Screenshot at 3.00.00\u{202f}p.m..txt", "narrow"),
        ("Screenshot at 3.00.00 p.m..txt", "narrow"),
        ("a\u{a0}b.txt", "NBSP"),
        ("a b.txt", "SPACE"),
        ("it's.md", "curly"),
        ("caf\u{e9}.txt", "apart"),
        ("d e/f g", "deep"),
        ("q\u{202f}r", "two"),
        (r#""q\xc2\xa0r""#, "one"),
    ] {
        assert_eq!(read(&house, json!({"path": path})).await, (output.into(), true), "{path}");
    }
    let write = json!({"path": "q r", "content": "x"});
    let edit = json!({"path": "q r", "edits": [{"oldText": "one", "newText": "x"}]});
    for (tool, arguments) in [("read", json!({"path": "q r"})), ("write", write), ("edit", edit)] {
        let (found, done) = call(&house, tool, arguments).await;
        let names = r#"several names look the same: "q\xc2\xa0r", "q\xe2\x80\xafr"; give the exact one"#;
        assert!(!done && found.contains(names), "{tool}: {found}");
    }
}

#[tokio::test]
async fn links_stay_and_their_targets_are_read_and_changed() {
    let house = house(
        "mkdir -p real/sub; echo old > real/sub/f; ln -s real middle; ln -s ../real/sub real/again; ln -s middle/again/f end; \
         ln -s end chain; ln -s $PWD/real/sub/f absolute; ln real/sub/f other_name",
    )
    .await;
    let ways = ["middle/sub/f", "middle/again/f", "end", "chain", "absolute", "./middle/../middle/sub/f", "other_name"];
    for (round, path) in ways.iter().enumerate() {
        let old = if round == 0 { "old".to_owned() } else { format!("{}", round - 1) };
        let edit = json!({"path": path, "edits": [{"oldText": old, "newText": round.to_string()}]});
        assert!(call(&house, "edit", edit).await.1, "{path}");
        assert_eq!(read(&house, json!({"path": path})).await, (round.to_string(), true), "{path}");
        assert_eq!(
            call(&house, "grep", json!({"path": path, "pattern": "."})).await.0.split_once(": ").unwrap().1,
            format!("{round}\n")
        );
    }
    for link in ["middle", "real/again", "end", "chain", "absolute"] {
        assert!(fs::symlink_metadata(house.work().join(link)).unwrap().is_symlink(), "{link}");
    }
    for name in ["real/sub/f", "other_name"] {
        assert_eq!(fs::read_to_string(house.work().join(name)).unwrap(), "6\n", "{name}");
    }
}

/// Bytes of a text in UTF-16 behind its mark.
fn wide(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    format!("\u{feff}{text}").encode_utf16().flat_map(bytes).collect()
}

#[tokio::test]
async fn what_is_shown_of_any_text_can_be_edited_and_no_other_byte_changes() {
    let house = House::new();
    let crlf = "[file uses CRLF line endings]";
    let latin = "[some bytes are no UTF-8; their lines are shown as Windows-1252 (Latin-1)]";
    let picture = "[control characters are shown as pictures, such as \u{241b} for ESC and \u{240d} for a lone CR; an edit names the characters themselves]";
    let text = "one\r\ntw\u{f6} \u{201c}q\u{201d}\r\n";
    let other = "one\r\ntw\u{f6}\r\nx \u{201c}q\u{201d}\r\n";
    let shown = "one\ntw\u{f6} \u{201c}q\u{201d}\n";
    for (name, content, output, (old, new), expected) in [
        (
            "UTF-16LE",
            wide(text, u16::to_le_bytes),
            format!("{shown}[the file is UTF-16LE; an edit keeps that]\n{crlf}"),
            ("one\ntw\u{f6}", "one\ntw\u{f6}\nx"),
            wide(other, u16::to_le_bytes),
        ),
        (
            "UTF-16BE",
            wide(text, u16::to_be_bytes),
            format!("{shown}[the file is UTF-16BE; an edit keeps that]\n{crlf}"),
            ("tw\u{f6}", "tw\u{f6}\nx"),
            wide(other, u16::to_be_bytes),
        ),
        (
            "half a unit",
            [wide("a\n", u16::to_le_bytes), b"x".to_vec()].concat(),
            "a\n\u{fffd}\n[the file is UTF-16LE; an edit keeps that]".into(),
            ("a", "b"),
            [wide("b\n", u16::to_le_bytes), b"x".to_vec()].concat(),
        ),
        (
            "half a pair",
            b"\xff\xfea\0\0\xd8b\0".to_vec(),
            "a\u{fffd}b\n[the file is UTF-16LE; an edit keeps that]".into(),
            ("b", "c"),
            b"\xff\xfea\0\0\xd8c\0".to_vec(),
        ),
        (
            "UTF-8 with a mark",
            b"\xef\xbb\xbf# T\n".to_vec(),
            "# T".into(),
            ("# T", "# N"),
            b"\xef\xbb\xbf# N\n".to_vec(),
        ),
        ("CRLF", b"a\r\nb\r\n".to_vec(), format!("a\nb\n{crlf}"), ("a\nb", "a\nx\nb"), b"a\r\nx\r\nb\r\n".to_vec()),
        (
            "lone CR",
            b"a\rb\rc".to_vec(),
            "a\nb\nc\n[file uses CR line endings]".into(),
            ("a\nb", "a\nx\nb"),
            b"a\rx\rb\rc".to_vec(),
        ),
        (
            "mixed",
            b"a\r\nb\nc\rd\n".to_vec(),
            format!("a\nb\nc\u{240d}d\n[file uses CRLF and LF line endings]\n{picture}"),
            ("a\nb", "a\nx\nb"),
            b"a\r\nx\nb\nc\rd\n".to_vec(),
        ),
        (
            "Latin-1",
            b"// caf\xe9 \xa9\r\nx = 1\r\n".to_vec(),
            format!("// caf\u{e9} \u{a9}\nx = 1\n{latin}\n{crlf}"),
            ("caf\u{e9} \u{a9}\nx = 1", "caf\u{e9} \u{a9}\nx = \u{fc}"),
            b"// caf\xe9 \xa9\r\nx = \xfc\r\n".to_vec(),
        ),
        (
            "GBK",
            b"\xd6\xd0\xce\xc4 x = 1\n".to_vec(),
            format!("\u{d6}\u{d0}\u{ce}\u{c4} x = 1\n{latin}"),
            ("x = 1", "x = 2"),
            b"\xd6\xd0\xce\xc4 x = 2\n".to_vec(),
        ),
        (
            "cut UTF-8",
            b"abc\xe4\xb8".to_vec(),
            format!("abc\u{e4}\u{b8}\n{latin}"),
            ("abc", "x"),
            b"x\xe4\xb8".to_vec(),
        ),
        (
            "controls",
            b"\x1b[31mred\x1b[0m\n".to_vec(),
            format!("\u{241b}[31mred\u{241b}[0m\n{picture}"),
            ("\u{1b}[31mred", "\u{1b}[32mred"),
            b"\x1b[32mred\x1b[0m\n".to_vec(),
        ),
        (
            "a NUL far behind",
            [&b"a\n".repeat(5000)[..], b"\0b\n"].concat(),
            String::new(),
            ("b", "c"),
            [&b"a\n".repeat(5000)[..], b"\0c\n"].concat(),
        ),
    ] {
        fs::write(house.work().join("f"), content).unwrap();
        let (found, done) = read(&house, json!({"path": "f"})).await;
        assert!(done && (output.is_empty() || found == output), "{name}: {found}");
        let (said, done) =
            call(&house, "edit", json!({"path": "f", "edits": [{"oldText": old, "newText": new}]})).await;
        assert!(done, "{name}: {said}");
        let held = fs::read(house.work().join("f")).unwrap();
        assert_eq!(held.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{name}");
    }
}

#[tokio::test]
async fn text_that_cannot_be_shown_is_named_and_left_alone() {
    let house = House::new();
    let units = |text: &str, bytes: fn(u32) -> [u8; 4]| text.chars().flat_map(|c| bytes(c as u32)).collect::<Vec<_>>();
    for (content, kind) in [
        (wide("one\r\ntwo", u16::to_le_bytes)[2..].to_vec(), "text in UTF-16LE without a byte order mark, it seems"),
        (wide("one\r\ntwo", u16::to_be_bytes)[2..].to_vec(), "text in UTF-16BE without a byte order mark, it seems"),
        (units("\u{feff}one\n", u32::to_le_bytes), "text in UTF-32"),
        (units("\u{feff}one\n", u32::to_be_bytes), "text in UTF-32"),
        (b"one\0".to_vec(), "data"),
        (b"\x89PNG\r\n\x1a\n\0one".to_vec(), "a PNG image"),
    ] {
        fs::write(house.work().join("f"), &content).unwrap();
        let edit = json!({"path": "f", "edits": [{"oldText": "one", "newText": "1"}]});
        for (tool, arguments) in [("read", json!({"path": "f"})), ("edit", edit)] {
            let (found, done) = call(&house, tool, arguments).await;
            assert!(!done && found.contains(&format!("f is a binary file ({kind}")), "{tool} {kind}: {found}");
        }
        let (found, _) = call(&house, "grep", json!({"path": "f", "pattern": "two"})).await;
        assert!(found.contains("binary file"), "{kind}: {found}");
        assert_eq!(fs::read(house.work().join("f")).unwrap(), content);
    }
}

#[tokio::test]
async fn a_line_of_a_hundred_megabytes_is_cut_found_and_left_alone() {
    let house = house(
        "head -c 50000000 /dev/zero | tr '\\0' x > f; printf needle >> f; head -c 50000000 /dev/zero | tr '\\0' y >> f",
    )
    .await;
    let (found, done) = read(&house, json!({"path": "f"})).await;
    assert!(done && found.len() < 52_000, "{}", found.len());
    assert!(found.ends_with("[line 1 is 100.0 MB long; only its beginning is shown]"));
    let (found, _) = read(&house, json!({"path": "f", "offset": 2})).await;
    assert_eq!(found, "[offset 2 is past the end of f (1 line)]");
    let (found, done) = call(&house, "grep", json!({"pattern": "needle"})).await;
    assert!(done && found.contains("xneedley") && found.len() < 800, "{found}");
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
        let edit = json!({"path": line, "edits": [{"oldText": "content", "newText": "new"}]});
        assert!(
            call(&house, "edit", edit).await.1
                && call(&house, "write", json!({"path": line, "content": "newer"})).await.1
        );
    }
    assert!(names.iter().all(|name| fs::read(house.work().join(OsStr::from_bytes(name))).unwrap() == b"newer"));
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
    for (path, part) in [
        ("none/", "names a folder"),
        ("e/", "names a folder"),
        (".", "is a folder, not a file"),
        ("e/x", "e is a file, not a folder"),
        ("/dev/null", "is a device"),
    ] {
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
async fn the_beginning_of_a_file_is_another_content_however_long_both_are() {
    let house = House::new();
    let old = "x".repeat(9 * 1024 * 1024);
    for (length, is_read) in [(1 << 20, false), ((1 << 20) + 1, false), ((1 << 20) + 2, false), ((8 << 20) + 1, true)] {
        let path = house.work().join(length.to_string());
        fs::write(&path, &old).unwrap();
        if is_read {
            read(&house, json!({"path": path})).await;
        }
        let (said, done) = call(&house, "write", json!({"path": path, "content": &old[..length]})).await;
        assert!(done && fs::metadata(&path).unwrap().len() == length as u64, "{length}: {said}");
    }
}

#[tokio::test]
async fn what_a_file_no_longer_is_is_said() {
    let was_wide = |name: &str| format!("[the file was {name}; it is UTF-8 now]");
    let kept = "[the file's CRLF line endings were kept]";
    for (old, content, note) in [
        (wide("one\n", u16::to_le_bytes), "two\n", was_wide("UTF-16LE")),
        (wide("one\n", u16::to_be_bytes), "two\n", was_wide("UTF-16BE")),
        (
            b"\xef\xbb\xbfone\r\n".to_vec(),
            "two\n",
            format!(
                "{kept}\n[the file began with a byte order mark, and its new content does not; begin it with U+FEFF to keep one]"
            ),
        ),
        (b"\xef\xbb\xbfone\n".to_vec(), "\u{feff}two\n", String::new()),
        (
            b"caf\xe9\n".to_vec(),
            "caf\u{e9}\n",
            "[some bytes of the file were no UTF-8 (Windows-1252, it seems); it is UTF-8 now]".into(),
        ),
        (b"caf\xe9\n".to_vec(), "coffee\n", String::new()),
        (b"\x7fELF\0".to_vec(), "two\n", "[the file was binary (a program (ELF)); it is text now]".into()),
        (b"one\n".to_vec(), "\u{e9}\n", String::new()),
        (Vec::new(), "\u{e9}\n", String::new()),
    ] {
        let house = House::new();
        fs::write(house.work().join("f"), &old).unwrap();
        let (said, done) = call(&house, "write", json!({"path": "f", "content": content})).await;
        assert!(done && said.ends_with(&note) && (!note.is_empty() || !said.contains("the file")), "{old:?}: {said}");
    }
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
