//! The configuration as people meet it: what is wrong is named with its place, layers count in their order, and nothing that limits is
//! left out in silence.

use std::{
    io::{Read, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
};

use serde_json::{Value, json};

use crate::support::{Place, outcome};

/// A place whose program sees no configuration but the test's own, and no server of this machine.
struct Setting {
    place: Place,
    vars: Vec<(&'static str, String)>,
}

impl Setting {
    fn new() -> Self {
        let place = Place::new();
        let managed = place.home().join("managed.yaml").display().to_string();
        Self { place, vars: vec![("TOOLGATE_MANAGED_CONFIG", managed), ("TOOLGATE_LOCAL_SERVERS", "none=".into())] }
    }

    /// With a user's configuration.
    fn user(text: &str) -> Self {
        let setting = Self::new();
        setting.write(".config/toolgate/config.yaml", text);
        setting
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.vars.push((name, value.to_owned()));
        self
    }

    /// Writes a file below the home.
    fn write(&self, path: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.place.home().join(path);
        write(&path, text)
    }

    /// Writes the project's configuration.
    fn project(&self, text: &str) -> String {
        write(&self.place.work().join(".toolgate/config.yaml"), text)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.toolgate(args);
        command.envs(self.vars.iter().map(|(name, value)| (*name, value.as_str())));
        command
    }

    fn run(&self, args: &[&str]) -> (i32, String, String) {
        outcome(self.command(args).output().unwrap())
    }

    /// `config show --json` with these flags.
    fn shown(&self, args: &[&str]) -> Value {
        let (code, out, err) = self.run(&[&["config", "show", "--json"], args].concat());
        assert_eq!(code, 0, "{err}");
        serde_json::from_str(&out).unwrap()
    }

    /// One run of a scripted model, and the names of the tools that it was offered.
    fn tools(&self, args: &[&str]) -> (Vec<String>, String) {
        let script = self.place.script(&json!([{ "text": "done" }]));
        let (code, _, err) = self.run(&[&["run", "go", "--api", "script", "--model", &script], args].concat());
        assert_eq!(code, 0, "{err}");
        let records = self.place.records();
        let list = records.iter().find(|record| record["payload"]["type"] == "tool_list_ready").unwrap();
        let names = list["payload"]["tools"].as_array().unwrap().iter();
        (names.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect(), err)
    }

    /// What `toolgate models` would choose.
    fn chosen(&self) -> Value {
        let (code, out, err) = self.run(&["models", "--json"]);
        assert_eq!(code, 0, "{err}");
        serde_json::from_str::<Value>(&out).unwrap()["chosen"].clone()
    }
}

fn write(path: &Path, text: impl AsRef<[u8]>) -> String {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    path.display().to_string()
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_a_next_step() {
    for (text, line, part) in [
        ("modles: []\n", 1, "`modles` is no key; did you mean `models`?"),
        ("max_turns: 1\npermissions:\n  dney: []\n", 3, "did you mean `deny`?"),
        ("- a\n- b\n", 1, "a map of keys"),
        ("just text\n", 1, "a map of keys"),
        ("max_turns: many\n", 1, "max_turns: the text \"many\" stands where"),
        ("max_turns: 1\nmax_turns: 2\n", 2, "`max_turns` stands there twice"),
        ("tools:\n  parallel: yes\n", 2, "the text \"yes\" stands where a boolean belongs"),
        ("tools:\n  max_parallel: 0\n", 2, "would run nothing"),
        ("tools: [exec_command]\n", 1, "tools: a map belongs there; there is builtin, exclude, external, parallel"),
        ("tools:\n\tbuiltin: []\n", 2, "tab"),
        ("tools:\n  builtin: everything\n", 2, "`everything` is no set of tools"),
        ("tools:\n  exclude: [exec_comand]\n", 2, "did you mean `exec_command`?"),
        ("tools:\n  exclude: [x*]\n", 2, "there is no tool `x*`"),
        ("tools:\n  builtin:\n    - exec_command\n    - exec_command\n", 4, "two tools are named `exec_command`"),
        ("tools:\n  builtin:\n    - exec_comand\n", 3, "did you mean `exec_command`?"),
        ("tools:\n  builtin:\n    - name: exec_command\n      timeout: 5\n", 4, "`timeout` is no key here"),
        ("tools:\n  builtin:\n    - name: exec_command\n      timeoutMs: soon\n", 4, "timeoutMs: the text \"soon\""),
        (
            "tools:\n  builtin:\n    - name: exec_command\n      parameters: {type: array}\n",
            3,
            "arguments are an object",
        ),
        ("tools:\n  builtin:\n    - true\n", 3, "`true` without quotes"),
        ("tools:\n  mcpServers:\n    a: {}\n", 3, "needs a `command`"),
        ("tools:\n  mcpServers:\n    a: {command: x, url: y}\n", 3, "not both"),
        ("models:\n  - id: m\n", 2, "the key `provider` is missing"),
        ("models:\n  - provider: p\n    id: m\n    api: openai\n", 4, "api: `openai` is not known here"),
        ("models:\n  - provider: p\n    id: 4\n", 3, "id: the number 4 stands where a string belongs"),
        ("models:\n  - {provider: p, id: m}\n  - {provider: p, id: m}\n", 3, "two models are named p/m"),
        ("models:\n  - {provider: p, id: \"\"}\n", 2, "half a pair"),
        ("default_model: gpt\n", 1, "`gpt` is half a pair"),
        ("default_model:\n  provider: openai\n", 2, "the key `id` is missing"),
        ("agents:\n  a:\n    tools: [nonsense_tool]\n", 3, "there is no tool `nonsense_tool`"),
        ("permissions:\n  mode: maybe\n", 2, "`maybe` is no approval mode"),
        (
            "permissions:\n  deny:\n    - Bash(rm *)\n    - true\n",
            4,
            "`true` without quotes is a yes or no and no rule",
        ),
        ("permissions:\n  deny:\n    - Bash(rm\n", 3, "the closing parenthesis is missing"),
        ("permissions:\n  ask: [curl]\n", 2, "a rule for the command is written Bash(curl)"),
        ("permissions:\n  ask: [Shell(curl)]\n", 2, "`Shell` is no tool"),
        ("permissions:\n  deny:\n    - *\n", 3, "quotes"),
        ("permissions:\n  tests:\n    - {cmd: ls, expect: alow}\n", 3, "did you mean `allow`?"),
        (
            "permissions:\n  tests:\n    - {cmd: ls, expect: allow}\n",
            3,
            "is expected to be allow, and the rules say ask",
        ),
        ("network: maybe\n", 1, "there is on, off, or a list of hosts"),
        ("network: true\n", 1, "`true` without quotes"),
        ("login_shell: never\n", 1, "`never` is not known here; there is once, per_command, off"),
        ("env:\n  set:\n    A: 1\n", 3, "the number 1 stands where a string belongs"),
        ("env:\n  set:\n    A=B: x\n", 3, "cannot be a variable's name"),
        ("compaction:\n  mode: sumarize\n", 2, "did you mean `summarize`?"),
        ("thinking: very\n", 1, "`very` is not known here"),
        ("sandbox:\n  mode: none\n", 2, "`none` is not known here"),
        ("sandbox:\n  mode: read-only\n", 2, "there is no sandbox yet"),
        ("sandbox:\n  required: true\n", 2, "there is no sandbox yet"),
        ("network: [example.com]\n", 1, "could hold the network back"),
        ("hooks:\n  - run: x\n", 2, "a map of lists by event belongs there"),
        ("hooks:\n  PreTooluse: []\n", 2, "did you mean `PreToolUse`?"),
        ("hooks:\n  PreToolUse:\n    - matcher: Bash\n", 3, "PreToolUse: the key `command` is missing"),
        ("hooks:\n  PreToolUse:\n    - command: x\n      timeouts: 1\n", 4, "did you mean `timeout`?"),
        ("hooks:\n  PreToolUse:\n    - command: \"\"\n", 3, "command: a line of shell belongs there"),
        ("hooks:\n  PreToolUse:\n    - {command: x, timeout: 0}\n", 3, "seconds from above 0"),
        ("hooks:\n  PreToolUse:\n    - {command: x, on_failure: ignore}\n", 3, "`ignore`"),
        (
            "hooks:\n  PreToolUse:\n    - {command: x, matcher: \"read,write\"}\n",
            3,
            "matcher: `read,write` is no name of a tool",
        ),
        ("hooks:\n  Stop:\n    - {command: x, matcher: read}\n", 3, "a matcher counts for nothing here"),
        (
            "hooks:\n  PreToolUse:\n    - matcher: Bash\n      hooks:\n        - {type: prompt, command: x}\n",
            5,
            "`prompt`",
        ),
        ("permissions:\n  policy: token-allowlist\n", 2, "is not built yet"),
        ("tools:\n  external:\n    - {name: a, description: A}\n", 3, "the key `command` is missing"),
        (
            "tools:\n  external:\n    - name: read\n      description: A\n      command: [a]\n",
            3,
            "`read` is the name of a built-in tool",
        ),
        (
            "tools:\n  external:\n    - name: a\n      description: A\n      command: []\n",
            5,
            "a: command: a list of a program",
        ),
        (
            "tools:\n  external:\n    - name: a\n      description: A\n      command: [b]\n      effects:\n        - read: \"{x}\"\n",
            7,
            "a: effects: `{x}` is no argument",
        ),
        (
            "tools:\n  external:\n    - name: a\n      description: A\n      command: [b]\n      effects:\n        - erase: x\n",
            7,
            "`erase`",
        ),
        (
            "tools:\n  external:\n    - name: a\n      description: A\n      command: [b]\n      timeout: 1\n",
            6,
            "timeoutMs",
        ),
    ] {
        let setting = Setting::user(text);
        let place = format!("{}:{line}: ", setting.place.home().join(".config/toolgate/config.yaml").display());
        for args in [&["config", "check"][..], &["call", "exec_command", r#"{"cmd":"touch made"}"#]] {
            let (code, out, err) = setting.run(args);
            assert!(code == 3 && out.is_empty(), "{text:?}: {code} {out}{err}");
            assert!(err.contains(&place) && err.contains(part) && err.contains("\nhint: "), "{text:?}: {err}");
        }
        assert!(!setting.place.work().join("made").exists());
    }
}

/// A program as a tool: rules may speak of it wherever they stand, its program is found from its file, and a project brings none by itself.
#[test]
fn a_program_of_ones_own_is_a_tool() {
    let declared = |name: &str, program: &str| {
        format!(
            "tools:\n  external:\n    - name: {name}\n      description: Says what it got.\n      protocol: text\n      command: [{program}]\n      \
             parameters: {{type: object, properties: {{path: {{type: string}}}}}}\n      effects:\n        - read: \"{{path}}\"\n"
        )
    };
    let script = "#!/bin/sh\necho \"got $(cat) in $(pwd)\"\n";
    let setting = Setting::user(&format!("permissions:\n  ask: [theirs]\n{}", declared("mine", "./mine.sh")));
    let runnable = |path: &str| std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    runnable(&setting.write(".config/toolgate/mine.sh", script));
    setting.project(&declared("theirs", "./theirs.sh"));
    runnable(&write(&setting.place.work().join(".toolgate/theirs.sh"), script));

    let work = setting.place.work().display().to_string();
    let call = |args: &[&str]| setting.run(&[&["call"], args].concat());
    let (code, out, err) = call(&["mine", r#"{"path":"a"}"#, "--approve", "read-only"]);
    assert_eq!((code, out.trim_end()), (0, format!("got {{\"path\":\"a\"}} in {work}").as_str()), "{err}");
    let (code, out, _) = call(&["mine", "{}", "--deny", "mine"]);
    assert!(code == 4 && out.contains("denied by policy"), "{out}");
    let (code, out, err) = call(&["theirs", "{}"]);
    assert!(code == 1 && out.contains("Unknown tool: theirs") && err.contains("not trusted"), "{out}{err}");
    let (code, out, _) = call(&["theirs", "{}", "--trust"]);
    assert!(code == 4 && out.contains("denied by policy"), "the user's rule speaks of the project's tool: {out}");

    for (tools, there) in [
        ("--tools=read", false),
        ("--tools=read,mine", true),
        ("--tools=minimal", true),
        ("--tools=read-only", false),
        ("--no-tools", false),
    ] {
        let out = call(&["mine", "{}", tools]).1;
        assert_eq!(!out.contains("Unknown tool"), there, "{tools}: {out}");
    }
    let listed = setting.run(&["tools", "--json"]).1;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert!(listed["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "mine" && tool["offered"] == true));
    let (code, out, _) = setting.run(&["tools", "show", "mine"]);
    assert!(code == 0 && out.contains("Says what it got."), "{out}");
    let setting = Setting::user(&declared("mine", "no-such-program"));
    let (code, _, err) = setting.run(&["config", "check"]);
    assert!(code == 0 && err.contains("mine needs no-such-program on PATH"), "{code} {err}");
}

/// A hook guards a call, whichever layer it is from; a project brings none by itself, and a name that means no tool is pointed out.
#[test]
fn hooks_of_all_layers_are_asked() {
    let line = r#"echo \"no: $(cat | grep -o '\"tool_input\":{[^}]*}')\" >&2; exit 2"#;
    let guard = |matcher: &str| format!("hooks:\n  PreToolUse:\n    - matcher: {matcher}\n      command: \"{line}\"\n");
    let call = |setting: &Setting, args: &[&str]| {
        setting.run(&[&["call", "exec_command", r#"{"cmd":"touch made"}"#], args].concat())
    };
    let setting = Setting::user(&guard("Bash"));
    let (code, out, err) = call(&setting, &[]);
    assert!(code == 4 && out.contains(r#"config.yaml:3): no: "tool_input":{"cmd":"touch made"}"#), "{code} {out}{err}");
    assert!(!setting.place.work().join("made").exists());

    let nested = "hooks:\n  PreToolUse:\n    - matcher: \"exec_.*\"\n      hooks:\n        - type: command\n          command: [./guard.sh]\n";
    let setting = Setting::user("hooks:\n  PreToolUse:\n    - command: \"true\"\n");
    setting.project(nested);
    let script = write(&setting.place.work().join(".toolgate/guard.sh"), "#!/bin/sh\necho project >&2; exit 2\n");
    std::fs::set_permissions(script, PermissionsExt::from_mode(0o755)).unwrap();
    let (code, _, err) = call(&setting, &[]);
    assert!(code == 0 && err.contains("not trusted"), "{err}");
    let (code, out, _) = call(&setting, &["--trust"]);
    assert!(code == 4 && out.ends_with("config.yaml:5): project\n"), "both layers' hooks are asked: {out}");

    let (code, _, err) = Setting::user(&guard("exec_comand|mine*")).run(&["config", "check"]);
    assert!(code == 0 && err.contains("config.yaml:3: the matcher's `exec_comand` is no tool"), "{err}");
}

/// Hooks around a run: what they add is heard, what they block is told with an exit code, and the trace shows each of them.
#[test]
fn hooks_hear_a_run_from_its_prompt_to_its_end() {
    let hooks = "hooks:\n  UserPromptSubmit:\n    - command: grep -q '\"prompt\":\"go\"' && echo be quick || { echo only go >&2; exit 2; }\n  \
                 Stop:\n    - command: exit 1\n  SessionEnd:\n    - command: touch over\n";
    let setting = Setting::user(hooks);
    let script = setting.place.script(&json!([{ "text": "one" }]));
    let run = |prompt: &str| setting.run(&["run", prompt, "--api", "script", "--model", &script]);
    let (code, out, err) = run("go");
    assert!(code == 0 && out == "one\n", "{out}{err}");
    assert!(
        err.contains("hook exit 1 (") && err.contains("it failed: exit code 1"),
        "people are told of a failure: {err}"
    );
    assert!(setting.place.work().join("over").exists());
    let (code, shown, _) = setting.run(&["trace", "show", setting.place.trace().to_str().unwrap()]);
    assert!(code == 0 && shown.contains("[from a hook]") && shown.contains("be quick"), "{shown}");
    for part in ["hook UserPromptSubmit grep", "hook Stop exit 1", "hook SessionEnd touch over"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let (code, out, err) = run("stay");
    assert!(
        code == 1 && out.is_empty() && err.contains("stopped: the hook ") && err.contains(": only go"),
        "{out}{err}"
    );
    let (_, doctor, _) = setting.run(&["doctor"]);
    assert!(doctor.contains("Stop: exit 1 ("), "{doctor}");
}

#[test]
fn what_is_no_file_of_text_is_refused_and_what_is_not_there_is_not() {
    let file = ".config/toolgate/config.yaml";
    let bomb = (0..9).fold("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, i| {
        format!("{text}a{}: &a{} [{}]\n", i + 1, i + 1, format!("*a{i},").repeat(10))
    });
    type Make = fn(&Path);
    let odd: [(Make, &str); 3] = [
        (|path| std::fs::create_dir_all(path).unwrap(), "it is a folder"),
        (|path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success()), "it is no ordinary file"),
        (|path| std::fs::write(path, vec![b'#'; 2_000_000]).unwrap(), "it has 2000000 bytes"),
    ];
    for (make, part) in odd {
        let setting = Setting::new();
        let path = setting.place.home().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        make(&path);
        let (code, _, err) = setting.run(&["config", "check"]);
        assert!(code == 3 && err.contains(part) && err.contains("hint: "), "{err}");
    }
    for (bytes, part) in [
        (&b"a: 1\n\xff\xfe"[..], "config.yaml:2: it is no UTF-8 text"),
        (b"a: 1\nb: \0\n", "config.yaml:2: it holds a NUL"),
        (b"\x7fELF\x02\x01\x01\0\0", "it holds a NUL"),
        (bomb.as_bytes(), "too much or too deep"),
        ("a: ".repeat(200).as_bytes(), "config.yaml:1: "),
        ("[".repeat(5000).as_bytes(), "too much or too deep"),
    ] {
        let setting = Setting::new();
        setting.write(file, bytes);
        let (code, _, err) = setting.run(&["config", "check"]);
        assert!(code == 3 && err.contains(part), "{err}");
    }
    let nothing = Setting::new();
    assert_eq!(nothing.run(&["config", "check"]).0, 0);
    std::fs::write(nothing.place.work().join(".toolgate"), "a file").unwrap();
    assert_eq!(nothing.run(&["config", "check"]).0, 0);
    for empty in ["", "# nothing\n", "\u{feff}max_turns: 3\n", "permissions:\n  deny:\n"] {
        assert_eq!(Setting::user(empty).run(&["config", "check"]).0, 0, "{empty:?}");
    }
    let (code, _, err) = nothing.run(&["call", "exec_command", "{}", "--config", "nowhere.yaml"]);
    assert!(code == 2 && err.contains("there is no file nowhere.yaml"), "{err}");
}

#[test]
fn later_layers_replace_earlier_ones_and_rules_add_up() {
    let setting = Setting::user("max_turns: 1\nthinking: low\npermissions:\n  deny: [Bash(a *)]\n  mode: deny-all\n");
    setting.project(
        "max_turns: 2\ntools:\n  builtin: [exec_command]\npermissions:\n  deny: [Bash(b *)]\n  allow: [Bash(c)]\n",
    );
    let extra = setting.write("extra.yaml", "permissions:\n  deny: [Bash(d *)]\n  mode: always-ask\n");
    let trusting = setting.write("trusting.yaml", "trust: {default: allow}\n");
    let value = |shown: &Value, key: &str| shown[key]["value"].clone();
    let denied = |shown: &Value| {
        let each = shown["permissions.deny"].as_array().unwrap().iter();
        each.map(|said| said["value"][0].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };

    let untrusted = setting.shown(&[]);
    assert_eq!(
        (value(&untrusted, "max_turns"), untrusted["tools.builtin"]["source"].clone()),
        (1.into(), "built in".into())
    );
    assert_eq!(denied(&untrusted), ["Bash(a *)", "Bash(b *)"]);
    assert_eq!(untrusted["permissions.allow"]["source"], "built in");
    let (_, _, err) = setting.run(&["config", "show"]);
    assert!(err.contains("this project is not trusted, so only its deny and ask rules count"), "{err}");

    let trusted = setting.shown(&["--trust", "--config", &extra, "--deny", "Bash(e)"]);
    assert_eq!(value(&trusted, "max_turns"), 2);
    let source = trusted["max_turns"]["source"].as_str().unwrap();
    assert!(source.ends_with(".toolgate/config.yaml:1"), "{source}");
    assert_eq!(value(&trusted, "permissions.mode"), "always-ask");
    assert_eq!(denied(&trusted), ["Bash(a *)", "Bash(b *)", "Bash(d *)", "Bash(e)"]);
    assert_eq!(trusted["permissions.allow"][0]["value"][0], "Bash(c)");

    let setting = setting.with("TOOLGATE_APPROVE", "read-only");
    let shown = setting.shown(&["--config", &extra]);
    assert_eq!(
        (value(&shown, "permissions.mode"), &shown["permissions.mode"]["source"]),
        ("read-only".into(), &"$TOOLGATE_APPROVE".into())
    );
    let shown = setting.shown(&["--approve", "allow-all"]);
    assert_eq!(
        (value(&shown, "permissions.mode"), &shown["permissions.mode"]["source"]),
        ("allow-all".into(), &"--approve".into())
    );
    setting.write("managed.yaml", "permissions:\n  mode: deny-all\ntrust:\n  default: allow\n");
    let shown = setting.shown(&["--approve", "allow-all"]);
    assert_eq!((value(&shown, "permissions.mode"), value(&shown, "max_turns")), ("deny-all".into(), 2.into()));
    let (code, out, _) = setting.run(&["call", "exec_command", r#"{"cmd":"true"}"#, "--approve", "allow-all"]);
    assert!(code == 4 && out.contains("deny-all"), "{out}");
    assert_eq!(value(&setting.shown(&["--no-trust"]), "max_turns"), 1);

    for (managed, args, turns) in [
        ("trust: {default: deny}\n", &["--trust"][..], 1),
        ("trust: {default: ask}\n", &["--trust"], 2),
        ("trust: {default: ask}\n", &[], 1),
        ("", &["--config", &trusting], 2),
        ("", &["--config", &trusting, "--no-trust"], 1),
        ("trust: {default: deny}\n", &["--config", &trusting], 1),
    ] {
        setting.write("managed.yaml", managed);
        assert_eq!(value(&setting.shown(args), "max_turns"), turns, "{managed} {args:?}");
    }

    setting.project("trust:\n  default: allow\n");
    let (code, _, err) = setting.run(&["config", "check"]);
    assert!(code == 3 && err.contains("a project cannot say that it is trusted"), "{err}");
    setting.project("permissions:\n  deny: [oops]\n");
    let (code, _, err) = setting.run(&["config", "check"]);
    assert!(code == 3 && err.contains(".toolgate/config.yaml:2: ") && err.contains("Bash(oops)"), "{err}");
}

#[test]
fn rules_decide_and_an_allow_rule_that_cannot_be_read_is_dropped_loudly() {
    let setting =
        Setting::user("permissions:\n  mode: read-only\n  allow:\n    - Bash(echo *)\n    - true\n    - echo\n");
    let call = |args: &[&str]| {
        let (code, out, err) =
            setting.run(&[&["call", "exec_command", r#"{"cmd":"echo hi"}"#, "--json"], args].concat());
        (code, serde_json::from_str::<Value>(&out).unwrap_or_default()["decision"].clone(), err)
    };
    let (code, decision, err) = call(&[]);
    assert!(code == 0 && decision["rule"] == "Bash(echo *)", "{decision}{err}");
    assert!(decision["reason"].as_str().unwrap().contains("config.yaml:4"), "{decision}");
    assert!(
        err.contains("config.yaml:5: `true` without quotes") && err.contains("config.yaml:6: `echo` is no tool"),
        "{err}"
    );
    assert!(err.contains("the rule is dropped"), "{err}");
    let (code, decision, _) = call(&["--deny", "Bash(echo hi)"]);
    assert!(code == 4 && decision["reason"].as_str().unwrap().contains("(--deny)"), "{decision}");
    assert_eq!(call(&["--ask", "Bash(echo *)"]).0, 4, "nobody is there to ask");
    assert_eq!(call(&["--approve", "always-ask"]).0, 4);
    let (code, _, err) = call(&["--deny", "echo"]);
    assert!(code == 2 && err.contains("--deny: `echo` is no tool"), "{err}");

    let tests = "permissions:\n  allow: [Bash(git status)]\n  deny: [Bash(git push *)]\n  tests:\n    - {cmd: git status, expect: allow}\n    \
                 - {cmd: git push x, expect: deny}\n    - {cmd: ls, expect: ask}\n";
    let setting = Setting::user(tests);
    setting.project("permissions:\n  ask: [Bash(git status)]\n");
    let (code, out, err) = setting.run(&["config", "check"]);
    assert!(code == 0 && out.contains("rules: 3, tests of them: 3"), "{out}{err}");
}

#[test]
fn tools_are_chosen_by_sets_names_and_patterns_and_left_out_by_them() {
    let setting = Setting::user("tools:\n  exclude: [kill_command]\n");
    let three = ["exec_command", "input_command", "kill_command"];
    let reading = ["read", "grep", "find", "ls"];
    for (args, wanted) in [
        (&["--tools", "read-only"][..], &reading[..]),
        (&["--tools", "*_command"], &three[..2]),
        (&["--tools", "*_command", "--exclude-tools", "exec*"], &three[1..]),
        (&["--tools", "*_command", "--exclude-tools", "in*, kill_command"], &three[..1]),
        (&["--tools", "ls, read-only,ls,bash"], &["ls", "read", "grep", "find", "bash"]),
        (&["--tools", "read-only", "--exclude-tools", "mcp__*"], &reading),
        (&["--tools", "read-only", "--exclude-tools", "*"], &[]),
        (&["--tools", ""], &[]),
        (&["--no-tools"], &[]),
    ] {
        assert_eq!(setting.tools(args).0, wanted, "{args:?}");
    }
    let coding = setting.tools(&["--tools", "coding"]).0;
    assert!(coding.contains(&"bash".into()) && !coding.contains(&"exec_command".into()), "{coding:?}");
    for (args, part) in [
        (&["--tools", "bush"][..], "--tools: there is no tool `bush`; did you mean `bash`?"),
        (&["--tools", "x*"], "--tools: there is no tool `x*`"),
        (&["--exclude-tools", "bush"], "--exclude-tools: there is no tool `bush`; did you mean `bash`?"),
        (&["--tools", "bash", "--no-tools"], "cannot be used with"),
    ] {
        let (code, out, err) = setting.run(&[&["run", "go"], args].concat());
        assert!(code == 2 && out.is_empty() && err.contains(part), "{args:?}: {code} {err}");
    }
}

#[test]
fn a_tool_that_needs_a_program_is_there_where_the_program_is() {
    let setting = Setting::user("tools:\n  builtin: [bash, powershell]\n");
    let folder = setting.place.home().join("bin");
    let script = "#!/bin/bash\nprintf '%s|' \"${@:1:5}\"\necho \"${@: -1}\"\n";
    let path = |folders: &str| format!("{folders}:/usr/bin:/bin");
    let run = |path: &str, args: &[&str]| outcome(setting.place.toolgate(args).env("PATH", path).output().unwrap());
    let call = ["call", "powershell", r#"{"command":"Get-Date | Out-Null"}"#];

    let (code, out, err) = run(&path("/none"), &call);
    assert_eq!((code, out.as_str()), (1, "Unknown tool: powershell\n"), "{err}");
    assert!(err.contains("powershell needs pwsh or powershell on PATH, so it is left out"), "{err}");
    let program = write(&folder.join("pwsh"), script);
    let here = folder.display().to_string();
    assert!(run(&path(&here), &call).1.starts_with("Unknown tool"), "a file that nobody may run is no program");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (code, out, err) = run(&path(&here), &call);
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (
            0,
            "-NoProfile|-NonInteractive|-ExecutionPolicy|Bypass|-Command|[Console]::OutputEncoding=[Text.UTF8Encoding]::new($false); \
             Get-Date | Out-Null\n",
            ""
        )
    );
    // A relative folder on the PATH would be another one for each command.
    std::fs::rename(&folder, setting.place.work().join("bin")).unwrap();
    assert!(run(&path("bin"), &call).1.starts_with("Unknown tool"));
}

#[test]
fn one_sequential_tool_makes_its_batch_sequential() {
    let calls = json!([{ "calls": [["exec_command", { "cmd": "true" }], ["bash", { "command": "true" }]] }, { "text": "done" }]);
    for (execution, wanted) in [
        ("sequential", ["started", "ended", "started", "ended"]),
        ("parallel", ["started", "started", "ended", "ended"]),
    ] {
        let setting = Setting::user(&format!(
            "tools:\n  builtin:\n    - exec_command\n    - name: bash\n      execution: {execution}\n"
        ));
        let script = setting.place.script(&calls);
        assert_eq!(setting.run(&["run", "go", "--api", "script", "--model", &script]).0, 0);
        let what = |record: &Value| match record["payload"]["type"].as_str() {
            Some("call_started") => Some("started"),
            Some("tool_call_output") => Some("ended"),
            _ => None,
        };
        let order: Vec<&str> = setting.place.records().iter().filter_map(what).collect();
        assert_eq!(order, wanted, "{execution}");
    }
}

#[test]
fn the_list_of_tools_is_whole_and_both_programs_write_it() {
    let only = "# A minimal set on purpose.\ntools:\n  builtin:\n    - name: exec_command\n      description: Run a shell command in the workspace.\n      \
                permission: rw\n      timeoutMs: 120000\n      maxOutputLength: 16000\n  mcpServers: []\n";
    assert_eq!(Setting::user(only).tools(&[]).0, ["exec_command"]);
    let setting = Setting::user("tools:\n  builtin: [kill_command, input_command, describe_image]\n");
    let (tools, err) = setting.tools(&[]);
    assert_eq!(tools, ["kill_command", "input_command"]);
    assert!(!err.contains("describe_image"), "a model that sees images has no need of it: {err}");
    assert_eq!(setting.tools(&["--tools", "exec_command"]).0, ["exec_command"]);
    assert!(setting.tools(&["--tools", "all"]).0.len() > 2);
    let (code, _, err) = setting.run(&["run", "go", "--tools", "exec_command,exec_comand"]);
    assert!(
        code == 2 && err.contains("--tools: there is no tool `exec_comand`; did you mean `exec_command`?"),
        "{err}"
    );

    let theirs = "name: default\nversion: 1\nkernel_version: 3\nsystem_prompt: Be brief.\nmax_turns: -1\nmodel:\n  max_tokens: 1000\n  thinking_level: medium\n  \
                  timeoutMs: 120000\ncompaction:\n  max_context_length: 5000\n  max_session_turns: -1\n  mode: discard\nmemory:\n  enabled: true\nvault:\n  \
                  enabled: false\ntools:\n  builtin:\n    - name: exec_command\n      description: Theirs.\n      parameters: {type: object, properties: {cmd: \
                  {type: string}}, required: [cmd]}\n  mcpServers:\n    - name: files\n      config: {command: mcp-files}\n";
    let setting = Setting::new();
    let file = setting.write("system_config.yaml", theirs);
    let (tools, err) = setting.tools(&["--config", &file]);
    assert_eq!(tools, ["exec_command"]);
    assert!(err.contains("toolgate has no memory, vault, so they are left out"), "{err}");
    let records = setting.place.records();
    assert!(records[0]["payload"]["system_prompt"].as_str().unwrap().starts_with("Be brief.\n"), "{}", records[0]);
    let list = records.iter().find(|record| record["payload"]["type"] == "tool_list_ready").unwrap();
    assert_eq!(list["payload"]["tools"][0]["description"], "Theirs.");
    let shown = setting.shown(&["--config", &file]);
    for (key, wanted) in [
        ("max_tokens", json!(1000)),
        ("thinking", json!("medium")),
        ("compaction.mode", json!("discard")),
        ("compaction.max_context", json!(5000)),
    ] {
        assert_eq!(shown[key]["value"], wanted, "{key}");
    }
}

#[test]
fn the_first_that_names_a_model_chooses_it() {
    let key = |name| Setting::new().with(name, "k-123456789");
    for (setting, provider, why) in [
        (key("OPENAI_API_KEY"), "openai", "the key in $OPENAI_API_KEY"),
        (key("ANTHROPIC_API_KEY"), "anthropic", "the key in $ANTHROPIC_API_KEY"),
        (key("GEMINI_API_KEY"), "google", "the key in $GEMINI_API_KEY"),
        (key("GROQ_API_KEY"), "groq", "the key in $GROQ_API_KEY"),
        (
            key("ANTHROPIC_API_KEY").with("ANTHROPIC_BASE_URL", "http://u:p-123@127.0.0.1:1"),
            "anthropic",
            "the key in $ANTHROPIC_API_KEY",
        ),
        (key("GROQ_API_KEY").with("OPENAI_API_KEY", "k-2"), "openai", "the key in $OPENAI_API_KEY"),
        (key("GROQ_API_KEY").with("TOOLGATE_MODEL", "groq/m"), "groq", "default_model ($TOOLGATE_MODEL)"),
    ] {
        let chosen = setting.chosen();
        assert_eq!((chosen["provider"].as_str(), chosen["why"].as_str()), (Some(provider), Some(why)));
    }
    let elsewhere = key("ANTHROPIC_API_KEY").with("ANTHROPIC_BASE_URL", "http://u:p-123@127.0.0.1:1");
    let (_, out, _) = elsewhere.run(&["models", "--json"]);
    assert!(out.contains("http://[hidden]@127.0.0.1:1") && !out.contains("p-123"), "{out}");
    let text = "default_model: mine/m\nmodels:\n  - provider: mine\n    id: m\n    base_url: http://127.0.0.1:1/v1\n    api_key_env: MY_MODEL\n";
    let mine = Setting::user(text).with("MY_MODEL", "k-hidden-1").with("OPENAI_API_KEY", "k-2");
    let chosen = mine.chosen();
    assert!(chosen["provider"] == "mine" && chosen["why"].as_str().unwrap().ends_with("config.yaml:1)"), "{chosen}");
    let (code, out, _) = mine.run(&["call", "exec_command", r#"{"cmd":"echo [$MY_MODEL] k-hidden-1"}"#]);
    assert_eq!((code, out.as_str()), (0, "[] k-hidden-1\n"), "a model's key reaches no command");
    assert!(!std::fs::read_to_string(mine.place.trace()).unwrap().contains("k-hidden-1"), "nor a trace");
    for (args, part) in [
        (&["run", "go", "--model", "groq/llama"][..], "hint: set GROQ_API_KEY"),
        (&["run", "go", "--model", "claude-x"], "hint: set ANTHROPIC_API_KEY"),
        (&["run", "go", "--model", "m", "--provider", "nobody"], "nothing says where the provider `nobody` is"),
        (&["run", "go", "--base-url", "http://127.0.0.1:1"], "no model is chosen"),
    ] {
        let (code, _, err) = Setting::new().run(args);
        assert!(code == 3 && err.contains(part), "{args:?}: {err}");
    }
    let missing = Setting::user(text);
    let (code, _, err) = missing.run(&["run", "go"]);
    assert!(code == 3 && err.contains("MY_MODEL, which is not set"), "{err}");
}

#[test]
fn a_key_in_a_file_is_used_when_nobody_else_can_read_it() {
    let setting = Setting::new();
    let path = setting.write(".config/toolgate/keys.yaml", "mistral: k-of-mistral\n");
    let (code, _, err) = setting.run(&["models"]);
    assert!(
        code == 3 && err.contains("others than its owner can read it") && err.contains(&format!("chmod 600 {path}")),
        "{err}"
    );
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let chosen = setting.chosen();
    assert_eq!((chosen["provider"].as_str(), chosen["why"].as_str()), (Some("mistral"), Some("the key in keys.yaml")));
    let (_, out, _) = setting.run(&["models"]);
    assert!(out.contains("mistral/") && out.contains("key from keys.yaml") && !out.contains("k-of-mistral"), "{out}");
    std::fs::write(&path, "mistral: [k-of-mistral]\n").unwrap();
    let (code, _, err) = setting.run(&["models"]);
    assert!(code == 3 && err.contains("keys.yaml:1: ") && !err.contains("k-of-mistral"), "{err}");
}

/// A server that lists models, for as long as the test runs.
fn server(models: &Value) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let body = json!({ "object": "list", "data": models }).to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    format!("http://{address}/v1")
}

#[test]
fn the_one_server_of_this_machine_is_used_and_of_several_none() {
    let one = server(&json!([{ "id": "text-embed" }, { "id": "first" }, { "id": "second" }]));
    let other = server(&json!([{ "id": "third" }]));
    let setting = Setting::new().with("TOOLGATE_LOCAL_SERVERS", &format!("here={one},gone=http://127.0.0.1:1/v1"));
    let chosen = setting.chosen();
    assert_eq!((chosen["provider"].as_str(), chosen["id"].as_str()), (Some("here"), Some("first")));
    assert!(chosen["why"].as_str().unwrap().contains(&one), "{chosen}");
    let setting = Setting::new().with("TOOLGATE_LOCAL_SERVERS", &format!("here={one},there={other}"));
    let (code, _, err) = setting.run(&["run", "go"]);
    assert!(
        code == 3 && err.contains(&format!("--base-url {one} --model first, or --base-url {other} --model third")),
        "{err}"
    );
    let (code, _, err) = Setting::new().run(&["run", "go"]);
    assert!(
        code == 3 && err.contains("no server on this machine answers") && err.contains("hint: --model NAME"),
        "{err}"
    );
}

/// A model that answers once, and the request that it got.
fn model() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = String::new();
        let mut part = [0; 65_536];
        loop {
            let read = stream.read(&mut part).unwrap();
            request.push_str(&String::from_utf8_lossy(&part[..read]));
            let whole = request.split_once("\r\n\r\n").is_some_and(|(head, body)| {
                let length = head
                    .to_lowercase()
                    .lines()
                    .find_map(|line| Some(line.strip_prefix("content-length: ")?.parse().unwrap()));
                length.is_none_or(|length: usize| body.len() >= length)
            });
            if whole || read == 0 {
                break;
            }
        }
        let body = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        send.send(request).unwrap();
    });
    (format!("http://{address}/v1"), receive)
}

#[test]
fn what_is_configured_reaches_the_request() {
    let (url, request) = model();
    let text = format!(
        "default_model: mine/m-1\nmax_tokens: 777\nsystem_prompt: Be a test.\ntools: {{builtin: [kill_command]}}\nmodels:\n  - provider: mine\n    id: m-1\n    \
         base_url: {url}\n    api_key_env: MY_MODEL\n    thinking: high\n    max_tokens: 5\n"
    );
    let setting = Setting::user(&text).with("MY_MODEL", "k-of-mine").with("OPENAI_API_KEY", "k-other");
    let (code, out, err) = setting.run(&["run", "go"]);
    assert_eq!((code, out.as_str()), (0, "hi\n"), "{err}");
    let request = request.recv().unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/chat/completions ") && head.contains("Bearer k-of-mine"), "{head}");
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&body["model"], &body["reasoning_effort"]), (&"m-1".into(), &"high".into()), "{body}");
    assert!(body["max_tokens"] == 777 || body["max_completion_tokens"] == 777, "{body}");
    assert_eq!(body["tools"].as_array().unwrap().len(), 1);
    assert!(body["messages"][0]["content"].as_str().unwrap().starts_with("Be a test.\n\nWorkspace: /"), "{body}");
}

#[test]
fn what_was_only_tried_leaves_nothing_behind() {
    let setting = Setting::new();
    assert_eq!(setting.run(&["run", "go"]).0, 3);
    assert_eq!(setting.run(&["run", "go", "--tools", "nothing_known"]).0, 2);
    assert!(!setting.place.home().join(".local/state/toolgate/traces").exists());
}

#[test]
fn what_the_administrator_set_nobody_changes() {
    let setting = Setting::new();
    setting.write("managed.yaml", "permissions:\n  mode: deny-all\n");
    let script = setting
        .place
        .script(&json!([{ "text": "", "calls": [["exec_command", { "cmd": "touch made" }]] }, { "text": "done" }]));
    let mut chat = setting.command(&["chat", "--api", "script", "--model", &script, "--approve", "allow-all"]);
    let mut chat = chat.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    chat.stdin.take().unwrap().write_all(b"/mode allow-all\ngo\n").unwrap();
    let (code, out, err) = outcome(chat.wait_with_output().unwrap());
    assert!(code == 0 && out.contains("done") && err.contains("the mode is set for everybody ("), "{out}{err}");
    assert!(err.contains("managed.yaml:2)") && !setting.place.work().join("made").exists(), "{err}");
}

#[test]
fn variables_and_the_login_shell_are_as_configured() {
    let setting = Setting::user("env:\n  pass: [MY_TOKEN]\n  set:\n    ADDED: here\n    SET_SECRET: value-of-it\n")
        .with("MY_TOKEN", "token-value")
        .with("OTHER_TOKEN", "other-value");
    let line = r#"{"cmd":"echo $MY_TOKEN $ADDED [$OTHER_TOKEN] $SET_SECRET"}"#;
    let (code, out, _) = setting.run(&["call", "exec_command", line]);
    assert_eq!((code, out.as_str()), (0, "token-value here [] value-of-it\n"));
    let trace = std::fs::read_to_string(setting.place.trace()).unwrap();
    assert!(trace.contains("[redacted]") && !trace.contains("value-of-it"), "{trace}");
    let (_, out, _) = setting.run(&["config", "show"]);
    assert!(out.contains("SET_SECRET") && out.contains("here") && !out.contains("value-of-it"), "{out}");

    for (word, wanted) in [("once", "from-profile\n"), ("per_command", "from-profile\n"), ("\"off\"", "none\n")] {
        let setting = Setting::user(&format!("login_shell: {word}\n"));
        setting.write(".bash_profile", "export FROM=from-profile\n");
        let (code, out, err) = setting.run(&["call", "exec_command", r#"{"cmd":"echo ${FROM:-none}"}"#]);
        assert_eq!((code, out.as_str()), (0, wanted), "{word}: {err}");
    }
}

#[test]
fn what_cannot_be_held_is_refused() {
    let setting = Setting::new();
    for (args, code, part) in [
        (&["--sandbox", "read-only"][..], 3, "--sandbox: sandbox.mode: there is no sandbox yet"),
        (&["--sandbox", "workspace-write"], 3, "there is no sandbox yet"),
        (&["--sandbox", "loose"], 2, "`loose` is not known here"),
        (&["--network", "off"], 3, "--network: network: "),
        (&["--network", "example.com,example.org"], 3, "--network: network: "),
        (&["--add-dir", "."], 3, "further folders are not built yet"),
        (&["--trust", "--no-trust"], 2, "cannot be used with"),
        (&["--timeout", "soon"], 2, "30s, 5m, 1h"),
    ] {
        let call = [&["call", "exec_command", r#"{"cmd":"touch made"}"#], args].concat();
        let (found, _, err) = setting.run(&call);
        assert!(found == code && err.contains(part), "{args:?}: {found} {err}");
        assert!(!setting.place.work().join("made").exists(), "{args:?}");
    }
    let allowed = &["--sandbox", "off", "--network", "on", "--no-trust", "--timeout", "1h"][..];
    assert_eq!(setting.run(&[&["call", "exec_command", r#"{"cmd":"true"}"#], allowed].concat()).0, 0);
}

#[test]
fn limits_end_a_run_with_their_own_codes() {
    let slow = json!([{ "text": "", "calls": [["exec_command", { "cmd": "sleep 18411" }]] }, { "text": "done" }]);
    let setting = Setting::new();
    let script = setting.place.script(&slow);
    let (code, _, err) = setting.run(&["run", "go", "--api", "script", "--model", &script, "--timeout", "300ms"]);
    assert!(code == 124 && err.contains("the time limit of 300 ms was reached"), "{code} {err}");
    assert!(crate::support::running("sleep 18411").is_empty(), "what it started has ended");
    let (code, _, err) = setting.run(&["call", "exec_command", r#"{"cmd":"sleep 18412"}"#, "--timeout", "300"]);
    assert!(code == 124 && err.contains("the time limit of 300 ms was reached"), "{code} {err}");

    let setting = Setting::user("max_turns: 1\n");
    let script = setting
        .place
        .script(&json!([{ "text": "", "calls": [["exec_command", { "cmd": "true" }]] }, { "text": "done" }]));
    let run = ["run", "go", "--api", "script", "--model", &script];
    assert_eq!(setting.run(&run).0, 5);
    assert_eq!(setting.run(&[&run[..], &["--max-turns", "0"]].concat()).0, 0);
}

#[test]
fn a_session_keeps_its_mode_unless_a_flag_says_another() {
    let setting = Setting::user("permissions:\n  mode: allow-all\n");
    let turn = [json!({ "text": "", "calls": [["exec_command", { "cmd": "true" }]] }), json!({ "text": "done" })];
    let script = setting.place.script(&turn.iter().cycle().take(8).cloned().collect());
    let decided = |args: &[&str]| {
        let (code, _, err) = setting.run(&[&["run", "go", "--api", "script", "--model", &script], args].concat());
        assert_eq!(code, 0, "{err}");
        let records = setting.place.records();
        let decisions = records.iter().filter(|record| record["payload"]["type"] == "approval_decision");
        decisions.map(|record| record["payload"]["mode"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(decided(&[]), ["allow-all"]);
    assert_eq!(decided(&["--approve", "deny-all"]), ["deny-all"]);
    assert_eq!(decided(&["-c"]), ["deny-all"; 2], "the configuration's mode is for new sessions");
    assert_eq!(decided(&["-c", "--approve", "allow-all"]), ["deny-all", "deny-all", "allow-all"]);
}

#[test]
fn the_reference_page_is_in_step_with_the_program() {
    let (code, out, _) = Setting::new().run(&["config", "reference"]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(code == 0 && out == page, "run `toolgate config reference > docs/configuration.md`");
    // Every example is a configuration that holds, and sets the key that it explains.
    let mut examples = 0;
    for part in page.split("\n### `").skip(1) {
        let key = part.split('`').next().unwrap();
        let example = part.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
        let setting = Setting::user(example);
        let (code, _, err) = setting.run(&["config", "check"]);
        assert_eq!(code, 0, "{key}: {err}");
        let source = match &setting.shown(&[])[key] {
            Value::Array(said) => said[0]["source"].clone(),
            said => said["source"].clone(),
        };
        assert!(source.as_str().unwrap().contains("config.yaml:"), "{key}: {source}");
        examples += 1;
    }
    assert!(examples > 30, "{examples}");
}

#[test]
fn the_small_commands_do_what_they_say() {
    let setting = Setting::user(
        "tools:\n  mcpServers:\n    files:\n      command: mcp-files\n      env:\n        FILES_TOKEN: \"t-secret\"\n",
    )
    .with("OPENAI_API_KEY", "k-secret-1");
    let (code, out, err) = setting.run(&["doctor", "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert!(code == 0 && report["good"] == true, "{out}{err}");
    assert!(
        out.contains("tier C: none yet") && out.contains("files is configured; servers are not started yet"),
        "{out}"
    );
    assert!(
        out.contains("key from $OPENAI_API_KEY") && !out.contains("k-secret-1") && !out.contains("t-secret"),
        "{out}"
    );
    let (_, out, _) = setting.run(&["config", "show"]);
    assert!(out.contains("FILES_TOKEN") && !out.contains("t-secret"), "{out}");
    let (code, out, _) = Setting::user("modles: []\n").run(&["doctor"]);
    assert!(code == 1 && out.contains("BAD  configuration") && out.contains("did you mean `models`?"), "{out}");
    let (code, out, _) = Setting::new().run(&["doctor"]);
    assert!(code == 1 && out.contains("BAD  model"), "{out}");

    let (code, out, _) = setting.run(&["config", "path"]);
    assert!(
        code == 0 && out.lines().count() == 4 && out.contains("config.yaml  there") && out.contains("not there"),
        "{out}"
    );
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = setting.run(&["completions", shell]);
        assert!(code == 0 && out.contains("--approve"), "{shell}");
    }
    let stream = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
                  data: [DONE]\n\n";
    let file = setting.write("answer.sse", stream);
    let (code, out, err) = setting.run(&["debug", "stream", "--api", "openai-chat", &file]);
    let parse: Value = serde_json::from_str(&out).unwrap();
    assert!(code == 0 && parse["text"] == "hi", "{out}{err}");
    let (code, out, _) = setting.run(&["debug", "stream", "--api", "openai-chat", "--status", "401", &file]);
    assert!(code == 0 && out.contains("auth"), "{out}");
}
