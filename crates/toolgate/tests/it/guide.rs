//! The guide to tools of one's own works word for word: its blocks are files, commands and what the commands print.

use std::{fs, path::Path, process::Command};

use crate::support::Place;

/// A fenced block: what stands behind the fence, and what in it.
struct Block {
    language: String,
    file: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let parts: Vec<&str> = page.split("```").collect();
    assert!(parts.len() % 2 == 1, "a fence is open");
    let block = |part: &&str| {
        let (info, text) = part.split_once('\n').unwrap();
        let (language, file) = info.split_once(' ').unwrap_or((info, ""));
        Block { language: language.into(), file: file.into(), text: text.into() }
    };
    parts.iter().skip(1).step_by(2).map(block).collect()
}

#[test]
fn the_guide_to_tools_works_word_for_word() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let (page, place) = (read("docs/tools.md"), Place::new());
    let home = place.home().canonicalize().unwrap().display().to_string();
    let folder = Path::new(env!("CARGO_BIN_EXE_toolgate")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());

    let (mut printed, mut ran) = (String::new(), 0);
    for Block { language, file, text } in blocks(&page) {
        let (appends, file) = file.strip_prefix(">>").map_or((false, file.as_str()), |file| (true, file));
        match (language.as_str(), file.strip_prefix("~/")) {
            // A file of the reader's own, which is also an example where it is a program.
            (_, Some(own)) => {
                let path = place.home().join(own);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                let before = if appends { fs::read_to_string(&path).unwrap() } else { String::new() };
                fs::write(&path, format!("{before}{text}")).unwrap();
                if language != "yaml" {
                    let example = format!("examples/{}", path.file_name().unwrap().to_str().unwrap());
                    assert_eq!(read(&example), text, "{example} and the page differ");
                }
            }
            ("rust", _) => assert!(read(file).contains(&text), "{file} has no such lines:\n{text}"),
            ("sh", _) => {
                let mut shell = Command::new("bash");
                shell.args(["-c", &text]).current_dir(place.work()).env_clear().env("PATH", &path).env("HOME", &home);
                let output = shell.output().unwrap();
                printed = String::from_utf8(output.stdout).unwrap().replace(&home, "~");
                printed.push_str(&String::from_utf8(output.stderr).unwrap().replace(&home, "~"));
                ran += 1;
            }
            ("text", _) => assert_eq!(printed, text, "what the block before it prints"),
            _ => panic!("a block of {language} that nobody runs:\n{text}"),
        }
    }
    assert!(ran >= 4, "the page has blocks that run");
}
