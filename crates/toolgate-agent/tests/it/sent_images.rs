//! What becomes of a history's images on each wire. Histories of other origin hold anything; the requests hold what every provider takes.

use serde_json::{Value, json};
use toolgate_agent::provider::Api;
use toolgate_core::message::ModelMessage;
use toolgate_runtime::image::Picture;

use crate::{
    provider::{call, message, result, user},
    requests::Asked,
};

/// A picture of 24 by 16, as a GIF.
const GIF: &str =
    "R0lGODdhGAAQAIEAAP8AAAAAAAAAAAAAACwAAAAAGAAQAEAIIgABCBxIsKDBgwgTKlzIsKHDhxAjSpxIsaLFixgzatxoMCAAOw==";

/// A PNG of 2,400 by 1.
const WIDE: &str =
    "iVBORw0KGgoAAAANSUhEUgAACWAAAAABCAAAAAB/FsqeAAAAGUlEQVR42u3BMQEAAADCoPVPbQlPoAAAuBoJYQABjeDCPgAAAABJRU5ErkJggg==";

/// The images of a conversation, each as its kind and the beginning of its data, whatever the wire calls them.
fn images(conversation: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let split = |url: &str| {
        let (mime, data) = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")).unwrap_or(("", url));
        (mime.to_owned(), data.to_owned())
    };
    let word = |value: &Value| value.as_str().map(str::to_owned);
    match conversation {
        Value::Object(members) => {
            let at = |key: &str| members.get(key).unwrap_or(&Value::Null);
            let url = word(at("image_url")).or_else(|| word(&at("image_url")["url"]));
            found.extend(url.map(|url| split(&url)));
            found.extend(word(at("media_type")).zip(word(at("data"))));
            found.extend(word(at("mimeType")).zip(word(at("data"))));
            found.extend(members.values().flat_map(images));
        }
        Value::Array(items) => found.extend(items.iter().flat_map(images)),
        _ => {}
    }
    found
}

/// What a model is told that did one call and got this image; and the words of the request.
fn sent(api: Api, url: &str) -> (Vec<(String, String)>, String) {
    let history = [user("look"), call("a", "look", "{}"), result("a", "seen", &[url])];
    let written = Asked::of(api, "gemini-3-x").written(&history);
    (images(&written), written.to_string())
}

#[test]
fn an_image_reaches_each_provider_as_it_takes_it_or_as_words() {
    let cut = &pixel!()[..40];
    for api in Api::ALL {
        let gif = if api.as_str() == "google-generate-content" { "image/png" } else { "image/gif" };
        for (what, url, kind) in [
            ("a picture", format!("data:image/png;base64,{}", pixel!()), "image/png"),
            ("a GIF", format!("data:image/gif;base64,{GIF}"), gif),
            ("a picture under a false name", format!("data:image/jpeg;base64,{}", pixel!()), "image/png"),
            ("base64 with a line end behind it", format!("data:image/png;base64,{}\n", pixel!()), "image/png"),
            ("one that is too large", format!("data:image/png;base64,{WIDE}"), "image/jpeg"),
        ] {
            let (images, written) = sent(api, &url);
            assert_eq!(images.len(), 1, "{}, {what}: {written}", api.as_str());
            assert_eq!(images[0].0, kind, "{}, {what}", api.as_str());
            assert_ne!(images[0].1, WIDE, "it is made smaller");
            assert!(!written.contains("not shown"), "{written}");
        }
        for (what, url, why) in [
            ("one that was cut", format!("data:image/png;base64,{cut}"), "damaged"),
            ("words", "data:image/png;base64,aGVsbG8=".into(), "Unsupported image type"),
            ("no base64", "data:image/png;base64,%%%".into(), "its base64 is broken"),
            ("nothing", "data:image/png;base64,".into(), "empty"),
            ("no data", "data:image/png,abc".into(), "its address is none that can be sent"),
            ("a file", "file:///etc/passwd".into(), "its address is none that can be sent"),
        ] {
            let (images, written) = sent(api, &url);
            assert!(images.is_empty(), "{}, {what}: {written}", api.as_str());
            let told = "seen\\n[an image, not shown: ";
            assert!(written.contains(told) && written.contains(why), "{}, {what}: {written}", api.as_str());
        }
    }
}

/// Calls that each brought one image, the prompt before them.
fn many(count: usize, url: &str) -> Vec<ModelMessage> {
    let mut history = vec![user("look")];
    for at in 0..count {
        let id = format!("c{at}");
        history.extend([call(&id, "look", "{}"), result(&id, &format!("seen {at}"), &[url])]);
    }
    history
}

#[test]
fn when_images_become_too_many_the_newest_are_shown_and_the_beginning_changes_seldom() {
    let url = format!("data:image/png;base64,{}", pixel!());
    let history = many(160, &url);
    for api in Api::ALL {
        let asked = Asked::of(api, "m");
        let growing = asked.provider();
        let (mut leaps, mut before) = (0, 0);
        for count in 1..=160 {
            let so_far = asked.request(&history[..=count * 2]);
            let (body, fresh) = (growing.written(&so_far), asked.provider().written(&so_far));
            assert!(body == fresh, "{} after {count}: what is kept changes nothing", api.as_str());
            let hidden = String::from_utf8(body).unwrap().matches("[an image, no longer shown").count();
            assert!(hidden >= before && count - hidden <= 100 && count - hidden > 0, "{} of {count}", hidden);
            leaps += usize::from(hidden > before);
            before = hidden;
        }
        assert_eq!((leaps, before), (2, 102), "{}", api.as_str());
    }
}

#[test]
fn however_many_images_there_are_none_is_larger_than_many_may_be() {
    let history = many(25, &format!("data:image/png;base64,{WIDE}"));
    for api in Api::ALL {
        let sent = images(&Asked::of(api, "gemini-3-x").written(&history));
        assert_eq!(sent.len(), 25, "{}", api.as_str());
        for (_, data) in sent {
            assert!(Picture::of_base64(&data).is_ok_and(|picture| picture.size() == (2000, 1)), "{}", api.as_str());
        }
    }
}

#[test]
fn the_bytes_of_all_images_have_a_bound_and_the_newest_is_always_shown() {
    let heavy = format!("data:image/png;base64,{}", "A".repeat(6_000_000));
    for told in [
        json!({ "type": "image_url", "image_url": heavy }),
        json!({ "type": "inline_data", "mime_type": "image/png", "data": heavy }),
    ] {
        let history: Vec<_> = (0..4).map(|_| message(told.clone())).collect();
        let written = Asked::of(Api::ALL[0], "m").written(&history).to_string();
        assert_eq!(written.matches("no longer shown").count(), 2, "6 MB each: 16 at most, 8 after a leap");
    }
}
