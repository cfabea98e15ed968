//! The image tools through the door: files, and a model that describes what another cannot see. Addresses are in `addresses.rs`.

use std::{
    io::{Read, Seek, SeekFrom},
    net::SocketAddr,
    ops::ControlFlow,
    sync::{Arc, Mutex, mpsc},
};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolgate_agent::{
    fetch::{HttpFetch, Resolve},
    provider::{Api, Provider},
    runtime::BoxFuture,
    scripted::{Scripted, Step},
    tools::{Parts, builtin},
};
use toolgate_core::{
    approval::ApprovalMode,
    message::ToolCallOutput,
    outcome::StopReason,
    policy::{Policy, Rule, Tier},
    tool::{Place, ToolCall},
};
use toolgate_runtime::{
    approver::{Approver, OnAsk, Unattended},
    environment::{CallEnd, Environment, Setup},
    files::{Change, Containment, Entry, FileError, Files, Source, Visit, Walked, local::LocalFiles},
    gate::Permit,
    tool::ToolError,
    workspace::Workspace,
};

use crate::provider::{KEY, Reply, Server};

/// One pixel, as a PNG.
const PIXEL: &str = pixel!();

/// Names and what they lead to, the first time and every later one.
struct Names(Mutex<Vec<(&'static str, Vec<&'static str>)>>);

impl Resolve for Names {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, std::io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            let mut names = self.0.lock().unwrap();
            let known = names.iter().position(|(name, _)| *name == host);
            let known = known.ok_or_else(|| std::io::Error::other("no such name"))?;
            let addresses = names[known].1.clone();
            if names.iter().filter(|(name, _)| *name == host).count() > 1 {
                names.remove(known);
            }
            Ok(addresses.iter().map(|address| SocketAddr::new(address.parse().unwrap(), port)).collect())
        })
    }
}

pub struct House {
    environment: Environment,
    pub folder: tempfile::TempDir,
}

pub fn house(names: Vec<(&'static str, Vec<&'static str>)>, rules: &[&str], vision: Option<Step>) -> House {
    house_with(names, rules, vision.map(|step| Arc::new(Scripted::new(vec![step])) as _))
}

/// A house whose model has another one look at images, or sees them itself.
fn house_with(
    names: Vec<(&'static str, Vec<&'static str>)>,
    rules: &[&str],
    vision: Option<Arc<dyn Provider>>,
) -> House {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = Setup::new(Workspace::open(folder.path()).unwrap());
    let rules = rules.iter().map(|rule| Rule::parse(Tier::Allow, rule, "test").unwrap()).collect();
    setup.approver = Arc::new(Unattended::new(ApprovalMode::AllowAll, Policy { rules }, OnAsk::Deny));
    set_up(setup, folder, names, vision)
}

/// The same with somebody else who decides.
pub fn house_of(names: Vec<(&'static str, Vec<&'static str>)>, approver: Arc<dyn Approver>) -> House {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = Setup::new(Workspace::open(folder.path()).unwrap());
    setup.approver = approver;
    set_up(setup, folder, names, None)
}

fn set_up(
    mut setup: Setup,
    folder: tempfile::TempDir,
    names: Vec<(&'static str, Vec<&'static str>)>,
    vision: Option<Arc<dyn Provider>>,
) -> House {
    setup.fetch = Some(Arc::new(HttpFetch::resolving(Arc::new(Names(Mutex::new(names))))));
    setup.vision = vision.is_none();
    let tools = toolgate_runtime::tools::builtin().into_iter().chain(builtin(&Parts { vision, ..Parts::default() }));
    tools.for_each(|tool| setup.registry.add(tool).unwrap());
    House { environment: Environment::new(setup), folder }
}

impl House {
    async fn call(&self, tool: &str, arguments: Value) -> ToolCallOutput {
        self.call_until(tool, arguments, &CancellationToken::new()).await
    }

    pub async fn call_until(&self, tool: &str, arguments: Value, interrupt: &CancellationToken) -> ToolCallOutput {
        let call = ToolCall { id: arguments.to_string(), name: tool.into(), arguments: arguments.to_string() };
        match self.environment.call(call, interrupt).await.unwrap() {
            CallEnd::Closed(output, _) => output,
            CallEnd::Waiting(_) => panic!("a question is open"),
        }
    }

    pub async fn read(&self, source: &str) -> (String, bool, usize) {
        let output = self.call("read_image", json!({ "source": source })).await;
        (output.output, output.stop_reason == Some(StopReason::Completed), output.images.len())
    }
}

pub fn pixel() -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let bits: Vec<u8> = PIXEL.bytes().filter(|c| *c != b'=').map(digit).collect();
    let bytes = bits.chunks(4).flat_map(|four| {
        let all = four.iter().fold(0_u32, |all, six| all << 6 | u32::from(*six)) << (6 * (4 - four.len()));
        all.to_be_bytes()[1..four.len()].to_vec()
    });
    bytes.collect()
}

#[tokio::test]
async fn a_file_is_told_by_its_content() {
    let house = house(vec![], &[], None);
    let write = |name: &str, bytes: &[u8]| std::fs::write(house.folder.path().join(name), bytes).unwrap();
    write("named.txt", &pixel());
    write("text.png", b"{\"success\":true,\"data\":\"iVBOR\"}");
    write("cut.png", &pixel()[..pixel().len() - 14]);
    write("empty.png", b"");
    write("large.png", &[b"\x89PNG\r\n\x1a\n", &[0; 6_000_000][..]].concat());
    std::fs::create_dir(house.folder.path().join("folder")).unwrap();
    assert_eq!(house.read("named.txt").await, ("image/png, 70 B, 1x1".into(), true, 1));
    for (source, part) in [
        ("text.png", "Unsupported image type \"no known image\""),
        ("cut.png", "The image/png image is damaged"),
        ("empty.png", "empty"),
        ("large.png", "Image too large: 6.0 MB exceeds the 5.0 MB limit."),
        ("missing.png", "missing.png does not exist"),
        ("folder", "folder is a folder, not a file"),
        ("data:image/png;base64,AA==", "`data:` is no address that is fetched"),
        ("ftp://example.com/a.png", "`ftp:` is no address that is fetched"),
    ] {
        let (output, completed, images) = house.read(source).await;
        assert!(!completed && images == 0 && output.contains(part), "{source}: {output}");
    }
}

/// Files whose bytes do not come before they are let go, and that say when they are waited for.
struct Held {
    files: LocalFiles,
    waited_for: Arc<tokio::sync::Notify>,
    let_go: Arc<Mutex<mpsc::Receiver<()>>>,
}

struct HeldFile(Box<dyn Source>, Arc<tokio::sync::Notify>, Arc<Mutex<mpsc::Receiver<()>>>);

impl Read for HeldFile {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.1.notify_one();
        let _ = self.2.lock().unwrap().recv();
        self.0.read(into)
    }
}

impl Seek for HeldFile {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.0.seek(to)
    }
}

impl Source for HeldFile {
    fn length(&self) -> Option<u64> {
        self.0.length()
    }
}

impl Files for Held {
    fn resolve(&self, spelled: &str) -> Result<Place, FileError> {
        self.files.resolve(spelled)
    }

    fn preview(&self, place: &Place) -> Result<Box<dyn Source>, FileError> {
        self.files.preview(place)
    }

    fn open(&self, permit: &Permit, place: &Place) -> Result<Box<dyn Source>, FileError> {
        let file = self.files.open(permit, place)?;
        Ok(Box::new(HeldFile(file, self.waited_for.clone(), self.let_go.clone())))
    }

    fn update(&self, permit: &Permit, place: &Place, change: &mut Change<'_>) -> Result<(), ToolError> {
        self.files.update(permit, place, change)
    }

    fn list(
        &self,
        permit: &Permit,
        place: &Place,
        visit: &mut dyn FnMut(Entry) -> ControlFlow<()>,
    ) -> Result<(), FileError> {
        self.files.list(permit, place, visit)
    }

    fn walk(&self, permit: &Permit, place: &Place, visit: &Visit<'_>) -> Result<Walked, FileError> {
        self.files.walk(permit, place, visit)
    }

    fn containment(&self) -> Containment {
        self.files.containment()
    }
}

#[tokio::test]
async fn an_interrupt_does_not_wait_for_a_picture_that_is_being_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.png"), pixel()).unwrap();
    let workspace = Workspace::open(folder.path()).unwrap();
    let (release, let_go) = mpsc::channel();
    let waited_for = Arc::new(tokio::sync::Notify::new());
    let files = LocalFiles::new(&workspace, None);
    let held = Held { files, waited_for: waited_for.clone(), let_go: Arc::new(Mutex::new(let_go)) };
    let mut setup = Setup::new(workspace);
    setup.approver = Arc::new(Unattended::new(ApprovalMode::AllowAll, Policy::default(), OnAsk::Deny));
    (setup.files, setup.vision) = (Arc::new(held), true);
    toolgate_runtime::tools::builtin().into_iter().for_each(|tool| setup.registry.add(tool).unwrap());
    let house = House { environment: Environment::new(setup), folder };
    let interrupt = CancellationToken::new();
    let (output, ()) = tokio::join!(house.call_until("read_image", json!({ "source": "a.png" }), &interrupt), async {
        waited_for.notified().await;
        interrupt.cancel();
    });
    assert_eq!((output.stop_reason, output.images.len()), (Some(StopReason::Aborted), 0), "{}", output.output);
    // The thread that was left behind ends now; nothing of it comes into a later result.
    drop(release);
    assert_eq!(house.read("a.png").await, ("image/png, 70 B, 1x1".into(), true, 1));
}

#[cfg(unix)]
#[tokio::test]
async fn what_is_no_file_is_refused_at_once() {
    let house = house(vec![], &[], Some(Step::default()));
    let at = |name: &str| house.folder.path().join(name);
    let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    std::os::unix::fs::symlink("pipe", at("to_pipe")).unwrap();
    std::os::unix::fs::symlink("nowhere", at("to_nothing")).unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    for source in
        ["pipe", "to_pipe", "socket", "folder", "to_nothing", "missing.png", "/dev/zero", "/dev/null", "/proc/self/mem"]
    {
        for tool in ["read_image", "describe_image"] {
            let output = house.call(tool, json!({ "source": source })).await;
            assert_eq!(output.stop_reason, Some(StopReason::Failed), "{tool} {source}: {}", output.output);
            assert!(
                output.images.is_empty() && output.output.contains("[tool error]"),
                "{tool} {source}: {}",
                output.output
            );
        }
    }
}

#[tokio::test]
async fn a_picture_is_described_by_another_model() {
    let described = Step { text: "A black dot.".into(), calls: Vec::new() };
    let with_model = house(vec![], &[], Some(described));
    std::fs::write(with_model.folder.path().join("a.png"), pixel()).unwrap();
    std::fs::write(with_model.folder.path().join("b.png"), b"nothing").unwrap();
    let output = with_model.call("describe_image", json!({ "source": "a.png" })).await;
    assert_eq!(output.output, "image/png, 70 B, 1x1 — described by scripted:\nA black dot.");
    assert!(output.images.is_empty());
    let output = with_model.call("describe_image", json!({ "source": "b.png" })).await;
    assert!(
        output.output.starts_with("[tool error] Unsupported image type"),
        "no bad image reaches the model: {}",
        output.output
    );

    let silent = house(vec![], &[], Some(Step::default()));
    std::fs::write(silent.folder.path().join("a.png"), pixel()).unwrap();
    let output = silent.call("describe_image", json!({ "source": "a.png", "prompt": "What colour?" })).await;
    assert!(output.output.ends_with("\n[vision model returned no text]"), "{}", output.output);

    let without = house(vec![], &[], None);
    let output = without.call("describe_image", json!({ "source": "a.png" })).await;
    assert!(output.output.contains("set `vision_model` in the configuration"), "{}", output.output);
}

/// An answer of each wire that says this.
fn says(api: Api, text: &str) -> String {
    let answer = match api.as_str() {
        "openai-chat" => {
            json!({ "choices": [{ "message": { "role": "assistant", "content": text }, "finish_reason": "stop" }] })
        }
        "openai-responses" => json!({ "status": "completed", "output": [
            { "type": "message", "id": "m", "role": "assistant", "content": [{ "type": "output_text", "text": text }] },
        ] }),
        "anthropic-messages" => {
            json!({ "type": "message", "role": "assistant", "stop_reason": "end_turn", "content": [{ "type": "text", "text": text }] })
        }
        _ => {
            json!({ "candidates": [{ "content": { "role": "model", "parts": [{ "text": text }] }, "finishReason": "STOP" }] })
        }
    };
    answer.to_string()
}

#[tokio::test]
async fn a_description_is_asked_for_once_and_each_wire_carries_the_picture_in_its_form() {
    let url = format!("data:image/png;base64,{PIXEL}");
    let asked = "What colour?";
    let wanted = [
        json!({ "model": "m-1", "stream": true, "stream_options": { "include_usage": true }, "max_tokens": 2048, "messages": [
            { "role": "user", "content": [{ "type": "text", "text": asked }, { "type": "image_url", "image_url": { "url": url } }] },
        ] }),
        json!({ "model": "m-1", "stream": true, "max_output_tokens": 2048, "input": [
            { "type": "message", "role": "user", "content": [
                { "type": "input_text", "text": asked }, { "type": "input_image", "detail": "auto", "image_url": url },
            ] },
        ] }),
        json!({ "model": "m-1", "stream": true, "max_tokens": 2048, "messages": [
            { "role": "user", "content": [
                { "type": "text", "text": asked },
                { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": PIXEL } },
            ] },
        ] }),
        json!({ "generationConfig": { "maxOutputTokens": 2048 }, "contents": [
            { "role": "user", "parts": [{ "text": asked }, { "inlineData": { "mimeType": "image/png", "data": PIXEL } }] },
        ] }),
    ];
    for (api, want) in Api::ALL.into_iter().zip(wanted) {
        let server = Server::start(vec![Reply::stream(says(api, "A black dot."))]);
        let house = house_with(vec![], &[], Some(server.provider_of(api)));
        std::fs::write(house.folder.path().join("a.png"), pixel()).unwrap();
        let output = house.call("describe_image", json!({ "source": "a.png", "prompt": asked })).await;
        assert_eq!(output.output, "image/png, 70 B, 1x1 — described by m-1:\nA black dot.", "{}", api.as_str());
        assert!(output.images.is_empty());
        let seen = server.seen();
        let got: Value = serde_json::from_str(&seen[0].body).unwrap();
        assert_eq!((seen.len(), &got), (1, &want), "{}", api.as_str());
    }
}

#[tokio::test]
async fn a_vision_model_that_fails_is_said_to_and_the_key_is_not() {
    let refusal =
        format!(r#"{{"error":{{"message":"Incorrect API key provided: {KEY}","type":"invalid_request_error"}}}}"#);
    let json = "content-type: application/json\r\n";
    for api in Api::ALL {
        for (what, reply, part) in [
            ("no right", Some(Reply::status(401, json, &refusal)), "401"),
            ("no server", Some(Reply::status(503, json, "{}")), "503"),
            ("no answer", None, "closed the connection before it answered"),
            ("no words", Some(Reply::stream(says(api, " "))), "[vision model returned no text]"),
        ] {
            let server = Server::start(reply.into_iter().collect());
            let house = house_with(vec![], &[], Some(server.provider_of(api)));
            std::fs::write(house.folder.path().join("a.png"), pixel()).unwrap();
            let output = house.call("describe_image", json!({ "source": "a.png" })).await;
            let said = &output.output;
            assert_eq!(output.stop_reason, Some(StopReason::Failed), "{} {what}: {said}", api.as_str());
            assert!(said.contains(part) && !said.contains(KEY), "{} {what}: {said}", api.as_str());
            assert!(said.contains("[Vision model (m-1) request failed: ") != (what == "no words"), "{what}: {said}");
            assert_eq!(server.seen().len(), 1, "it is asked once");
        }
    }
}

#[tokio::test]
async fn a_file_that_is_a_picture_is_shown_where_the_model_sees_any() {
    let files: [(&str, Vec<u8>); 4] = [
        ("a.txt", pixel()),
        ("cut.png", pixel()[..40].to_vec()),
        ("text.png", b"words".to_vec()),
        ("program", b"\x7fELF\0\0\0".to_vec()),
    ];
    let (seeing, blind) = (house(vec![], &[], None), house(vec![], &[], Some(Step::default())));
    for (house, wanted) in [
        (
            &seeing,
            [
                "image/png, 70 B, 1x1",
                "cut.png: The image/png image is damaged",
                "words",
                "a program (ELF), 7 bytes); it is not shown",
            ],
        ),
        (
            &blind,
            [
                "a.txt is a binary file (a PNG image, 70 bytes); it is not shown",
                "cut.png is a binary file",
                "words",
                "it is not shown",
            ],
        ),
    ] {
        for ((name, bytes), part) in files.iter().zip(wanted) {
            std::fs::write(house.folder.path().join(name), bytes).unwrap();
            let output = house.call("read", json!({ "path": name })).await;
            assert!(output.output.contains(part), "{name}: {}", output.output);
            assert_eq!(output.images.len(), usize::from(part.starts_with("image/")), "{name}: {}", output.output);
        }
    }
}
