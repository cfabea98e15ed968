//! `ls`: the names in a folder.

use std::{collections::BTreeMap, ops::ControlFlow};

use serde_json::json;
use toolgate_core::{
    call::Args,
    tool::{Bound, Effect, Permission, Prepared, ToolKind, ToolSet, ToolSpec, Truncate},
};

use super::paths::{count_of, place_of, resolved, the_place};
use crate::{
    BoxFuture,
    files::{Kind, blocking, names},
    gate::Permit,
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
};

/// Names that are shown by default (Pi's number).
const NAMES: usize = 500;

pub(super) struct Ls {
    spec: ToolSpec,
}

impl Ls {
    pub(super) fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "description": "Folder (default: the workspace)." },
                "limit": { "type": "integer", "minimum": 1, "description": "Names at most (default 500)." },
            },
            "additionalProperties": false,
        });
        let mut spec =
            ToolSpec::new("ls", "List a folder: names in order, folders with a slash, hidden ones too.", parameters);
        spec.permission = Permission::Read;
        spec.kind = ToolKind::Search;
        spec.rule_names = vec!["Read".into()];
        spec.bound = Bound::lines(Truncate::Head);
        spec.sets = &[ToolSet::ReadOnly];
        spec.snippet = Some("list a folder".into());
        Self { spec }
    }
}

impl Tool for Ls {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare<'a>(&'a self, args: &'a Args, cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(async move {
            let place = resolved(cx, place_of(args)).await?;
            let summary = format!("list {}", if place.spelled.is_empty() { "." } else { &place.spelled });
            Ok(Prepared { effects: vec![Effect::Search(place)], summary, preview: None })
        })
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        let (files, out, cancel) = (cx.files.clone(), cx.out.clone(), cx.cancel.clone());
        Box::pin(blocking(move || {
            let limit = count_of(permit.call().args(), "limit");
            let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(NAMES);
            // In order and no more than can be shown, however many there are.
            let mut shown: BTreeMap<(String, Vec<u8>), Kind> = BTreeMap::new();
            let mut all = 0_usize;
            files.list(&permit, the_place(&permit)?, &mut |entry| {
                all += 1;
                let key = (entry.name.to_string_lossy().to_lowercase(), entry.name.into_encoded_bytes());
                shown.insert(key, entry.kind);
                if shown.len() > limit {
                    shown.pop_last();
                }
                if cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if all == 0 {
                out.write(b"(empty folder)");
            }
            for ((_, name), kind) in &shown {
                let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name);
                let slash = if *kind == Kind::Folder { "/" } else { "" };
                out.write(format!("{}{slash}\n", names::shown(name)).as_bytes());
            }
            let cut = all > shown.len();
            let note = cut.then(|| {
                format!("[{} of {all} names; limit={} shows more]", shown.len(), all.min(limit.saturating_mul(2)))
            });
            Ok(Done { note, ..Done::default() })
        }))
    }
}
