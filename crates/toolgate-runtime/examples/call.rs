//! One call: a shell command through the gate, the supervisor and the close-out.
//!
//! `SUPERVISOR` names the supervisor's program; the `toolgate` binary is one, and so is `toolgate-supervisor`.
#![allow(clippy::disallowed_methods)] // An example is a program of its own.
#![allow(clippy::print_stdout)]

use std::{error::Error, path::Path, sync::Arc};

use tokio_util::sync::CancellationToken;
use toolgate_runtime::{
    approver::{OnAsk, Unattended},
    core::{approval::ApprovalMode, policy::Policy, tool::ToolCall},
    environment::{CallEnd, Environment, Setup},
    process::{
        command_env::EnvPolicy,
        login_env::EnvSource,
        supervisor::{Program, Supervisor},
        table::CommandSetup,
    },
    tools::builtin,
    workspace::Workspace,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let program =
        Program { path: std::env::var_os("SUPERVISOR").ok_or("SUPERVISOR is not set")?.into(), args: Vec::new() };
    let variables = EnvSource::new(std::env::vars_os().collect(), None, EnvPolicy::default());

    // Everything is closed until it is opened: no tools, no commands, every call denied.
    let mut setup = Setup::new(Workspace::open(Path::new("."))?);
    setup.approver = Arc::new(Unattended::new(ApprovalMode::AllowAll, Policy::default(), OnAsk::Deny));
    setup.commands = CommandSetup::new(Arc::new(Supervisor::new(program)), variables);
    for tool in builtin() {
        setup.registry.add(tool)?;
    }
    let environment = Environment::new(setup);

    let call =
        ToolCall { id: "1".into(), name: "exec_command".into(), arguments: r#"{"cmd":"echo hi; exit 3"}"#.into() };
    if let CallEnd::Closed(result, _) = environment.call(call, &CancellationToken::new()).await? {
        println!("{}", result.output);
    }
    environment.close().await;
    Ok(())
}
