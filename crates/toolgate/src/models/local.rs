//! Servers on this machine: asked what they have when nothing else says which model to use, and at no other time.

use std::time::Duration;

use toolgate_agent::provider::{Api, Endpoint, ListedModel, list_models};

use crate::surroundings::Surroundings;

/// How long all of them together may take. A server on this machine answers in a few milliseconds, and a person waits.
const WITHIN: Duration = Duration::from_millis(300);

/// Servers and their usual addresses.
const USUAL: [(&str, &str); 4] = [
    ("ollama", "http://127.0.0.1:11434/v1"),
    ("llama.cpp", "http://127.0.0.1:8080/v1"),
    ("lm-studio", "http://127.0.0.1:1234/v1"),
    ("vllm", "http://127.0.0.1:8000/v1"),
];

/// Parts of names of models that answer no conversation.
const NO_TALKERS: [&str; 3] = ["embed", "rerank", "whisper"];

/// A server that answers, and what it has.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) base_url: String,
    /// Models that a conversation can be had with; never empty.
    pub(crate) models: Vec<ListedModel>,
}

/// The servers that answer with models, in a fixed order. Runs on a thread of its own, so that it can be called from anywhere.
pub(crate) fn servers(surroundings: &Surroundings) -> Vec<Server> {
    let usual = || USUAL.map(|(name, url)| (name.to_owned(), url.to_owned())).to_vec();
    let addresses = surroundings.local_servers().unwrap_or_else(usual);
    let asked = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let found = runtime.block_on(async {
            let asked: Vec<_> = addresses.into_iter().map(|(name, url)| tokio::spawn(ask(name, url))).collect();
            let mut found = Vec::new();
            for answer in asked {
                found.extend(answer.await.ok().flatten());
            }
            found
        });
        runtime.shutdown_background();
        Some(found)
    });
    asked.join().ok().flatten().unwrap_or_default()
}

async fn ask(name: String, base_url: String) -> Option<Server> {
    let endpoint = Endpoint { base_url: base_url.clone(), ..Endpoint::default() };
    // A name that no server answers to must not hold the others up either.
    let mut models = tokio::time::timeout(WITHIN, list_models(Api::OpenaiChat, &endpoint, WITHIN)).await.ok()?.ok()?;
    models.retain(|model| !NO_TALKERS.iter().any(|part| model.id.contains(part)));
    (!models.is_empty()).then_some(Server { name, base_url, models })
}
