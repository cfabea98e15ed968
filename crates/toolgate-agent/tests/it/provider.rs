//! Model providers over a real socket: a scripted server on loopback sends what real ones were recorded to send.

#![allow(clippy::unwrap_used)]

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use toolgate_agent::provider::{
    Answer, Api, Endpoint, ErrorClass, ModelEvent, ModelId, ModelSetup, Provider, ProviderError, Request, Stop, Usage,
    connect, parse_recording,
};
use toolgate_core::message::ModelMessage;

/// What no text may show.
pub const KEY: &str = "sk-test-0123456789";

/// What the server sends for one request.
#[derive(Clone)]
pub struct Reply {
    head: String,
    body: Vec<u8>,
    /// Bytes a write.
    piece: usize,
    /// Whether the body ends as it should.
    whole: bool,
}

impl Reply {
    pub fn stream(body: impl Into<Vec<u8>>) -> Self {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n".to_owned();
        Self { head, body: body.into(), piece: usize::MAX, whole: true }
    }

    pub fn status(status: u16, headers: &str, body: &str) -> Self {
        Self { head: format!("HTTP/1.1 {status} X\r\n{headers}"), ..Self::stream(body) }
    }
}

/// A request as the server saw it, and how many connections it had accepted by then.
#[derive(Clone)]
pub struct Seen {
    pub head: String,
    pub body: String,
    pub connection: usize,
}

pub struct Server {
    pub base: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    pub fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}/v1", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (record, replies) = (seen.clone(), Arc::new(Mutex::new(replies.into_iter())));
        thread::spawn(move || {
            for connection in 1.. {
                let Ok((mut socket, _)) = listener.accept() else { return };
                let (record, replies) = (record.clone(), replies.clone());
                thread::spawn(move || {
                    socket.set_nodelay(true).unwrap();
                    while let Some((head, body)) = read_request(&mut socket) {
                        record.lock().unwrap().push(Seen { head, body, connection });
                        let Some(reply) = replies.lock().unwrap().next() else { return };
                        if !send(&mut socket, &reply) {
                            return;
                        }
                    }
                });
            }
        });
        Self { base, seen }
    }

    fn provider(&self) -> Arc<dyn Provider> {
        provider(&self.base)
    }

    pub fn provider_of(&self, api: Api) -> Arc<dyn Provider> {
        connect(setup(api, Endpoint { base_url: self.base.clone(), key: Some(KEY.into()), proxy: None })).unwrap()
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

fn provider(base_url: &str) -> Arc<dyn Provider> {
    let endpoint = Endpoint { base_url: base_url.into(), key: Some(KEY.into()), proxy: None };
    connect(setup(Api::OpenaiChat, endpoint)).unwrap()
}

fn setup(api: Api, endpoint: Endpoint) -> ModelSetup {
    ModelSetup { api, id: ModelId { provider: "test".into(), model: "m-1".into() }, endpoint, vision: true }
}

fn read_request(socket: &mut TcpStream) -> Option<(String, String)> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
            let length: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.parse().unwrap());
            if bytes.len() >= end + 4 + length {
                return Some((head, String::from_utf8(bytes[end + 4..].to_vec()).unwrap()));
            }
        }
        match socket.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
        }
    }
}

/// Chunked, as real streams are; false when the connection has to go.
fn send(socket: &mut TcpStream, reply: &Reply) -> bool {
    let head = format!("{}transfer-encoding: chunked\r\n\r\n", reply.head);
    let mut sent = socket.write_all(head.as_bytes());
    for piece in reply.body.chunks(reply.piece.max(1)) {
        let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
        sent = sent.and_then(|()| socket.write_all(&chunk));
    }
    if reply.whole {
        sent = sent.and_then(|()| socket.write_all(b"0\r\n\r\n"));
    }
    sent.is_ok() && reply.whole
}

pub fn message(value: Value) -> ModelMessage {
    model_message(&json!({ "timestamp": "t", "type": "model_msg", "payload": value }).to_string())
}

pub fn model_message(line: &str) -> ModelMessage {
    match toolgate_core::message::Message::from_json(line).unwrap().body {
        toolgate_core::message::Body::Model(message) => message,
        other => panic!("not a model message: {other:?}"),
    }
}

pub fn user(text: &str) -> ModelMessage {
    message(json!({ "type": "text", "role": "user", "text": text }))
}

pub fn assistant(text: &str) -> ModelMessage {
    message(json!({ "type": "text", "role": "assistant", "text": text }))
}

pub fn call(id: &str, name: &str, arguments: &str) -> ModelMessage {
    message(json!({ "type": "tool_call", "name": name, "arguments": arguments, "tool_call_id": id }))
}

pub fn result(id: &str, output: &str, images: &[&str]) -> ModelMessage {
    message(json!({ "type": "tool_call_output", "output": output, "images": images, "tool_call_id": id }))
}

pub fn request(history: &[ModelMessage]) -> Request<'_> {
    Request { system: "Be brief.", tools: &[], history, max_tokens: None, thinking: None }
}

pub async fn collect(answer: &mut Box<dyn Answer>) -> (Vec<ModelEvent>, Option<ProviderError>) {
    let mut events = Vec::new();
    loop {
        match answer.next().await {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return (events, None),
            Err(error) => {
                assert!(answer.next().await.unwrap().is_none(), "nothing follows an error");
                return (events, Some(error));
            }
        }
    }
}

pub async fn ask(provider: &Arc<dyn Provider>, history: &[ModelMessage]) -> (Vec<ModelEvent>, Option<ProviderError>) {
    match provider.stream(request(history)).await {
        Ok(mut answer) => collect(&mut answer).await,
        Err(error) => (Vec::new(), Some(error)),
    }
}

fn calls(events: &[ModelEvent]) -> Vec<(String, String, String, bool)> {
    let complete = |event: &ModelEvent| match event {
        ModelEvent::Call { call, valid, .. } => {
            Some((call.id.clone(), call.name.clone(), call.arguments.clone(), *valid))
        }
        _ => None,
    };
    events.iter().filter_map(complete).collect()
}

fn stop(events: &[ModelEvent]) -> Option<Stop> {
    if let Some(ModelEvent::End(stop)) = events.last() { Some(*stop) } else { None }
}

/// An event stream of JSON chunks, ended as OpenAI ends it.
fn sse(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).chain(["data: [DONE]\n\n".to_owned()]).collect()
}

fn delta(delta: Value) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

fn finish(reason: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

fn fragment(index: u64, id: &str, name: &str, arguments: &str) -> Value {
    delta(
        json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": arguments } }] }),
    )
}

fn parsed(chunks: &[Value]) -> Value {
    parse_recording("openai-chat", 200, sse(chunks).as_bytes())
}

fn parsed_calls(chunks: &[Value]) -> Value {
    parsed(&[chunks, &[finish("tool_calls")]].concat())["tool_calls"].clone()
}

#[tokio::test]
async fn an_answer_comes_as_it_is_written_and_its_calls_when_it_is_whole() {
    let body = sse(&[
        delta(json!({ "role": "assistant", "reasoning_content": "Hm" })),
        delta(json!({ "content": "Look" })),
        delta(json!({ "content": "ing 😀" })),
        fragment(0, "call_a", "read", ""),
        fragment(0, "", "", "{\"path\":"),
        fragment(0, "", "", "\"é\"}"),
        fragment(1, "call_b", "ls", "{}"),
        finish("tool_calls"),
        json!({ "choices": [], "usage": { "prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": { "cached_tokens": 6 } } }),
    ]);
    let server = Server::start(vec![Reply::stream(body.clone()), Reply { piece: 1, ..Reply::stream(body) }]);
    let provider = server.provider();
    for pieces in ["whole", "byte by byte"] {
        let (events, error) = ask(&provider, &[user("hi")]).await;
        assert_eq!(error, None, "{pieces}");
        assert!(matches!(&events[0], ModelEvent::Thinking(text) if text == "Hm"), "{pieces}");
        assert!(matches!(&events[1], ModelEvent::Native(own) if own.get().contains("reasoning_content")), "{pieces}");
        assert!(matches!(&events[2], ModelEvent::Text(text) if text == "Look"), "{pieces}");
        assert!(matches!(&events[3], ModelEvent::Text(text) if text == "ing 😀"), "{pieces}");
        assert!(
            matches!(&events[4], ModelEvent::CallStart { index: 0, id, name } if id == "call_a" && name == "read"),
            "{pieces}"
        );
        assert!(
            matches!(&events[5], ModelEvent::CallArguments { index: 0, delta } if delta == "{\"path\":"),
            "{pieces}"
        );
        let want = [
            ("call_a".to_owned(), "read".to_owned(), "{\"path\":\"é\"}".to_owned(), true),
            ("call_b".to_owned(), "ls".to_owned(), "{}".to_owned(), true),
        ];
        assert_eq!(calls(&events), want, "{pieces}");
        let usage = events
            .iter()
            .find_map(|event| if let ModelEvent::Usage(usage) = event { Some(*usage) } else { None })
            .unwrap();
        assert_eq!(usage, Usage { input: 10, output: 4, cache_read: 6, ..Usage::default() });
        assert_eq!((usage.tokens().cache_write, usage.tokens().total), (4, 14));
        assert_eq!(stop(&events), Some(Stop::ToolCalls), "{pieces}");
    }
    assert_eq!(server.seen()[1].connection, 1, "the second turn reuses the first one's connection");
}

#[tokio::test]
async fn the_first_request_holds_what_is_needed_and_no_more() {
    let server = Server::start(vec![Reply::stream(sse(&[finish("stop")]))]);
    let tools = [json!({ "name": "ls", "description": "Lists.", "parameters": { "type": "object" } })];
    let history = [user("hi")];
    let provider = provider(&format!("{}/", server.base));
    let asked = provider.stream(Request { tools: &tools, max_tokens: Some(9), ..request(&history) }).await;
    collect(&mut asked.unwrap()).await;
    let seen = server.seen().remove(0);
    assert!(seen.head.starts_with("post /v1/chat/completions http/1.1\r\n"), "{}", seen.head);
    assert!(seen.head.contains(&format!("authorization: bearer {KEY}")), "{}", seen.head);
    let want = concat!(
        r#"{"model":"m-1","stream":true,"stream_options":{"include_usage":true},"#,
        r#""tools":[{"type":"function","function":{"name":"ls","description":"Lists.","parameters":{"type":"object"}}}],"#,
        r#""messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"hi"}],"max_tokens":9}"#
    );
    assert_eq!(seen.body, want);
}

#[tokio::test]
async fn a_longer_history_goes_on_where_the_shorter_one_ended() {
    let own = json!({ "field": "reasoning_content" });
    let fidelity = json!({ "api": "openai-chat", "provider": "test", "model": "m-1", "native": own });
    let history = [
        user("look"),
        message(json!({ "type": "thinking", "thinking": "so", "fidelity": fidelity })),
        assistant("Reading."),
        call("call_a", "read", "{\"path\":\"a\"}"),
        call("call_a#2", "read", "{\"path\":"),
        result("call_a", "one", &[concat!("data:image/png;base64,", pixel!())]),
        result("call_a#2", "two", &[]),
        assistant("Done."),
        user("thanks"),
        message(json!({ "type": "image_url", "image_url": concat!("data:image/png;base64,", pixel!()) })),
        message(json!({ "type": "thinking", "thinking": "only" })),
        user("and now?"),
    ];
    let replies = vec![Reply::stream(sse(&[finish("stop")])); 3 * history.len()];
    let (server, kept) = (Server::start(replies), Vec::from([1, 5, 7, 8, 9, 10, 11, 12]));
    let growing = server.provider();
    for &count in &kept {
        ask(&growing, &history[..count]).await;
    }
    // A changed past, as a compaction leaves it, is another conversation.
    let compacted = [user("[summary]"), user("and now?")];
    ask(&growing, &compacted).await;
    for &count in &kept {
        ask(&server.provider(), &history[..count]).await;
    }
    let seen: Vec<String> = server.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!(seen[..kept.len()], seen[kept.len() + 1..], "kept and fresh encodings are the same bytes");
    let messages = |body: &str| serde_json::from_str::<Value>(body).unwrap()["messages"].clone();
    assert_eq!(messages(&seen[kept.len()])[1], json!({ "role": "user", "content": "[summary]\n\nand now?" }));
    let function = |arguments: &str| json!({ "name": "read", "arguments": arguments });
    let want = json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": "look" },
        { "role": "assistant", "content": "Reading.", "reasoning_content": "so", "tool_calls": [
            { "id": "call_a", "type": "function", "function": function("{\"path\":\"a\"}") },
            { "id": "call_a_2", "type": "function", "function": function("{}") },
        ] },
        { "role": "tool", "tool_call_id": "call_a", "content": "one" },
        { "role": "tool", "tool_call_id": "call_a_2", "content": "two" },
        { "role": "user", "content": [
            { "type": "text", "text": "The images of the tool results above." },
            { "type": "image_url", "image_url": { "url": concat!("data:image/png;base64,", pixel!()) } },
        ] },
        { "role": "assistant", "content": "Done." },
        { "role": "user", "content": [
            { "type": "text", "text": "thanks" },
            { "type": "image_url", "image_url": { "url": concat!("data:image/png;base64,", pixel!()) } },
            { "type": "text", "text": "and now?" },
        ] },
    ]);
    assert_eq!(messages(&seen[kept.len() - 1]), want);
    for pair in seen[2..4].windows(2) {
        let prefix = pair[0].strip_suffix("]}").unwrap();
        assert!(pair[1].starts_with(prefix), "a turn keeps the bytes of the one before it");
    }
}

#[tokio::test]
async fn ids_are_made_unique_in_the_session() {
    let body = sse(&[
        fragment(0, "call_a", "x", "{}"),
        fragment(1, "call_a", "x", "{}"),
        delta(json!({ "tool_calls": [{ "function": { "name": "y", "arguments": "{}" } }] })),
        finish("tool_calls"),
    ]);
    let server = Server::start(vec![Reply::stream(body)]);
    let (events, _) =
        ask(&server.provider(), &[user("hi"), call("call_a", "x", "{}"), result("call_a", "-", &[])]).await;
    let ids: Vec<String> = calls(&events).into_iter().map(|(id, ..)| id).collect();
    assert_eq!(ids, ["call_a#2", "call_a#3", "call00002"]);
}

#[tokio::test]
async fn an_answer_without_its_end_is_no_answer() {
    let started = [delta(json!({ "content": "Hel" })), fragment(0, "call_a", "rm", "{}")];
    let open: String = started.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    let stopped = format!("{open}data: {}\n\n", finish("tool_calls"));
    let late_error = format!(
        "{stopped}data: {}\n\n",
        json!({ "error": { "code": 502, "message": "upstream gone" }, "choices": [] })
    );
    let cut = |body: &str| Reply { whole: false, ..Reply::stream(body) };
    let server = Server::start(vec![Reply::stream(open.clone()), cut(&open), cut(&stopped), Reply::stream(late_error)]);
    let provider = server.provider();
    for end in ["end of body", "broken connection"] {
        let (events, error) = ask(&provider, &[user("hi")]).await;
        assert_eq!((calls(&events), stop(&events)), (vec![], None), "{end}");
        let error = error.unwrap();
        assert_eq!((error.class, error.is_retryable()), (ErrorClass::Cut, true), "{end}");
        assert!(error.message.starts_with("127.0.0.1:"), "{}", error.message);
    }
    let (events, error) = ask(&provider, &[user("hi")]).await;
    assert_eq!(
        (error, stop(&events), calls(&events).len()),
        (None, Some(Stop::ToolCalls), 1),
        "the stop reason was there"
    );
    let (events, error) = ask(&provider, &[user("hi")]).await;
    assert_eq!((calls(&events), error.unwrap().class), (vec![], ErrorClass::Server), "an error after the stop reason");
}

#[tokio::test]
async fn refusals_say_who_why_and_when() {
    let echo = json!({ "error": { "message": format!("Incorrect API key provided: {KEY}\u{1b}[2J"), "code": "invalid_api_key" } }).to_string();
    let dated = "date: Wed, 21 Oct 2015 07:28:00 GMT\r\nretry-after: Thu, 22 Oct 2015 07:28:05 GMT\r\n";
    let spent = "x-ratelimit-remaining-requests: 9\r\nx-ratelimit-reset-requests: 9h\r\nx-ratelimit-remaining-tokens: 0\r\nx-ratelimit-reset-tokens: 6m0s\r\n";
    let cases = [
        (Reply::status(401, "", &echo), ErrorClass::Auth, None, false),
        (Reply::status(429, "retry-after: 1\r\nretry-after-ms: 0\r\n", "{}"), ErrorClass::RateLimit, Some(1_000), true),
        (Reply::status(429, "retry-after-ms: 250\r\n", ""), ErrorClass::RateLimit, Some(250), true),
        (Reply::status(429, spent, ""), ErrorClass::RateLimit, Some(360_000), true),
        (Reply::status(503, dated, "busy"), ErrorClass::Overloaded, Some(86_405_000), true),
        (Reply::status(500, "x-should-retry: false\r\n", "{}"), ErrorClass::Server, None, false),
        (Reply::status(502, "", "<html>Bad gateway</html>"), ErrorClass::Server, None, true),
        (Reply::status(301, "location: https://example.org/\r\n", ""), ErrorClass::InvalidRequest, None, false),
        (Reply::stream("<html>Log in</html>"), ErrorClass::Malformed, None, true),
        (Reply::stream("data: {\"choices\n\n"), ErrorClass::Malformed, None, true),
    ];
    let server = Server::start(cases.iter().map(|case| case.0.clone()).collect());
    let provider = server.provider();
    for (at, (_, class, wait, retry)) in cases.into_iter().enumerate() {
        let error = ask(&provider, &[user("hi")]).await.1.unwrap();
        assert_eq!(
            (error.class, error.retry_after_ms, error.is_retryable()),
            (class, wait, retry),
            "case {at}: {error}"
        );
        assert!(error.message.starts_with("127.0.0.1:") && !error.hint().is_empty(), "{error}");
        assert!(!format!("{error:?}").contains(KEY) && !error.message.contains('\u{1b}'), "{error:?}");
    }
}

#[tokio::test]
async fn an_address_where_nobody_is_says_so() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = ask(&provider(&format!("http://127.0.0.1:{port}/v1")), &[user("hi")]).await.1.unwrap();
    assert_eq!((error.class, error.is_retryable()), (ErrorClass::Network, true));
    assert_eq!(error.message, format!("127.0.0.1:{port} cannot be reached: connection refused, nothing listens there"));
    for base_url in ["", "localhost:8080", "file:///etc/passwd", "ftp://example.org/v1"] {
        let made = connect(setup(Api::OpenaiChat, Endpoint { base_url: base_url.into(), ..Endpoint::default() }));
        assert_eq!(made.err().map(|error| error.class), Some(ErrorClass::InvalidRequest), "{base_url}");
    }
    let bad = Endpoint { base_url: "http://localhost/v1".into(), key: Some("sk-\u{7}secret".into()), proxy: None };
    assert!(!format!("{bad:?}").contains("secret"));
    let error = connect(setup(Api::OpenaiChat, bad)).err().unwrap();
    assert_eq!(error.class, ErrorClass::Auth);
    assert!(!error.message.contains("secret"));
}

#[tokio::test]
async fn waiting_can_be_given_up_and_taken_up_again() {
    let server = Server::start(vec![Reply {
        piece: 7,
        ..Reply::stream(sse(&[delta(json!({ "content": "Hello" })), finish("stop")]))
    }]);
    let mut answer = server.provider().stream(request(&[user("hi")])).await.unwrap();
    let mut events = Vec::new();
    loop {
        match tokio::time::timeout(Duration::from_micros(50), answer.next()).await {
            Ok(event) => match event.unwrap() {
                Some(event) => events.push(event),
                None => break,
            },
            Err(_) => tokio::task::yield_now().await,
        }
    }
    assert!(matches!(&events[0], ModelEvent::Text(text) if text == "Hello"), "{events:?}");
    assert_eq!((events.len(), stop(&events)), (2, Some(Stop::End)));
}

#[test]
fn calls_of_every_shape_are_put_together() {
    let one = |name: &str, arguments: Value| json!({ "id": "c1", "name": name, "arguments": arguments });
    let cases = [
        (
            "the index starts at 1",
            vec![fragment(1, "c1", "a", ""), fragment(1, "", "", "{\"x\":1}")],
            json!([one("a", json!({ "x": 1 }))]),
        ),
        (
            "the name comes later",
            vec![fragment(0, "c1", "", ""), fragment(0, "", "a", "{}")],
            json!([one("a", json!({}))]),
        ),
        (
            "the name is repeated",
            vec![fragment(0, "c1", "a", "{\"x\""), fragment(0, "c1", "a", ":1}")],
            json!([one("a", json!({ "x": 1 }))]),
        ),
        (
            "another id in each fragment",
            vec![fragment(0, "c1", "a", "{"), fragment(0, "c9", "", "}")],
            json!([one("a", json!({}))]),
        ),
        ("null for no arguments", vec![fragment(0, "c1", "a", "null")], json!([one("a", json!({}))])),
        ("no arguments at all", vec![fragment(0, "c1", "a", "")], json!([one("a", json!({}))])),
        ("arguments cut", vec![fragment(0, "c1", "a", "{\"x\":")], json!([one("a", Value::Null)])),
        (
            "arguments as an object",
            vec![delta(
                json!({ "tool_calls": [{ "index": 0, "id": "c1", "function": { "name": "a", "arguments": { "x": 1 } } }] }),
            )],
            json!([one("a", json!({ "x": 1 }))]),
        ),
        (
            "no index, fragments under one id",
            vec![
                delta(json!({ "tool_calls": [{ "id": "c1", "function": { "name": "a", "arguments": "{\"x\"" } }] })),
                delta(json!({ "tool_calls": [{ "id": "c2", "function": { "name": "b", "arguments": "{}" } }] })),
                delta(json!({ "tool_calls": [{ "id": "c1", "function": { "arguments": ":1}" } }] })),
            ],
            json!([one("a", json!({ "x": 1 })), { "id": "c2", "name": "b", "arguments": {} }]),
        ),
        (
            "an index used again",
            vec![fragment(0, "c1", "a", "{}"), fragment(0, "c2", "b", "{}")],
            json!([one("a", json!({})), { "id": "c2", "name": "b", "arguments": {} }]),
        ),
        (
            "an index used again, no ids",
            vec![fragment(0, "", "a", "{\"x\":1}"), fragment(0, "", "a", "{\"x\":2}")],
            json!([
                { "id": "call00001", "name": "a", "arguments": { "x": 1 } },
                { "id": "call00002", "name": "a", "arguments": { "x": 2 } },
            ]),
        ),
        (
            "the old form",
            vec![delta(json!({ "function_call": { "name": "a", "arguments": "{}" } }))],
            json!([{ "id": "call00001", "name": "a", "arguments": {} }]),
        ),
    ];
    for (what, chunks, want) in cases {
        assert_eq!(parsed_calls(&chunks), want, "{what}");
    }
}

#[test]
fn stop_reasons_and_texts_of_every_shape_are_read() {
    let text = || delta(json!({ "content": "Hi" }));
    for (reason, want) in [
        ("stop", "end"),
        ("length", "max_tokens"),
        ("model_length", "max_tokens"),
        ("content_filter", "filtered"),
        ("tool_calls", "end"),
        ("odd", "end"),
    ] {
        assert_eq!(parsed(&[text(), finish(reason)])["stop"], want, "{reason}");
    }
    assert_eq!(parsed(&[fragment(0, "c", "a", "{}"), finish("stop")])["stop"], "tool_calls", "calls outweigh the word");
    assert_eq!(parsed(&[text(), finish("error")])["error_class"], "server");
    assert_eq!(parsed(&[text(), finish("insufficient_system_resource")])["error_class"], "overloaded");
    assert_eq!(parsed(&[text()])["stop"], "cut");

    let other = json!({ "choices": [{ "index": 1, "delta": { "content": "no" } }] });
    let list = delta(
        json!({ "content": [{ "type": "thinking", "thinking": [{ "type": "text", "text": "hm" }] }, { "type": "text", "text": "Hi" }] }),
    );
    let repeated = json!({ "choices": [{ "delta": { "content": "Hi" }, "message": { "content": "Hi" } }] });
    let tags = |pieces: &[&str]| pieces.iter().map(|piece| delta(json!({ "content": piece }))).collect::<Vec<_>>();
    let cases = [
        ("other choices", vec![other, text()], "", "Hi"),
        ("a content list", vec![list], "hm", "Hi"),
        ("the whole message beside the delta", vec![repeated], "", "Hi"),
        ("reasoning under its other name", vec![delta(json!({ "reasoning": "hm" })), text()], "hm", "Hi"),
        (
            "reasoning under both names",
            vec![delta(json!({ "reasoning": "hm", "reasoning_content": "hm" })), text()],
            "hm",
            "Hi",
        ),
        ("tags", tags(&["\n<thi", "nk>h", "m</", "think", ">\n\nHi"]), "hm", "Hi"),
        ("tags that never close", tags(&["<think>hm</thi"]), "hm</thi", ""),
        ("no tags", tags(&[" <", "b>Hi <think>x</think>"]), "", " <b>Hi <think>x</think>"),
        ("blanks alone", tags(&[" ", "\n"]), "", " \n"),
    ];
    for (what, chunks, thinking, text) in cases {
        let parse = parsed(&[chunks, vec![finish("stop")]].concat());
        assert_eq!((parse["thinking"].as_str(), parse["text"].as_str()), (Some(thinking), Some(text)), "{what}");
    }

    let halves = "data: {\"choices\":[{\"delta\":{\"content\":\"a\\ud83d\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"\\\\ud83d \\ud83d\\ude00\\ude00é\"},\"finish_reason\":\"stop\"}]}";
    let parse = parse_recording("openai-chat", 200, halves.as_bytes());
    assert_eq!((parse["text"].as_str(), parse["stop"].as_str()), (Some("a\u{FFFD}\\ud83d 😀\u{FFFD}é"), Some("end")));

    let plain = json!({ "choices": [{ "message": { "content": "Hi", "refusal": "No." }, "finish_reason": "stop" }], "usage": { "prompt_tokens": 3, "completion_tokens": 1 } });
    let parse = parse_recording("openai-chat", 200, format!("\n   \n{plain}").as_bytes());
    assert_eq!(
        (parse["text"].as_str(), parse["refusal"].as_str(), parse["usage"]["input"].as_u64()),
        (Some("Hi"), Some("No."), Some(3))
    );
}

#[test]
fn usage_is_counted_alike_wherever_it_stands() {
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 21, "prompt_cache_hit_tokens": 6, "completion_tokens_details": { "reasoning_tokens": 7 } });
    let places = [
        json!({ "choices": [], "usage": usage }),
        json!({ "choices": [], "usage": null, "x_groq": { "usage": usage } }),
        json!({ "choices": [{ "index": 0, "delta": {}, "usage": usage }] }),
    ];
    for place in places {
        let parse = parsed(&[finish("stop"), place.clone()]);
        assert_eq!(
            parse["usage"],
            json!({ "input": 10, "output": 11, "cache_read": 6, "cache_write": 0, "reasoning": 7 }),
            "{place}"
        );
    }
}

#[test]
fn error_bodies_of_every_shape_are_classed() {
    let cases = [
        (
            400,
            json!({ "error": { "message": "Your input exceeds the context window of this model.", "code": "context_length_exceeded" } }),
            "context_overflow",
        ),
        (
            400,
            json!({ "error": { "message": "prompt is too long: 9 tokens > 8 maximum", "type": "invalid_request_error" } }),
            "context_overflow",
        ),
        (413, json!({}), "context_overflow"),
        (400, json!({ "detail": "Incorrect API key" }), "auth"),
        (403, json!({ "detail": [{ "msg": "no" }] }), "auth"),
        (402, json!({ "error": { "message": "Insufficient Balance" } }), "quota"),
        (
            429,
            json!({ "error": { "message": "You exceeded your current quota", "code": "insufficient_quota" } }),
            "quota",
        ),
        (
            429,
            json!({ "error": { "message": "You exceeded your current quota", "status": "RESOURCE_EXHAUSTED" } }),
            "rate_limit",
        ),
        (429, json!({ "error": { "type": "engine_overloaded_error" } }), "overloaded"),
        (
            529,
            json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } }),
            "overloaded",
        ),
        (400, json!({ "code": "Some resource", "error": "Model not found: x" }), "not_found"),
        (404, json!({ "error": "nothing here" }), "not_found"),
        (
            400,
            json!({ "error": { "message": "Invalid schema for function 'x'", "code": "invalid_function_parameters" } }),
            "schema",
        ),
        (500, json!({ "error": { "code": 500, "message": "tools param requires --jinja flag" } }), "invalid_request"),
        (400, json!({ "error": { "code": "tool_use_failed", "message": "did not match schema" } }), "tool_use_failed"),
        (
            400,
            json!({ "error": { "code": 400, "message": "Provider returned error", "metadata": { "raw": "maximum context length is 9" } } }),
            "context_overflow",
        ),
        (408, json!({}), "server"),
        (422, json!({ "message": "odd" }), "invalid_request"),
        (200, json!({ "type": "error", "error": { "type": "permission_error", "message": "no" } }), "auth"),
        (200, json!({ "type": "error", "error": { "type": "billing_error", "message": "no" } }), "quota"),
        (500, json!({}), "server"),
        (200, json!({ "error": { "code": 429, "message": "slow down" } }), "rate_limit"),
        (
            200,
            json!({ "object": "error", "message": "Invalid model: x", "type": "invalid_model", "code": "1500" }),
            "not_found",
        ),
    ];
    for (status, body, want) in cases {
        let parse = parse_recording("openai-chat", status, body.to_string().as_bytes());
        assert_eq!((parse["stop"].as_str(), parse["error_class"].as_str()), (Some("error"), Some(want)), "{body}");
    }
    let failed = "data: {\"choices\":[]}\n\nevent: error\ndata: {\"error\":{\"code\":\"tool_use_failed\",\"message\":\"x\",\"status_code\":400}}\n\n";
    assert_eq!(parse_recording("openai-chat", 200, failed.as_bytes())["error_class"], "tool_use_failed");
    assert_eq!(parse_recording("telepathy", 200, b"{}")["error_class"], "invalid_request");
}

#[tokio::test]
async fn a_limit_makes_the_last_call_unfit_even_where_it_parses() {
    let native = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls", "native_finish_reason": "length" }] });
    let body =
        |end: Value| Reply::stream(sse(&[fragment(0, "a", "x", "{\"n\":1}"), fragment(1, "b", "x", "{\"n\":1}"), end]));
    let server = Server::start(vec![body(finish("length")), body(native), body(finish("tool_calls"))]);
    let provider = server.provider();
    for (want, last) in [(Stop::MaxTokens, false), (Stop::ToolCalls, false), (Stop::ToolCalls, true)] {
        let (events, _) = ask(&provider, &[user("hi")]).await;
        let valid: Vec<bool> = calls(&events).into_iter().map(|call| call.3).collect();
        assert_eq!((stop(&events), valid), (Some(want), vec![true, last]));
    }
}
