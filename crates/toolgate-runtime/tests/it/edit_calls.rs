//! `edit` and `edit_file` through the door, on real files.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    sync::{Arc, Mutex},
};

use proptest::prelude::*;
use serde_json::{Value, json};
use toolgate_core::{
    approval::{ApprovalKey, ApprovalMode, ApprovalRequest, Decision, Reply, Withdrawn},
    outcome::StopReason,
    policy::Standing,
};
use toolgate_runtime::{BoxFuture, approver::Approver, environment::CallEnd, registry::forms, tools::builtin};

use crate::support::{House, Plan};

/// The output of one call, and whether it completed.
async fn call(house: &House, name: &str, arguments: Value) -> (String, bool) {
    let output = house.call(name, arguments).await;
    (output.output, output.stop_reason == Some(StopReason::Completed))
}

fn put(house: &House, name: &str, content: impl AsRef<[u8]>) {
    fs::write(house.work().join(name), content).unwrap();
}

fn held(house: &House, name: &str) -> Vec<u8> {
    fs::read(house.work().join(name)).unwrap()
}

#[tokio::test]
async fn an_edit_changes_the_file_and_shows_the_difference() {
    let house = House::new();
    put(&house, "a", "one\ntwo\nthree\n");
    let edits =
        json!({"path": "a", "edits": [{"oldText": "one", "newText": "1"}, {"oldText": "three", "newText": "3"}]});
    let said = "Replaced 2 occurrences in a (+2/\u{2212}2 lines)\n@@ -1,3 +1,3 @@\n-one\n+1\n two\n-three\n+3";
    assert_eq!(call(&house, "edit", edits).await, (said.into(), true));
    assert_eq!(held(&house, "a"), b"1\ntwo\n3\n");
    let one = json!({"file_path": "a", "old_string": "two", "new_string": ""});
    let said = "Replaced 1 occurrence in a (+1/\u{2212}1 lines)\n@@ -1,3 +1,3 @@\n 1\n-two\n+\n 3";
    assert_eq!(call(&house, "edit_file", one).await, (said.into(), true));
    put(&house, "b", "x x\nx\n");
    let every = json!({"file_path": "b", "old_string": "x", "new_string": "y", "replace_all": true});
    let (said, done) = call(&house, "edit_file", every).await;
    assert!(done && said.starts_with("Replaced 3 occurrences in b") && said.matches("@@ -").count() == 1, "{said}");
    put(&house, "go", "func f() {\n\treturn 1\n}\n");
    let loose = json!({"path": "go", "edits": [{"oldText": "    return 1", "newText": "    return 2"}]});
    let (said, _) = call(&house, "edit", loose).await;
    assert!(
        said.contains("+\treturn 2")
            && said.ends_with("[matched apart from indentation; the new lines are indented as the file is]"),
        "{said}"
    );
    let gone = json!({"file_path": "b", "old_string": "y y\ny\n", "new_string": ""});
    let (said, _) = call(&house, "edit_file", gone).await;
    assert!(said.ends_with("@@ -1,2 +0,0 @@\n-y y\n-y") && held(&house, "b").is_empty(), "{said}");
}

#[tokio::test]
async fn an_edit_that_cannot_be_done_leaves_the_file_and_says_why() {
    let house = House::new();
    put(&house, "a", "one\ntwo\none\n");
    put(&house, "bin", b"\x7fELF\0one");
    fs::create_dir(house.work().join("d")).unwrap();
    let edit = |path: &str, old: &str, new: &str| json!({"path": path, "edits": [{"oldText": old, "newText": new}]});
    for (arguments, words) in [
        (edit("a", "one", "1"), "a was not changed: the old text occurs 2 times (lines 1, 3); it must be unique"),
        (edit("a", "tow\n", "2\n"), "a was not changed: the old text is not in the file"),
        (edit("a", "\u{241b}[31mtwo", "2"), "reading shows control characters as pictures"),
        (edit("a", "two", "two"), "the same"),
        (edit("a", "", "x"), "the old text is empty, so it stands nowhere"),
        (edit("missing", "a", "b"), "missing does not exist"),
        (edit("missing", "a", "b"), "write the whole file"),
        (edit("d", "a", "b"), "d is a folder, not a file"),
        (
            edit("bin", "one", "two"),
            "bin is a binary file (a program (ELF)); only text is edited, and nothing was changed",
        ),
        (json!({"path": "a", "edits": []}), "/edits"),
        (json!({"path": "a"}), "`edits` is required"),
        (
            json!({"path": "a", "edits": [{"oldText": "two", "newText": "2"}, {"oldText": "absent", "newText": "x"}]}),
            "edits[1]: the old text is not in the file",
        ),
    ] {
        let (said, done) = call(&house, "edit", arguments.clone()).await;
        assert!(!done && said.contains(words), "{arguments}: {said}");
        assert_eq!(held(&house, "a"), b"one\ntwo\none\n");
    }
}

#[tokio::test]
async fn older_forms_of_the_arguments_mean_the_same() {
    let house = House::new();
    let (a, b) = (json!({"oldText": "a", "newText": "1"}), json!({"oldText": "b", "newText": "2"}));
    for (arguments, content) in [
        (json!({"path": "f", "edits": a}), "1 b\n"),
        (json!({"path": "f", "edits": json!([a, b]).to_string()}), "1 2\n"),
        (json!({"path": "f", "edits": a.to_string()}), "1 b\n"),
        (json!({"path": "f", "oldText": "a", "newText": "1"}), "1 b\n"),
        (json!({"path": "f", "edits": [b], "oldText": "a", "newText": "1"}), "1 2\n"),
        (json!({"path": "f", "edits": json!([b]).to_string(), "oldText": "a", "newText": "1"}), "1 2\n"),
        (json!({"file_path": "f", "old_string": "a", "new_string": "1"}), "1 b\n"),
        (json!({"path": "f", "edits": [{"old_string": "a", "new_string": "1", "why": "x"}]}), "1 b\n"),
    ] {
        put(&house, "f", "a b\n");
        // Written by somebody else, so it is read again.
        call(&house, "read", json!({"path": "f"})).await;
        let (said, done) = call(&house, "edit", arguments.clone()).await;
        assert!(done && said.contains('['), "{arguments}: what was mended is said: {said}");
        assert_eq!(held(&house, "f"), content.as_bytes(), "{arguments}");
    }
    for arguments in [
        json!({"path": "f", "edits": "no list"}),
        json!({"path": "f", "oldText": "a"}),
        json!({"path": "f", "edits": [1]}),
    ] {
        assert!(!call(&house, "edit", arguments.clone()).await.1, "{arguments}");
    }
    let tool = builtin().into_iter().find(|tool| tool.spec().name == "edit").unwrap();
    let forms: Vec<String> = forms(tool.as_ref()).map(|form| form.parameters.to_string()).collect();
    assert!(!forms[0].contains("old_string"), "no form declares what is only mended: {forms:?}");
    assert_eq!(tool.spec().parameters["properties"].as_object().unwrap().len(), 2);
}

#[tokio::test]
async fn somebody_elses_change_is_told_from_ones_own() {
    let house = House::new();
    put(&house, "a", "one\r\ntwo\r\n");
    let edit = async |old: &str, new: &str| {
        call(&house, "edit", json!({"path": "a", "edits": [{"oldText": old, "newText": new}]})).await
    };
    call(&house, "read", json!({"path": "a"})).await;
    assert!(edit("one", "1").await.1 && edit("1\ntwo", "1\n2").await.1, "one's own edits need no reading in between");
    assert_eq!(held(&house, "a"), b"1\r\n2\r\n");
    put(&house, "a", "1\r\n2\r\n");
    assert!(edit("1", "one").await.1, "touched is not changed");
    put(&house, "a", "one\r\n3\r\n");
    let (said, done) = edit("one", "1").await;
    assert!(
        !done && said.contains("a has changed since it was read here") && held(&house, "a") == b"one\r\n3\r\n",
        "{said}"
    );
    call(&house, "read", json!({"path": "a"})).await;
    assert!(edit("one", "1").await.1);
    // A link, and what stands beside the content, stay.
    fs::set_permissions(house.work().join("a"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("a", house.work().join("link")).unwrap();
    let linked = json!({"path": "link", "edits": [{"oldText": "3", "newText": "4"}]});
    assert!(call(&house, "edit", linked).await.1);
    assert!(fs::symlink_metadata(house.work().join("link")).unwrap().is_symlink());
    assert_eq!(fs::metadata(house.work().join("a")).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(held(&house, "a"), b"1\r\n4\r\n");
}

/// A person who says yes, and meanwhile something happens to the file.
struct Meanwhile {
    happens: Box<dyn Fn() + Send + Sync>,
    shown: Mutex<String>,
}

impl Approver for Meanwhile {
    fn standing(&self) -> BoxFuture<'_, Standing> {
        Box::pin(async { Standing { mode: ApprovalMode::AlwaysAsk, policy: Arc::default(), version: 1 } })
    }

    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Reply> {
        *self.shown.lock().unwrap() = request.preview.clone().unwrap_or_default();
        (self.happens)();
        Box::pin(async { Reply::Decided(Decision::by_person(true, "ann", None)) })
    }

    fn withdraw(&self, _key: &ApprovalKey, _why: Withdrawn) {}
}

#[tokio::test]
async fn what_a_person_saw_is_what_is_done() {
    let shown_one = "@@ -1,2 +1,2 @@\n-one\n+1\n two";
    let nothing = "nothing as it stands now: the old text does not match";
    for (before, meanwhile, shown, after, words) in [
        ("one\ntwo\n", "one\ntwo\n", shown_one, "1\ntwo\n", "Replaced 1 occurrence"),
        // The same lines elsewhere are the same difference.
        ("one\ntwo\n", "new\none\ntwo\n", shown_one, "new\n1\ntwo\n", "Replaced 1 occurrence"),
        ("one\ntwo\n", "one, two\n", shown_one, "one, two\n", "has changed since this was allowed"),
        // What was to change nothing changes nothing, though it would match by now.
        ("two\n", "one\n", nothing, "one\n", "has changed since this was allowed"),
        ("secret\n", "ones\none\n", nothing, "ones\none\n", "occurs 2 times"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        fs::write(&file, before).unwrap();
        let happens = Box::new({
            let file = file.clone();
            move || fs::write(&file, meanwhile).unwrap()
        });
        let approver = Arc::new(Meanwhile { happens, shown: Mutex::default() });
        let tools = builtin();
        let house = House::build(Plan { approver: Some(approver.clone()), tools, ..Plan::default() });
        let arguments = json!({"path": file, "edits": [{"oldText": "one", "newText": "1"}]});
        let (said, done) = call(&house, "edit", arguments).await;
        assert_eq!(
            (approver.shown.lock().unwrap().as_str(), fs::read_to_string(&file).unwrap().as_str()),
            (shown, after)
        );
        assert!(said.contains(words) && done == words.starts_with("Replaced"), "{said}");
    }
}

/// What happens in the folder of the file, the folder beside it being somebody else's; and what is said then of an edit and of a write.
type Happening = (&'static str, fn(&Path), &'static str, &'static str);

#[tokio::test]
async fn what_happens_between_question_and_answer_is_told_and_nothing_is_written() {
    let changed = "has changed since this was allowed";
    let happenings: [Happening; 8] = [
        ("it is touched", |d| fs::write(d.join("a"), "one\n").unwrap(), "Replaced", "Overwrote"),
        ("it is changed", |d| fs::write(d.join("a"), "one, two\n").unwrap(), changed, changed),
        ("it is emptied", |d| fs::write(d.join("a"), "").unwrap(), "not in the file", changed),
        ("it is removed", |d| fs::remove_file(d.join("a")).unwrap(), "does not exist", changed),
        (
            "a folder stands there",
            |d| {
                fs::remove_file(d.join("a")).unwrap();
                fs::create_dir(d.join("a")).unwrap();
            },
            "is a folder",
            "is a folder",
        ),
        (
            "a pipe stands there",
            |d| {
                fs::remove_file(d.join("a")).unwrap();
                rustix::fs::mknodat(rustix::fs::CWD, d.join("a"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
            },
            "is a named pipe",
            "is a named pipe",
        ),
        (
            "a link stands there",
            |d| {
                fs::remove_file(d.join("a")).unwrap();
                symlink("../theirs/a", d.join("a")).unwrap();
            },
            "leads elsewhere",
            "leads elsewhere",
        ),
        (
            "the folder is a link",
            |d| {
                fs::rename(d, d.with_file_name("old")).unwrap();
                symlink("theirs", d).unwrap();
            },
            "leads elsewhere",
            "leads elsewhere",
        ),
    ];
    for (what, happens, edited, written) in happenings {
        for (tool, words) in [("edit", edited), ("write", written)] {
            let folder = tempfile::tempdir().unwrap();
            let (mine, theirs) = (folder.path().join("mine"), folder.path().join("theirs"));
            for folder in [&mine, &theirs] {
                fs::create_dir(folder).unwrap();
                fs::write(folder.join("a"), "one\n").unwrap();
            }
            let arguments = match tool {
                "edit" => one_edit(mine.join("a").to_str().unwrap(), "one", "1"),
                _ => json!({"path": mine.join("a"), "content": "1\n"}),
            };
            let place = mine.clone();
            let approver = Meanwhile { happens: Box::new(move || happens(&place)), shown: Mutex::default() };
            let house = House::build(Plan { approver: Some(Arc::new(approver)), ..Plan::default() });
            let (said, done) = call(&house, tool, arguments).await;
            assert!(
                said.contains(words) && done == ["Replaced", "Overwrote"].contains(&words),
                "{what}, {tool}: {said}"
            );
            assert_eq!(fs::read_to_string(theirs.join("a")).unwrap(), "one\n", "{what}, {tool}");
        }
    }
}

#[tokio::test]
async fn what_is_refused_tells_nothing_of_the_file() {
    let tools = builtin();
    let house = House::build(Plan { mode: ApprovalMode::DenyAll, tools, ..Plan::default() });
    put(&house, "a", "let password = 1;\n");
    for old in ["let password = 2;", "let password = 1;", "a"] {
        let arguments = json!({"path": "a", "edits": [{"oldText": old, "newText": "x"}]});
        let (said, done) = call(&house, "edit", arguments).await;
        assert!(!done && said.starts_with("Tool call denied") && !said.contains("password"), "{said}");
    }
}

/// What `edit` is told: that one text becomes another.
fn one_edit(path: &str, old: &str, new: &str) -> Value {
    json!({"path": path, "edits": [{"oldText": old, "newText": new}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_edits_of_one_file_in_one_answer_all_land() {
    let house = House::new();
    let mut lines: Vec<String> = (1..=5000).map(|line| format!("This is line number {line}\n")).collect();
    put(&house, "my.txt", lines.concat());
    symlink("my.txt", house.work().join("alias")).unwrap();
    let mut calls = Vec::new();
    for n in 0..20 {
        let old = lines[n * 241].clone();
        // Longer and shorter, and now and then by another way to the same file.
        let new = if n % 2 == 0 { format!("{n}\n") } else { format!("{n} {}\n", "longer ".repeat(n)) };
        let path = if n % 3 == 0 { "alias" } else { "my.txt" };
        calls.push(house.tool_call("edit", &one_edit(path, &old, &new).to_string()));
        lines[n * 241] = new;
    }
    for end in house.env.call_all(calls, &house.interrupt).await.unwrap() {
        let CallEnd::Closed(output, _) = end else { panic!("a question is open") };
        assert_eq!(output.stop_reason, Some(StopReason::Completed), "{}", output.output);
    }
    assert_eq!(String::from_utf8(held(&house, "my.txt")).unwrap(), lines.concat());
    assert!(fs::symlink_metadata(house.work().join("alias")).unwrap().is_symlink());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    /// Calls that nobody puts in order: of those that want the same line one has it and the others say that it is gone, and no byte of
    /// another line changes.
    #[test]
    fn edits_at_the_same_time_all_land_or_say_why_not(
        encoding in 0..3_usize,
        wanted in proptest::collection::vec((0..8_usize, 0..200_usize, 0..3_usize), 1..24),
    ) {
        let encoded = |text: &str| -> Vec<u8> {
            match encoding {
                0 => text.into(),
                1 => text.replace('\n', "\r\n").into(),
                _ => format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_be_bytes).collect(),
            }
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
        runtime.block_on(async {
            let house = Arc::new(House::new());
            let mut lines: Vec<String> = (0..8).map(|line| format!("line {line} \u{e9}\n")).collect();
            put(&house, "f", encoded(&lines.concat()));
            symlink("f", house.work().join("link")).unwrap();
            let mut calls = tokio::task::JoinSet::new();
            for (n, (line, longer, way)) in wanted.iter().copied().enumerate() {
                let path = ["f", "link", "./link"][way];
                let (old, new) = (lines[line].clone(), format!("{n}{}\n", "x".repeat(longer)));
                let house = house.clone();
                calls.spawn(async move { (line, new.clone(), call(&house, "edit", one_edit(path, &old, &new)).await) });
            }
            let mut done = [0; 8];
            for (line, new, (said, landed)) in calls.join_all().await {
                if landed {
                    done[line] += 1;
                    lines[line] = new;
                } else {
                    assert!(said.contains("the old text is not in the file"), "{said}");
                }
            }
            for (line, done) in done.into_iter().enumerate() {
                assert_eq!(done, usize::from(wanted.iter().any(|(wanted, ..)| *wanted == line)), "line {line}");
            }
            assert_eq!(held(&house, "f"), encoded(&lines.concat()));
        });
    }
}
