//! An agent: a model, the built-in tools, one task.
//!
//! `BASE_URL` and `MODEL` say which model (anything that speaks Chat Completions), `API_KEY` its key where it wants one.
#![allow(clippy::disallowed_methods)] // An example is a program of its own.
#![allow(clippy::print_stdout)]

use std::{env, error::Error, path::Path, sync::Arc};

use tokio_util::sync::CancellationToken;
use toolgate_agent::{
    provider::{Api, Endpoint, ModelSetup, connect},
    runtime::{
        approver::{OnAsk, Unattended},
        core::{approval::ApprovalMode, policy::Policy, tool::ToolSet},
        environment::Setup,
        process::{
            command_env::EnvPolicy,
            host::supervise,
            login_env::EnvSource,
            supervisor::{Program, Supervisor},
            table::CommandSetup,
        },
        tools::of_set,
        workspace::Workspace,
    },
    session::{Session, SessionSetup},
};

/// The word that turns this program into the supervisor of its commands.
const SUPERVISOR: &str = "supervisor";

fn main() -> Result<(), Box<dyn Error>> {
    if env::args().nth(1).is_some_and(|word| word == SUPERVISOR) {
        supervise();
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(agent())
}

async fn agent() -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint { base_url: env::var("BASE_URL")?, key: env::var("API_KEY").ok(), proxy: None };
    let model = connect(ModelSetup::new(Api::OpenaiChat, "mine", &env::var("MODEL")?, endpoint))?;

    // Everything is closed until it is opened: no tools, no commands, every call denied.
    let mut setup = Setup::new(Workspace::open(Path::new("."))?);
    setup.approver = Arc::new(Unattended::new(ApprovalMode::AllowAll, Policy::default(), OnAsk::Deny));
    setup.commands = commands();
    of_set(ToolSet::Default).into_iter().try_for_each(|tool| setup.registry.add(tool))?;

    let mut session = Session::begin(SessionSetup::new(model, setup))?;
    let end = session.run(Some("Say hi from the shell."), &CancellationToken::new()).await?;
    println!("{}", end.text);
    session.close().await;
    Ok(())
}

/// Commands see this program's environment without its secrets.
fn commands() -> CommandSetup {
    let program = Program { path: "/proc/self/exe".into(), args: vec![SUPERVISOR.into()] };
    let variables = EnvSource::new(env::vars_os().collect(), None, EnvPolicy::default());
    CommandSetup::new(Arc::new(Supervisor::new(program)), variables)
}
