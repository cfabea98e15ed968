//! Which model, where it is, and with which key.
//!
//! A model is chosen by the first that says one: the flags, the session that goes on, `default_model`, the first well-known provider whose
//! key is there, the one server on this machine that answers. What is chosen is then looked up: its entry under `models`, the table of
//! well-known providers, the variables.

mod local;
mod vendors;

use std::sync::Arc;

use toolgate_agent::provider::{Api, Endpoint, ModelId, ModelSetup, Provider, ThinkingLevel, connect};
use toolgate_runtime::process::command_env::is_secret_name;

pub(crate) use local::{Server, servers};
pub(crate) use vendors::{OPENAI, VENDORS, Vendor, vendor};

use crate::{
    config::{Model, ModelRef, Settings},
    failure::Failure,
    surroundings::Surroundings,
};

/// The ways to go on without a model.
const NO_MODEL: &str = "--model NAME with a provider's key in the environment (OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY, …), \
                        --model NAME --base-url URL for a server of your own, or default_model in a configuration; `toolgate models` shows \
                        what there is, and `toolgate demo` needs none";

/// What stands for a value that is nobody's to see.
pub(crate) const HIDDEN: &str = "[hidden]";

/// What is said about the model.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub(crate) api: Option<Api>,
    /// `[PROVIDER/]ID`.
    pub(crate) model: Option<String>,
    pub(crate) base_url: Option<String>,
    pub(crate) provider: Option<String>,
    /// The model of the session that goes on.
    pub(crate) before: Option<ModelId>,
}

/// A model that can be asked.
#[derive(Clone)]
pub(crate) struct Chosen {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) vision: bool,
    pub(crate) context_window: Option<u64>,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) thinking: Option<ThinkingLevel>,
    /// Its key, so that no trace holds it.
    pub(crate) key: Option<String>,
    /// What people should know about the choice.
    pub(crate) note: Option<String>,
}

impl Chosen {
    /// A model of which nothing more is known.
    pub(crate) fn plain(provider: Arc<dyn Provider>) -> Self {
        let (context_window, max_tokens, thinking, key, note) = (None, None, None, None, None);
        Self { provider, vision: true, context_window, max_tokens, thinking, key, note }
    }
}

/// A model, everything about it, and who chose it.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) id: ModelId,
    pub(crate) api: Api,
    pub(crate) endpoint: Endpoint,
    /// Where the key came from; none where there is none.
    pub(crate) key_from: Option<String>,
    pub(crate) entry: Option<Model>,
    pub(crate) vision: bool,
    pub(crate) context_window: Option<u64>,
    pub(crate) why: String,
}

/// Chooses a model. Connects to nothing, but for asking servers on this machine where nothing else says one.
///
/// # Errors
/// When nothing says one, and when what is said cannot be used: the message says what is missing.
pub(crate) fn choose(asked: &Asked, settings: &Settings, surroundings: &Surroundings) -> Result<Chosen, Failure> {
    let found = find(asked, settings, surroundings)?;
    let local = found.why.starts_with(local_why("").as_str());
    let note = local.then(|| format!("note: {} from {}; --model names another", found.id, found.why));
    let key = found.endpoint.key.clone();
    let entry = found.entry.as_ref();
    let (max_tokens, thinking) = (entry.and_then(|entry| entry.max_tokens), entry.and_then(|entry| entry.thinking));
    let setup = ModelSetup { api: found.api, id: found.id, endpoint: found.endpoint, vision: found.vision };
    let provider = connect(setup).map_err(|error| {
        Failure::configuration(error.to_string())
            .hint("--base-url and base_url take an address such as http://127.0.0.1:8080/v1")
    })?;
    let (vision, context_window) = (found.vision, found.context_window);
    Ok(Chosen { provider, vision, context_window, max_tokens, thinking, key, note })
}

/// The model that looks at images for one that sees none, where one is configured.
pub(crate) fn vision(
    sees: bool,
    settings: &Settings,
    surroundings: &Surroundings,
) -> Result<Option<Arc<dyn Provider>>, Failure> {
    let Some(ModelRef(id)) = settings.vision_model.as_ref().filter(|_| !sees) else { return Ok(None) };
    let asked = Asked { provider: Some(id.provider.clone()), model: Some(id.model.clone()), ..Asked::default() };
    let chosen = choose(&asked, settings, surroundings)?;
    if !chosen.vision {
        let what = format!("vision_model: {id} sees no images");
        return Err(Failure::configuration(what).hint("name a model that does, or leave vision_model out"));
    }
    Ok(Some(chosen.provider))
}

/// The model that would be chosen, and why.
pub(crate) fn find(asked: &Asked, settings: &Settings, surroundings: &Surroundings) -> Result<Found, Failure> {
    let keys = Keys { surroundings, settings };
    if let Some(text) = &asked.model {
        let id = named(text, asked, settings, &keys);
        return keys.found(id, asked, "--model".into());
    }
    if let Some(before) = &asked.before {
        let id = ModelId {
            provider: asked.provider.clone().unwrap_or_else(|| before.provider.clone()),
            model: before.model.clone(),
        };
        return keys.found(id, asked, "the session's own".into());
    }
    if let Some(vendor) = asked.provider.as_deref().and_then(vendor) {
        let id = ModelId { provider: vendor.name.into(), model: vendor.model.into() };
        return keys.found(id, asked, "--provider".into());
    }
    if asked.base_url.is_none() && asked.provider.is_none() {
        if let Some(chosen) = &settings.default_model {
            let source = settings.record.of("default_model").next_back().map(|(_, source)| source.to_string());
            return keys.found(chosen.0.clone(), asked, format!("default_model ({})", source.unwrap_or_default()));
        }
        let first = VENDORS.iter().find_map(|vendor| Some((vendor, keys.of_vendor(vendor)?.1)));
        if let Some((vendor, from)) = first {
            let id = ModelId { provider: vendor.name.into(), model: vendor.model.into() };
            return keys.found(id, asked, format!("the key in {from}"));
        }
        return on_this_machine(&servers(surroundings));
    }
    Err(Failure::configuration("no model is chosen").hint(NO_MODEL))
}

/// Whose model a name is: what `--provider` says, a known provider before the slash, the one entry with that id, the provider whose names
/// begin so, the first one whose key is there.
fn named(text: &str, asked: &Asked, settings: &Settings, keys: &Keys<'_>) -> ModelId {
    let id = |provider: &str, model: &str| ModelId { provider: provider.to_owned(), model: model.to_owned() };
    if let Some(provider) = &asked.provider {
        return id(provider, text);
    }
    let is_known = |name: &str| vendor(name).is_some() || settings.models.iter().any(|entry| entry.provider == name);
    if let Some((provider, model)) = text.split_once('/').filter(|(name, _)| asked.base_url.is_none() && is_known(name))
    {
        return id(provider, model);
    }
    if let Some(before) = asked.before.as_ref().filter(|before| before.model == text) {
        return before.clone();
    }
    let mut entries = settings.models.iter().filter(|entry| entry.id == text);
    if let (Some(entry), None) = (entries.next(), entries.next()) {
        return id(&entry.provider, text);
    }
    if asked.base_url.is_some() {
        return id(OPENAI, text);
    }
    let has_key = |vendor: &&Vendor| keys.of_vendor(vendor).is_some();
    let begins = VENDORS.iter().find(|vendor| vendor.begins.iter().any(|begin| text.starts_with(begin)));
    if keys.surroundings.get("OPENAI_BASE_URL").is_some() && !begins.is_some_and(|vendor| has_key(&vendor)) {
        return id(OPENAI, text);
    }
    id(begins.or_else(|| VENDORS.iter().find(has_key)).map_or(OPENAI, |vendor| vendor.name), text)
}

/// The first model of the one server that answers; several are a choice that only a person can make.
fn on_this_machine(servers: &[Server]) -> Result<Found, Failure> {
    match servers {
        [] => Err(Failure::configuration("no model is chosen, and no server on this machine answers").hint(NO_MODEL)),
        [server] => {
            let model = &server.models[0];
            Ok(Found {
                id: ModelId { provider: server.name.clone(), model: model.id.clone() },
                api: Api::OpenaiChat,
                endpoint: Endpoint { base_url: server.base_url.clone(), ..Endpoint::default() },
                key_from: None,
                entry: None,
                // A server does not say it, and a model without eyes fails on an image.
                vision: false,
                context_window: model.context_window,
                why: local_why(&server.base_url),
            })
        }
        several => {
            let listed =
                several.iter().map(|server| format!("--base-url {} --model {}", server.base_url, server.models[0].id));
            let listed: Vec<String> = listed.collect();
            Err(Failure::configuration(format!(
                "no model is chosen, and {} servers on this machine answer",
                several.len()
            ))
            .hint(listed.join(", or ")))
        }
    }
}

fn local_why(base_url: &str) -> String {
    format!("the server at {base_url}")
}

/// Where keys are looked for.
pub(crate) struct Keys<'a> {
    pub(crate) surroundings: &'a Surroundings,
    pub(crate) settings: &'a Settings,
}

impl Keys<'_> {
    /// A well-known provider's key, and where it came from.
    pub(crate) fn of_vendor(&self, vendor: &Vendor) -> Option<(String, String)> {
        let variable = vendor.keys.iter().find_map(|name| Some((self.surroundings.get(name)?, format!("${name}"))));
        variable.or_else(|| self.of_file(vendor.name))
    }

    fn of_file(&self, provider: &str) -> Option<(String, String)> {
        self.settings.keys.get(provider).map(|key| (key.clone(), "keys.yaml".to_owned()))
    }

    /// Everything about a model of this name.
    pub(crate) fn found(&self, id: ModelId, asked: &Asked, why: String) -> Result<Found, Failure> {
        let entry = self.settings.models.iter().find(|entry| entry.provider == id.provider && entry.id == id.model);
        let vendor = vendor(&id.provider);
        let said = asked.base_url.clone();
        let configured = entry.and_then(|entry| entry.base_url.clone());
        let variable = vendor.and_then(|vendor| self.surroundings.get(vendor.base_variable?));
        // A provider that nothing knows can be one behind the address that the user's environment names.
        let variable =
            variable.or_else(|| if vendor.is_none() { self.surroundings.get("OPENAI_BASE_URL") } else { None });
        // The user named this address themselves, so the key of the wire goes there.
        let elsewhere = said.or(if configured.is_none() { variable } else { None });
        let own = vendor.filter(|_| elsewhere.is_none() && configured.is_none());
        let base_url = elsewhere.clone().or(configured).or_else(|| own.map(|vendor| vendor.base_url.to_owned()));
        let Some(base_url) = base_url else {
            return Err(Failure::configuration(format!(
                "nothing says where the provider `{}` is (model {id}, {why})",
                id.provider
            ))
            .hint("--base-url URL, or an entry under `models` with its base_url"));
        };
        let of_vendor = match vendor {
            // Servers that stand in for OpenAI's speak its older wire.
            Some(vendor) if vendor.name == OPENAI && own.is_none() => None,
            vendor => vendor.map(|vendor| vendor.api),
        };
        let api = asked.api.or(entry.and_then(|entry| entry.api)).or(of_vendor).unwrap_or(Api::OpenaiChat);
        let (key, key_from) = self.key(&id, entry, vendor, elsewhere.is_some())?.unzip();
        if let (Some(vendor), None) = (own, &key) {
            let elsewhere = match vendor.base_variable {
                Some(_) => ", or --base-url URL for a server that needs none",
                None => "",
            };
            return Err(Failure::configuration(format!("there is no key for {} (model {id}, {why})", vendor.name))
                .hint(format!("set {}{elsewhere}", vendor.keys[0])));
        }
        let proxy = proxy_for(&base_url, self.surroundings);
        Ok(Found {
            api,
            endpoint: Endpoint { base_url, key, proxy },
            key_from,
            vision: entry.and_then(|entry| entry.vision).unwrap_or(true),
            context_window: entry.and_then(|entry| entry.context_window),
            entry: entry.cloned(),
            id,
            why,
        })
    }

    /// A model's key and where it came from.
    fn key(
        &self,
        id: &ModelId,
        entry: Option<&Model>,
        vendor: Option<&Vendor>,
        elsewhere: bool,
    ) -> Result<Option<(String, String)>, Failure> {
        if let Some(name) = entry.and_then(|entry| entry.api_key_env.as_ref()) {
            let key = self.surroundings.get(name);
            return key.map(|key| Some((key, format!("${name}")))).ok_or_else(|| {
                Failure::configuration(format!(
                    "there is no key for {id}: its api_key_env names {name}, which is not set"
                ))
                .hint(format!("set {name}, or leave api_key_env out where the server needs no key"))
            });
        }
        let own = vendor.and_then(|vendor| self.of_vendor(vendor)).or_else(|| self.of_file(&id.provider));
        // An address that the user named for a provider of no table is a server that speaks OpenAI's wire and takes its key.
        let stand_in = || {
            vendors::vendor(OPENAI).filter(|_| vendor.is_none() && elsewhere).and_then(|openai| self.of_vendor(openai))
        };
        Ok(own.or_else(stand_in))
    }
}

/// Names of variables that hold a model's key and do not look like secrets.
pub(crate) fn unlikely_keys(settings: &Settings) -> Vec<String> {
    settings.key_variables().into_iter().filter(|name| !is_secret_name(name)).collect()
}

/// An address as it can be shown; anything else stays as it is.
pub(crate) fn without_password(text: &str) -> String {
    let parts = text.split_once("://").and_then(|(scheme, rest)| {
        let host = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        Some((scheme, &rest[rest[..host].rfind('@')? + 1..]))
    });
    parts.map_or_else(|| text.to_owned(), |(scheme, rest)| format!("{scheme}://{HIDDEN}@{rest}"))
}

/// The proxy that the user's environment names for this address.
fn proxy_for(base_url: &str, surroundings: &Surroundings) -> Option<String> {
    let host = base_url.split("://").nth(1)?.split(['/', ':']).next()?;
    let either = |upper: &str| surroundings.get(upper).or_else(|| surroundings.get(&upper.to_lowercase()));
    let direct = either("NO_PROXY").unwrap_or_default();
    let exempt = direct
        .split(',')
        .map(|name| name.trim().trim_start_matches('.'))
        .any(|name| name == "*" || (!name.is_empty() && (host == name || host.ends_with(&format!(".{name}")))));
    let local = host == "localhost" || host.starts_with("127.");
    let proxy = if base_url.starts_with("https:") { either("HTTPS_PROXY") } else { either("HTTP_PROXY") };
    proxy.or_else(|| either("ALL_PROXY")).filter(|_| !exempt && !local)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModelRef;

    const OPENAI_KEY: (&str, &str) = ("OPENAI_API_KEY", "k-openai");
    const CLAUDE_KEY: (&str, &str) = ("ANTHROPIC_API_KEY", "k-anthropic");
    const BASE: (&str, &str) = ("OPENAI_BASE_URL", "http://base/v1");

    fn settings() -> Settings {
        let entry = |provider: &str, id: &str| Model {
            provider: provider.into(),
            id: id.into(),
            api: Some(Api::AnthropicMessages),
            base_url: Some("http://mine".into()),
            api_key_env: Some("MINE".into()),
            vision: Some(false),
            context_window: Some(9),
            max_tokens: None,
            thinking: None,
        };
        Settings { models: vec![entry("mine", "org/m"), entry("other", "n")], ..Settings::default() }
    }

    /// A model of the command line, the wire, the address and the key that come of it.
    #[test]
    fn a_name_leads_to_its_provider_wire_address_and_key() {
        let asked = |model: &str| Asked { model: Some(model.into()), ..Asked::default() };
        let at = |model: &str, url: &str| Asked { base_url: Some(url.into()), ..asked(model) };
        let by = |model: &str, provider: &str| Asked { provider: Some(provider.into()), ..asked(model) };
        let mine = ("MINE", "k-mine");
        for (asked, vars, wanted) in [
            (asked("x"), &[OPENAI_KEY][..], "openai x openai-responses https://api.openai.com/v1 k-openai"),
            (asked("x"), &[BASE], "openai x openai-chat http://base/v1 -"),
            (asked("x"), &[CLAUDE_KEY], "anthropic x anthropic-messages https://api.anthropic.com k-anthropic"),
            (
                asked("claude-x"),
                &[OPENAI_KEY, CLAUDE_KEY, BASE],
                "anthropic claude-x anthropic-messages https://api.anthropic.com k-anthropic",
            ),
            (asked("claude-x"), &[OPENAI_KEY, BASE], "openai claude-x openai-chat http://base/v1 k-openai"),
            (
                asked("openrouter/a/b"),
                &[("OPENROUTER_API_KEY", "k-r")],
                "openrouter a/b openai-chat https://openrouter.ai/api/v1 k-r",
            ),
            (asked("mine/org/m"), &[mine, OPENAI_KEY], "mine org/m anthropic-messages http://mine k-mine"),
            (asked("org/m"), &[mine], "mine org/m anthropic-messages http://mine k-mine"),
            (asked("unknown/m"), &[OPENAI_KEY], "openai unknown/m openai-responses https://api.openai.com/v1 k-openai"),
            (at("openai/m", "http://u/v1"), &[OPENAI_KEY], "openai openai/m openai-chat http://u/v1 k-openai"),
            (at("m", "http://u/v1"), &[], "openai m openai-chat http://u/v1 -"),
            (
                by("m", "anthropic"),
                &[CLAUDE_KEY, ("ANTHROPIC_BASE_URL", "http://c")],
                "anthropic m anthropic-messages http://c k-anthropic",
            ),
            (by("m", "local"), &[OPENAI_KEY, BASE], "local m openai-chat http://base/v1 k-openai"),
            (by("n", "other"), &[mine, BASE], "other n anthropic-messages http://mine k-mine"),
        ] {
            let found = find(&asked, &settings(), &Surroundings::of(vars)).unwrap();
            let key = found.endpoint.key.as_deref().unwrap_or("-");
            let line =
                [&found.id.provider, &found.id.model, found.api.as_str(), &found.endpoint.base_url, key].join(" ");
            assert_eq!(line, wanted, "{asked:?}");
        }
    }

    #[test]
    fn who_looks_at_images_for_another_sees_them() {
        let (vars, id) =
            (Surroundings::of(&[("MINE", "k")]), ModelId { provider: "mine".into(), model: "org/m".into() });
        let settings = Settings { vision_model: Some(ModelRef(id)), ..settings() };
        let refused = vision(false, &settings, &vars).err().map(|failure| failure.on_one_line()).unwrap_or_default();
        assert!(refused.contains("vision_model: mine/org/m sees no images"), "{refused}");
        assert!(vision(true, &settings, &vars).is_ok_and(|model| model.is_none()), "nobody has to look for it");
    }

    #[test]
    fn a_key_goes_to_nobody_else() {
        let vars = Surroundings::of(&[OPENAI_KEY]);
        let mut settings = settings();
        settings.models[1].api_key_env = None;
        let asked = Asked { model: Some("other/n".into()), ..Asked::default() };
        assert_eq!(
            find(&asked, &settings, &vars).unwrap().endpoint.key,
            None,
            "the address of an entry gets its own key only"
        );
        let asked = Asked { model: Some("mine/org/m".into()), ..Asked::default() };
        assert!(find(&asked, &settings, &vars).is_err(), "a key that is asked for has to be there");
    }

    #[test]
    fn flags_come_before_the_session_and_the_session_before_the_configuration() {
        let vars = Surroundings::of(&[OPENAI_KEY, CLAUDE_KEY, ("MINE", "k")]);
        let id = |provider: &str, model: &str| ModelId { provider: provider.into(), model: model.into() };
        let mut settings = settings();
        let chosen = |asked: &Asked, settings: &Settings| find(asked, settings, &vars).unwrap().id;
        let mut asked = Asked::default();
        assert_eq!(chosen(&asked, &settings).provider, "openai");
        settings.default_model = Some(ModelRef(id("other", "n")));
        assert_eq!(chosen(&asked, &settings), id("other", "n"));
        asked.before = Some(id("anthropic", "m"));
        assert_eq!(chosen(&asked, &settings), id("anthropic", "m"));
        asked.model = Some("gpt-x".into());
        assert_eq!(chosen(&asked, &settings), id("openai", "gpt-x"));
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (text, shown) in [
            ("http://u:p@host/v1", "http://[hidden]@host/v1"),
            ("http://u@host", "http://[hidden]@host"),
            ("http://host/a@b", "http://host/a@b"),
            ("http://a@b@host/x", "http://[hidden]@host/x"),
            ("a@b", "a@b"),
        ] {
            assert_eq!(without_password(text), shown);
        }
    }
}
