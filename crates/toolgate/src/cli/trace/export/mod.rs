//! `trace export`: a session in one file that can be given away.
//!
//! The page needs nothing but itself: no network, no other file. Every text of the trace is escaped, and the page's own rules let no
//! script run but the one that it was written with.
#![allow(clippy::disallowed_methods)] // What is exported is written here.

mod timeline;

use std::{
    fmt::Write as _,
    fs::OpenOptions,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use toolgate_core::{
    call::Digest,
    message::{Body, Message, ModelMessage},
    trace::verify,
};

use super::{
    super::print,
    find::Files,
    told::{Told, told},
    verify::described,
};
use crate::failure::Failure;
use timeline::Timeline;

/// The page around the records.
const PAGE: &str = include_str!("page.html");

/// The page's style.
const STYLE: &str = include_str!("page.css");

/// The page's one script: the search box.
const SCRIPT: &str = include_str!("page.js");

/// Lines of a text that stand open; more are one click away.
const OPEN_LINES: usize = 24;

/// The images that are shown. Anything else that calls itself an image is named and not shown.
const SHOWN_IMAGES: [&str; 4] =
    ["data:image/png;base64,", "data:image/jpeg;base64,", "data:image/gif;base64,", "data:image/webp;base64,"];

/// Writes the page, or the records as they stand, to a file or to standard output.
pub(super) fn export(files: &Files, as_page: bool, output: Option<&Path>) -> Result<u8, Failure> {
    let bytes =
        if as_page { page(files).into_bytes() } else { files.each.iter().flat_map(|f| &f.bytes).copied().collect() };
    let Some(path) = output else {
        return match io::stdout().lock().write_all(&bytes) {
            // A reader that went away has read what it wanted.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::run(format!("the session cannot be written to standard output: {error}"))
                    .hint("what arrived there is not all of it; free space, or -o FILE elsewhere"))
            }
            _ => Ok(0),
        };
    };
    // A trace holds what was said in confidence, and so does what is made of it. Nothing that is there is written over: it may be a trace.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(&bytes)).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AlreadyExists => {
                "nothing that is there is written over: name another file, or remove it first"
            }
            _ => "-o FILE names where it goes",
        };
        Failure::run(format!("{} cannot be written: {error}", path.display())).hint(hint)
    })?;
    print::to_person(&format!("written: {}", path.display()));
    Ok(0)
}

fn page(files: &Files) -> String {
    let (mut records, mut timeline, mut number) = (String::new(), Timeline::default(), 0);
    let mut about = String::new();
    for file in &files.each {
        for line in file.bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            number += 1;
            let Some(message) = Message::from_line(line) else {
                let _ = write!(records, "<article id=\"r{number}\"><p>(no record: {} bytes)</p></article>", line.len());
                continue;
            };
            if let Body::SessionMeta(meta) = &message.body
                && about.is_empty()
            {
                about = format!("{}/{} in {}", meta.provider, meta.model_id, meta.workspace);
            }
            timeline.take(&message, number);
            record(&mut records, &message, number);
        }
    }
    let verified: String = files.each.iter().fold(String::new(), |mut told, file| {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy();
        let state = verify(&file.bytes).map_or_else(|why| format!("does not hold: {why}"), |found| described(&found));
        let _ = write!(told, "<li>{}: {}</li>", escaped(&name), escaped(&state));
        told
    });
    let parts = [
        (
            "{{policy}}",
            format!(
                "default-src 'none'; img-src data:; style-src 'sha256-{}'; script-src 'sha256-{}'",
                hash(STYLE),
                hash(SCRIPT)
            ),
        ),
        ("{{session}}", escaped(&files.session())),
        ("{{about}}", escaped(&about)),
        ("{{verified}}", verified),
        ("{{style}}", STYLE.to_owned()),
        ("{{script}}", SCRIPT.to_owned()),
        ("{{timeline}}", timeline.drawn()),
        ("{{records}}", records),
    ];
    filled(PAGE, &parts)
}

/// A template with its marks replaced in one pass, so that no text can stand for a mark.
fn filled(template: &str, parts: &[(&str, String)]) -> String {
    let (mut out, mut rest) = (String::new(), template);
    while let Some(at) = rest.find("{{") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        match parts.iter().find(|(mark, _)| rest.starts_with(mark)) {
            Some((mark, text)) => {
                out.push_str(text);
                rest = &rest[mark.len()..];
            }
            None => {
                out.push_str("{{");
                rest = &rest[2..];
            }
        }
    }
    out.push_str(rest);
    out
}

fn record(out: &mut String, message: &Message, number: usize) {
    let Told { time, who, line, text } = told(message);
    let _ = write!(
        out,
        "<article id=\"r{number}\" class=\"{who}\"><header><a href=\"#r{number}\"><time>{}</time></a> <b>{who}</b> {}</header>",
        escaped(&time),
        escaped(&line)
    );
    let lines = text.lines().count();
    if lines > OPEN_LINES {
        let _ = write!(out, "<details><summary>{lines} lines</summary><pre>{}</pre></details>", escaped(&text));
    } else if !text.is_empty() {
        let _ = write!(out, "<pre>{}</pre>", escaped(&text));
    }
    let images: &[String] = match &message.body {
        Body::Model(ModelMessage::ToolCallOutput(output)) => &output.images,
        Body::Model(ModelMessage::ImageUrl(image)) => std::slice::from_ref(&image.image_url),
        _ => &[],
    };
    for image in images.iter().filter(|url| SHOWN_IMAGES.iter().any(|kind| url.starts_with(kind))) {
        let _ = write!(out, "<img alt=\"\" src=\"{}\">", escaped(image));
    }
    out.push_str("</article>\n");
}

/// A text that is nothing but text in HTML, also inside of quotes. Controls are shown, since some of them no page may hold.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in toolgate_core::message::clean(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// SHA-256 in Base64, as a page's policy names a script.
fn hash(script: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digest = Digest::of(script.as_bytes());
    let bytes: Vec<u8> = (0..digest.as_str().len() / 2)
        .map(|at| u8::from_str_radix(&digest.as_str()[2 * at..2 * at + 2], 16).unwrap_or_default())
        .collect();
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let number = three.iter().fold(0_u32, |sum, byte| (sum << 8) | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let letter = LETTERS[(number >> (18 - 6 * place)) as usize & 63];
            out.push(if place <= three.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_names_a_script_as_browsers_do() {
        // The value that browsers print for this script in their own message.
        assert_eq!(hash("alert('Hello, world.');"), "qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng=");
        assert!(!SCRIPT.contains("</") && !STYLE.contains("</"), "nothing of ours ends its own element");
    }

    #[test]
    fn a_text_is_never_taken_for_a_mark_or_for_markup() {
        assert_eq!(filled("<{{a}}{{b}}{{x}}>", &[("{{a}}", "{{b}}".into()), ("{{b}}", "2".into())]), "<{{b}}2{{x}}>");
        assert_eq!(escaped("<img src=\"x\" onerror='y'>&"), "&lt;img src=&quot;x&quot; onerror=&#39;y&#39;&gt;&amp;");
    }
}
