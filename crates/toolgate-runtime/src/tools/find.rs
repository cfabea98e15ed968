//! `find`: files and folders by their names.

use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde_json::{Value, json};
use toolgate_core::{
    call::Args,
    tool::{Bound, Effect, Permission, Prepared, ToolKind, ToolSet, ToolSpec, Truncate},
};

use super::{
    first::First,
    paths::{count_of, place_of, resolved, the_place},
    remarks::{End, Remarks},
};
use crate::{
    BoxFuture,
    files::{FileError, Kind, Step, blocking, names},
    gate::Permit,
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
};

/// Paths that are shown by default (Pi's number).
const PATHS: usize = 1000;

pub(super) struct Find {
    spec: ToolSpec,
}

impl Find {
    pub(super) fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "minLength": 1, "description": "Glob: *.rs at any depth, src/**/*.rs from the folder." },
                "path": { "type": "string", "description": "Folder (default: the workspace)." },
                "limit": { "type": "integer", "minimum": 1, "description": "Paths at most (default 1000)." },
            },
            "required": ["pattern"],
            "additionalProperties": false,
        });
        let description = "Find files and folders by name. Gives sorted paths from the folder; hidden ones too, ignored ones not. \
                           A lower-case pattern matches either case.";
        let mut spec = ToolSpec::new("find", description, parameters);
        spec.permission = Permission::Read;
        spec.kind = ToolKind::Search;
        spec.rule_names = vec!["Read".into()];
        spec.bound = Bound::lines(Truncate::Head);
        spec.sets = &[ToolSet::ReadOnly, ToolSet::Default];
        spec.snippet = Some("find files by name".into());
        Self { spec }
    }
}

impl Tool for Find {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare<'a>(&'a self, args: &'a Args, cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(async move {
            let pattern = pattern_of(args);
            Wanted::new(pattern)?;
            let place = resolved(cx, place_of(args)).await?;
            let summary = match place.spelled.as_str() {
                "" => format!("find {pattern}"),
                folder => format!("find {pattern} in {folder}"),
            };
            Ok(Prepared { effects: vec![Effect::Search(place)], summary, preview: None })
        })
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        let (files, out, cancel) = (cx.files.clone(), cx.out.clone(), cx.cancel.clone());
        Box::pin(blocking(move || {
            let (place, args) = (the_place(&permit)?, permit.call().args());
            let wanted = Wanted::new(pattern_of(args))?;
            let limit = count_of(args, "limit").and_then(|limit| usize::try_from(limit).ok());
            let limit = limit.unwrap_or(PATHS);
            let first = First::new(limit);
            let no_folder = std::sync::OnceLock::new();
            let walked = files.walk(&permit, place, &|found| {
                if cancel.is_cancelled() {
                    return Ok(Step::Stop);
                }
                if found.path.as_os_str().is_empty() {
                    no_folder.get_or_init(|| found.kind);
                    return Ok(Step::Stop);
                }
                if !first.wants(found.path) {
                    return Ok(Step::Over);
                }
                if wanted.is(found.path, found.kind) {
                    first.add(found.path, 1, found.path.as_os_str().len() + 1, found.kind);
                }
                Ok(Step::On)
            })?;
            if let Some(found) = no_folder.get() {
                let path = place.spelled.clone();
                return Err(FileError::Kind { path, found: *found, wanted: Kind::Folder }.into());
            }
            let (found, more) = first.into_parts();
            let (mut text, mut shown) = (String::new(), 0);
            for (path, kind) in found.take(limit) {
                shown += 1;
                text.push_str(&names::shown(path.as_os_str()));
                text.push_str(if kind == Kind::Folder { "/\n" } else { "\n" });
            }
            out.write(text.as_bytes());
            let cancelled = cancel.is_cancelled();
            let mut remarks = Remarks::default();
            remarks.end(
                &End {
                    nothing: (shown == 0).then(|| "no paths match".into()),
                    things: ["path", "paths"],
                    shown,
                    limit,
                    more,
                    cancelled,
                },
                &walked,
            );
            Ok(remarks.into())
        }))
    }
}

fn pattern_of(args: &Args) -> &str {
    args.get("pattern").and_then(Value::as_str).unwrap_or_default()
}

/// What is looked for.
struct Wanted {
    /// A set of one glob, since sets are quick where a glob is only an ending.
    glob: GlobSet,
    /// Whether the pattern speaks of the whole path, or of the name at any depth.
    whole: bool,
    /// It ended with a slash.
    only_folders: bool,
}

impl Wanted {
    fn new(pattern: &str) -> Result<Self, ToolError> {
        let told = |reason: &dyn std::fmt::Display| {
            ToolError(format!(
                "the pattern `{pattern}` is no glob: {reason}; `*` stands for any part of a name, `**` for any folders"
            ))
        };
        let rest = pattern.strip_prefix("./").unwrap_or(pattern);
        let (only_folders, rest) = rest.strip_suffix('/').map_or((false, rest), |rest| (true, rest));
        let whole = rest.contains('/');
        let rest = rest.trim_start_matches('/');
        if rest.is_empty() {
            return Err(told(&"nothing is left of it"));
        }
        let glob = GlobBuilder::new(rest)
            .literal_separator(true)
            .case_insensitive(!rest.chars().any(char::is_uppercase))
            .build()
            .and_then(|glob| GlobSetBuilder::new().add(glob).build())
            .map_err(|error| told(error.kind()))?;
        Ok(Self { glob, whole, only_folders })
    }

    fn is(&self, path: &Path, kind: Kind) -> bool {
        let seen = if self.whole { path } else { path.file_name().map_or(path, Path::new) };
        (!self.only_folders || kind == Kind::Folder) && self.glob.is_match(seen)
    }
}
