//! A tool of your own: it declares itself, says what a call would do, and runs with a permit.
#![allow(clippy::disallowed_methods)] // An example is a program of its own.
#![allow(clippy::print_stdout)]

use std::{error::Error, io::Read, path::Path, sync::Arc};

use tokio_util::sync::CancellationToken;
use toolgate_runtime::{
    BoxFuture,
    approver::{OnAsk, Unattended},
    core::{
        approval::ApprovalMode,
        call::Args,
        policy::Policy,
        tool::{Effect, Permission, Prepared, ToolCall, ToolSpec},
    },
    environment::{CallEnd, Environment, Setup},
    files::blocking,
    gate::Permit,
    tool::{CheckContext, Done, Tool, ToolContext, ToolError},
    workspace::Workspace,
};

/// Counts the words of a text.
struct CountWords(ToolSpec);

impl Tool for CountWords {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare<'a>(&'a self, args: &'a Args, cx: &'a CheckContext) -> BoxFuture<'a, Result<Prepared, ToolError>> {
        Box::pin(async move {
            let place = cx.files.resolve(args["path"].as_str().unwrap_or_default())?;
            let summary = format!("count the words of {}", place.spelled);
            Ok(Prepared { effects: vec![Effect::Read(place)], summary, preview: None })
        })
    }

    fn run<'a>(&'a self, permit: Permit, cx: &'a ToolContext) -> BoxFuture<'a, Result<Done, ToolError>> {
        Box::pin(async move {
            let (files, out) = (cx.files.clone(), cx.out.clone());
            blocking(move || {
                let [Effect::Read(place)] = permit.call().effects() else {
                    return Err(ToolError::new("not permitted"));
                };
                let mut text = String::new();
                let read = files.open(&permit, place)?.read_to_string(&mut text);
                read.map_err(|error| ToolError::new(error.to_string()))?;
                out.write(format!("{} words", text.split_whitespace().count()).as_bytes());
                Ok(Done::default())
            })
            .await
        })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("toolgate-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("note.txt"), "one two three four")?;

    let parameters =
        serde_json::json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    let mut spec = ToolSpec::new("count_words", "Count the words of a file.", parameters);
    spec.permission = Permission::Read;

    let mut setup = Setup::new(Workspace::open(Path::new(&folder))?);
    setup.approver = Arc::new(Unattended::new(ApprovalMode::ReadOnly, Policy::default(), OnAsk::Deny));
    setup.registry.add(Arc::new(CountWords(spec)))?;
    let environment = Environment::new(setup);

    let call = ToolCall { id: "1".into(), name: "count_words".into(), arguments: r#"{"path":"note.txt"}"#.into() };
    if let CallEnd::Closed(result, _) = environment.call(call, &CancellationToken::new()).await? {
        println!("{}", result.output);
    }
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
