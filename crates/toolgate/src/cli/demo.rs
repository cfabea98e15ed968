//! `toolgate demo`: a whole session with no key and no network. A scripted model drives real commands through the real gate.
#![allow(clippy::disallowed_methods)] // The demo has a workspace of its own.

use std::{path::Path, sync::Arc};

use serde_json::json;
use toolgate_agent::{
    scripted::{Scripted, Step},
    session::{RunStatus, Session, SessionSetup},
};
use toolgate_core::{
    approval::ApprovalMode,
    policy::{Policy, Rule, Tier},
};
use toolgate_runtime::{
    approver::OnAsk,
    ids,
    trace::{Journal, TraceFile},
    workspace::Workspace,
};

use super::{block_on, interruptible, print, run::prompt_for};
use crate::{
    failure::{Failure, INTERRUPTED},
    state::{Indexed, State},
    surroundings::Surroundings,
    wiring::{self, Wish},
};

/// The rule that the scripted model runs into.
const DENIED: &str = "Bash(rm *)";

pub(super) fn run(surroundings: &Surroundings) -> Result<u8, Failure> {
    let session_id = ids::session_id();
    let folder = surroundings.temporary_folder().join(format!("toolgate-{session_id}"));
    let made = std::fs::create_dir_all(&folder).and_then(|()| Workspace::open(&folder));
    let workspace = made.map_err(|error| {
        Failure::run(format!("no temporary workspace can be made in {}: {error}", folder.display()))
            .hint("set TMPDIR to a folder that can be written")
    })?;
    let (state, file) = place(surroundings, &session_id, &folder)?;
    let trace = file.path().to_owned();
    let mut entry = Indexed::new("demo", session_id.clone(), workspace.root().to_owned(), trace.clone());
    state.index(&mut entry)?;
    let journal = Arc::new(Journal::new(Some(file), Arc::new(print::Printer::telling_all())));
    let rule = Rule::parse(Tier::Deny, DENIED, "demo").map_err(|error| Failure::configuration(error.to_string()))?;
    let wish = Wish {
        spill: state.spill_folder(&session_id),
        session: session_id.clone(),
        mode: ApprovalMode::AllowAll,
        policy: Policy { rules: vec![rule] },
        on_ask: OnAsk::Deny,
        workspace: workspace.clone(),
        converses: true,
        login: false,
    };
    print::data("A scripted model, the real gate, real commands. Lines with > are calls that run.\n");
    let (head, status) = block_on(async {
        let interrupt = interruptible()?;
        let environment = Arc::new(wiring::environment(wish, &journal, surroundings)?);
        let setup = SessionSetup {
            id: session_id,
            provider: Arc::new(Scripted::new(script())),
            system: prompt_for(&environment, &workspace),
            environment: environment.clone(),
            journal: journal.clone(),
            workspace: workspace.root().display().to_string(),
            max_turns: None,
        };
        let mut session = Session::begin(setup)?;
        let end = session.run(Some("Make a note, count its words, then clean up."), &interrupt).await?;
        environment.close().await;
        Ok((session.seal(&end)?, end.status))
    })?;
    entry.head = head.clone();
    entry.status = status.as_str().into();
    state.index(&mut entry)?;
    // The workspace was only lent; the trace is what stays.
    let _ = std::fs::remove_dir_all(&folder);
    if let RunStatus::Interrupted = status {
        return Ok(INTERRUPTED);
    }
    print::data(&format!("\nEvery step stands in a trace that can be verified (head {}).", head.unwrap_or_default()));
    print::data(&format!("toolgate trace verify {}", trace.display()));
    print::data(&format!("{}", trace.display()));
    Ok(0)
}

/// The trace stays, so it goes where traces go; where that cannot be written or is no plain word to type, it stands beside the workspace.
fn place(
    surroundings: &Surroundings,
    session_id: &str,
    folder: &std::path::Path,
) -> Result<(State, TraceFile), Failure> {
    let secrets = surroundings.secrets();
    if let Some(state) = surroundings.state_folder().filter(|path| is_plain(path)).map(State::new)
        && let Ok(file) = TraceFile::create(&state.trace_path(session_id), &secrets)
    {
        return Ok((state, file));
    }
    let state = State::new(folder.with_extension("state"));
    let file = TraceFile::create(&state.trace_path(session_id), &secrets)?;
    Ok((state, file))
}

fn is_plain(path: &Path) -> bool {
    path.is_absolute()
        && path.to_str().is_some_and(|text| text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)))
}

fn script() -> Vec<Step> {
    let run = |line: &str| ("exec_command".to_owned(), json!({ "cmd": line }).to_string());
    vec![
        Step {
            text: "I write the note and look at the folder.".into(),
            calls: vec![run("printf 'every call passes one gate\\n' > note.txt && ls")],
        },
        Step {
            text: "Two calls at once: one counts the words, one fails and says how.".into(),
            calls: vec![run("wc -w < note.txt"), run("cat missing.txt")],
        },
        Step { text: "Now I clean up.".into(), calls: vec![run("rm -rf .")] },
        Step {
            text: "The rule holds, and I do not look for a way around it. The note has 5 words and is still there."
                .into(),
            calls: Vec::new(),
        },
    ]
}
