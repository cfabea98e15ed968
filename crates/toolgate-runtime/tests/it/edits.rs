//! The edit engine: which bytes an edit means, and what it says where it means none.

use proptest::prelude::*;
use toolgate_runtime::{
    edit::{Edit, How, Plan, Problem, difference, plan},
    files::Splice,
};

fn edit(old: &str, new: &str) -> Edit {
    Edit { old: old.into(), new: new.into(), all: false }
}

fn applied(file: &[u8], splices: &[Splice]) -> Vec<u8> {
    let (mut new, mut at) = (Vec::new(), 0);
    for Splice { range, with } in splices {
        assert!(at <= range.start, "splices are in order and apart: {splices:?}");
        new.extend_from_slice(&file[at..range.start]);
        new.extend_from_slice(with);
        at = range.end;
    }
    new.extend_from_slice(&file[at..]);
    new
}

/// What a file becomes, or what is said; bytes that are no UTF-8 as they are.
fn edited(file: &[u8], edits: &[Edit]) -> Result<(Vec<u8>, Plan), String> {
    let plan = plan(file, edits).map_err(|error| error.explained(file, edits).to_string())?;
    Ok((applied(file, &plan.splices), plan))
}

#[track_caller]
fn becomes(file: impl AsRef<[u8]>, old: &str, new: &str, expected: impl AsRef<[u8]>, how: How) {
    let (file, expected) = (file.as_ref(), expected.as_ref());
    match edited(file, &[edit(old, new)]) {
        Ok((found, plan)) => {
            let (found, wanted) = (String::from_utf8_lossy(&found), String::from_utf8_lossy(expected));
            assert_eq!(
                (found.escape_debug().to_string(), plan.matched[0].how),
                (wanted.escape_debug().to_string(), how)
            );
            assert_eq!(applied(file, &plan.splices), expected);
        }
        Err(error) => panic!("{old:?} in {:?}: {error}", String::from_utf8_lossy(file)),
    }
}

#[track_caller]
fn fails(file: impl AsRef<[u8]>, edits: &[Edit], words: &[&str]) {
    let error = edited(file.as_ref(), edits).expect_err("the edits must fail");
    for word in words {
        assert!(error.contains(word), "no {word:?} in: {error}");
    }
}

#[test]
fn exact_matches_come_first_and_new_text_is_literal() {
    let dollars = "'^[sv]d[a-z]$' $$ $& $1 \\1 ${x} \u{201c}\"";
    becomes("A tail\n", "A", dollars, format!("{dollars} tail\n"), How::Exact);
    becomes("\u{201c}a\u{201d} \"a\"\n", "\"a\"", "b", "\u{201c}a\u{201d} b\n", How::Exact);
    becomes("x  \nx\n y", "x\n y", "z", "x  \nz", How::Exact);
    becomes("/LORD([\\'\u{2019}]s)?/ </span>\n", "</span>", "</b>", "/LORD([\\'\u{2019}]s)?/ </b>\n", How::Exact);
    becomes("\tx\n\tz\n", "x", "y", "\ty\n\tz\n", How::Exact);
    becomes("a\nb", "b", "", "a\n", How::Exact);
    becomes("a", "a", "", "", How::Exact);
}

#[test]
fn line_ends_are_those_of_the_place() {
    for (file, old, new, expected, how) in [
        ("l1\r\nl2\r\nl3\r\n", "l1\nl2\n", "l1\nL\nM\n", "l1\r\nL\r\nM\r\nl3\r\n", How::Shown),
        ("one\r\ntwo\r\nthree\nfour\r\n", "two", "TWO", "one\r\nTWO\r\nthree\nfour\r\n", How::Exact),
        ("one\r\ntwo\r\nthree\nfour\r\n", "two", "2\n3", "one\r\n2\r\n3\r\nthree\nfour\r\n", How::Exact),
        ("one\r\ntwo\r\nthree\nfour\r\n", "three", "2\n3", "one\r\ntwo\r\n2\n3\nfour\r\n", How::Exact),
        ("one\r\ntwo\r\nthree\nfour\r\n", "two\nthree", "2\n3", "one\r\n2\r\n3\nfour\r\n", How::Shown),
        ("a\rb\rc", "a\nb", "a\nx\nb", "a\rx\rb\rc", How::Shown),
        ("a\rb", "b", "x\ny", "a\rx\ry", How::Exact),
        ("a\r\nb", "b", "x\ny", "a\r\nx\r\ny", How::Exact),
        ("a\nb\n", "a\r\nb\r\n", "c\r\nd\r\n", "c\nd\n", How::Shown),
        ("a\r\nb\r\n", "a\r\nb", "a\nb", "a\nb\r\n", How::Shown),
        ("a\nb\n", "a\nb", "a\r\nb", "a\r\nb\n", How::Exact),
        ("p\rq\nb\n", "b", "x\ny", "p\rq\nx\ny\n", How::Exact),
        ("none", "none", "x\ny", "x\ny", How::Exact),
    ] {
        becomes(file, old, new, expected, how);
    }
    // Twins that differ in their line ends alone look the same to whoever wrote the edit.
    fails("a\r\nb\r\na\nb\n", &[edit("a\nb", "x")], &["2 times", "lines 1, 3"]);
}

#[test]
fn encodings_and_marks_stay() {
    becomes("\u{feff}hello\n中文\n", "hello", "hello2", "\u{feff}hello2\n中文\n", How::Exact);
    becomes("\u{feff}# T\n", "\u{feff}# T", "\u{feff}# N", "\u{feff}# N\n", How::Exact);
    becomes("\u{feff}a\r\nb\r\n", "a\nb", "c\nd", "\u{feff}c\r\nd\r\n", How::Shown);
    becomes(b"x = 1;\n// caf\xe9\n", "x = 1", "x = 2", b"x = 2;\n// caf\xe9\n", How::Exact);
    becomes(b"// caf\xe9 a\n", "caf\u{e9} a", "caf\u{e9} \u{fc}", b"// caf\xe9 \xfc\n", How::Shown);
    becomes(b"// caf\xe9\nx\n", "x", "\u{fc}", b"// caf\xe9\n\xfc\n", How::Exact);
    becomes(b"\xff\xc3\xa9\xc3\xa9 x", "x", "\u{fc}", b"\xff\xc3\xa9\xc3\xa9 \xc3\xbc", How::Exact);
    becomes(b"\x93q\x94 \xe9\n", "\"q\"", "\"r\"", b"\x93r\x94 \xe9\n", How::Alike);
    fails(b"caf\xe9 x\n", &[edit("caf\u{e9}", "\u{4e2d}")], &["8-bit", "U+4E2D"]);
    let wide = |text: &str, little: bool| -> Vec<u8> {
        let units = format!("\u{feff}{text}").encode_utf16().collect::<Vec<_>>();
        units.iter().flat_map(|unit| if little { unit.to_le_bytes() } else { unit.to_be_bytes() }).collect()
    };
    for little in [true, false] {
        let file = wide("one\r\nz\u{1f600} \u{201c}a\u{201d}\r\nĀ\u{a0a}\n", little);
        becomes(
            &file,
            "one\nz\u{1f600}",
            "é\nx\nz\u{1f600}",
            wide("é\r\nx\r\nz\u{1f600} \u{201c}a\u{201d}\r\nĀ\u{a0a}\n", little),
            How::Shown,
        );
        becomes(&file, "\"a\"", "\"b\"", wide("one\r\nz\u{1f600} \u{201c}b\u{201d}\r\nĀ\u{a0a}\n", little), How::Alike);
        becomes(&file, "\u{a0a}", "x\ny", wide("one\r\nz\u{1f600} \u{201c}a\u{201d}\r\nĀx\ny\n", little), How::Shown);
    }
}

#[test]
fn what_looks_alike_matches_and_what_is_unchanged_keeps_its_bytes() {
    for (file, old, new, expected) in [
        (
            "x = \u{201c}a\u{201d} + \u{201c}b\u{201d} \u{2014} end\n",
            "\"b\"",
            "\"c\"",
            "x = \u{201c}a\u{201d} + \u{201c}c\u{201d} \u{2014} end\n",
        ),
        ("it\u{2019}s\u{a0}a \u{2013} b\n", "it's a - b", "it's a - c", "it\u{2019}s\u{a0}a \u{2013} c\n"),
        ("a  \nb\t\nc\n", "a\nb\nc", "a\nB\nc", "a  \nB\nc\n"),
        ("a\nb\n", "a  \nb ", "a\nc", "a\nc\n"),
        ("a \nb", "a\nb\n", "a\nc\n", "a \nc"),
        ("caf\u{e9}(1)\n", "cafe\u{301}(1)", "cafe\u{301}(2)", "caf\u{e9}(2)\n"),
        ("cafe\u{301}(1)\n", "caf\u{e9}(1)", "caf\u{e9}(2)", "cafe\u{301}(2)\n"),
        ("f\u{ff08}a\u{ff0c}b\u{ff09}\n", "f(a,b)", "f(a,c)", "f\u{ff08}a\u{ff0c}c\u{ff09}\n"),
        ("\u{26a0}\u{fe0f} careful\n", "\u{26a0} careful", "\u{26a0} mind", "\u{26a0}\u{fe0f} mind\n"),
        ("\u{3000}a\u{3000}b\n", " a b", " a c", "\u{3000}a\u{3000}c\n"),
        (
            "\u{201c}q\u{201d} 1\r\n\u{201c}q\u{201d} 2\r\n",
            "\"q\" 1\n\"q\" 2",
            "\"q\" 1\nnew\n\"q\" 3",
            "\u{201c}q\u{201d} 1\r\nnew\r\n\u{201c}q\u{201d} 3\r\n",
        ),
    ] {
        becomes(file, old, new, expected, How::Alike);
    }
    // A blank at the end of the old text stands for the blank in the middle of the file's line, not for none.
    becomes("\u{2018}k\u{2019} = 5\n", "'k' = ", "'j' = ", "\u{2018}j\u{2019} = 5\n", How::Alike);
    fails("\u{201c}a\u{201d}\n\u{201e}a\u{201d}\n", &[edit("\"a\"", "b")], &["2 times", "lines 1, 2", "never exactly"]);
    // Half of what a character stands for is no match.
    fails("\u{fb01}n\n", &[edit("in", "x")], &["not in the file"]);
    fails("   \n\t\n", &[edit("  \n  \n  ", "x")], &["not in the file"]);
}

#[test]
fn indentation_is_the_files_own() {
    let go = "func f() int {\n\treturn 1\n}\n";
    for (file, old, new, expected) in [
        (go, "    return 1", "    return 2", "func f() int {\n\treturn 2\n}\n"),
        (
            go,
            "{\n    return 1\n}",
            "{\n    x()\n    if y {\n        z()\n    }\n    return 1\n}",
            "func f() int {\n\tx()\n\tif y {\n\t\tz()\n\t}\n\treturn 1\n}\n",
        ),
        ("\t\ta\n\t\t\tb\n", "a\n    b", "a\n    c\n    b", "\t\ta\n\t\t\tc\n\t\t\tb\n"),
        ("\t\ta\n\t\t\tb\n", "        a\n            b\n", "        b\n", "\t\tb\n"),
        ("\t\ta\n\t\t\tb\n", "a\n    b\n", "    b\n", "\t\t\tb\n"),
        (
            "\t\ta\n\t\t\tb\n\t\tc\n",
            "a\n            b\n        c",
            "new\na\n            b2\n        c",
            "\t\tnew\n\t\ta\n\t\t\tb2\n\t\tc\n",
        ),
        ("  a\n    b\n", "    a\n        b\n", "    a\n        b\n            c\n", "  a\n    b\n      c\n"),
        ("        a\n        b\n", "  a\n  b\n", "  a\n    x\n  b\n", "        a\n          x\n        b\n"),
        ("    a\n    b\n", "\ta\n\tb\n", "\ta\n\t\tx\n\tb\n", "    a\n        x\n    b\n"),
        ("\ta\r\n\r\n\tb\r\n", "  a\n\n  b", "  a\n\n\n  c", "\ta\r\n\r\n\r\n\tc\r\n"),
        (
            "x = 1; f(\n\t\t\ta,\n\t\t)\n",
            "f(\n        a,\n    )",
            "f(\n        a,\n        b,\n    )",
            "x = 1; f(\n\t\t\ta,\n\t\t\tb,\n\t\t)\n",
        ),
    ] {
        becomes(file, old, new, expected, How::Indented);
    }
    // One indentation of the old text is two of the file, or the new text's is none that the old one knows.
    fails(
        "\ta\n\t\tb\n",
        &[edit("    a\n    b", "    c\n    b")],
        &["line 1", "4 blanks is the file's 1 tab", "2 tabs"],
    );
    fails("\ta\n\tb\n", &[edit("  a\n    b", "  a\n    c")], &["2 blanks is the file's 1 tab"]);
    fails("\ta\n\tb\n", &[edit("    a\n    b", "    a\n      c\n    b")], &["6 blanks"]);
    fails("\tx\n\t\tx\n", &[edit("  x\n", "y\n")], &["2 times", "apart from indentation"]);
}

#[test]
fn edits_are_all_done_or_none_and_say_what_is_wrong() {
    let file = "one\ntwo\nthree\none\n";
    fails(file, &[], &["no edits"]);
    fails(file, &[edit("", "x")], &["old text is empty"]);
    fails(file, &[edit("two", "two")], &["the same"]);
    fails(file, &[edit("one", "1")], &["2 times", "lines 1, 4", "must be unique"]);
    fails("aaa", &[edit("aa", "b")], &["2 times"]);
    fails(file, &[edit("two", "2"), edit("nope nothing", "x")], &["edits[1]: the old text is not in the file"]);
    fails(file, &[edit("zzz", "2"), edit("one", "x"), edit("", "")], &["edits[2]"]);
    fails(file, &[edit("one\ntwo", "x"), edit("two\nthree", "y")], &["edits[0]: it overlaps with edits[1] in line 2"]);
    fails("\u{201c}a\u{201d}", &[edit("\"a\"", "\u{201c}a\u{201d}")], &["already reads so"]);
    let both = [edit("two\n", "2\n"), edit("three\n", ""), edit("one\ntwo", "x")];
    assert_eq!(edited(file.as_bytes(), &both[..2]).unwrap().0, b"one\n2\none\n", "what touches does not overlap");
    // Edits see the file and never each other's text.
    assert_eq!(edited(b"a b", &[edit("a", "b"), edit("b", "a")]).unwrap().0, b"b a");
    let all = |old: &str, new: &str| Edit { all: true, ..edit(old, new) };
    assert_eq!(edited(b"aa a\r\n", &[all("a", "b\n")]).unwrap().0, b"b\r\nb\r\n b\r\n\r\n");
    let (found, plan) = edited("\u{2018}a\u{2019} \u{2018}a\u{2019}".as_bytes(), &[all("'a'", "'b'")]).unwrap();
    assert_eq!(
        (String::from_utf8(found).unwrap().as_str(), plan.matched[0].count),
        ("\u{2018}b\u{2019} \u{2018}b\u{2019}", 2)
    );
}

#[test]
fn the_difference_reads_as_lines_in_any_encoding() {
    let wide =
        |text: &str| [&b"\xff\xfe"[..], &text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>()].concat();
    for (file, shown) in [
        (b"a\nb\nc\n".to_vec(), "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c"),
        (b"a\r\nb\r\nc\r\n".to_vec(), "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c"),
        (b"a\rb\rc\r".to_vec(), "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c"),
        (wide("a\r\nb\r\nc"), "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n\\ No newline at end of file"),
    ] {
        let plan = plan(&file, &[edit("b", "B")]).unwrap();
        assert_eq!(difference(&file, &plan.splices).shown(20), shown, "{file:?}");
    }
}

#[test]
fn what_is_not_found_is_shown_what_comes_near() {
    let file = "fn a() {\n\tlet x = 1;\n\tlet y\u{a0}= 2;\n}\n\nfn b() {\n\tlet x = 10;\n}\n";
    let said = |file: &str, old: &str| edited(file.as_bytes(), &[edit(old, "x")]).unwrap_err();
    let near = |old: &str| said(file, old);
    let found = near("    let x = 1;\n    let y = 3;\n");
    for row in ["line 2", "-       | ····let y = 3;", "+     3 | →let y<U+00A0>= 2;"] {
        assert!(found.contains(row), "no {row:?} in {found}");
    }
    let found = said("co\u{ad}op = value\n", "coop = value");
    assert!(found.contains("+     1 | co<U+00AD>op = value"), "{found}");
    let found = near("fn  b() {");
    assert!(found.contains("-       | fn··b()·{") && found.contains("+     6 | fn·b()·{"), "{found}");
    assert!(near("something else altogether").ends_with("not in the file; read it again"));
    // The best one is found wherever it is, and an answer is short whatever the file holds.
    let mut long = "let value = compute(alpha, beta);\n".repeat(20_000);
    long.insert_str(300 * 34, "fn needle(first: u8, second: u8) -> u16 {\n");
    let error = said(&long, "fn needle(first: u8, second: u16) -> u16 {");
    assert!(error.contains("line 301:") && error.len() < 600, "{error}");
    let blob = "x".repeat(3_000_000);
    let error = said(&blob, &format!("{}y", "x".repeat(5000)));
    assert!(error.len() < 3000, "{}", error.len());
}

/// Texts of few letters, so that they match often, with everything that is passed over.
fn text() -> impl Strategy<Value = String> {
    const PARTS: &[&str] = &[
        "a",
        "b",
        "\n",
        "\r\n",
        " ",
        "  ",
        "\t",
        "\u{2019}",
        "'",
        "\u{a0}",
        "e\u{301}",
        "\u{e9}",
        "\r",
        "\u{fb01}",
        "\u{feff}",
        "\u{200b}",
        "\u{1f600}",
    ];
    proptest::collection::vec(proptest::sample::select(PARTS), 0..40).prop_map(|parts| parts.concat())
}

/// Any of those in any encoding, and now and then with a broken byte.
fn file() -> impl Strategy<Value = Vec<u8>> {
    (text(), 0..5_u8, proptest::option::weighted(0.3, (any::<u8>(), 0..100_usize))).prop_map(
        |(text, encoding, broken)| {
            let mut bytes: Vec<u8> = match encoding {
                0 => [&b"\xff\xfe"[..], &text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>()].concat(),
                1 => [&b"\xfe\xff"[..], &text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<_>>()].concat(),
                2 => format!("\u{feff}{text}").into(),
                _ => text.into(),
            };
            if let Some((byte, at)) = broken {
                bytes.insert(at.min(bytes.len()), byte);
            }
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Whatever comes, planning ends, says the same twice, and its splices are in order; what it does not splice stays, and the
    /// difference that is shown is the one that is made.
    #[test]
    fn planning_is_total_and_leaves_the_rest(file in file(), edits in proptest::collection::vec((text(), text(), any::<bool>()), 1..4)) {
        let edits: Vec<Edit> = edits.into_iter().map(|(old, new, all)| Edit { old, new, all }).collect();
        let planned = plan(&file, &edits);
        prop_assert_eq!(&planned, &plan(&file, &edits));
        if let Ok(plan) = planned {
            let new = applied(&file, &plan.splices);
            prop_assert_ne!(&new, &file);
            prop_assert_eq!(plan.matched.len(), edits.len());
prop_assert!(difference(&file, &plan.splices).digest() == difference(&file, &plan.splices).digest());
        }
    }

    /// A text that is there once, byte for byte, is replaced as by hand.
    #[test]
    fn one_exact_match_is_replaced_and_nothing_else(before in "[a-c \n]{0,30}", old in "[a-e\u{e9}\u{201c}]{1,6}", after in "[a-c \n]{0,30}", new in "[a-e\n\u{e9}]{0,8}") {
        let file = format!("{before}{old}{after}");
        prop_assume!(old != new && (1..file.len()).filter(|at| file.is_char_boundary(*at)).chain([0]).filter(|at| file[*at..].starts_with(&old)).count() == 1);
        let (found, plan) = edited(file.as_bytes(), &[edit(&old, &new)]).unwrap();
        prop_assert_eq!(String::from_utf8(found).unwrap(), format!("{before}{new}{after}"));
        prop_assert_eq!(plan.matched[0].how, How::Exact);
    }

    /// Whatever bytes stand around it, in whatever encoding, a text that is there once is replaced and no byte of them changes.
    #[test]
    fn no_byte_outside_a_match_changes(
        before in proptest::collection::vec(any::<u8>(), 0..60),
        after in proptest::collection::vec(any::<u8>(), 0..60),
        encoding in 0..4_usize,
        whole in any::<bool>(),
    ) {
        let text = |text: &str| -> Vec<u8> {
            match encoding {
                2 => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
                3 => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
                _ => text.into(),
            }
        };
        let mark: &[u8] = [&b""[..], b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"][encoding];
        // Half a character in front of it would take a part of it.
        let mut before = before;
        if encoding >= 2 {
            before.truncate(before.len() / 2 * 2);
            before.extend(text("\n"));
        }
        let file = |middle: &str| [mark, &before, &text(middle), &after].concat();
        prop_assume!(encoding != 0 || !matches!(before[..], [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0xef, 0xbb, 0xbf, ..]));
        let (old, new) = if whole { ("\nNEEDLE in hay\n", "\nhay\n") } else { ("NEEDLE in hay", "hay") };
        let (found, _) = edited(&file(old), &[edit("NEEDLE in hay", "hay")]).unwrap();
        prop_assert_eq!(found, file(new));
    }

    /// A text that was changed only in what is passed over is found, and an edit of one of its lines changes no other.
    #[test]
    fn a_looser_match_moves_no_line_but_the_changed_one(lines in proptest::collection::vec("[a-c][a-c\u{2019}\u{a0}\u{2014}]{0,6}[a-c]", 2..8), blanks in proptest::collection::vec(0..3_usize, 8), at in 0..8_usize) {
        let at = at % lines.len();
        let plain = |text: &str| text.replace('\u{2019}', "'").replace('\u{a0}', " ").replace('\u{2014}', "-");
        let file: String = lines.iter().zip(&blanks).map(|(line, blanks)| format!("\t{line}{}\r\n", " ".repeat(*blanks))).collect();
        let old: String = lines.iter().map(|line| format!("    {}\n", plain(line))).collect();
        let new: String = lines.iter().enumerate().map(|(n, line)| format!("    {}{}\n", plain(line), if n == at { "X" } else { "" })).collect();
        let (found, _) = edited(file.as_bytes(), &[edit(&old, &new)]).unwrap();
        let found = String::from_utf8(found).unwrap();
        for (number, (found, file)) in found.split_inclusive('\n').zip(file.split_inclusive('\n')).enumerate() {
            if number == at {
                prop_assert!(found.ends_with("X\r\n") && found.starts_with(file.trim_end()), "{found:?} {file:?}");
            } else {
                prop_assert_eq!(found, file);
            }
        }
    }
}

#[test]
fn problems_name_their_edit() {
    let error = plan(b"a", &[edit("b", "c"), edit("a", "a")]).unwrap_err();
    assert_eq!(error.problems, [Problem::Same { edit: 1 }], "what needs no look at the file is said first");
}
