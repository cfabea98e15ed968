//! `toolgate demo`: a whole session with no key and no network. A scripted model drives real commands through the real gate.
#![allow(clippy::disallowed_methods)] // The demo has a workspace of its own.

use std::{path::Path, sync::Arc};

use serde_json::json;
use toolgate_agent::{
    scripted::{Scripted, Step},
    session::{RunStatus, Session, SessionSetup},
    tools::Parts,
};
use toolgate_core::{
    approval::ApprovalMode,
    policy::{Policy, Rule, Tier},
};
use toolgate_runtime::{
    approver::{OnAsk, Unattended},
    ids,
    workspace::Workspace,
};

use super::{block_on, interruptible, print};
use crate::{
    config::{LoginUse, Settings},
    failure::{Failure, INTERRUPTED},
    recorded::Recorded,
    state::State,
    surroundings::Surroundings,
    wiring::{self, Wish},
};

/// The rule that the scripted model runs into.
const DENIED: &str = "Bash(rm *)";

pub(super) fn run(surroundings: &Surroundings) -> Result<u8, Failure> {
    let folder = surroundings.temporary_folder().join(format!("toolgate-{}", ids::session_id()));
    let made = std::fs::create_dir_all(&folder).and_then(|()| Workspace::open(&folder));
    let workspace = made.map_err(|error| {
        Failure::run(format!("no temporary workspace can be made in {}: {error}", folder.display()))
            .hint("set TMPDIR to a folder that can be written")
    })?;
    let mut recorded = record(surroundings, &workspace, &folder)?;
    let rule = Rule::parse(Tier::Deny, DENIED, "demo").map_err(|error| Failure::configuration(error.to_string()))?;
    let policy = Policy { rules: vec![rule] };
    let wish = Wish {
        approver: Arc::new(Unattended::new(ApprovalMode::AllowAll, policy, OnAsk::Deny)),
        workspace,
        converses: true,
        vision: true,
        tools: None,
        parts: Parts::default(),
        settings: Arc::new(Settings { login_shell: LoginUse::Off, ..Settings::default() }),
    };
    print::data("A scripted model, the real gate, real commands. Lines with > are calls that run.\n");
    let status = block_on(async {
        let interrupt = interruptible()?;
        let setup = wiring::environment(wish, &recorded, surroundings)?;
        let setup = SessionSetup::new(Arc::new(Scripted::new(script())), setup);
        let mut session = Session::begin(setup)?;
        let end = session.run(Some("Make a note, count its words, then clean up."), &interrupt).await?;
        session.close().await;
        Ok(end.status)
    })?;
    recorded.seal(status.as_str())?;
    // The workspace was only lent; the trace is what stays.
    let _ = std::fs::remove_dir_all(&folder);
    if let RunStatus::Interrupted = status {
        return Ok(INTERRUPTED);
    }
    let (head, trace) = (recorded.entry.head.as_deref().unwrap_or_default(), recorded.entry.trace.display());
    print::data(&format!("\nEvery step stands in a trace that can be verified (head {head})."));
    print::data(&format!("toolgate trace verify {trace}"));
    print::data(&trace.to_string());
    Ok(0)
}

/// The trace stays, so it goes where traces go; where that cannot be written or is no plain word to type, it stands beside the workspace.
fn record(surroundings: &Surroundings, workspace: &Workspace, folder: &Path) -> Result<Recorded, Failure> {
    let begin = |root| {
        let observer = Arc::new(print::Printer::telling_all());
        Recorded::begin(State::new(root), "demo", workspace, observer, &surroundings.secrets())
    };
    let usual = surroundings.state_folder().filter(|path| is_plain(path));
    usual.map(begin).and_then(Result::ok).map_or_else(|| begin(folder.with_extension("state")), Ok)
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
