//! The path of a file tool's call, from argument to permit, and the counts beside it. Shared by the file tools; no tool itself.

use serde_json::Value;
use toolgate_core::{
    approval::Source,
    call::Args,
    tool::{Effect, Place},
};

use crate::{
    diff::Diff,
    files::{blocking, seen::Seen},
    gate::Permit,
    tool::{CheckContext, ToolError},
};

/// The path that a call names, in the words of either parent; the workspace where it names none.
pub(super) fn place_of(args: &Args) -> String {
    let path = ["path", "file_path"].into_iter().find_map(|name| args.get(name).and_then(Value::as_str));
    path.unwrap_or_default().to_owned()
}

/// A count that a call gives. One beyond all that can be counted is the largest, so that it never means the default.
pub(super) fn count_of(args: &Args, name: &str) -> Option<u64> {
    let value = args.get(name)?;
    value.as_u64().or_else(|| value.as_f64().map(|count| count as u64))
}

/// Where that is.
pub(super) async fn resolved(cx: &CheckContext, spelled: String) -> Result<Place, ToolError> {
    let files = cx.files.clone();
    blocking(move || Ok(files.resolve(&spelled)?)).await
}

/// Whether what would be done now is what the decision was about: a person who saw a difference has allowed that one and no other.
/// Whoever decides by a rule has looked at no difference.
pub(super) fn as_decided(permit: &Permit, diff: Option<&Diff>, path: &str) -> Result<(), ToolError> {
    let shown = permit.call().preview().filter(|_| permit.decision().basis.source == Source::Person);
    if shown.is_none_or(|shown| diff.is_some_and(|diff| diff.digest() == shown.digest)) {
        return Ok(());
    }
    Err(ToolError(format!(
        "{path} has changed since this was allowed, and the change would be another one than what was shown; nothing was written. Call again."
    )))
}

/// Whether the file still is what the session knows of it. A model that changes what it has not seen undoes somebody's work.
pub(super) fn as_seen(seen: &Seen, place: &Place, content: &[u8]) -> Result<(), ToolError> {
    if !seen.has_changed(&place.real, content) {
        return Ok(());
    }
    let path = &place.spelled;
    Err(ToolError(format!(
        "{path} has changed since it was read here; nothing was written. Read it again before changing it."
    )))
}

/// The one place that a permit speaks of: what is opened is the permit's effect and nothing else.
pub(super) fn the_place(permit: &Permit) -> Result<&Place, ToolError> {
    match permit.call().effects() {
        [Effect::Read(place) | Effect::Search(place) | Effect::Write(place)] => Ok(place),
        // A tree whose contents are read; a file whose content is shown where it is changed.
        [Effect::Read(read), Effect::Search(place) | Effect::Write(place)] if read == place => Ok(place),
        _ => Err(ToolError::new("the permit does not name one place")),
    }
}
