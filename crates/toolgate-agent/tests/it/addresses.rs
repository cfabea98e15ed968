//! Images that are fetched: which hosts are reached and which are not, what servers answer, and how long they are waited for.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    sync::Arc,
    thread,
    time::Duration,
};

use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolgate_agent::runtime::BoxFuture;
use toolgate_core::{
    approval::{ApprovalKey, ApprovalMode, ApprovalRequest, Basis, Decision, Reply, Source, Withdrawn},
    outcome::StopReason,
    policy::Standing,
};
use toolgate_runtime::approver::Approver;

use crate::images::{house, house_of, pixel};

/// Far below any limit of a call, far above what a busy machine needs to notice an interrupt.
const PROMPTLY: Duration = Duration::from_secs(10);

/// A server that answers these paths, with a status, a header and a body.
fn server(answers: Vec<(&'static str, &'static str, Vec<u8>)>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            let _ = BufReader::new(&stream).read_line(&mut line);
            let path = line.split(' ').nth(1).unwrap_or_default();
            let answer = answers.iter().find(|(known, ..)| path.starts_with(known));
            let (head, body) = answer.map_or(("404 Not Found\r\n", &b""[..]), |(_, head, body)| (*head, body));
            let head = head.replace("PORT", &port.to_string());
            let _ = stream.write_all(format!("HTTP/1.1 {head}connection: close\r\n\r\n").as_bytes());
            let _ = stream.write_all(body);
        }
    });
    port
}

/// A body in pieces that say how long they are.
fn chunked(body: &[u8]) -> Vec<u8> {
    let pieces =
        body.chunks(100_000).map(|piece| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
    pieces.chain([b"0\r\n\r\n".to_vec()]).flatten().collect()
}

#[tokio::test]
async fn private_addresses_are_refused_however_they_are_spelled() {
    let house = house(
        vec![
            ("rebind.test", vec!["127.0.0.1"]),
            ("mixed.test", vec!["93.184.216.34", "10.0.0.1"]),
            ("localhost", vec!["127.0.0.1"]),
            ("metadata.google.internal", vec!["169.254.169.254"]),
        ],
        &["WebFetch"],
        None,
    );
    for source in [
        "http://127.0.0.1/a.png",
        "http://127.1/a.png",
        "http://0x7f000001/",
        "http://2130706433/",
        "http://017700000001/",
        "http://localhost/",
        "http://localhost./",
        "http://LOCALHOST/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[fe80::1]/",
        "http://10.1.2.3/",
        "http://169.254.169.254/latest/meta-data/",
        "http://metadata.google.internal/",
        "http://rebind.test/a.png",
        "http://mixed.test/a.png",
        "http://0.0.0.0/",
        "http://0/",
        "http://0177.0.0.1/",
        "http://0x7f.1/",
        "http://127.0.0.1./",
        "http://①②⑦.⓪.⓪.①/",
        "http://ｌｏｃａｌｈｏｓｔ/",
        "http://[::ffff:7f00:1]/",
        "http://[::127.0.0.1]/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://[64:ff9b::127.0.0.1]/",
        "http://[2002:7f00:1::]/",
        "http://[fd00::1]/",
        "http://100.64.0.1/",
        "https://127.0.0.1/",
    ] {
        let (output, completed, images) = house.read(source).await;
        assert!(!completed && images == 0 && output.contains("no public address"), "{source}: {output}");
    }
    for (source, part) in [
        ("http://[fe80::1%25lo]/", "is no address"),
        ("http://user:secret@example.com/a.png", "user name or password"),
        ("http:///", "is no address"),
        ("http://unknown.test/", "cannot be resolved"),
    ] {
        let (output, completed, _) = house.read(source).await;
        assert!(!completed && output.contains(part), "{source}: {output}");
    }
}

#[tokio::test]
async fn each_hop_of_a_redirect_is_judged_again() {
    let port = server(vec![
        ("/a.png", "200 OK\r\ncontent-type: text/plain\r\n", pixel()),
        ("/to_a", "302 Found\r\nlocation: /a.png\r\n", Vec::new()),
        ("/round", "302 Found\r\nlocation: /round\r\n", Vec::new()),
        ("/away", "302 Found\r\nlocation: http://other.test:PORT/a.png\r\n", Vec::new()),
        ("/inside", "302 Found\r\nlocation: http://127.0.0.1:PORT/a.png\r\n", Vec::new()),
        ("/file", "302 Found\r\nlocation: file:///etc/passwd\r\n", Vec::new()),
        ("/nowhere", "302 Found\r\n", Vec::new()),
        ("/keyed", "302 Found\r\nlocation: http://a:secret@here.test:PORT/a.png\r\n", Vec::new()),
        ("/chunks", "200 OK\r\ntransfer-encoding: chunked\r\n", chunked(&pixel())),
        ("/many_chunks", "200 OK\r\ntransfer-encoding: chunked\r\n", chunked(&vec![0; 6_000_000])),
        ("/packed", "200 OK\r\ncontent-encoding: gzip\r\n", b"\x1f\x8b\x08\0".to_vec()),
        ("/page", "200 OK\r\ncontent-type: image/png\r\n", b"<!DOCTYPE html><html>".to_vec()),
        ("/heic", "200 OK\r\ncontent-type: image/png\r\n", b"\0\0\0\x18ftypheic\0\0\0\0".to_vec()),
        ("/broken", "500 Internal Server Error\r\n", Vec::new()),
        ("/long", "200 OK\r\ncontent-length: 6000000\r\n", Vec::new()),
        ("/endless", "200 OK\r\n", vec![0; 6_000_000]),
        ("/short", "200 OK\r\ncontent-length: 500\r\n", pixel()),
        ("/text", "200 OK\r\ncontent-type: image/png\r\n", b"not an image".to_vec()),
    ]);
    let names = vec![("here.test", vec!["127.0.0.1"]), ("other.test", vec!["127.0.0.1"])];
    let house = house(names, &["WebFetch(domain:here.test)"], None);
    let read = async |path: &str| house.read(&format!("http://here.test:{port}{path}")).await;
    assert_eq!(read("/a.png").await, ("image/png, 70 B, 1x1".into(), true, 1), "the type is the content's");
    assert_eq!(read("/to_a").await, ("image/png, 70 B, 1x1".into(), true, 1));
    assert_eq!(read("/chunks").await, ("image/png, 70 B, 1x1".into(), true, 1));
    for (path, part) in [
        ("/keyed", "user name or password"),
        ("/many_chunks", "Image too large: more than the 5.0 MB limit."),
        ("/packed", "\"gzip\""),
        ("/page", "\"HTML\""),
        ("/heic", "\"HEIC\""),
        ("/round", "redirects more than 5 times"),
        ("/away", "not fetched: the address leads on to other.test, which was not allowed"),
        ("/inside", "not fetched: the address leads on to 127.0.0.1, which was not allowed"),
        ("/file", "only http and https"),
        ("/nowhere", "redirects to nowhere"),
        ("/broken?token=secret", "answered with status 500"),
        ("/missing", "answered with status 404"),
        ("/long", "Image too large: 6.0 MB, more than the 5.0 MB limit."),
        ("/endless", "Image too large: more than the 5.0 MB limit."),
        ("/short", "the answer broke off"),
        ("/text", "Unsupported image type"),
    ] {
        let (output, completed, images) = read(path).await;
        assert!(!completed && images == 0 && output.contains(part) && !output.contains("secret"), "{path}: {output}");
    }
}

#[tokio::test]
async fn a_name_is_resolved_once_and_the_address_that_was_looked_at_is_connected_to() {
    let port = server(vec![("/a.png", "200 OK\r\n", pixel())]);
    // Looked at a second time, the name would lead to a place where nothing listens.
    let house = house(
        vec![("here.test", vec!["127.0.0.1"]), ("here.test", vec!["192.0.2.1"])],
        &["WebFetch(domain:here.test)"],
        None,
    );
    assert_eq!(house.read(&format!("http://here.test:{port}/a.png")).await.2, 1);
}

#[tokio::test]
async fn only_a_rule_that_names_a_host_opens_a_private_one() {
    let port = server(vec![("/a.png", "200 OK\r\n", pixel())]);
    let named = || vec![("here.example.com", vec!["127.0.0.1"]), ("localhost", vec!["127.0.0.1"])];
    for (host, rules, opens) in [
        ("here.example.com", &[][..], false),
        ("here.example.com", &["WebFetch"], false),
        ("here.example.com", &["read_image"], false),
        ("here.example.com", &["WebFetch(domain:*.example.com)"], false),
        ("here.example.com", &["WebFetch(domain:*.com)"], false),
        ("here.example.com", &["WebFetch(domain:example.com)"], false),
        ("here.example.com", &["WebFetch(domain:here.example.com)"], true),
        ("here.example.com", &["read_image(domain:HERE.example.com)"], true),
        (
            "here.example.com",
            &["WebFetch", "WebFetch(domain:*.example.com)", "WebFetch(domain:here.example.com)"],
            true,
        ),
        ("127.0.0.1", &["WebFetch(domain:*.0.0.1)"], false),
        ("127.0.0.1", &["WebFetch(domain:localhost)"], false),
        ("127.0.0.1", &["WebFetch(domain:127.0.0.1)"], true),
        // However it is spelled, it is the host that the rule names.
        ("127.1", &["WebFetch(domain:127.0.0.1)"], true),
        ("localhost.", &["WebFetch(domain:localhost)"], true),
    ] {
        let house = house(named(), rules, None);
        let (output, _, images) = house.read(&format!("http://{host}:{port}/a.png")).await;
        assert_eq!(images == 1, opens, "{host} by {rules:?}: {output}");
        assert!(opens || output.contains("no public address; a rule `WebFetch(domain:"), "{host}: {output}");
    }
}

/// Somebody who is asked for everything and says yes.
struct Agreeable;

impl Approver for Agreeable {
    fn standing(&self) -> BoxFuture<'_, Standing> {
        Box::pin(async { Standing { mode: ApprovalMode::AlwaysAsk, policy: Arc::default(), version: 1 } })
    }

    fn decide<'a>(&'a self, _request: &'a ApprovalRequest) -> BoxFuture<'a, Reply> {
        let basis = Basis { source: Source::Person, rule: None, reason: "somebody said yes".into() };
        Box::pin(async { Reply::Decided(Decision { allowed: true, basis, decider: Some("me".into()), note: None }) })
    }

    fn withdraw(&self, _key: &ApprovalKey, _why: Withdrawn) {}
}

#[tokio::test]
async fn a_person_opens_a_private_host_where_its_own_letters_say_what_it_is() {
    let port = server(vec![("/a.png", "200 OK\r\n", pixel())]);
    let names = || vec![("looks.example.com", vec!["127.0.0.1"]), ("localhost", vec!["127.0.0.1"])];
    for (host, opens) in [("127.0.0.1", true), ("localhost", true), ("looks.example.com", false)] {
        let house = house_of(names(), Arc::new(Agreeable));
        let (output, _, images) = house.read(&format!("http://{host}:{port}/a.png")).await;
        assert_eq!(images == 1, opens, "{host}: {output}");
    }
}

#[tokio::test]
async fn all_addresses_of_a_host_are_looked_at_and_all_may_be_connected_to() {
    let port = server(vec![("/a.png", "200 OK\r\n", pixel())]);
    let rule = &["WebFetch(domain:here.test)"];
    // Nobody listens at the first.
    let house = house(vec![("here.test", vec!["127.0.0.2", "127.0.0.1"])], rule, None);
    assert_eq!(house.read(&format!("http://here.test:{port}/a.png")).await.2, 1);
    for addresses in [["93.184.216.34", "10.0.0.1"], ["10.0.0.1", "93.184.216.34"], ["2606:4700::1111", "::1"]] {
        let house = self::house(vec![("mixed.test", addresses.to_vec())], &["WebFetch"], None);
        let (output, ..) = house.read("http://mixed.test/a.png").await;
        assert!(output.contains("which is no public address"), "{addresses:?}: {output}");
    }
}

/// A server that says so when it has been asked, answers this and then no more.
fn silent(answer: Vec<u8>) -> (u16, Arc<tokio::sync::Notify>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(tokio::sync::Notify::new());
    let tell = asked.clone();
    thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = BufReader::new(&stream).read_line(&mut String::new());
            let _ = stream.write_all(&answer);
            tell.notify_one();
            held.push(stream);
        }
    });
    (port, asked)
}

/// What a server that falls silent has said before.
fn beginnings() -> [Vec<u8>; 3] {
    let half = [&b"HTTP/1.1 200 OK\r\ncontent-length: 70\r\n\r\n"[..], &pixel()[..30]].concat();
    [Vec::new(), b"HTTP/1.1 200 OK\r\n".to_vec(), half]
}

// The clock stands still until nothing else is to be done, so that no second of these is waited for.
#[tokio::test(start_paused = true)]
async fn a_server_that_falls_silent_is_not_waited_for_for_ever() {
    for said in beginnings() {
        let (port, _) = silent(said);
        let house = house(vec![], &["WebFetch(domain:127.0.0.1)"], None);
        std::fs::write(house.folder.path().join("a.png"), pixel()).unwrap();
        let (output, completed, images) = house.read(&format!("http://127.0.0.1:{port}/")).await;
        assert!(!completed && images == 0 && output.contains("Download failed: it took longer than 30 s"), "{output}");
        assert_eq!(house.read("a.png").await.2, 1, "the session goes on");
    }
}

#[tokio::test]
async fn an_interrupt_ends_a_download_at_once() {
    for said in beginnings() {
        let (port, asked) = silent(said);
        let house = house(vec![], &["WebFetch(domain:127.0.0.1)"], None);
        let (interrupt, began) = (CancellationToken::new(), std::time::Instant::now());
        let source = json!({ "source": format!("http://127.0.0.1:{port}/") });
        let (output, ()) = tokio::join!(house.call_until("read_image", source, &interrupt), async {
            asked.notified().await;
            interrupt.cancel();
        });
        assert_eq!(output.stop_reason, Some(StopReason::Aborted), "{}", output.output);
        assert!(output.images.is_empty() && began.elapsed() < PROMPTLY, "{:?}", began.elapsed());
    }
}
