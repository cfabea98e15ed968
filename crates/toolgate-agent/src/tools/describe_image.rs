//! `describe_image`: has another model look at a picture, for one that sees none.

use serde_json::json;
use toolgate_core::{
    call::Args,
    message::{Extra, ImageUrl, ModelMessage, Role, Text},
    outcome::StopReason,
    tool::{ForModel, Permission, Prepared, ToolKind, ToolSet, ToolSpec},
};
use toolgate_runtime::{
    BoxFuture,
    gate::Permit,
    image::source::{loaded, prepared},
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
};

use super::{Parts, report::text};
use crate::provider::{ModelEvent, Provider, Request};

/// PenguinHarness's time limit of one call; milliseconds.
const TIMEOUT_MS: i64 = 90_000;

/// PenguinHarness's bound of the description; tokens.
const MOST_TOKENS: u64 = 2048;

/// What is asked where nothing is.
const QUESTION: &str =
    "Describe this image in detail: what it shows, any text in it word for word, its layout, and what stands out.";

pub(super) struct DescribeImage {
    spec: ToolSpec,
    parts: Parts,
}

impl DescribeImage {
    pub(super) fn new(parts: &Parts) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "source": { "type": "string", "minLength": 1, "description": "Path or http(s) address." },
                "prompt": { "type": "string", "description": "What to look for." },
            },
            "required": ["source"],
            "additionalProperties": false,
        });
        let description = "Have a vision model describe an image (png, jpeg, gif, webp; at most 5 MB).";
        let mut spec = ToolSpec::new("describe_image", description, parameters);
        spec.permission = Permission::Read;
        spec.kind = ToolKind::Read;
        spec.rule_names = vec!["Read".into(), "WebFetch".into()];
        spec.timeout_ms = TIMEOUT_MS;
        spec.only_for = Some(ForModel::TextOnly);
        spec.sets = &[ToolSet::Minimal, ToolSet::Default];
        spec.snippet = Some("have an image described".into());
        Self { spec, parts: parts.clone() }
    }
}

impl Tool for DescribeImage {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare<'a>(&'a self, args: &'a Args, cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(prepared(args, cx))
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        Box::pin(async move {
            let Some(model) = self.parts.vision.clone() else {
                return Err(ToolError::new(
                    "No vision model is configured: set `vision_model` in the configuration to a model that sees images.",
                ));
            };
            let asked = text(permit.call().args(), "prompt");
            let picture = match loaded(permit, cx).await? {
                Ok(picture) => picture,
                Err(done) => return Ok(done),
            };
            let head = format!("{picture} — described by {}:\n", model.model().model);
            cx.out.write(head.as_bytes());
            let question = if asked.trim().is_empty() { QUESTION } else { asked.as_str() };
            let image = ImageUrl {
                role: Some(Role::User),
                image_url: picture.data_url(),
                stop_reason: Some(StopReason::Completed),
                extra: Extra::new(),
            };
            let history = [
                ModelMessage::Text(Text::new(Role::User, question, StopReason::Completed)),
                ModelMessage::ImageUrl(image),
            ];
            let described = tokio::select! {
                described = describe(model.as_ref(), &history, cx) => described,
                () = cx.cancel.cancelled() => return Ok(Done::default()),
            };
            match described {
                Ok(true) => Ok(Done::default()),
                Ok(false) => Ok(Done::noted(StopReason::Failed, "[vision model returned no text]")),
                Err(why) => {
                    let note = format!("[Vision model ({}) request failed: {why}]", model.model().model);
                    Ok(Done::noted(StopReason::Failed, note))
                }
            }
        })
    }
}

/// Asks once, and says whether anything was answered.
async fn describe(model: &dyn Provider, history: &[ModelMessage], cx: &ToolContext) -> Result<bool, String> {
    let request = Request { system: "", tools: &[], history, max_tokens: Some(MOST_TOKENS), thinking: None };
    let mut answer = model.stream(request).await.map_err(|error| error.to_string())?;
    let mut any = false;
    while let Some(event) = answer.next().await.map_err(|error| error.to_string())? {
        if let ModelEvent::Text(text) = event {
            any |= !text.trim().is_empty();
            cx.out.write(text.as_bytes());
        }
    }
    Ok(any)
}
