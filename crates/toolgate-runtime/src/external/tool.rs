//! One call of a program: its arguments go in as one JSON object, its output is read as its declaration says.

use std::{ffi::OsString, path::PathBuf};

use toolgate_core::{
    call::{Args, Digest},
    outcome::StopReason,
    tool::{Effect, Prepared, Preview, ToolSpec},
};

use super::{
    Declaration, DeclarationError, Protocol, Template,
    protocol::{EndStatus, Reader},
};
use crate::{
    BoxFuture,
    files::blocking,
    gate::Permit,
    image::Picture,
    output::{Sink, bounded},
    process::{
        Running, Status,
        exchange::{Exchange, More, exchange},
        table::Shell,
    },
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
};

/// Characters of the arguments that a summary shows.
const SUMMARY: usize = 120;

/// A program of the user's own as a tool.
pub struct ExternalTool {
    spec: ToolSpec,
    program: PathBuf,
    /// The program's name and its arguments.
    argv: Vec<OsString>,
    protocol: Protocol,
    effects: Option<Vec<Template>>,
}

impl ExternalTool {
    /// The tool of a declaration, whose program is at this absolute path.
    ///
    /// # Errors
    /// As [`Declaration::spec`].
    pub fn new(declaration: &Declaration, program: PathBuf) -> Result<Self, DeclarationError> {
        Ok(Self {
            spec: declaration.spec()?,
            program,
            argv: declaration.command.iter().map(OsString::from).collect(),
            protocol: declaration.protocol,
            effects: declaration.effects.clone(),
        })
    }

    fn effects(&self, args: &Args, cx: &CheckContext) -> Result<Vec<Effect>, ToolError> {
        let Some(templates) = &self.effects else {
            return Ok(vec![Effect::Unknown(format!(
                "runs {}, which says nothing of what it does",
                self.program.display()
            ))]);
        };
        let filled: Result<Vec<_>, _> =
            templates.iter().map(|template| template.fill(args, &self.spec.parameters, cx)).collect();
        Ok(filled?.concat())
    }

    /// What runs, for the one who decides. The digest binds the decision to it.
    fn preview(&self) -> Preview {
        let argv: Vec<_> = self.argv.iter().skip(1).map(|argument| argument.to_string_lossy()).collect();
        let text = format!("program: {} {}", self.program.display(), argv.join(" "));
        let bytes =
            [self.program.as_os_str().to_owned()].iter().chain(&self.argv).fold(Vec::new(), |mut bytes, part| {
                bytes.extend_from_slice(part.as_encoded_bytes());
                bytes.push(0);
                bytes
            });
        Preview { text: text.trim_end().to_owned(), digest: Digest::of(&bytes) }
    }

    /// The exchange, in the program's protocol.
    async fn talk(&self, running: Running, input: &[u8], out: &Sink) -> Result<Done, ToolError> {
        match self.protocol {
            Protocol::Text => {
                let take = |bytes: &[u8]| {
                    out.write(bytes);
                    Ok::<_, String>(More::Wanted)
                };
                let Exchange { outcome, errors } = exchange(running, input, take).await;
                Ok(done(outcome.map(|status| exited(status, "")), Vec::new(), Vec::new(), &errors))
            }
            Protocol::Lines => {
                let mut reader = Reader::default();
                let mut write = |text: &str| out.write(text.as_bytes());
                let take = |bytes: &[u8]| {
                    reader.push(bytes, &mut write)?;
                    Ok::<_, String>(if reader.is_over() { More::Over } else { More::Wanted })
                };
                let Exchange { outcome, errors } = exchange(running, input, take).await;
                let outcome =
                    outcome.and_then(|status| reader.finish(&mut |text| out.write(text.as_bytes())).map(|()| status));
                let said = reader.into_said();
                let outcome = outcome.map(|status| match said.end {
                    None => exited(status, " before it said its `end`").or_else(|| {
                        Some("it ended without its last line, {\"type\":\"end\",\"status\":\"completed\"}".to_owned())
                    }),
                    Some((EndStatus::Failed, reason)) => {
                        Some(reason.unwrap_or_else(|| "it says that it failed".into()))
                    }
                    Some((EndStatus::Completed, _)) => exited(status, " after it said that it was completed"),
                });
                let (images, notes) = pictures(said.images, said.notes).await?;
                Ok(done(outcome, notes, images, &errors))
            }
        }
    }
}

impl Tool for ExternalTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare<'a>(&'a self, args: &'a Args, cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(async move {
            let effects = self.effects(args, cx)?;
            Ok(Prepared { effects, summary: summary(&self.spec.name, args), preview: Some(self.preview()) })
        })
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        Box::pin(async move {
            let mut input = serde_json::to_vec(permit.call().args()).map_err(|error| ToolError(error.to_string()))?;
            input.push(b'\n');
            let shell = Shell::Program(&self.program, self.argv.clone());
            let whole = async {
                let running = cx.commands.start_program(&permit, shell, cx.workspace.root()).await;
                let running = running.map_err(|error| ToolError(error.to_string()))?;
                self.talk(running, &input, &cx.out).await
            };
            tokio::select! {
                done = whole => done,
                // Leaving the exchange ends the program and whatever it started.
                () = cx.cancel.cancelled() => Ok(Done::default()),
            }
        })
    }
}

/// The images that a program brought, each looked at as those are that a tool reads; of each other one a note says why not.
async fn pictures(images: Vec<String>, mut notes: Vec<String>) -> Result<(Vec<Picture>, Vec<String>), ToolError> {
    if images.is_empty() {
        return Ok((Vec::new(), notes));
    }
    blocking(move || {
        let mut pictures = Vec::with_capacity(images.len());
        for image in images {
            match Picture::of_base64(&image) {
                Ok(picture) => pictures.push(picture),
                Err(why) => notes.push(format!("an image was left out: {why}")),
            }
        }
        Ok((pictures, notes))
    })
    .await
}

/// What is wrong with how a program ended, if anything is.
fn exited(status: Option<Status>, when: &str) -> Option<String> {
    match status {
        // It had said all, so its end is no more than tidying up; it was ended.
        Some(Status::Code(0)) | None => None,
        Some(Status::Lost) => Some(format!("nobody knows how it ended{when}")),
        Some(status) => Some(format!("{status}{when}")),
    }
}

/// The call's end: what is wrong, if anything is, with what the program said of it on standard error.
fn done(outcome: Result<Option<String>, String>, notes: Vec<String>, images: Vec<Picture>, errors: &str) -> Done {
    let mut notes: Vec<String> = notes.iter().map(|note| format!("[note: {}]", one_line(note))).collect();
    let wrong = outcome.unwrap_or_else(Some);
    if let Some(wrong) = &wrong {
        notes.push(format!("[the program failed: {}]", bounded(wrong)));
        if !errors.is_empty() {
            notes.push(format!("[the end of its standard error:\n{errors}]"));
        }
    }
    let stop = Some(if wrong.is_some() { StopReason::Failed } else { StopReason::Completed });
    Done { stop, note: (!notes.is_empty()).then(|| notes.join("\n")), images, blocked: Vec::new() }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The call as a front end shows it.
fn summary(name: &str, args: &Args) -> String {
    let args = serde_json::to_string(args).unwrap_or_default();
    match args.char_indices().nth(SUMMARY) {
        Some((end, _)) => format!("{name} {}…", &args[..end]),
        None => format!("{name} {args}"),
    }
}
