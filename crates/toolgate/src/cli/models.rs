//! `toolgate models`: what can be used and why, what cannot and what is missing.

use clap::Args;
use serde_json::{Value, json};
use toolgate_agent::provider::ModelId;

use super::{Common, print};
use crate::{
    config,
    failure::Failure,
    models::{Asked, Found, Keys, VENDORS, find, servers, without_password},
    surroundings::Surroundings,
    wiring,
};

/// Arguments of `toolgate models`.
#[derive(Args)]
pub(super) struct Models {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Box<Common>,
}

/// A model, and whether it can be used.
struct Row {
    id: ModelId,
    source: String,
    state: Result<Found, Failure>,
}

impl Models {
    pub(super) fn run(self, surroundings: &Surroundings) -> Result<u8, Failure> {
        let workspace = wiring::workspace(self.common.workspace.as_deref())?;
        let settings = config::load(&self.common.given(), workspace.root(), surroundings)?;
        let keys = Keys { settings: &settings, surroundings };
        let nothing = Asked::default();
        let chosen = find(&nothing, &settings, surroundings);
        let row = |provider: &str, model: &str, source: String| {
            let id = ModelId { provider: provider.to_owned(), model: model.to_owned() };
            Row { state: keys.found(id.clone(), &nothing, source.clone()), id, source }
        };
        let place = settings.record.of("models").next_back().map(|(_, source)| source.to_string()).unwrap_or_default();
        let configured =
            settings.models.iter().map(|entry| row(&entry.provider, &entry.id, format!("models ({place})")));
        let known = VENDORS.iter().map(|vendor| row(vendor.name, vendor.model, "well known".into()));
        let rows: Vec<Row> = configured.chain(known).collect();
        let here = servers(surroundings);
        if self.json {
            let rows: Vec<Value> = rows.iter().map(Row::json).collect();
            let here: Vec<Value> = here
                .iter()
                .map(|server| {
                    let models: Vec<&str> = server.models.iter().map(|model| model.id.as_str()).collect();
                    json!({ "name": server.name, "base_url": server.base_url, "models": models })
                })
                .collect();
            let chosen = match &chosen {
                Ok(found) => json!({ "provider": found.id.provider, "id": found.id.model, "why": found.why }),
                Err(_) => Value::Null,
            };
            print::json(&json!({ "models": rows, "servers": here, "chosen": chosen }));
            return Ok(0);
        }
        rows.iter().for_each(|row| print::data(&row.line()));
        for server in here {
            let models: Vec<&str> = server.models.iter().map(|model| model.id.as_str()).collect();
            print::data(&format!("{}  {}  answers: {}", server.name, server.base_url, models.join(", ")));
        }
        match chosen {
            Ok(found) => print::to_person(&format!("a new session would use {} ({})", found.id, found.why)),
            Err(failure) => print::to_person(&failure.to_string()),
        }
        Ok(0)
    }
}

impl Row {
    fn line(&self) -> String {
        let state = match &self.state {
            Ok(found) => {
                let key =
                    found.key_from.as_ref().map_or_else(|| "no key needed".into(), |from| format!("key from {from}"));
                format!("ready  {}  {key}", found.api.as_str())
            }
            Err(failure) => format!("not ready: {}", failure.next_step()),
        };
        format!("{}  {}  {state}", self.id, self.source)
    }

    fn json(&self) -> Value {
        let mut row = json!({ "provider": self.id.provider, "id": self.id.model, "source": self.source, "ready": self.state.is_ok() });
        match &self.state {
            Ok(found) => {
                row["api"] = found.api.as_str().into();
                row["base_url"] = without_password(&found.endpoint.base_url).into();
                row["key_from"] = json!(found.key_from);
                row["vision"] = found.vision.into();
                row["context_window"] = json!(found.context_window);
            }
            Err(failure) => row["missing"] = failure.next_step().into(),
        }
        row
    }
}
