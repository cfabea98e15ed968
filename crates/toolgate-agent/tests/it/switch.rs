//! A session moves between providers: recorded with one, gone on with by each of the others, and back again.

use std::{path::Path, sync::Arc};

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use toolgate_agent::{
    history::Rebuilt,
    provider::Api,
    session::{RunOptions, RunStatus, Session},
};
use toolgate_runtime::trace::TraceFile;

use crate::{
    histories::broken_rule,
    provider::{Reply, Server},
    recordings::{Recording, recordings},
    replay::texts_of,
    requests::items_of,
    session::setup,
};

/// The members in which a wire keeps what only its own model may read.
const NATIVE: [&str; 4] = ["signature", "thoughtSignature", "encrypted_content", "reasoning_content"];

/// A real answer of a wire that thinks and then calls.
fn thinking_call(api: Api) -> Recording {
    let thinks = |recording: &Recording| {
        let replay = &recording.expect["reasoning_replay"];
        replay.is_object() || recording.expect["thinking"].as_str().is_some_and(|text| !text.is_empty())
    };
    let fits = |recording: &Recording| {
        recording.api == api.as_str() && recording.expect["stop"] == "tool_calls" && thinks(recording)
    };
    recordings().into_iter().find(fits).unwrap_or_else(|| panic!("no recording of {} thinks and calls", api.as_str()))
}

/// Goes on with a trace at a server that refuses, and returns the request that it was asked for.
async fn asked_by(api: Api, trace: &Path) -> Value {
    let server = Server::start(vec![Reply::status(401, "", "{}")]);
    let (file, bytes) = TraceFile::resume(trace, &[]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let setup = setup(server.provider_of(api), &folder, &Arc::default(), file, RunOptions::default());
    let mut session = Session::resume(setup, Rebuilt::read(&bytes).unwrap()).unwrap();
    let end = session.run(Some("go on"), &CancellationToken::new()).await.unwrap();
    assert!(matches!(end.status, RunStatus::Failed(_)));
    serde_json::from_str(&server.seen()[0].body).unwrap()
}

fn natives(body: &Value) -> Vec<String> {
    let mut found = Vec::new();
    NATIVE.iter().for_each(|name| texts_of(body, name, &mut found));
    found.sort();
    found
}

#[tokio::test]
async fn a_session_of_one_provider_goes_on_with_each_of_the_others_and_back() {
    for from in Api::ALL {
        let recording = thinking_call(from);
        let server = Server::start(vec![Reply::stream(recording.body), Reply::status(401, "", "{}")]);
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("s_001.jsonl");
        let file = TraceFile::create(&trace, &[]).unwrap();
        let setup = setup(server.provider_of(from), &folder, &Arc::default(), file, RunOptions::default());
        let mut session = Session::begin(setup).unwrap();
        // The calls are of tools that are not there, which is a result like any other; then the key is refused.
        session.run(Some("begin"), &CancellationToken::new()).await.unwrap();
        drop(session);
        let own: Value = serde_json::from_str(&server.seen()[1].body).unwrap();
        assert!(
            !natives(&own).is_empty(),
            "{}: what its own model wants back stands in its own requests",
            recording.name
        );

        for to in Api::ALL {
            let copy = folder.path().join(format!("{}_001.jsonl", to.as_str()));
            std::fs::copy(&trace, &copy).unwrap();
            let context = format!("{} goes on with {}", recording.name, to.as_str());
            let body = asked_by(to, &copy).await;
            let items = items_of(&body).as_array().unwrap_or_else(|| panic!("{context}: {body}"));
            assert_eq!(broken_rule(to, items), None, "{context}: {body}");
            let text = body.to_string();
            assert!(text.contains("begin") && text.contains("go on"), "{context}: {body}");
            if to == from {
                assert_eq!(natives(&body), natives(&own), "{context}: nothing of its own is lost by a resume");
                continue;
            }
            let own = natives(&own);
            // Gemini wants a signature on the first call of a step, and has a word for those that come from elsewhere.
            let foreign = natives(&body).into_iter().filter(|native| own.contains(native)).collect::<Vec<_>>();
            assert!(foreign.is_empty(), "{context}: {foreign:?}");
            for call in recording.expect["tool_calls"].as_array().unwrap() {
                assert!(text.contains(call["name"].as_str().unwrap()), "{context}: the calls stay");
            }
            // And back: the detour has changed nothing of what the first one wants.
            let back = folder.path().join(format!("{}-back_001.jsonl", to.as_str()));
            std::fs::copy(&copy, &back).unwrap();
            assert_eq!(natives(&asked_by(from, &back).await), own, "{context} and back");
        }
    }
}
