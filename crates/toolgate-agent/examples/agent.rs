//! An agent: a model, the built-in tools, one task.
//!
//! `BASE_URL` and `MODEL` say which model (anything that speaks Chat Completions), `API_KEY` its key where it wants one, and `SUPERVISOR`
//! the program that starts commands; the `toolgate` binary is one with the argument `supervisor`, and so is `toolgate-supervisor`.
#![allow(clippy::disallowed_methods)] // An example is a program of its own.
#![allow(clippy::print_stdout)]

use std::{env, error::Error, path::Path, sync::Arc};

use tokio_util::sync::CancellationToken;
use toolgate_agent::{
    provider::{Api, Endpoint, ModelSetup, connect},
    runtime::{
        approver::{OnAsk, Unattended},
        core::{approval::ApprovalMode, policy::Policy},
        environment::Setup,
        process::{
            command_env::EnvPolicy,
            login_env::EnvSource,
            supervisor::{Program, Supervisor},
            table::CommandSetup,
        },
        tools::builtin,
        workspace::Workspace,
    },
    session::{Session, SessionSetup},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint { base_url: env::var("BASE_URL")?, key: env::var("API_KEY").ok(), proxy: None };
    let model = connect(ModelSetup::new(Api::OpenaiChat, "mine", &env::var("MODEL")?, endpoint))?;

    // Everything is closed until it is opened: no tools, no commands, every call denied.
    let mut setup = Setup::new(Workspace::open(Path::new("."))?);
    setup.approver = Arc::new(Unattended::new(ApprovalMode::AllowAll, Policy::default(), OnAsk::Deny));
    setup.commands = commands(env::var("SUPERVISOR")?);
    builtin().into_iter().try_for_each(|tool| setup.registry.add(tool))?;

    let mut session = Session::begin(SessionSetup::new(model, setup))?;
    let end = session.run(Some("Say hi from the shell."), &CancellationToken::new()).await?;
    println!("{}", end.text);
    session.close().await;
    Ok(())
}

/// Commands see this program's environment without its secrets.
fn commands(supervisor: String) -> CommandSetup {
    let program = Program { path: supervisor.into(), args: Vec::new() };
    let variables = EnvSource::new(env::vars_os().collect(), None, EnvPolicy::default());
    CommandSetup::new(Arc::new(Supervisor::new(program)), variables)
}
