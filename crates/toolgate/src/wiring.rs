//! Where everything is put together, once. Every dependency of a session is a parameter below this file.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use toolgate_runtime::{
    approver::Approver,
    environment::{MAX_PARALLEL, Setup},
    output::spill::SpillFolder,
    process::{
        command_env::EnvPolicy,
        login_env::EnvSource,
        supervisor::{Program, Supervisor},
        table::CommandSetup,
    },
    registry::Registry,
    tools::builtin,
    workspace::Workspace,
};

use crate::{failure::Failure, recorded::Recorded, surroundings::Surroundings};

/// The hidden word that turns this program into a supervisor.
pub(crate) const SUPERVISOR: &str = "supervisor";

/// What differs between the ways of using an environment.
pub(crate) struct Wish {
    pub(crate) approver: Arc<dyn Approver>,
    pub(crate) workspace: Workspace,
    /// Whether a call comes back while its command runs on, and can be sent input later.
    pub(crate) converses: bool,
    /// Whether commands see the login shell's environment.
    pub(crate) login: bool,
}

/// What an environment with the built-in tools is made of.
pub(crate) fn environment(wish: Wish, recorded: &Recorded, surroundings: &Surroundings) -> Result<Setup, Failure> {
    let mut registry = Registry::default();
    for tool in builtin() {
        registry.add(tool).map_err(|error| Failure::configuration(error.to_string()))?;
    }
    let login = if wish.login { surroundings.login_shell() } else { None };
    let env = EnvSource::new(surroundings.vars(), login, EnvPolicy::default());
    let commands =
        CommandSetup { takes_input: wish.converses, yields: wish.converses, ..CommandSetup::new(supervisor(), env) };
    Ok(Setup {
        session: recorded.id(),
        registry,
        approver: wish.approver,
        journal: recorded.journal.clone(),
        commands,
        workspace: wish.workspace,
        spills: Some(SpillFolder::new(recorded.spill_folder())),
        parallel: true,
        max_parallel: MAX_PARALLEL,
    })
}

/// This program, as a supervisor. By the kernel's own link to it, so that an update of the file does not change what runs.
fn supervisor() -> Arc<Supervisor> {
    let path = PathBuf::from("/proc/self/exe");
    Arc::new(Supervisor::new(Program { path, args: vec![SUPERVISOR.into()] }))
}

/// The folder that tools are bound to.
pub(crate) fn workspace(folder: Option<&Path>) -> Result<Workspace, Failure> {
    let folder = folder.unwrap_or(Path::new("."));
    Workspace::open(folder).map_err(|error| {
        Failure::usage(format!("the workspace {} cannot be opened: {error}", folder.display()))
            .hint("-C DIR names the folder that the tools are bound to; it must exist")
    })
}
