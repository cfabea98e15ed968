//! Providers that need no configuration: where they are, which variable holds their key, and a model to begin with.

use toolgate_agent::provider::Api;

/// A provider that is known by its name.
pub(crate) struct Vendor {
    pub(crate) name: &'static str,
    pub(crate) api: Api,
    pub(crate) base_url: &'static str,
    /// The variables that may hold its key, the usual one first.
    pub(crate) keys: &'static [&'static str],
    /// The variable that says where it is instead.
    pub(crate) base_variable: Option<&'static str>,
    /// The model of a session that names none.
    pub(crate) model: &'static str,
    /// How names of its models begin, where they are told by that.
    pub(crate) begins: &'static [&'static str],
}

const fn compatible(
    name: &'static str,
    base_url: &'static str,
    keys: &'static [&'static str],
    model: &'static str,
) -> Vendor {
    Vendor { name, api: Api::OpenaiChat, base_url, keys, base_variable: None, model, begins: &[] }
}

/// All of them. The order is the order in which keys are looked for.
pub(crate) const VENDORS: &[Vendor] = &[
    Vendor {
        name: OPENAI,
        api: Api::OpenaiResponses,
        base_url: "https://api.openai.com/v1",
        keys: &["OPENAI_API_KEY"],
        base_variable: Some("OPENAI_BASE_URL"),
        model: "gpt-5.4",
        begins: &["gpt-", "o3", "o4", "codex-"],
    },
    Vendor {
        name: "anthropic",
        api: Api::AnthropicMessages,
        base_url: "https://api.anthropic.com",
        keys: &["ANTHROPIC_API_KEY"],
        base_variable: Some("ANTHROPIC_BASE_URL"),
        model: "claude-sonnet-4-6",
        begins: &["claude-"],
    },
    Vendor {
        name: "google",
        api: Api::GoogleGenerateContent,
        base_url: "https://generativelanguage.googleapis.com",
        keys: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        base_variable: Some("GOOGLE_GEMINI_BASE_URL"),
        model: "gemini-2.5-pro",
        begins: &["gemini-"],
    },
    compatible("openrouter", "https://openrouter.ai/api/v1", &["OPENROUTER_API_KEY"], "anthropic/claude-sonnet-4.5"),
    compatible("deepseek", "https://api.deepseek.com/v1", &["DEEPSEEK_API_KEY"], "deepseek-v4-flash"),
    compatible("mistral", "https://api.mistral.ai/v1", &["MISTRAL_API_KEY"], "mistral-small-latest"),
    compatible("groq", "https://api.groq.com/openai/v1", &["GROQ_API_KEY"], "openai/gpt-oss-120b"),
    compatible("xai", "https://api.x.ai/v1", &["XAI_API_KEY"], "grok-4.3"),
];

/// The provider of a model that is only named, and of addresses that speak its wire.
pub(crate) const OPENAI: &str = "openai";

/// The provider of this name.
pub(crate) fn vendor(name: &str) -> Option<&'static Vendor> {
    VENDORS.iter().find(|vendor| vendor.name == name)
}
