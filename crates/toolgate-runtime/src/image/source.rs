//! Where a tool's image comes from: a path, or an address that is fetched. Shared by the tools that look at images.

use toolgate_core::{
    call::Args,
    tool::{Effect, Prepared},
};

use super::{LONGEST_SIDE, MOST_BYTES, Picture};
use crate::{
    fetch::FetchError,
    files::{FileError, blocking},
    gate::Permit,
    tool::{Blocked, CheckContext, Done, ToolContext, ToolError},
};

/// What looking at a source would do.
///
/// # Errors
/// When it is neither a path nor an address that can be fetched here.
pub async fn prepared(args: &Args, cx: &CheckContext) -> Result<Prepared, ToolError> {
    let source = source(args);
    if is_address(&source) {
        let fetch = cx.fetch.as_ref().ok_or_else(no_fetch)?;
        let host = fetch.host(&source).map_err(|error| ToolError(error.to_string()))?;
        let summary = format!("fetch the image {source}");
        return Ok(Prepared { effects: vec![Effect::Connect(host)], summary, preview: None });
    }
    if let Some((scheme, _)) = source.split_once(':').filter(|(scheme, rest)| !rest.is_empty() && is_scheme(scheme)) {
        return Err(ToolError(format!(
            "`{scheme}:` is no address that is fetched; give a path, or an http or https address"
        )));
    }
    let files = cx.files.clone();
    let spelled = source.clone();
    let place = blocking(move || Ok(files.resolve(&spelled)?)).await?;
    Ok(Prepared { effects: vec![Effect::Read(place)], summary: format!("look at the image {source}"), preview: None })
}

/// The image of a permitted call, or how the call ends without one.
///
/// # Errors
/// Why there is none, for the model to read.
pub async fn loaded(permit: Permit, cx: &ToolContext) -> Result<Result<Picture, Done>, ToolError> {
    let side = permit.call().args().get("max_side").and_then(|side| side.as_u64());
    let side = side.and_then(|side| u32::try_from(side).ok()).map_or(LONGEST_SIDE, |side| side.clamp(1, LONGEST_SIDE));
    let source = source(permit.call().args());
    if is_address(&source) {
        let fetch = cx.fetch.as_ref().ok_or_else(no_fetch)?;
        let fetched = tokio::select! {
            fetched = fetch.get(&permit, &source, MOST_BYTES) => fetched,
            () = cx.cancel.cancelled() => return Ok(Err(Done::default())),
        };
        let bytes = match fetched {
            Ok(bytes) => bytes,
            Err(FetchError::Blocked { effect, by }) => {
                let note = format!("[{}]", FetchError::Blocked { effect: effect.clone(), by: by.clone() });
                let blocked = vec![Blocked { effect, by }];
                let stop = Some(toolgate_core::outcome::StopReason::Failed);
                return Ok(Err(Done { stop, note: Some(note), blocked, ..Done::default() }));
            }
            Err(error) => return Err(ToolError(error.to_string())),
        };
        return blocking(move || Ok(Ok(Picture::of(bytes, side).map_err(|error| ToolError(error.to_string()))?))).await;
    }
    let files = cx.files.clone();
    blocking(move || {
        let [Effect::Read(place)] = permit.call().effects() else {
            return Err(ToolError::new("the permit does not name one place"));
        };
        let mut opened = files.open(&permit, place).map_err(|error: FileError| ToolError(error.to_string()))?;
        let length = opened.length();
        Ok(Ok(Picture::load(opened.as_mut(), length, side).map_err(|error| ToolError(error.to_string()))?))
    })
    .await
}

/// The argument, without the blanks around it.
fn source(args: &Args) -> String {
    args.get("source").and_then(|source| source.as_str()).unwrap_or_default().trim().to_owned()
}

fn is_address(source: &str) -> bool {
    let begins = |scheme: &str| source.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    begins("http://") || begins("https://")
}

/// Words before a colon that name no file: a drive of one letter is a path elsewhere, and `file` is understood as one.
fn is_scheme(word: &str) -> bool {
    const SCHEMES: &[&str] =
        &["data", "ftp", "ftps", "blob", "javascript", "gopher", "ws", "wss", "s3", "gs", "http", "https"];
    SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

fn no_fetch() -> ToolError {
    ToolError::new("addresses cannot be fetched here; give the path of a file")
}
