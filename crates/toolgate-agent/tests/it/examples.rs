//! The example runs as a test: a model that is served here, a real command, its answer.

use std::{
    io::{Read, Write},
    net::TcpListener,
    process::Command,
    thread,
};

use serde_json::json;

/// Answers each request with the next of these, and gives back what was asked.
fn serve(answers: Vec<serde_json::Value>) -> (String, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let answer = |answer: serde_json::Value| {
            let (mut socket, _) = listener.accept().unwrap();
            let (mut asked, mut buffer) = (String::new(), [0; 65536]);
            // One request is one write here, and ends with the brace of its body.
            while !asked.contains("\r\n\r\n") || !asked.ends_with('}') {
                let read = socket.read(&mut buffer).unwrap();
                asked.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
            }
            let body = answer.to_string();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: ";
            write!(socket, "{head}{}\r\n\r\n{body}", body.len()).unwrap();
            asked
        };
        answers.into_iter().map(answer).collect()
    });
    (base, server)
}

#[test]
fn an_agent_with_a_provider_runs_a_command() {
    let call = json!({ "id": "c1", "type": "function", "function": { "name": "exec_command", "arguments": "{\"cmd\":\"echo h''i\"}" } });
    let (base, server) = serve(vec![
        json!({ "choices": [{ "message": { "role": "assistant", "content": null, "tool_calls": [call] }, "finish_reason": "tool_calls" }] }),
        json!({ "choices": [{ "message": { "role": "assistant", "content": "I said hi." }, "finish_reason": "stop" }] }),
    ]);
    let binary = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples/agent");
    let output = Command::new(binary).env("BASE_URL", base).env("MODEL", "m").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "I said hi.\n", "{}", String::from_utf8_lossy(&output.stderr));
    let asked = server.join().unwrap();
    assert!(asked[1].contains(r#""content":"hi\n""#), "{}", asked[1]);
}
