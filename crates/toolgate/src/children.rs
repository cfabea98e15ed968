//! How a session's children are made: other sessions in the same workspace, under the same rules, with traces of their own.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use toolgate_agent::{
    runtime::BoxFuture,
    session::{RunEnd, Session, SessionSetup},
    subagent::{ChildSession, Spawner, Wish as ChildWish},
    tools::Parts,
};
use toolgate_runtime::{approver::Approver, trace::Observer, workspace::Workspace};

use crate::{
    config::{Agent, ModelRef, Settings},
    failure::Failure,
    models::{self, Asked, Chosen},
    nearest::nearest,
    recorded::Recorded,
    state::State,
    surroundings::Surroundings,
    wiring::{self, Wish},
};

/// What all children of a session have from it.
pub(crate) struct Children {
    pub(crate) state: State,
    pub(crate) settings: Arc<Settings>,
    pub(crate) surroundings: Surroundings,
    pub(crate) workspace: Workspace,
    pub(crate) model: Chosen,
    pub(crate) secrets: Vec<String>,
}

impl Children {
    fn make(
        &self,
        wish: &ChildWish,
        approver: Arc<dyn Approver>,
        observer: Arc<dyn Observer>,
    ) -> Result<ChildRun, Failure> {
        let agent = wish.agent.as_deref().map(|id| self.agent(id)).transpose()?;
        let model = self.model(wish, agent)?;
        let mut secrets = self.secrets.clone();
        secrets.extend(model.key.clone());
        let recorded = Recorded::begin(self.state.clone(), "subagent", &self.workspace, observer, &secrets)?;
        let settings = self.settings.clone();
        let wish_of_environment = Wish {
            approver,
            workspace: self.workspace.clone(),
            converses: true,
            vision: model.vision,
            tools: agent.and_then(|agent| agent.tools.clone()),
            // A child starts none itself.
            parts: Parts { subagents: None, vision: models::vision(model.vision, &self.settings, &self.surroundings)? },
            settings: settings.clone(),
        };
        let setup = wiring::environment(wish_of_environment, &recorded, &self.surroundings)?;
        let mut setup = SessionSetup::new(model.provider, setup);
        setup.is_child = true;
        setup.options = settings.run_options(model.context_window, model.max_tokens, wish.thinking.or(model.thinking));
        let own = agent.and_then(|agent| agent.system_prompt.as_ref());
        if let Some(prompt) = own.or(settings.system_prompt.as_ref()) {
            setup.system = wiring::instructions(prompt, &self.workspace);
        }
        Ok(ChildRun { session: Session::begin(setup)?, recorded })
    }

    fn agent(&self, id: &str) -> Result<&Agent, Failure> {
        self.settings.agents.get(id).ok_or_else(|| {
            let known: Vec<&str> = self.settings.agents.keys().map(String::as_str).collect();
            Failure::usage(match (nearest(id, known.iter().copied()), known.is_empty()) {
                (Some(near), _) => format!("there is no agent `{id}`; did you mean `{near}`?"),
                (None, false) => format!("there is no agent `{id}`; there is {}", known.join(", ")),
                (None, true) => format!("there is no agent `{id}`, and none is configured; leave agent_id out"),
            })
        })
    }

    /// The model that was asked for, else the agent's, else the parent's.
    fn model(&self, wish: &ChildWish, agent: Option<&Agent>) -> Result<Chosen, Failure> {
        let of_agent =
            agent.and_then(|agent| agent.model.as_ref()).map(|ModelRef(id)| (id.provider.clone(), id.model.clone()));
        let Some((provider, model)) = wish.model.clone().or(of_agent) else { return Ok(self.model.clone()) };
        let asked = Asked { provider: Some(provider), model: Some(model), ..Asked::default() };
        models::choose(&asked, &self.settings, &self.surroundings)
    }
}

impl Spawner for Children {
    fn spawn<'a>(
        &'a self,
        wish: &'a ChildWish,
        approver: Arc<dyn Approver>,
        observer: Arc<dyn Observer>,
    ) -> BoxFuture<'a, Result<Box<dyn ChildSession>, String>> {
        Box::pin(async move {
            let child = self.make(wish, approver, observer).map_err(|failure| failure.to_string())?;
            Ok(Box::new(child) as Box<dyn ChildSession>)
        })
    }
}

/// A child that can run.
struct ChildRun {
    session: Session,
    recorded: Recorded,
}

impl ChildSession for ChildRun {
    fn id(&self) -> &str {
        &self.recorded.entry.session_id
    }

    fn run<'a>(
        &'a mut self,
        prompt: Option<&'a str>,
        interrupt: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<RunEnd, String>> {
        Box::pin(async move {
            self.recorded.reopen().map_err(|failure| failure.to_string())?;
            let end = self.session.run(prompt, interrupt).await.map_err(|error| error.to_string())?;
            self.recorded.seal(end.status.as_str()).map_err(|failure| failure.to_string())?;
            Ok(end)
        })
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.session.close().await })
    }
}
