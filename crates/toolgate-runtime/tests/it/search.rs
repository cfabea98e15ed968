//! Searching by content and by name, through the door, over real files: what is found, in which order and in how much memory, what is
//! passed over, and that what is passed over is told.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink, net::UnixListener},
    path::Path,
};

use serde_json::{Value, json};
use toolgate_core::{message::ToolCallOutput, outcome::StopReason, policy::Tier};

use crate::support::{House, Plan};

/// A house with these files.
fn house(files: &[(&str, &str)]) -> House {
    let house = House::new();
    for (path, text) in files {
        put(&house, path, text);
    }
    house
}

fn put(house: &House, path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
    let path = house.work().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

async fn called(house: &House, tool: &str, arguments: Value) -> ToolCallOutput {
    let output = house.call(tool, arguments.clone()).await;
    assert_eq!(output.stop_reason, Some(StopReason::Completed), "{arguments}: {}", output.output);
    output
}

/// Calls a tool several times, each with its whole output.
async fn table(house: &House, tool: &str, rows: &[(Value, &str)]) {
    for (arguments, wanted) in rows {
        assert_eq!(called(house, tool, arguments.clone()).await.output, *wanted, "{arguments}");
    }
}

/// Calls that are answered with an error that holds some words.
async fn refused(house: &House, tool: &str, rows: &[(Value, &str)]) {
    for (arguments, words) in rows {
        let output = house.call(tool, arguments.clone()).await;
        assert_eq!(output.stop_reason, Some(StopReason::Failed), "{arguments}: {}", output.output);
        assert!(output.output.contains(words), "{arguments}: {}", output.output);
    }
}

#[tokio::test]
async fn lines_are_found_in_order_of_path_with_their_numbers() {
    let house = house(&[
        ("b.txt", "one\nTwo\nthree\n"),
        ("a/z.txt", "two\n"),
        ("a-b.txt", "two"),
        ("a/b/c.rs", "fn two() {}\r\n"),
        (".hidden/s.md", "Protocol two\n"),
        ("-x", "x --foo y\n"),
    ]);
    table(
        &house,
        "grep",
        &[
            (
                json!({"pattern": "two"}),
                ".hidden/s.md:1: Protocol two\na/b/c.rs:1: fn two() {}\na/z.txt:1: two\na-b.txt:1: two\n",
            ),
            (json!({"pattern": "TWO", "ignoreCase": true, "path": "b.txt"}), "b.txt:2: Two\n"),
            (json!({"pattern": "^t.*e$", "path": "./b.txt"}), "b.txt:3: three\n"),
            (json!({"pattern": "two", "path": "a"}), "b/c.rs:1: fn two() {}\nz.txt:1: two\n"),
            (json!({"pattern": "Protocol", "path": "."}), ".hidden/s.md:1: Protocol two\n"),
            (json!({"pattern": "two()", "literal": true}), "a/b/c.rs:1: fn two() {}\n"),
            (json!({"pattern": "\\}$"}), "a/b/c.rs:1: fn two() {}\n"),
            (json!({"pattern": "--foo"}), "-x:1: x --foo y\n"),
            (json!({"pattern": "--foo", "path": "-x"}), "-x:1: x --foo y\n"),
            (json!({"pattern": "--pre=touch made"}), "[no matches in 6 files]"),
            (json!({"pattern": "--help", "path": "b.txt"}), "[no matches]"),
            (json!({"pattern": "two", "glob": "*.rs"}), "a/b/c.rs:1: fn two() {}\n"),
            (json!({"pattern": "two", "glob": "./a/*.txt"}), "a/z.txt:1: two\n"),
            (json!({"pattern": "two", "glob": "*.{rs,md}"}), ".hidden/s.md:1: Protocol two\na/b/c.rs:1: fn two() {}\n"),
            (json!({"pattern": "two", "glob": "!a"}), ".hidden/s.md:1: Protocol two\na-b.txt:1: two\n"),
            (json!({"pattern": "two", "glob": "*.nothing"}), "[no matches in 0 files]"),
            (json!({"pattern": "two", "glob": "b/*.rs", "path": "a"}), "b/c.rs:1: fn two() {}\n"),
        ],
    )
    .await;
    assert!(!house.work().join("made").exists());
}

#[tokio::test]
async fn context_and_the_limit_are_exact() {
    let house = house(&[
        ("a.txt", "before\nmatch one\nafter\nmiddle\nmatch two\nafter two\n"),
        ("b.txt", "match three\n"),
        ("c.txt", "match a\nmatch b\nx\n"),
    ]);
    table(
        &house,
        "grep",
        &[
            (
                json!({"pattern": "match", "path": "a.txt", "limit": 1, "context": 1}),
                "a.txt-1- before\na.txt:2: match one\na.txt-3- after\n[the first match is shown and there are more; limit=2 shows more]",
            ),
            (
                json!({"pattern": "match", "path": "a.txt", "context": 1}),
                "a.txt-1- before\na.txt:2: match one\na.txt-3- after\na.txt-4- middle\na.txt:5: match two\na.txt-6- after two\n",
            ),
            (json!({"pattern": "t.o|before", "path": "a.txt", "context": 1, "limit": 3}), "a.txt:1: before\na.txt-2- match one\n--\na.txt-4- middle\na.txt:5: match two\na.txt:6: after two\n"),
            (
                json!({"pattern": "match", "limit": 3, "glob": "[ab].txt"}),
                "a.txt:2: match one\na.txt:5: match two\nb.txt:1: match three\n",
            ),
            (
                json!({"pattern": "match", "limit": 3}),
                "a.txt:2: match one\na.txt:5: match two\nb.txt:1: match three\n[the first 3 matches are shown and there are more; limit=6 shows more]",
            ),
            (
                json!({"pattern": "match", "path": "c.txt", "limit": 1, "context": 1}),
                "c.txt:1: match a\nc.txt-2- match b\n[the first match is shown and there are more; limit=2 shows more]",
            ),
            (
                json!({"pattern": "three|match a", "context": 5, "glob": "[bc].txt"}),
                "b.txt:1: match three\n--\nc.txt:1: match a\nc.txt-2- match b\nc.txt-3- x\n",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn what_cannot_be_searched_for_is_a_clear_error() {
    let house = house(&[("dir/file.txt", "x")]);
    let huge = "(a{0,500}){0,500}";
    refused(
        &house,
        "grep",
        &[
            (json!({"pattern": "a(b"}), "unclosed group\n`literal: true` searches for it as it stands"),
            (json!({"pattern": huge}), "limit"),
            (json!({"pattern": "a\nb"}), "line break"),
            (json!({"pattern": "a\\nb"}), "\\n"),
            (json!({"pattern": "x", "glob": "a[b"}), "the glob `a[b` cannot be read"),
            (json!({"pattern": "x", "path": "dri"}), "dri does not exist; the workspace has dir/"),
            (json!({"pattern": "x", "path": "dir/file"}), "file.txt"),
            (json!({"pattern": ""}), "/pattern"),
            (json!({"pattern": "x", "limit": 0}), "/limit"),
            (json!({"pattern": "x", "context": -1}), "/context"),
        ],
    )
    .await;
    refused(
        &house,
        "find",
        &[
            (json!({"pattern": "a[b"}), "`a[b` is no glob"),
            (json!({"pattern": "/"}), "`/` is no glob"),
            (json!({"pattern": "*", "path": "nowhere"}), "nowhere does not exist"),
            (json!({"pattern": "*", "path": "dir/file.txt"}), "dir/file.txt is a file, not a folder"),
            (json!({"pattern": "*", "limit": 0}), "/limit"),
        ],
    )
    .await;
    // No pattern takes more than its bound, and none takes for ever.
    let text = format!("{}!", "a".repeat(100_000));
    put(&house, "a.txt", &text);
    for pattern in ["((a*)*)*$", "\"content\":\"[^\"]*coder[^\"]{0,300}", "(a|a)*b"] {
        called(&house, "grep", json!({"pattern": pattern})).await;
    }
}

#[tokio::test]
async fn ignore_files_hold_as_git_reads_them_and_what_they_keep_out_is_told() {
    let house = house(&[
        (".gitignore", ".env\n*.log\n!keep.log\n/build/\n"),
        (".env", "needle=x\n"),
        ("a.log", "needle\n"),
        ("keep.log", "needle keep\n"),
        ("build/out.txt", "needle\n"),
        ("src/build/in.txt", "needle in\n"),
        ("src/.ignore", "skipped.txt\n"),
        ("src/skipped.txt", "needle\n"),
        ("src/.gitignore", "!b.log\n"),
        ("src/b.log", "needle b\n"),
        // A repository in the repository is told nothing by the outer one.
        ("inner/.git/HEAD", "needle\n"),
        ("inner/c.log", "needle c\n"),
        ("inner/.git/info/exclude", "/d.txt\n"),
        ("inner/d.txt", "needle\n"),
    ]);
    let found =
        "inner/c.log:1: needle c\nkeep.log:1: needle keep\nsrc/b.log:1: needle b\nsrc/build/in.txt:1: needle in\n";
    let told = "[no matches in 7 files; what ignore files name was not searched; give such a path to search it]";
    // Outside of a repository they hold too.
    for git in [false, true] {
        if git {
            put(&house, ".git/config", "needle\n");
            put(&house, ".git/info/exclude", "");
        }
        table(
            &house,
            "grep",
            &[
                (json!({"pattern": "needle"}), found),
                (json!({"pattern": "needle=x"}), told),
                (json!({"pattern": "needle=x", "path": ".env"}), ".env:1: needle=x\n"),
                (json!({"pattern": "needle", "path": "build"}), "out.txt:1: needle\n"),
                (json!({"pattern": "needle", "path": "src"}), "b.log:1: needle b\nbuild/in.txt:1: needle in\n"),
                (json!({"pattern": "needle", "path": "inner"}), "c.log:1: needle c\n"),
            ],
        )
        .await;
    }
    table(
        &house,
        "find",
        &[
            (json!({"pattern": "*.log"}), "inner/c.log\nkeep.log\nsrc/b.log\n"),
            (json!({"pattern": "build"}), "src/build/\n"),
            (
                json!({"pattern": ".env"}),
                "[no paths match; what ignore files name was not searched; give such a path to search it]",
            ),
            (
                json!({"pattern": "HEAD"}),
                "[no paths match; what ignore files name was not searched; give such a path to search it]",
            ),
            (json!({"pattern": "d.*", "path": "inner/.git"}), "[no paths match]"),
            (json!({"pattern": "head", "path": "inner/.git"}), "HEAD\n"),
        ],
    )
    .await;
}

#[tokio::test]
async fn names_are_found_as_the_pattern_says() {
    let house = house(&[
        ("src/main.rs", ""),
        ("src/a/lib.rs", ""),
        ("src/a/README.md", ""),
        (".config/x.rs", ""),
        ("readme.txt", ""),
    ]);
    symlink("src", house.work().join("link")).unwrap();
    table(
        &house,
        "find",
        &[
            (json!({"pattern": "*.rs"}), ".config/x.rs\nsrc/a/lib.rs\nsrc/main.rs\n"),
            (json!({"pattern": "src/*.rs"}), "src/main.rs\n"),
            (json!({"pattern": "./src/*.rs"}), "src/main.rs\n"),
            (json!({"pattern": "/*.rs"}), "[no paths match]"),
            (json!({"pattern": "src/**/*.rs"}), "src/a/lib.rs\nsrc/main.rs\n"),
            (json!({"pattern": "**/lib.rs"}), "src/a/lib.rs\n"),
            (json!({"pattern": "a/*.rs"}), "[no paths match]"),
            (json!({"pattern": "a/*.rs", "path": "src"}), "a/lib.rs\n"),
            (json!({"pattern": "readme*"}), "readme.txt\nsrc/a/README.md\n"),
            (json!({"pattern": "README*"}), "src/a/README.md\n"),
            (json!({"pattern": "a"}), "src/a/\n"),
            (json!({"pattern": "*/"}), ".config/\nsrc/\nsrc/a/\n"),
            (json!({"pattern": "link"}), "link\n"),
            (json!({"pattern": "*.rs", "limit": 3}), ".config/x.rs\nsrc/a/lib.rs\nsrc/main.rs\n"),
            (
                json!({"pattern": "*.rs", "limit": 2}),
                ".config/x.rs\nsrc/a/lib.rs\n[the first 2 paths are shown and there are more; limit=4 shows more]",
            ),
            (json!({"pattern": "--help"}), "[no paths match]"),
        ],
    )
    .await;
}

#[tokio::test]
async fn any_name_survives_links_end_and_what_is_no_file_is_not_opened() {
    let house = house(&[("a/plain.txt", "asdf\n")]);
    let work = house.work();
    put(&house, Path::new(OsStr::from_bytes(b"a/bad\xff.txt")), "asdf\n");
    put(&house, "a/two\nlines.txt", "asdf\n");
    put(&house, " edge ", "asdf\n");
    symlink("..", work.join("a/link")).unwrap();
    symlink("x", work.join("x")).unwrap();
    symlink(house.folder.path(), work.join("out")).unwrap();
    symlink("a/plain.txt", work.join("twin")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, work.join("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let _socket = UnixListener::bind(work.join("socket")).unwrap();
    table(
        &house,
        "grep",
        &[
            (
                json!({"pattern": "asdf"}),
                " edge :1: asdf\n\"a/bad\\xff.txt\":1: asdf\na/plain.txt:1: asdf\n\"a/two\\nlines.txt\":1: asdf\n",
            ),
            (json!({"pattern": "nothing", "path": "a"}), "[no matches in 3 files]"),
            (json!({"pattern": "asdf", "path": "twin"}), "plain.txt:1: asdf\n"),
            (json!({"pattern": "asdf", "path": "\"a/two\\nlines.txt\""}), "\"two\\nlines.txt\":1: asdf\n"),
        ],
    )
    .await;
    refused(
        &house,
        "grep",
        &[
            (json!({"pattern": "x", "path": "pipe"}), "pipe is a named pipe, not a file"),
            (json!({"pattern": "x", "path": "socket"}), "socket is a socket, not a file"),
            (json!({"pattern": "x", "path": "x"}), "goes round"),
        ],
    )
    .await;
    table(
        &house,
        "find",
        &[
            (json!({"pattern": "*e*s*"}), "\"a/two\\nlines.txt\"\n"),
            (json!({"pattern": "*.txt", "path": "a"}), "\"bad\\xff.txt\"\nplain.txt\n\"two\\nlines.txt\"\n"),
            (json!({"pattern": "{link,out,pipe,socket,x}"}), "a/link\nout\npipe\nsocket\nx\n"),
        ],
    )
    .await;
}

#[tokio::test]
async fn what_is_no_text_or_cannot_be_read_is_told() {
    let house =
        house(&[("a.txt", "needle\n"), ("locked/x", ""), ("b.bin", "needle\0needle\n"), ("c.bin", "x\0needle\n")]);
    table(
        &house,
        "grep",
        &[
            (json!({"pattern": "needle"}), "a.txt:1: needle\n[2 binary files were not searched: b.bin, c.bin]"),
            (json!({"pattern": "needle", "path": "b.bin"}), "[it is a binary file, and it matches]"),
            (json!({"pattern": "other", "path": "b.bin"}), "[no matches; it is a binary file]"),
            (
                json!({"pattern": "other", "glob": "b.bin"}),
                "[no matches in 1 file; 1 binary file was not searched: b.bin]",
            ),
        ],
    )
    .await;
    let utf_16: Vec<u8> = "\u{feff}first\nnädel\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    put(&house, "wide.txt", utf_16);
    put(&house, "latin.txt", b"na\xefve n\xe4del \x1b[31m\n");
    table(
        &house,
        "grep",
        &[
            (json!({"pattern": "del", "glob": "*.txt"}), "latin.txt:1: naïve nädel \u{241b}[31m\nwide.txt:2: nädel\n"),
            (json!({"pattern": "n.del"}), "latin.txt:1: naïve nädel \u{241b}[31m\nwide.txt:2: nädel\n[2 binary files were not searched: b.bin, c.bin]"),
            (json!({"pattern": "NÄDEL", "ignoreCase": true, "path": "latin.txt"}), "latin.txt:1: naïve nädel \u{241b}[31m\n"),
        ],
    )
    .await;
}

#[tokio::test]
async fn long_lines_and_large_results_stay_within_their_bounds() {
    let house = House::new();
    put(&house, "m.js", format!("{}needle{}", "x".repeat(3_000_000), "y".repeat(3_000_000)));
    let output = called(&house, "grep", json!({"pattern": "needle"})).await.output;
    assert!(output.starts_with("m.js:1: …xxx") && output.contains("xneedley"), "{output}");
    assert!(output.ends_with("yy…\n[lines of more than 500 characters are shown around the match]"), "{output}");
    assert!(output.len() < 700, "{output}");
    let line = format!("needle {}\n", "é".repeat(400));
    put(&house, "many.txt", line.repeat(5000));
    let output = called(&house, "grep", json!({"pattern": "needle", "glob": "many.txt", "limit": 4000})).await.output;
    assert!(output.len() <= 51_200 + 1000, "{}", output.len());
    let note = output.lines().last().unwrap();
    assert!(note.starts_with("[the first 1") && note.ends_with("too much text for one search; narrow it]"), "{note}");
}

#[tokio::test]
async fn the_same_call_shows_the_same_lines_whatever_the_threads_do() {
    let house = House::new();
    for i in 0..600 {
        put(&house, format!("d{}/e{}/f{i}.txt", i % 7, i % 3), format!("needle {i}\n").repeat(i % 5));
    }
    for (tool, arguments) in [
        ("grep", json!({"pattern": "needle", "limit": 60})),
        ("grep", json!({"pattern": "needle", "limit": 60, "context": 2})),
        ("find", json!({"pattern": "*.txt", "limit": 60})),
        ("find", json!({"pattern": "*"})),
    ] {
        let first = called(&house, tool, arguments.clone()).await.output;
        for _ in 0..10 {
            assert_eq!(called(&house, tool, arguments.clone()).await.output, first);
        }
    }
}

#[tokio::test]
async fn a_folder_of_many_files_is_shared_and_whole() {
    let house = House::new();
    for i in 0..3000 {
        put(&house, format!("flat/{i:04}"), format!("{i}\n"));
    }
    let all: String = (0..3000).map(|i| format!("flat/{i:04}:1: {i}\n")).collect();
    let output = called(&house, "grep", json!({"pattern": ".", "limit": 3000})).await.output;
    let (shown, rest) = output.split_once("\n[").unwrap();
    assert!(all.starts_with(shown.trim_end()), "{rest}");
    assert_eq!(shown.lines().count(), 2000);
    let found = called(&house, "find", json!({"pattern": "*5", "limit": 5000})).await.output;
    assert_eq!(found.lines().count(), 300);
}

#[tokio::test]
async fn a_rule_about_reading_speaks_of_searching_too() {
    let house = House::build(Plan { rules: vec![(Tier::Deny, "Read")], ..Plan::default() });
    for tool in ["grep", "find"] {
        let output = house.call(tool, json!({"pattern": "x"})).await;
        assert_eq!(output.stop_reason, Some(StopReason::Aborted), "{tool}: {}", output.output);
    }
}
