//! Images through the program: fetched by its own client, and read from a file.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    thread,
};

use serde_json::json;

use crate::support::Place;

/// One red pixel.
const GIF: &[u8] = b"GIF89a\x01\0\x01\0\x80\0\0\xff\0\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";

/// Serves the picture at every path.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = BufReader::new(&stream).read_line(&mut String::new());
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all(GIF);
        }
    });
    port
}

#[test]
fn plain_http_needs_no_certificates_and_a_private_address_its_own_rule() {
    let place = Place::new();
    let source = json!({ "source": format!("http://127.0.0.1:{}/a.gif", server()) }).to_string();
    for (rule, code, part) in [
        ("WebFetch(domain:127.0.0.1)", 0, "image/gif, 35 B, 1x1"),
        ("WebFetch", 1, "no public address; a rule `WebFetch(domain:127.0.0.1)` would allow it"),
    ] {
        // A system without roots: whoever loads them stumbles here.
        let mut command = place.toolgate(&["call", "read_image", &source, "--allow", rule]);
        let output = command.env("SSL_CERT_FILE", "/nonexistent").env("SSL_CERT_DIR", "/nonexistent").output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.code() == Some(code) && out.contains(part), "{rule}: {output:?}");
    }
}

#[test]
fn a_file_that_is_a_picture_is_a_picture_whatever_reads_it() {
    let place = Place::new();
    std::fs::write(place.work().join("a.txt"), GIF).unwrap();
    for (tool, name) in [("read", "path"), ("read_image", "source")] {
        let (code, out, err) = place.run(&["call", tool, &json!({ name: "a.txt" }).to_string()]);
        assert_eq!((code, out.trim_end()), (0, "image/gif, 35 B, 1x1"), "{tool}: {err}");
    }
}
