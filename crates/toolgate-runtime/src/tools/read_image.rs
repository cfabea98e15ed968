//! `read_image`: shows the model a picture.

use serde_json::json;
use toolgate_core::{
    call::Args,
    tool::{ForModel, Permission, Prepared, ToolKind, ToolSet, ToolSpec},
};

use crate::{
    BoxFuture,
    gate::Permit,
    image::source::{loaded, prepared},
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
};

/// PenguinHarness's time limit of one call; milliseconds.
const TIMEOUT_MS: i64 = 60_000;

pub(super) struct ReadImage {
    spec: ToolSpec,
}

impl ReadImage {
    pub(super) fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "source": { "type": "string", "minLength": 1, "description": "Path or http(s) address." },
                "max_side": { "type": "integer", "minimum": 1, "description": "Scale down to so many pixels a side (default 2000)." },
            },
            "required": ["source"],
            "additionalProperties": false,
        });
        let description = "Look at an image (png, jpeg, gif, webp; at most 5 MB).";
        let mut spec = ToolSpec::new("read_image", description, parameters);
        spec.permission = Permission::Read;
        spec.kind = ToolKind::Read;
        spec.rule_names = vec!["Read".into(), "WebFetch".into()];
        spec.timeout_ms = TIMEOUT_MS;
        spec.only_for = Some(ForModel::Vision);
        spec.sets = &[ToolSet::Minimal, ToolSet::Default];
        spec.snippet = Some("look at an image".into());
        Self { spec }
    }
}

impl Tool for ReadImage {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare<'a>(&'a self, args: &'a Args, cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(prepared(args, cx))
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        Box::pin(async move {
            let picture = match loaded(permit, cx).await? {
                Ok(picture) => picture,
                Err(done) => return Ok(done),
            };
            cx.out.write(picture.to_string().as_bytes());
            Ok(Done { images: vec![picture], ..Done::default() })
        })
    }
}
