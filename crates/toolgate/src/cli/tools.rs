//! `toolgate tools`: which tools there are, which of them a session would have and why not the others, and what they cost on the wire.

use std::{fmt::Debug, sync::Arc};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use toolgate_agent::{
    fetch::HttpFetch,
    provider::{Api, Endpoint, ModelSetup, Provider, Request, connect},
    tools::Parts,
};
use toolgate_core::tool::{Bound, ForModel, Most, ToolSet, ToolSpec};
use toolgate_runtime::{
    files::local::LocalFiles,
    registry::{forms, named},
    tool::{CheckContext, Tool},
};

use super::{Common, block_on, print};
use crate::{
    config::{self, Declared, Offer, Selection, Settings},
    failure::Failure,
    models::{Asked, find},
    surroundings::Surroundings,
    tools::builtin,
    wiring,
};

/// Bytes of a declaration that make a token, roughly: English and JSON come to three and a half to four and a half with every vendor.
const BYTES_A_TOKEN: usize = 4;

/// Arguments of `toolgate tools`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Tools {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    how: How,
}

#[derive(Subcommand)]
enum What {
    /// Print everything about one tool: what the model is told, its limits, and what a call would do.
    Show {
        /// The tool, or a second name of it.
        name: String,
        #[command(flatten)]
        how: How,
    },
    /// Print the sets, and what each costs with every request.
    Sets {
        #[command(flatten)]
        how: How,
    },
}

#[derive(Args)]
struct How {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Box<Common>,
}

impl Tools {
    pub(super) fn run(self, surroundings: &Surroundings) -> Result<u8, Failure> {
        match self.what {
            None => Shop::open(&self.how, surroundings)?.list(self.how.json),
            Some(What::Sets { how }) => Shop::open(&how, surroundings)?.sets(how.json),
            Some(What::Show { name, how }) => Shop::open(&how, surroundings)?.show(&name, &how)?,
        }
        Ok(0)
    }
}

/// What decides which tools a session would have now.
struct Shop<'a> {
    settings: Settings,
    surroundings: &'a Surroundings,
    scale: Scale,
    chosen: Vec<Declared>,
}

impl<'a> Shop<'a> {
    fn open(how: &How, surroundings: &'a Surroundings) -> Result<Self, Failure> {
        let workspace = wiring::workspace(how.common.workspace.as_deref())?;
        let settings = config::load(&how.common.given(), workspace.root(), surroundings)?;
        settings.notes.iter().for_each(|note| print::to_person(&format!("note: {note}")));
        let mut chosen = settings.tools.builtin.chosen(&Parts::default()).map_err(Failure::configuration)?;
        let own = settings.own_tools(surroundings).into_iter();
        chosen.extend(own.filter(|(_, spec)| settings.tools.builtin.takes(spec)));
        Ok(Self { scale: Scale::of(&settings, surroundings)?, settings, surroundings, chosen })
    }

    /// Why a tool of a selection would not be there.
    fn refusal(&self, (tool, spec): &Declared) -> Option<String> {
        let program = |name: &str| self.surroundings.program(name);
        let offer = Offer {
            vision: self.scale.vision,
            delegates: true,
            exclude: &self.settings.tools.exclude,
            program: &program,
        };
        offer.refusal(tool.as_ref(), spec)
    }

    fn offered<'b>(&self, chosen: &'b [Declared]) -> Vec<&'b ToolSpec> {
        chosen.iter().filter(|declared| self.refusal(declared).is_none()).map(|(_, spec)| spec).collect()
    }

    /// The tools that were chosen, in their order, then the others; with why those are not there that are not.
    fn rows(&self) -> Vec<(Declared, Option<String>)> {
        let is_chosen = |name: &str| self.chosen.iter().any(|(tool, _)| tool.spec().name == name);
        let others = builtin().into_iter().filter(|tool| !is_chosen(&tool.spec().name));
        let why = match &self.settings.tools.builtin {
            Selection::Set(set) => format!("not in the set {}", set_name(*set)),
            Selection::List(_) => "not in the list of tools.builtin".into(),
        };
        let chosen = self.chosen.iter().map(|declared| (declared.clone(), self.refusal(declared)));
        chosen.chain(others.map(|tool| ((tool.clone(), tool.spec().clone()), Some(why.clone())))).collect()
    }

    fn list(&self, as_json: bool) {
        let (rows, offered) = (self.rows(), self.offered(&self.chosen));
        let bytes = self.scale.bytes(&offered);
        if as_json {
            let tools: Vec<Value> = rows.iter().map(|((tool, spec), why)| facts(tool.as_ref(), spec, why)).collect();
            print::json(
                &json!({ "tools": tools, "wire": self.scale.api.as_str(), "bytes": bytes, "tokens": tokens(bytes) }),
            );
            return;
        }
        for ((_, spec), why) in &rows {
            let snippet = spec.snippet.as_deref().unwrap_or_default();
            let (mark, told) = match why {
                None => ("*", snippet.to_owned()),
                Some(why) => (" ", format!("{snippet} [{why}]")),
            };
            print::data(&format!(
                "{mark} {:<15} {:<2} {:<8} {:<10} {:<24} {told}",
                spec.name,
                word(&spec.permission),
                word(&spec.kind),
                word(&spec.execution),
                set_names(spec).join(",")
            ));
        }
        print::to_person(&format!("* a new session has these {}: {}", offered.len(), self.scale.told(bytes)));
    }

    fn sets(&self, as_json: bool) {
        let mut rows: Vec<(&str, bool, Vec<Declared>)> = ToolSet::NAMES
            .into_iter()
            .map(|(set, name)| {
                let selection = Selection::Set(set);
                (
                    name,
                    selection == self.settings.tools.builtin,
                    selection.chosen(&Parts::default()).unwrap_or_default(),
                )
            })
            .collect();
        if matches!(self.settings.tools.builtin, Selection::List(_)) {
            rows.push(("(list)", true, self.chosen.clone()));
        }
        let rows = rows.iter().map(|(name, used, chosen)| {
            let offered = self.offered(chosen);
            let names: Vec<&str> = offered.iter().map(|spec| spec.name.as_str()).collect();
            (*name, *used, self.scale.bytes(&offered), names)
        });
        if as_json {
            let sets: Map<String, Value> = rows
                .map(|(name, used, bytes, tools)| {
                    (name.into(), json!({ "in_use": used, "tools": tools, "bytes": bytes, "tokens": tokens(bytes) }))
                })
                .collect();
            print::json(&json!({ "sets": sets, "wire": self.scale.api.as_str() }));
            return;
        }
        for (name, used, bytes, tools) in rows {
            let mark = if used { "*" } else { " " };
            let names = tools.join(", ");
            print::data(&format!("{mark} {name:<9} {bytes:>6} bytes {:>5} tokens  {names}", tokens(bytes)));
        }
        print::to_person(&format!(
            "* is in use; declarations over {}, tokens at {BYTES_A_TOKEN} bytes each",
            self.scale.api.as_str()
        ));
    }

    fn show(&self, name: &str, how: &How) -> Result<(), Failure> {
        let rows = self.rows();
        let row = rows.iter().find(|((_, spec), _)| spec.name == name);
        let tools = builtin();
        let second = || named(&tools, name).map(|(tool, form)| ((tool.clone(), form.clone()), None));
        let Some(((tool, spec), why)) = row.cloned().or_else(second) else {
            let known = rows.iter().map(|((_, spec), _)| spec.name.as_str());
            let near = crate::nearest::nearest(name, known).map(|near| format!("did you mean `{near}`? "));
            return Err(Failure::usage(format!("there is no tool `{name}`"))
                .hint(format!("{}toolgate tools lists them", near.unwrap_or_default())));
        };
        let mut facts = facts(tool.as_ref(), &spec, &why);
        facts["description"] = spec.description.clone().into();
        facts["parameters"] = spec.parameters.clone();
        facts["rule_names"] = json!(spec.rule_names);
        facts["guidelines"] = json!(spec.guidelines);
        facts["limits"] = json!({ "timeout_ms": spec.timeout_ms.max(0), "result": bound(spec.bound), "keeps": word(&spec.bound.keep) });
        facts["bytes"] = self.scale.bytes(&[&spec]).into();
        let arguments = example(&spec.parameters);
        let effects = self.effects(&tool, &arguments, how)?;
        facts["example"] = json!({ "arguments": arguments, "effects": effects });
        if how.json {
            print::json(&facts);
            return Ok(());
        }
        for (key, value) in facts.as_object().into_iter().flatten() {
            match value {
                Value::Null => {}
                Value::Array(list) if list.is_empty() => {}
                Value::String(text) => print::data(&format!("{key}: {text}")),
                Value::Array(list) if list.iter().all(Value::is_string) => {
                    let words: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
                    print::data(&format!("{key}: {}", words.join(", ")));
                }
                Value::Object(_) => print::data(&format!("{key}: {value:#}")),
                other => print::data(&format!("{key}: {other}")),
            }
        }
        Ok(())
    }

    /// What a call with these arguments would do, or why it cannot be said.
    fn effects(&self, tool: &Arc<dyn Tool>, arguments: &Value, how: &How) -> Result<Value, Failure> {
        let workspace = wiring::workspace(how.common.workspace.as_deref())?;
        let files = Arc::new(LocalFiles::new(&workspace, self.surroundings.home()));
        let cx = CheckContext { workspace: Arc::new(workspace), files, fetch: Some(Arc::new(HttpFetch::new())) };
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        block_on(async {
            Ok(match tool.prepare(&arguments, &cx).await {
                Ok(prepared) => json!(prepared.effects),
                Err(error) => json!(error.to_string()),
            })
        })
    }
}

/// What declarations weigh in the requests of the model that a session would have.
struct Scale {
    provider: Arc<dyn Provider>,
    api: Api,
    vision: bool,
}

impl Scale {
    /// The model of the settings; where there is none, the wire that most servers speak, and eyes.
    fn of(settings: &Settings, surroundings: &Surroundings) -> Result<Self, Failure> {
        let setup = match find(&Asked::default(), settings, surroundings) {
            Ok(found) => ModelSetup { api: found.api, id: found.id, endpoint: found.endpoint, vision: found.vision },
            Err(_) => {
                let nowhere = Endpoint { base_url: "http://127.0.0.1".into(), ..Endpoint::default() };
                ModelSetup::new(Api::OpenaiChat, "none", "none", nowhere)
            }
        };
        let (api, vision) = (setup.api, setup.vision);
        let provider = connect(setup).map_err(|error| Failure::configuration(error.to_string()))?;
        Ok(Self { provider, api, vision })
    }

    /// What a request is longer for them.
    fn bytes(&self, specs: &[&ToolSpec]) -> usize {
        let tools: Vec<Value> = specs.iter().map(|spec| spec.for_model()).collect();
        let length = |tools: &[Value]| {
            let request = Request { system: "", tools, history: &[], max_tokens: None, thinking: None };
            self.provider.written(&request).len()
        };
        length(&tools) - length(&[])
    }

    fn told(&self, bytes: usize) -> String {
        format!("{bytes} bytes of every request over {}, about {} tokens", self.api.as_str(), tokens(bytes))
    }
}

fn tokens(bytes: usize) -> usize {
    bytes.div_ceil(BYTES_A_TOKEN)
}

/// What stands in a line about a tool.
fn facts(tool: &dyn Tool, spec: &ToolSpec, why: &Option<String>) -> Value {
    let names = forms(tool).map(|form| form.name.as_str()).filter(|name| *name != spec.name);
    json!({
        "name": spec.name,
        "offered": why.is_none(),
        "why_not": why,
        "permission": spec.permission,
        "kind": spec.kind,
        "execution": spec.execution,
        "sets": set_names(spec),
        "snippet": spec.snippet,
        "hidden": spec.hidden,
        "for_model": spec.only_for.map(|kind| if kind == ForModel::Vision { "vision" } else { "text-only" }),
        "programs": spec.programs,
        "aliases": names.collect::<Vec<_>>(),
    })
}

fn set_names(spec: &ToolSpec) -> Vec<&'static str> {
    ToolSet::NAMES.into_iter().filter(|(set, _)| spec.sets.contains(set)).map(|(_, name)| name).collect()
}

fn set_name(set: ToolSet) -> &'static str {
    ToolSet::NAMES.into_iter().find(|(known, _)| *known == set).map_or("", |(_, name)| name)
}

/// The word of a configuration for a choice.
fn word(choice: &(impl serde::Serialize + Debug)) -> String {
    match serde_json::to_value(choice) {
        Ok(Value::String(word)) => word,
        _ => format!("{choice:?}"),
    }
}

fn bound(bound: Bound) -> String {
    match bound.most {
        Most::Everything => "everything".into(),
        Most::Characters(most) => format!("{most} characters"),
        Most::Lines { lines, bytes } => format!("{lines} lines, {bytes} bytes"),
    }
}

/// Arguments that hold what a call must have, each named for its place.
fn example(schema: &Value) -> Value {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let value = |name: &str, schema: &Value| match (schema["enum"].get(0), schema["type"].as_str()) {
        (Some(first), _) => first.clone(),
        (None, Some("integer" | "number")) => 1.into(),
        (None, Some("boolean")) => true.into(),
        (None, Some("object")) => example(schema),
        (None, Some("array")) => json!([example(&schema["items"])]),
        _ => name.to_uppercase().into(),
    };
    required.map(|name| (name.to_owned(), value(name, &schema["properties"][name]))).collect::<Map<_, _>>().into()
}
