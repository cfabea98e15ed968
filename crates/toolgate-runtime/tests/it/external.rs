//! Programs of the user's own as tools: what they may say, what becomes of those that say something else, and how they are judged.

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate_core::{
    approval::ApprovalMode,
    message::ToolCallOutput,
    outcome::StopReason,
    policy::Tier,
    tool::{Effect, Permission},
};
use toolgate_runtime::{
    external::{Declaration, ExternalTool},
    files::local::LocalFiles,
    image::Picture,
    tool::{CheckContext, Tool},
    workspace::Workspace,
};

use crate::support::{House, Plan, running, until};

const END: &str = r#"echo '{"type":"end","status":"completed"}'"#;

fn tool(fields: Value) -> Result<Arc<dyn Tool>, String> {
    let mut whole = json!({"name": "mine", "description": "Mine.", "command": ["sh", "-c", "exit 9"]});
    whole.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let declaration: Declaration = serde_json::from_value(whole).map_err(|error| error.to_string())?;
    let tool = ExternalTool::new(&declaration, "/bin/sh".into()).map_err(|error| error.to_string())?;
    Ok(Arc::new(tool))
}

fn script(script: &str) -> Value {
    json!({"command": ["sh", "-c", script]})
}

/// Calls a tool that is declared so, with these arguments.
async fn call(
    mode: ApprovalMode,
    rules: Vec<(Tier, &'static str)>,
    fields: Value,
    arguments: Value,
) -> (ToolCallOutput, House) {
    let house = House::build(Plan { mode, rules, tools: vec![tool(fields).unwrap()], ..Plan::default() });
    let output = house.call("mine", arguments).await;
    (output, house)
}

async fn said(fields: Value) -> ToolCallOutput {
    call(ApprovalMode::AllowAll, vec![], fields, json!({})).await.0
}

#[tokio::test]
async fn arguments_go_in_and_what_is_said_comes_out() {
    let mut fields = script(&format!(
        r#"read -r args; test "$args" = '{{"text":"a \"b\"; $(c)"}}' || exit 3; cat
           printf '{{"type":"text","text":"got "}}\n{{"type":"text","text":"it\\n"}}\n'
           printf '{{"type":"note","text":"half\\nway"}}\n{{"type":"image","data":"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAX+XDSwAAAABJRU5ErkJggg==","mime_type":"image/png"}}\n'; {END}"#
    ));
    fields["parameters"] = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let (output, _) = call(ApprovalMode::AllowAll, vec![], fields, json!({"text": "a \"b\"; $(c)"})).await;
    assert_eq!((output.output.as_str(), output.stop_reason), ("got it\n[note: half way]", Some(StopReason::Completed)));
    assert_eq!(
        output.images,
        [
            "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAX+XDSwAAAABJRU5ErkJggg=="
        ]
    );
}

#[tokio::test]
async fn its_images_are_looked_at_as_those_of_any_tool() {
    // A PNG of 2,400 by 1, and words in base64.
    let wide = "iVBORw0KGgoAAAANSUhEUgAACWAAAAABCAAAAAB/FsqeAAAAGUlEQVR42u3BMQEAAADCoPVPbQlPoAAAuBoJYQABjeDCPgAAAABJRU5ErkJggg==";
    let image = |data: &str| format!(r#"echo '{{"type":"image","data":"{data}","mime_type":"image/png"}}'; "#);
    let output = said(script(&format!("{}{}{END}", image(wide), image("aGVsbG8=")))).await;
    let [url] = output.images.as_slice() else { panic!("one image: {}", output.output) };
    let (_, data) = url.split_once(";base64,").unwrap();
    assert_eq!(Picture::of_base64(data).unwrap().size(), (2000, 1), "it is made smaller");
    assert!(output.output.contains("an image was left out: Unsupported image type"), "{}", output.output);
}

#[tokio::test]
async fn a_program_need_not_read_and_may_fill_every_pipe() {
    let flood = "head -c 3000000 /dev/zero >&2";
    for line in [END.to_owned(), format!("{flood}; {END}"), format!("{flood}; cat >/dev/null; {END}")] {
        let mut fields = script(&line);
        fields["parameters"] = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        let (output, _) = call(ApprovalMode::AllowAll, vec![], fields, json!({"text": "x".repeat(1_000_000)})).await;
        assert_eq!(output.stop_reason, Some(StopReason::Completed), "{line}: {}", output.output);
    }
}

#[tokio::test]
async fn what_goes_wrong_is_named_and_nothing_is_left_running() {
    let text = r#"echo '{"type":"text","text":"begun"}'"#;
    let failed = r#"echo '{"type":"end","status":"failed","reason":"no such city"}'"#;
    let flood = "head -c 100000000 /dev/zero | tr '\\0' x";
    for (line, parts) in [
        (
            format!("{text}; echo why >&2; exit 3"),
            &["begun", "exit code 3 before it said its `end`", "standard error:\nwhy"][..],
        ),
        (format!("{text}; kill -9 $$"), &["begun", "terminated by signal SIGKILL before it said its `end`"]),
        (format!("{text}; printf '{{\"type\":\"te'"), &["begun", "line 2 of its output is no message"]),
        (text.into(), &["begun", "it ended without its last line"]),
        ("cat >/dev/null".into(), &["it ended without its last line"]),
        ("exit 0".into(), &["it ended without its last line"]),
        (
            format!("{text}; echo hello; sleep 600.25"),
            &["begun", "line 2 of its output is no message", "received: hello"],
        ),
        (format!("{END}; {text}; sleep 600.25"), &["line 2 of its output stands behind its `end`"]),
        (format!("{END}; exit 4"), &["exit code 4 after it said that it was completed"]),
        (failed.into(), &["the program failed: no such city"]),
        (format!("{flood}; sleep 600.25"), &["line 1 of its output is longer than 8388608 bytes"]),
        (format!("{text}; setsid sleep 600.25 & exit 1"), &["exit code 1"]),
    ] {
        let output = said(script(&line)).await;
        assert_eq!(output.stop_reason, Some(StopReason::Failed), "{line}: {}", output.output);
        for part in parts {
            assert!(output.output.contains(part), "{line}: {part} in {}", output.output);
        }
    }
    let mut fields = script(&format!("{text}; exec sleep 600.25"));
    fields["timeoutMs"] = 500.into();
    let output = said(fields).await;
    assert_eq!(output.output, "begun\n[tool timeout: exceeded 500ms]");
    until("everything is ended", || running("sleep 600.25").is_empty()).await;
}

#[tokio::test]
async fn a_program_that_has_said_all_is_not_waited_for() {
    let output = said(script(&format!("{END}; exec sleep 600.5"))).await;
    assert_eq!((output.output.as_str(), output.stop_reason), ("[no output]", Some(StopReason::Completed)));
    until("it is ended", || running("sleep 600.5").is_empty()).await;
}

#[tokio::test]
async fn plain_text_is_taken_as_it_is() {
    for (line, wanted, stop) in [
        ("echo a; echo b >&2", "a\n", StopReason::Completed),
        ("echo '{\"type\":\"end\"}'", "{\"type\":\"end\"}\n", StopReason::Completed),
        ("true", "[no output]", StopReason::Completed),
        (
            "echo a; echo b >&2; exit 2",
            "a\n[the program failed: exit code 2]\n[the end of its standard error:\nb]",
            StopReason::Failed,
        ),
    ] {
        let mut fields = script(line);
        fields["protocol"] = "text".into();
        let output = said(fields).await;
        assert_eq!((output.output.as_str(), output.stop_reason), (wanted, Some(stop)), "{line}");
    }
    let mut fields = script("seq 9");
    fields["protocol"] = "text".into();
    fields["maxOutputLength"] = 5.into();
    fields["truncate"] = "tail".into();
    let output = said(fields).await;
    assert!(
        output.output.contains("characters left out here") && output.output.ends_with("\n8\n9\n"),
        "{}",
        output.output
    );
}

fn effects(fields: Value, arguments: Value) -> Result<Vec<Effect>, String> {
    let folder = tempfile::tempdir().unwrap();
    let workspace = Arc::new(Workspace::open(folder.path()).unwrap());
    let files = Arc::new(LocalFiles::new(&workspace, None));
    let cx = CheckContext { workspace, files, fetch: None };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let prepared = runtime.block_on(async { tool(fields).unwrap().prepare(arguments.as_object().unwrap(), &cx).await });
    prepared.map(|prepared| prepared.effects).map_err(|error| error.to_string())
}

#[test]
fn effects_are_filled_from_checked_arguments() {
    let parameters = json!({"type": "object", "properties": {
        "path": {}, "to": {"default": "out"}, "host": {}, "n": {},
    }});
    let shown = |templates: Value, arguments: Value| {
        let found = effects(json!({"parameters": parameters, "effects": templates}), arguments)?;
        Ok::<_, String>(
            found
                .iter()
                .map(|effect| match effect {
                    Effect::Read(place) => format!("read {} {}", place.spelled, place.inside),
                    Effect::Write(place) => format!("write {} {}", place.spelled, place.inside),
                    Effect::Search(place) => format!("search {} {}", place.spelled, place.inside),
                    Effect::Connect(host) => format!("connect {host}"),
                    Effect::Run { line, .. } => format!("run {line}"),
                    other => format!("{other:?}"),
                })
                .collect::<Vec<_>>(),
        )
    };
    for (templates, arguments, wanted) in [
        (json!([{"read": "{path}"}]), json!({"path": "a"}), vec!["read a true"]),
        (json!([{"read": "{path}"}]), json!({"path": "../a"}), vec!["read ../a false"]),
        (json!([{"read": "{path}"}]), json!({"path": ["a", "b"]}), vec!["read a true", "read b true"]),
        (
            json!([{"read": "{path}"}, {"write": "{path}.bak"}]),
            json!({"path": "a"}),
            vec!["read a true", "write a.bak true"],
        ),
        (json!([{"read": "{path}"}]), json!({}), vec![]),
        (json!([{"read": "{path}"}]), json!({"path": null}), vec![]),
        (json!([{"write": "{to}"}]), json!({}), vec!["write out true"]),
        (json!([{"search": "."}]), json!({}), vec!["search . true"]),
        (json!([{"connect": "{host}"}]), json!({"host": "https://Example.org/x"}), vec!["connect example.org"]),
        (json!([{"run": "make -j{n} {path}"}]), json!({"n": 4, "path": "x; y"}), vec!["run make -j4 x; y"]),
        (json!([]), json!({}), vec![]),
    ] {
        assert_eq!(shown(templates.clone(), arguments).unwrap(), wanted, "{templates}");
    }
    for (templates, arguments, part) in [
        (json!([{"read": "{path}"}]), json!({"path": {"a": 1}}), "/path is no text"),
        (json!([{"connect": "{host}"}]), json!({"host": "a b"}), "names no host"),
        (json!([{"read": "{path}{path}"}]), json!({"path": vec!["a"; 17]}), "256 things at most"),
    ] {
        let error = shown(templates, arguments).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    let unknown = effects(json!({}), json!({})).unwrap();
    assert!(matches!(&unknown[..], [Effect::Unknown(what)] if what.contains("/bin/sh")), "{unknown:?}");
}

#[tokio::test]
async fn the_gate_judges_by_effects_and_never_by_the_name() {
    let declared = |effects: Value| {
        let mut fields = script(&format!("cat >/dev/null; {END}"));
        fields["parameters"] = json!({"type": "object", "properties": {"path": {"type": "string"}}});
        if !effects.is_null() {
            fields["effects"] = effects;
        }
        fields
    };
    use ApprovalMode::{AllowAll, ReadOnly};
    let (reads, writes, says_nothing) = (json!([{"read": "{path}"}]), json!([{"write": "{path}"}]), Value::Null);
    for (mode, rules, effects, runs) in [
        (AllowAll, vec![], &says_nothing, true),
        (ReadOnly, vec![], &says_nothing, false),
        (ReadOnly, vec![], &reads, true),
        (ReadOnly, vec![], &writes, false),
        (ReadOnly, vec![], &json!([]), false),
        (ReadOnly, vec![(Tier::Allow, "Edit")], &writes, true),
        (ReadOnly, vec![(Tier::Allow, "mine")], &writes, true),
        (ReadOnly, vec![(Tier::Allow, "mine")], &says_nothing, false),
        (AllowAll, vec![(Tier::Deny, "Edit")], &writes, false),
        (AllowAll, vec![(Tier::Deny, "Bash(curl *)")], &json!([{"run": "make; curl {path}"}]), false),
        (AllowAll, vec![(Tier::Deny, "Bash(curl *)")], &json!([{"run": "make {path}"}]), true),
        (AllowAll, vec![(Tier::Deny, "mine")], &reads, false),
        (AllowAll, vec![(Tier::Ask, "mine")], &reads, false),
    ] {
        let (output, _) = call(mode, rules.clone(), declared(effects.clone()), json!({"path": "a"})).await;
        assert_eq!(
            output.stop_reason == Some(StopReason::Completed),
            runs,
            "{mode} {rules:?} {effects}: {}",
            output.output
        );
    }
}

#[test]
fn a_declaration_that_cannot_be_meant_is_refused() {
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    for (fields, part) in [
        (json!({"name": "a b"}), "name: `a b` is no name for a tool"),
        (json!({"name": ""}), "name: "),
        (json!({"command": []}), "command: a list of a program and its arguments"),
        (json!({"command": "sh"}), "invalid type: string"),
        (json!({"parameters": {"type": "array"}}), "parameters: arguments are an object"),
        (json!({"parameters": {"type": "object", "unevaluatedProperties": false}}), "parameters: "),
        (json!({"parameters": parameters, "effects": [{"read": "{pth}"}]}), "effects: `{pth}` is no argument"),
        (json!({"effects": [{"read": "{path"}]}), "belongs to no argument"),
        (json!({"effects": [{"erase": "x"}]}), "unknown variant `erase`"),
        (json!({"effects": [{"read": "x", "write": "x"}]}), "one word and what it is about"),
        (json!({"protocol": "xml"}), "unknown variant `xml`"),
        (json!({"timeout": 1}), "unknown field `timeout`"),
    ] {
        let Err(error) = tool(fields.clone()) else { panic!("{fields} is taken") };
        assert!(error.contains(part), "{fields}: {error}");
    }
    let fields = json!({"permission": "r", "timeoutMs": 5, "snippet": "s", "execution": "sequential", "effects": [{"read": "x"}]});
    let spec = tool(fields).unwrap().spec().clone();
    assert_eq!((spec.permission, spec.timeout_ms, spec.snippet.as_deref()), (Permission::Read, 5, Some("s")));
}
