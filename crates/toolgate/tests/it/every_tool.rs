//! One session on each wire in which a model uses every tool once, and a subagent of it asks a person.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};

use crate::{pty::Pty, support::Place};

/// How a model answers on a wire: text, or one call.
struct Wire {
    api: &'static str,
    text: fn(&str) -> Vec<Value>,
    call: fn(&str, &str, &Value) -> Vec<Value>,
}

const WIRES: [Wire; 4] = [
    Wire { api: "openai-chat", text: chat_text, call: chat_call },
    Wire { api: "openai-responses", text: responses_text, call: responses_call },
    Wire { api: "anthropic-messages", text: messages_text, call: messages_call },
    Wire { api: "google-generate-content", text: gemini_text, call: gemini_call },
];

fn chat_text(text: &str) -> Vec<Value> {
    let choice =
        |delta: Value, finish: Value| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
    vec![choice(json!({ "role": "assistant", "content": text }), Value::Null), choice(json!({}), json!("stop"))]
}

fn chat_call(id: &str, name: &str, arguments: &Value) -> Vec<Value> {
    let function = json!({ "name": name, "arguments": arguments.to_string() });
    let delta = json!({ "role": "assistant", "tool_calls": [{ "index": 0, "id": id, "type": "function", "function": function }] });
    vec![
        json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] }),
        json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] }),
    ]
}

fn responses(item: &Value, pieces: Vec<Value>) -> Vec<Value> {
    let mut events =
        vec![json!({ "type": "response.created", "response": { "id": "r", "status": "in_progress", "output": [] } })];
    events.push(json!({ "type": "response.output_item.added", "output_index": 0, "item": item }));
    events.extend(pieces);
    events.push(json!({ "type": "response.output_item.done", "output_index": 0, "item": item }));
    let usage = json!({ "input_tokens": 1, "output_tokens": 1, "total_tokens": 2 });
    events.push(json!({ "type": "response.completed", "response": { "id": "r", "status": "completed", "output": [item], "usage": usage } }));
    events
}

fn responses_text(text: &str) -> Vec<Value> {
    let item = json!({ "type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [{ "type": "output_text", "text": text, "annotations": [] }] });
    responses(
        &item,
        vec![
            json!({ "type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": text }),
        ],
    )
}

fn responses_call(id: &str, name: &str, arguments: &Value) -> Vec<Value> {
    let item = json!({ "type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name, "arguments": arguments.to_string(), "status": "completed" });
    responses(&item, Vec::new())
}

fn messages(block: &Value, delta: &Value, stop: &str) -> Vec<Value> {
    let usage = json!({ "input_tokens": 1, "output_tokens": 1 });
    vec![
        json!({ "type": "message_start", "message": { "id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": stop }, "usage": { "output_tokens": 1 } }),
        json!({ "type": "message_stop" }),
    ]
}

fn messages_text(text: &str) -> Vec<Value> {
    messages(&json!({ "type": "text", "text": "" }), &json!({ "type": "text_delta", "text": text }), "end_turn")
}

fn messages_call(id: &str, name: &str, arguments: &Value) -> Vec<Value> {
    let delta = json!({ "type": "input_json_delta", "partial_json": arguments.to_string() });
    messages(&json!({ "type": "tool_use", "id": id, "name": name, "input": {} }), &delta, "tool_use")
}

fn gemini(part: &Value) -> Vec<Value> {
    let content = json!({ "role": "model", "parts": [part] });
    vec![
        json!({ "candidates": [{ "content": content, "finishReason": "STOP", "index": 0 }], "usageMetadata": { "promptTokenCount": 1, "totalTokenCount": 2 } }),
    ]
}

fn gemini_text(text: &str) -> Vec<Value> {
    gemini(&json!({ "text": text }))
}

fn gemini_call(id: &str, name: &str, arguments: &Value) -> Vec<Value> {
    gemini(&json!({ "functionCall": { "id": id, "name": name, "args": arguments } }))
}

/// The task that a subagent is given; by it the model knows whom it plays.
const TASK: &str = "make the file that nobody made";

/// What the model does, in order. `PROCESS` and `SUBAGENT` stand for the newest of their kind that it was told of.
fn calls(pixel: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("write", json!({ "path": "a.txt", "content": "one\ntwo\n" })),
        ("read", json!({ "path": "a.txt" })),
        ("edit", json!({ "path": "a.txt", "edits": [{ "oldText": "two", "newText": "2" }] })),
        ("grep", json!({ "pattern": "2" })),
        ("find", json!({ "pattern": "*.txt" })),
        ("ls", json!({})),
        ("bash", json!({ "command": "cat a.txt" })),
        ("powershell", json!({ "command": "Get-Date" })),
        ("exec_command", json!({ "cmd": "head -n 1; exec sleep 600", "yield_time_ms": 60_000 })),
        ("input_command", json!({ "process_id": "PROCESS", "chars": "it\n" })),
        ("kill_command", json!({ "process_id": "PROCESS" })),
        ("read_image", json!({ "source": pixel })),
        ("run_subagent", json!({ "prompt": TASK })),
        ("input_subagent", json!({ "subagent_id": "SUBAGENT", "yield_time_ms": 60_000 })),
        ("kill_subagent", json!({ "subagent_id": "SUBAGENT" })),
    ]
}

/// A model on a port of its own. Which answer comes next follows from how many it has given in that conversation.
fn model(wire: &'static Wire, calls: Vec<(&'static str, Value)>, bodies: Arc<Mutex<Vec<String>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut given, mut given_to_child) = (0, 0);
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            while let Some(body) = request(&mut stream) {
                let is_child = serde_json::from_str::<Value>(&body).unwrap().to_string().matches(TASK).count() > 0
                    && !body.contains("run_subagent");
                let events = if is_child {
                    given_to_child += 1;
                    match given_to_child {
                        1 => (wire.call)("call_child", "exec_command", &json!({ "cmd": "touch made" })),
                        _ => (wire.text)("It is made."),
                    }
                } else {
                    given += 1;
                    match calls.get(given - 1) {
                        Some((name, arguments)) => {
                            let arguments = arguments.to_string();
                            let arguments = arguments.replace("PROCESS", &newest(&body, "proc-"));
                            let arguments = arguments.replace("SUBAGENT", &newest(&body, "subagent-"));
                            (wire.call)(&format!("call_{given}"), name, &serde_json::from_str(&arguments).unwrap())
                        }
                        None => (wire.text)("All of it is done."),
                    }
                };
                bodies.lock().unwrap().push(body);
                answer(&mut stream, wire.api, &events);
            }
        }
    });
    format!("http://{address}/v1")
}

/// One request's body; nothing when the connection ends.
fn request(stream: &mut TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let head = line.to_ascii_lowercase();
        if let Some(value) = head.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(String::from_utf8(body).unwrap())
}

fn answer(stream: &mut TcpStream, api: &str, events: &[Value]) {
    let mut text = String::new();
    for event in events {
        if let Some(kind) = event["type"].as_str() {
            text.push_str(&format!("event: {kind}\n"));
        }
        text.push_str(&format!("data: {event}\n\n"));
    }
    if api == "openai-chat" {
        text.push_str("data: [DONE]\n\n");
    }
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n", text.len());
    stream.write_all((head + &text).as_bytes()).unwrap();
}

/// The newest id of a kind in a text.
fn newest(text: &str, kind: &str) -> String {
    let ids = text.match_indices(kind).map(|(at, _)| &text[at..]);
    let ids = ids.map(|id| id.chars().take(kind.len() + 8).collect::<String>());
    let ids = ids.filter(|id| id[kind.len()..].len() == 8 && id[kind.len()..].chars().all(|c| c.is_ascii_hexdigit()));
    ids.last().unwrap_or_default()
}

fn every_tool_on(wire: &'static Wire) {
    let place = Place::new();
    // What the tools of this machine may lack: a PowerShell that says what it was given, and a picture.
    let bin = place.home().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::write(bin.join("pwsh"), "#!/bin/sh\necho \"power\"\n").unwrap();
    std::fs::set_permissions(bin.join("pwsh"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let url = model(wire, calls("pixel.png"), bodies.clone());
    std::fs::write(place.work().join("pixel.png"), PIXEL).unwrap();
    let args = [
        "run",
        "use every tool",
        "--api",
        wire.api,
        "--model",
        "m",
        "--base-url",
        &url,
        "--tools",
        "all",
        "--ask",
        "Bash(touch *)",
    ];
    let mut command = place.toolgate(&args);
    command.env("TERM", "dumb").env("OPENAI_API_KEY", "k").env("ANTHROPIC_API_KEY", "k").env("GEMINI_API_KEY", "k");
    command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let mut terminal = Pty::start(command);
    terminal.sees("asked by subagent-");
    terminal.sees("touch made");
    terminal.sees("allow?");
    terminal.keys("y\r");
    terminal.sees("All of it is done.");
    assert_eq!(terminal.ends(), 0, "{}", terminal.raw());
    assert!(place.work().join("made").exists(), "what the person allowed was done");

    let records: Vec<Value> = place.traces().iter().flat_map(|file| place.records_of(file)).collect();
    let outputs: Vec<(&str, &str)> = records
        .iter()
        .map(|record| &record["payload"])
        .filter(|payload| payload["type"] == "tool_call_output")
        .map(|payload| (payload["tool_call_id"].as_str().unwrap(), payload["output"].as_str().unwrap()))
        .collect();
    for (number, (tool, _)) in calls("").iter().enumerate() {
        let id = format!("call_{}", number + 1);
        let (_, output) =
            outputs.iter().find(|(call, _)| *call == id).unwrap_or_else(|| panic!("{tool} has no result"));
        let wanted = match *tool {
            "write" => "Created a.txt (2 lines, 8 bytes)",
            "read" => "one\ntwo",
            "edit" => "+2",
            "grep" => "a.txt:2: 2",
            "find" => "a.txt\n",
            "ls" => "a.txt\npixel.png\n",
            "bash" => "one\n2\n",
            "powershell" => "power\n",
            "exec_command" => "[process waits for input; process_id proc-",
            "input_command" => "it\n[process still running with process_id proc-",
            "kill_command" => "killed with everything it started",
            "read_image" => "image/png",
            "run_subagent" => {
                "[subagent is waiting for approval of 1 tool call(s), which the user is asked for: exec_command touch made]"
            }
            "input_subagent" => "It is made.\n[subagent idle with subagent_id subagent-",
            "kill_subagent" => "was idle; session removed]",
            _ => unreachable!("{tool}"),
        };
        assert!(output.contains(wanted), "{} {tool}: {output}", wire.api);
    }
    let bodies = bodies.lock().unwrap();
    let last = bodies.iter().rfind(|body| body.contains("run_subagent")).unwrap();
    let offered: BTreeSet<&str> = calls("").iter().map(|(tool, _)| *tool).collect();
    let all = place.run(&["tools", "--tools", "all", "--json"]).1;
    let all: Value = serde_json::from_str(&all).unwrap();
    for tool in all["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        // The other image tool is for models that see none, and is driven in its own tests.
        assert!(offered.contains(name) || name == "describe_image", "{name} is not driven");
    }
    assert!(last.contains(&PIXEL_BASE64[..40]), "{}: the picture reaches the model", wire.api);
}

/// One black pixel.
const PIXEL: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00, 0x00, 0x00,
    0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x06, 0x00, 0x00, 0x00, 0x1f, 0x15, 0xc4, 0x89, 0x00, 0x00, 0x00, 0x0d, 0x49,
    0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0x60, 0x60, 0x60, 0xf8, 0x0f, 0x00, 0x01, 0x04, 0x01, 0x00, 0x5f, 0xe5, 0xc3,
    0x4b, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
];
const PIXEL_BASE64: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAX+XDSwAAAABJRU5ErkJggg==";

#[test]
fn every_tool_on_chat() {
    every_tool_on(&WIRES[0]);
}

#[test]
fn every_tool_on_responses() {
    every_tool_on(&WIRES[1]);
}

#[test]
fn every_tool_on_messages() {
    every_tool_on(&WIRES[2]);
}

#[test]
fn every_tool_on_gemini() {
    every_tool_on(&WIRES[3]);
}
