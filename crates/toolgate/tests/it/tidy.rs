//! What no compiler and no lint sees: the arrows between crates, forgotten files, names in the wrong place, docs out of step.
//!
//! Each test collects everything that is wrong and fails with the whole list, a file and a reason on each line.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// The workspace's crates, and which of them each may use (ARCHITECTURE.md, the code map). Test dependencies count too.
const ARROWS: &[(&str, &[&str])] = &[
    ("toolgate-core", &[]),
    ("toolgate-runtime", &["toolgate-core"]),
    ("toolgate-mcp", &["toolgate-runtime", "toolgate-core"]),
    ("toolgate-agent", &["toolgate-runtime", "toolgate-core"]),
    ("toolgate", &["toolgate-core", "toolgate-runtime", "toolgate-mcp", "toolgate-agent"]),
];

/// Libraries that bring an outside thing with them, and the crates that may use them: networks, the kernel, terminals.
const OUTSIDE: &[(&str, &[&str])] = &[
    ("clap", &["toolgate"]),
    ("jiff", &["toolgate-runtime"]),
    ("libc", &["toolgate-runtime"]),
    ("reedline", &["toolgate"]),
    ("reqwest", &["toolgate-agent"]),
    ("rustix", &["toolgate-runtime", "toolgate"]),
    ("serde-saphyr", &["toolgate"]),
    ("tokio", &["toolgate-runtime", "toolgate-mcp", "toolgate-agent", "toolgate"]),
];

/// Modules of the standard library that would make `core` impure.
const IMPURE: &[&str] = &["fs", "env", "net", "process", "thread", "io", "time", "os"];

/// Source files that may lift clippy.toml's bans, all of it or one item. Each says why.
const TOUCHES_THE_MACHINE: &[&str] = &[
    "crates/toolgate-agent/examples/agent.rs",
    "crates/toolgate-runtime/examples/call.rs",
    "crates/toolgate-runtime/examples/custom_tool.rs",
    "crates/toolgate-runtime/examples/own_executors.rs",
    "crates/toolgate-runtime/src/files/local.rs",
    "crates/toolgate-runtime/src/files/missing.rs",
    "crates/toolgate-runtime/src/files/replace.rs",
    "crates/toolgate-runtime/src/files/resolve.rs",
    "crates/toolgate-runtime/src/output/mod.rs",
    "crates/toolgate-runtime/src/output/spill.rs",
    "crates/toolgate-runtime/src/process/login_env.rs",
    "crates/toolgate-runtime/src/process/link.rs",
    "crates/toolgate-runtime/src/process/supervisor.rs",
    "crates/toolgate-runtime/src/process/tree.rs",
    "crates/toolgate-runtime/src/trace.rs",
    "crates/toolgate-runtime/src/workspace.rs",
    "crates/toolgate/src/cli/chat/editor.rs",
    "crates/toolgate/src/cli/config.rs",
    "crates/toolgate/src/cli/debug.rs",
    "crates/toolgate/src/cli/demo.rs",
    "crates/toolgate/src/cli/doctor.rs",
    "crates/toolgate/src/cli/model.rs",
    "crates/toolgate/src/cli/print.rs",
    "crates/toolgate/src/cli/trace/export/mod.rs",
    "crates/toolgate/src/cli/trace/find.rs",
    "crates/toolgate/src/cli/trace/search.rs",
    "crates/toolgate/src/config/files.rs",
    "crates/toolgate/src/state.rs",
    "crates/toolgate/src/surroundings.rs",
];

/// Folders of machines that build, put together here so that this file does not name one. Users that examples may have.
const BUILD_PLACES: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
const EXAMPLE_USERS: &[&str] = &["u", "user", "you"];

/// Parts of the names of package registries and their mirrors. Where packages come from is the user's own setting.
const REGISTRIES: &[&str] = &[
    concat!("arti", "factory"),
    concat!("nex", "us."),
    concat!("index.crates", ".io"),
    concat!("static.crates", ".io"),
    concat!("registry.npm", "js"),
    concat!("pypi", ".org"),
    concat!("proxy.go", "lang"),
    concat!("sparse", "+http"),
];

/// Where Cargo.lock says that every package comes from.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[test]
fn crates_use_only_what_stands_below_them() {
    let mut wrong = Vec::new();
    for (name, package) in packages() {
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
            wrong.push(format!("{name}: a crate that ARROWS does not know"));
            continue;
        };
        for used in package["dependencies"].as_array().unwrap() {
            let (used, kind) = (used["name"].as_str().unwrap(), used["kind"].as_str().unwrap_or("normal"));
            let ours = ARROWS.iter().any(|(known, _)| *known == used);
            // A crate's own tests may ask for all that it can be.
            let itself = used == name && kind == "dev";
            if ours && !itself && !allowed.contains(&used) {
                wrong.push(format!("{name} -> {used} ({kind}): the arrow points the wrong way"));
            }
            if OUTSIDE.iter().any(|(library, users)| *library == used && !users.contains(&name.as_str())) {
                wrong.push(format!("{name} -> {used} ({kind}): this crate must not touch what that library touches"));
            }
        }
    }
    complain(wrong);
}

#[test]
fn core_is_pure() {
    let files = sources(&["crates/toolgate-core/src"]).into_iter();
    complain(files.flat_map(|(name, text)| {
        let code = code(&text);
        let found = IMPURE.iter().filter(|module| uses_std(&code, module));
        found.map(|module| format!("{name}: std::{module} is I/O, a clock or the environment")).collect::<Vec<_>>()
    }));
}

#[test]
fn every_tool_is_registered_and_named_nowhere_else() {
    let folder = "crates/toolgate-runtime/src/tools";
    let registry = read(&format!("{folder}/mod.rs"));
    let (mut wrong, mut names) = (Vec::new(), Vec::new());
    for (file, text) in sources(&[folder]) {
        let stem = Path::new(&file).file_stem().unwrap().to_str().unwrap().to_owned();
        if stem == "mod" {
            continue;
        }
        let line = |wanted: &str| registry.lines().any(|line| line.trim().starts_with(wanted));
        if !line(&format!("mod {stem};")) {
            wrong.push(format!("{file}: tools/mod.rs has no `mod {stem};`"));
        }
        if header(&text).contains("no tool itself") {
            continue;
        }
        if !line(&format!("Arc::new({stem}::")) {
            wrong.push(format!("{file}: tools/mod.rs has no line `Arc::new({stem}::…)`"));
        }
        match text.split_once("ToolSpec::new(\"").and_then(|(_, rest)| rest.split_once('"')) {
            Some((name, _)) => names.push((name.to_owned(), file)),
            None => wrong.push(format!(
                "{file}: no `ToolSpec::new(\"NAME\"`; a file that is no tool says `no tool itself` at its top"
            )),
        }
    }
    for (file, text) in
        sources(&["crates/toolgate-core/src", "crates/toolgate-runtime/src", "crates/toolgate-agent/src"])
    {
        let code = code(&text);
        for (name, own) in names.iter().filter(|(_, own)| *own != file) {
            if code.contains(&format!("\"{name}\"")) {
                wrong.push(format!(
                    "{file}: it knows the tool \"{name}\" of {own}; read effects, `summary` and `kind` instead"
                ));
            }
        }
    }
    assert!(!names.is_empty(), "the search for tools finds none, so it has gone blind");
    complain(wrong);
}

#[test]
fn every_integration_test_is_declared() {
    let mut wrong = Vec::new();
    for (name, _) in packages() {
        let folder = format!("crates/{name}/tests/it");
        for (file, _) in sources(&[&folder]) {
            let Some((module, _)) =
                file[folder.len() + 1..].split_once(['.', '/']).filter(|(module, _)| *module != "main")
            else {
                continue;
            };
            if !read(&format!("{folder}/main.rs")).lines().any(|line| line.trim() == format!("mod {module};")) {
                wrong.push(format!("{file}: main.rs has no `mod {module};`, so none of its tests runs"));
            }
        }
    }
    complain(wrong);
}

#[test]
fn every_test_that_the_docs_name_is_there() {
    let everything: String = sources(&["crates"]).into_iter().map(|(_, text)| text).collect();
    let mut wrong = Vec::new();
    for page in ["docs/conformance.md", "docs/cases.md"] {
        let text = read(page);
        let names = text.split('`').skip(1).step_by(2).filter_map(|name| Some((name, name.rsplit_once("::")?.1)));
        let functions = names.filter(|(_, function)| function.contains('_') && !function.contains(' '));
        let gone = functions.filter(|(_, function)| !everything.contains(&format!("fn {function}(")));
        wrong.extend(gone.map(|(name, _)| format!("{page}: `{name}` is nowhere")));
    }
    complain(wrong);
}

#[test]
fn every_line_of_both_parents_stands_in_the_conformance_page_once() {
    let page = read("docs/conformance.md");
    let mut wrong = Vec::new();
    for (letter, count) in [('P', 298), ('L', 234)] {
        let number = |text: &str| text.strip_prefix(letter)?.parse::<usize>().ok();
        let mut next = 1;
        for row in page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | ")) {
            let Some((first, last)) = row.0.split_once('–').or(Some((row.0, row.0))) else { continue };
            let (Some(first), Some(last)) = (number(first), number(last)) else { continue };
            if first != next || last < first {
                wrong.push(format!("docs/conformance.md: {} stands where {letter}{next} should", row.0));
            }
            next = last + 1;
        }
        if next != count + 1 {
            wrong.push(format!("docs/conformance.md: {letter}{next} and what follows are missing"));
        }
    }
    complain(wrong);
}

#[test]
fn every_source_file_says_what_it_is() {
    let folders: Vec<String> = packages().into_iter().map(|(name, _)| format!("crates/{name}/src")).collect();
    let folders: Vec<&str> = folders.iter().map(String::as_str).collect();
    let silent = sources(&folders).into_iter().filter(|(_, text)| !text.starts_with("//! "));
    complain(silent.map(|(file, _)| format!("{file}: its first line is no `//!` that says what it is for")));
}

#[test]
fn what_only_one_file_may_do_stands_in_no_other() {
    let mut wrong = Vec::new();
    for (file, text) in sources(&["crates"]) {
        // The patterns of this file would find themselves.
        if file.ends_with("tests/it/tidy.rs") {
            continue;
        }
        let whole = code_and_tests(&text);
        if !file.ends_with("toolgate-runtime/src/process/spawn.rs") && has_word(&whole, "unsafe") {
            wrong.push(format!("{file}: unsafe code stands in process/spawn.rs and nowhere else"));
        }
        if !file.ends_with("toolgate-runtime/src/gate.rs") && builds_permit(&whole) {
            wrong.push(format!("{file}: a Permit is built in gate.rs and nowhere else"));
        }
        let lifts = code(&text).contains("clippy::disallowed_methods");
        if lifts
            && !file.contains("/tests/")
            && !file.contains("/benches/")
            && !TOUCHES_THE_MACHINE.contains(&file.as_str())
        {
            wrong.push(format!("{file}: it lifts clippy.toml's bans and is not in TOUCHES_THE_MACHINE"));
        }
    }
    wrong.extend(
        TOUCHES_THE_MACHINE.iter().filter(|file| !root().join(file).exists()).map(|file| format!("{file}: it is gone")),
    );
    complain(wrong);
}

#[test]
fn nothing_names_a_build_machine_or_a_registry() {
    let mut wrong = Vec::new();
    let files = repository();
    for file in &files {
        let Ok(text) = fs::read_to_string(root().join(file)) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(place) = BUILD_PLACES.iter().find(|place| names_place(line, place)) {
                wrong.push(format!("{file}:{number}: a path of one machine ({place}…)"));
            }
            let source = line.strip_prefix("source = \"").map(|rest| rest.trim_end_matches('"'));
            if file == "Cargo.lock" && source.is_some_and(|source| source != CRATES_IO) {
                wrong.push(format!("{file}:{number}: a package that is not from crates.io"));
            }
            if let Some(host) = REGISTRIES.iter().find(|host| line.contains(*host)) {
                wrong.push(format!("{file}:{number}: a registry's name ({host})"));
            }
        }
    }
    assert!(files.iter().any(|file| file == "README.md"), "the list of files does not even hold README.md");
    complain(wrong);
}

#[test]
fn docs_name_every_bench_and_example_and_no_other() {
    let (mut wrong, mut known) = (Vec::new(), BTreeSet::new());
    let performance = read("docs/performance.md");
    let readme = read("README.md");
    for (package, value) in packages() {
        for target in value["targets"].as_array().unwrap() {
            let (kind, name) = (target["kind"][0].as_str().unwrap(), target["name"].as_str().unwrap());
            let source = Path::new(target["src_path"].as_str().unwrap());
            if matches!(kind, "bench" | "example") && !source.is_file() {
                wrong.push(format!("{package}: the {kind} {name} has no file {}", source.display()));
            }
            let call = format!("cargo bench -p {package} --bench {name}");
            if kind == "bench" && !performance.contains(&call) {
                wrong.push(format!("docs/performance.md: it does not say `{call}`"));
            }
            if kind == "example" && !readme.contains(&format!("examples/{name}.rs")) {
                wrong.push(format!("README.md: it does not name examples/{name}.rs"));
            }
            known.insert(format!("{package} --bench {name}"));
        }
    }
    for call in performance.split("cargo bench -p ").skip(1) {
        let call = call.split(['`', '\n', '#']).next().unwrap().trim();
        if !known.contains(call) {
            wrong.push(format!("docs/performance.md: there is no bench for `cargo bench -p {call}`"));
        }
    }
    complain(wrong);
}

#[test]
fn ci_runs_what_the_readme_promises() {
    let readme = read("README.md");
    let block = readme.split_once("## Two commands").expect("README.md has a section `Two commands`").1;
    let block = block.split_once("```sh\n").expect("it holds a block").1.split_once("```").unwrap().0;
    let commands: Vec<&str> =
        block.lines().map(|line| line.split('#').next().unwrap().trim()).filter(|line| !line.is_empty()).collect();
    let [demo, test] = commands[..] else { panic!("README.md: exactly two commands, not {commands:?}") };

    let script = read(".ci/run");
    let lines: Vec<&str> = script.lines().map(str::trim).collect();
    assert!(lines.contains(&test), ".ci/run has no line `{test}`");
    assert!(script.contains(&format!("$({demo})")), ".ci/run does not capture `$({demo})`");
    let mode = fs::metadata(root().join(".ci/run")).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0o111, ".ci/run is not executable");
}

/// Fails with the whole list.
fn complain(wrong: impl IntoIterator<Item = String>) {
    let wrong: Vec<String> = wrong.into_iter().collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The workspace's packages by name, as cargo sees them.
fn packages() -> Vec<(String, Value)> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = Command::new(cargo).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.map(|package| (package["name"].as_str().unwrap().to_owned(), package.clone())).collect()
}

/// Every Rust file below these folders, as its path from the root and its text. A folder that is not there has none.
fn sources(folders: &[&str]) -> Vec<(String, String)> {
    let mut files = Vec::new();
    folders.iter().for_each(|folder| walk(&root().join(folder), &mut files));
    let rust = files.into_iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs"));
    rust.map(|file| (name_of(&file), fs::read_to_string(&file).unwrap())).collect()
}

fn name_of(file: &Path) -> String {
    file.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()
}

/// Every file below a folder, but for what is built and what git keeps for itself.
fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        match entry.file_name().unwrap().to_str() {
            Some("target" | ".git") => {}
            _ if entry.is_dir() => walk(&entry, files),
            _ => files.push(entry),
        }
    }
}

/// The repository's files, those that are about to be added too. Without git, everything that is there.
fn repository() -> Vec<String> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    match Command::new("git").args(arguments).current_dir(root()).output() {
        Ok(output) if output.status.success() => {
            let names = String::from_utf8(output.stdout).unwrap();
            names.split_terminator('\0').map(str::to_owned).collect()
        }
        _ => {
            let mut files = Vec::new();
            walk(&root(), &mut files);
            files.iter().map(|file| name_of(file)).collect()
        }
    }
}

/// The `//!` lines at a file's top.
fn header(text: &str) -> String {
    text.lines().take_while(|line| line.starts_with("//!")).collect::<Vec<_>>().join("\n")
}

/// A file without its comments and without its unit tests, which stand at its end.
fn code(text: &str) -> String {
    code_and_tests(text.split("\n#[cfg(test)]\n").next().unwrap())
}

/// A file without its comment lines.
fn code_and_tests(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| line.split(" // ").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Whether a word stands there by itself.
fn has_word(text: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_' || c == '"';
    text.match_indices(word).any(|(at, _)| !text[..at].ends_with(joins) && !text[at + word.len()..].starts_with(joins))
}

/// Whether code uses a module of the standard library, by its path or in a list of imports.
fn uses_std(code: &str, module: &str) -> bool {
    let imported = code.split("use std::{").skip(1).any(|rest| has_word(rest.split("};").next().unwrap(), module));
    imported || has_word(code, &format!("std::{module}"))
}

/// Whether a `Permit { … }` is an expression or a pattern, not a declaration or a function's result.
fn builds_permit(code: &str) -> bool {
    let declared = ["struct ", "impl ", "for ", "-> ", "&'a ", "&"];
    code.match_indices("Permit {").any(|(at, _)| {
        let before = &code[..at];
        !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
            && !declared.iter().any(|words| before.ends_with(words))
    })
}

/// Whether a line holds an absolute path below such a place.
fn names_place(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let relative = line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.~})*".contains(c));
        let user =
            line[at + place.len()..].split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').next().unwrap();
        let example = place.contains("ome") && EXAMPLE_USERS.contains(&user);
        !relative && !example
    })
}

#[test]
fn the_searches_see_what_they_look_for() {
    assert!(
        has_word("x = unsafe { y }", "unsafe")
            && !has_word("unsafe_code", "unsafe")
            && !has_word("\"unsafe\"", "unsafe")
    );
    assert!(
        builds_permit("Ok(Permit { call })")
            && !builds_permit("pub fn permit() -> Permit {")
            && !builds_permit("struct Permit {")
    );
    assert!(uses_std("use std::{\n    fmt,\n    io::{self, Write},\n};", "io") && uses_std("std::fs::read(x)", "fs"));
    assert!(!uses_std("use std::{fmt, sync::Arc};\nlet io = 1;", "io"));
    let [work, _, home] = BUILD_PLACES else { panic!("three places") };
    for (line, found) in [
        (format!("cd {work}x"), true),
        (format!("see {home}someone/x"), true),
        (format!("see {home}u/x and {home}user"), false),
        (format!("crates{work}x"), false),
    ] {
        assert_eq!(BUILD_PLACES.iter().any(|place| names_place(&line, place)), found, "{line}");
    }
    assert_eq!(code("a\n// b\nc // d\n#[cfg(test)]\nmod tests {}"), "a\nc");
}

/// The runtime is a library for other programs, so what it brings along is bounded.
#[test]
fn the_runtime_brings_few_packages() {
    const MOST: usize = 70;
    let output = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["tree", "--offline", "-p", "toolgate-runtime", "-e", "normal,build", "--prefix", "none"])
        .current_dir(root())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let packages: std::collections::BTreeSet<&str> = text.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    assert!(packages.len() > 10 && packages.len() < MOST, "{} packages: {packages:?}", packages.len());
}
