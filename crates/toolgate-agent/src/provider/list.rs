//! The models that a provider offers.

use std::time::Duration;

use serde_json::Value;

use super::{Api, Endpoint, ProviderError, http::Line, json::filled};

/// A model that a provider offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    /// Its name, as requests have it.
    pub id: String,
    /// How much it can read; tokens. Few providers say it.
    pub context_window: Option<u64>,
}

/// Asks a provider which models it has. `within` bounds the whole of it: a server on the own machine answers in far less than a second.
///
/// # Errors
/// What the provider refuses, what keeps the request from reaching it, and an answer that is no list.
pub async fn list_models(api: Api, endpoint: &Endpoint, within: Duration) -> Result<Vec<ListedModel>, ProviderError> {
    let line = Line::to_list(api, endpoint.clone())?;
    let body: Value = serde_json::from_slice(&line.get(within).await?).unwrap_or_default();
    let list = [&body["data"], &body["models"], &body].into_iter().find_map(Value::as_array);
    let list = list.ok_or_else(|| line.malformed("answered with no list of models"))?;
    let answers = |model: &&Value| match model["supportedGenerationMethods"].as_array() {
        Some(methods) => methods.iter().any(|method| method == "generateContent"),
        None => true,
    };
    Ok(list.iter().filter(answers).filter_map(model_of).collect())
}

fn model_of(model: &Value) -> Option<ListedModel> {
    let name = filled(&model["id"]).or_else(|| filled(&model["name"])).or_else(|| filled(&model["model"]))?;
    // Each server has a name of its own for it.
    let window = [
        "/context_window",
        "/context_length",
        "/max_context_length",
        "/max_model_len",
        "/max_input_tokens",
        "/inputTokenLimit",
        "/meta/n_ctx",
        "/meta/n_ctx_train",
    ];
    Some(ListedModel {
        id: name.strip_prefix("models/").unwrap_or(name).to_owned(),
        context_window: window.iter().find_map(|path| model.pointer(path)?.as_u64()),
    })
}
