//! An approver of your own: it gives the rules and answers questions. Here it says no and why.
#![allow(clippy::print_stdout)]

use std::{error::Error, path::Path, sync::Arc};

use tokio_util::sync::CancellationToken;
use toolgate_runtime::{
    BoxFuture,
    approver::Approver,
    core::{
        approval::{ApprovalKey, ApprovalMode, ApprovalRequest, Decision, Reply, Withdrawn},
        policy::Standing,
        tool::ToolCall,
    },
    environment::{CallEnd, Environment, Setup},
    tools::builtin,
    workspace::Workspace,
};

struct Careful;

impl Approver for Careful {
    fn standing(&self) -> BoxFuture<'_, Standing> {
        Box::pin(async { Standing { mode: ApprovalMode::AlwaysAsk, policy: Arc::default(), version: 1 } })
    }

    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Reply> {
        let note = format!("not `{}`, please", request.summary);
        Box::pin(async { Reply::Decided(Decision::by_person(false, "careful", Some(note))) })
    }

    fn withdraw(&self, _key: &ApprovalKey, _why: Withdrawn) {}
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut setup = Setup::new(Workspace::open(Path::new("."))?);
    setup.approver = Arc::new(Careful);
    for tool in builtin() {
        setup.registry.add(tool)?;
    }
    let environment = Environment::new(setup);
    let call = ToolCall { id: "1".into(), name: "exec_command".into(), arguments: r#"{"cmd":"rm notes.txt"}"#.into() };
    if let CallEnd::Closed(result, _) = environment.call(call, &CancellationToken::new()).await? {
        println!("{}", result.output);
    }
    Ok(())
}
