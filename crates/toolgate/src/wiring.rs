//! Where everything is put together, once. Every dependency of a session is a parameter below this file.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use toolgate_agent::{fetch::HttpFetch, tools::Parts};
use toolgate_runtime::{
    approver::Approver,
    environment::Setup,
    files::local::LocalFiles,
    output::spill::SpillFolder,
    process::{
        command_env::EnvPolicy,
        login_env::EnvSource,
        supervisor::{Program, Supervisor},
        table::CommandSetup,
    },
    workspace::Workspace,
};

use crate::{
    config::{LoginUse, Offer, Selection, Settings},
    failure::Failure,
    models::unlikely_keys,
    recorded::Recorded,
    surroundings::Surroundings,
};

/// The hidden word that turns this program into a supervisor.
pub(crate) const SUPERVISOR: &str = "supervisor";

/// What differs between the ways of using an environment.
pub(crate) struct Wish {
    pub(crate) approver: Arc<dyn Approver>,
    pub(crate) workspace: Workspace,
    /// Whether a call comes back while its command runs on, and can be sent input later.
    pub(crate) converses: bool,
    /// Whether the model sees images; some tools are for one kind of model.
    pub(crate) vision: bool,
    /// The tools, where they are not those of the settings.
    pub(crate) tools: Option<Selection>,
    /// What the tools that need a model work with.
    pub(crate) parts: Parts,
    pub(crate) settings: Arc<Settings>,
}

/// What an environment is made of.
pub(crate) fn environment(wish: Wish, recorded: &Recorded, surroundings: &Surroundings) -> Result<Setup, Failure> {
    let settings = &wish.settings;
    let program = |name: &str| surroundings.program(name);
    let delegates = wish.parts.subagents.is_some();
    let offer = Offer { vision: wish.vision, delegates, exclude: &settings.tools.exclude, program: &program };
    let chosen = wish.tools.as_ref().unwrap_or(&settings.tools.builtin);
    let registry = chosen.registry(&wish.parts, settings.own_tools(surroundings), &offer);
    let registry = registry.map_err(|what| Failure::configuration(format!("tools.builtin: {what}")))?;
    let login = if settings.login_shell == LoginUse::Once { surroundings.login_shell() } else { None };
    let policy = EnvPolicy {
        pass: settings.env.pass.clone(),
        drop: unlikely_keys(settings),
        set: settings.env.set.clone().into_iter().collect(),
    };
    let env = EnvSource::new(surroundings.vars(), login, policy);
    let programs = registry.specs().flat_map(|spec| spec.programs).map(|name| (*name, surroundings.program(name)));
    let programs = programs.filter_map(|(name, path)| Some((name.to_owned(), path?))).collect();
    let commands = CommandSetup {
        programs,
        login: settings.login_shell == LoginUse::PerCommand,
        takes_input: wish.converses,
        yields: wish.converses,
        ..CommandSetup::new(supervisor(), env)
    };
    Ok(Setup {
        session: recorded.id(),
        registry,
        approver: wish.approver,
        journal: recorded.journal.clone(),
        commands,
        hooks: settings.hooks.iter().map(|configured| configured.hook(surroundings)).collect(),
        fetch: Some(Arc::new(HttpFetch::new())),
        vision: wish.vision,
        files: Arc::new(LocalFiles::new(&wish.workspace, surroundings.home())),
        workspace: wish.workspace,
        spills: Some(SpillFolder::new(recorded.spill_folder())),
        parallel: settings.tools.parallel,
        max_parallel: settings.tools.max_parallel,
    })
}

/// This program, as a supervisor. By the kernel's own link to it, so that an update of the file does not change what runs.
pub(crate) fn supervisor() -> Arc<Supervisor> {
    let path = PathBuf::from("/proc/self/exe");
    Arc::new(Supervisor::new(Program { path, args: vec![SUPERVISOR.into()] }))
}

/// Instructions of the user's own, which know where they hold.
pub(crate) fn instructions(prompt: &str, workspace: &Workspace) -> String {
    format!("{}\n\nWorkspace: {}\n", prompt.trim_end(), workspace.root().display())
}

/// The folder that tools are bound to.
pub(crate) fn workspace(folder: Option<&Path>) -> Result<Workspace, Failure> {
    let folder = folder.unwrap_or(Path::new("."));
    Workspace::open(folder).map_err(|error| {
        Failure::usage(format!("the workspace {} cannot be opened: {error}", folder.display()))
            .hint("-C DIR names the folder that the tools are bound to; it must exist")
    })
}
