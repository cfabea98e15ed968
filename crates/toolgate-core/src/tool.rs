//! What a tool says of itself, and what one call of it would do.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The time limit of a call where neither the tool nor the configuration names one; milliseconds (PenguinHarness's default).
pub const DEFAULT_TIMEOUT_MS: i64 = 120_000;

/// The bound of a result where nothing names one; characters (PenguinHarness's default).
pub const DEFAULT_MAX_OUTPUT_LENGTH: i64 = 16_000;

/// A tool's declaration. The model sees `name`, `description` and `parameters` and nothing else.
#[derive(Debug, Clone)]
pub struct ToolSpec {
    /// What the model calls it.
    pub name: String,
    /// Other names under which a call of it is accepted.
    pub aliases: Vec<String>,
    /// What it does and when to use it.
    pub description: String,
    /// A JSON Schema (2020-12) of an object.
    pub parameters: Value,
    /// Whether a call can change anything.
    pub permission: Permission,
    /// What front ends show it as.
    pub kind: ToolKind,
    /// The names that policy rules may use for it, its own aside.
    pub rule_names: Vec<&'static str>,
    /// The time limit of one call in milliseconds; none when it is not positive.
    pub timeout_ms: i64,
    /// The bound of what the model reads, in characters; none when it is not positive.
    pub max_output_length: i64,
    /// Which part of an output beyond the bound is kept.
    pub truncate: Truncate,
    /// Whether calls of it may run beside others.
    pub execution: ExecutionMode,
    /// One line for the system prompt; a tool without one is not listed there.
    pub snippet: Option<&'static str>,
}

impl ToolSpec {
    /// A spec with the defaults; the caller sets what differs.
    pub fn new(name: &str, description: &str, parameters: Value) -> Self {
        Self {
            name: name.to_owned(),
            aliases: Vec::new(),
            description: description.to_owned(),
            parameters,
            permission: Permission::ReadWrite,
            kind: ToolKind::Other,
            rule_names: Vec::new(),
            timeout_ms: DEFAULT_TIMEOUT_MS,
            max_output_length: DEFAULT_MAX_OUTPUT_LENGTH,
            truncate: Truncate::Head,
            execution: ExecutionMode::Parallel,
            snippet: None,
        }
    }

    /// What the model is told: name, description, parameters.
    pub fn for_model(&self) -> Value {
        serde_json::json!({ "name": self.name, "description": self.description, "parameters": self.parameters })
    }
}

/// Whether a call can change anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Permission {
    /// It only reads.
    #[serde(rename = "r")]
    Read,
    /// It may write.
    #[serde(rename = "rw")]
    ReadWrite,
}

/// What a front end may show a call as, without knowing its tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// Shows content.
    Read,
    /// Changes content.
    Edit,
    /// Looks for something.
    Search,
    /// Runs something, or drives what runs.
    Execute,
    /// Fetches from elsewhere.
    Fetch,
    /// Hands work to another agent.
    Delegate,
    /// None of these.
    Other,
}

/// Which part of an output beyond the bound the model reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Truncate {
    /// The beginning.
    Head,
    /// The end.
    Tail,
    /// The beginning and the end, at least half for the beginning.
    Middle,
}

/// Whether a tool's calls may run beside others. One `Sequential` call makes its whole batch sequential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionMode {
    /// Beside others.
    Parallel,
    /// One at a time, in call order.
    Sequential,
}

/// A call as the model wrote it: nothing about it has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Unique in the session.
    pub id: String,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// JSON text, not always valid.
    pub arguments: String,
}

/// What one call would do to the world. Policy reads effects and never a tool's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Reads the content of a place.
    Read(Place),
    /// Changes a place.
    Write(Place),
    /// Looks through a tree.
    Search(Place),
    /// Runs a line of shell in a directory.
    Run {
        /// The exact bytes that the shell gets.
        line: String,
        /// Where it runs.
        cwd: PathBuf,
    },
    /// Types into something that runs; empty text only looks.
    Feed {
        /// The command session.
        process: String,
        /// What is typed.
        text: String,
    },
    /// Ends a command session of this session's own.
    End {
        /// The command session.
        process: String,
    },
    /// Connects to a host.
    Connect(String),
    /// Starts another agent, whose calls pass the gate themselves.
    Delegate,
    /// A tool of another server, whose effects are not known here.
    Foreign {
        /// The server.
        server: String,
        /// Its tool.
        tool: String,
        /// What the user pinned it to.
        pinned: Option<Permission>,
    },
    /// The tool cannot say.
    Unknown(String),
}

/// A path as it was spelled and as it stands on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The argument's own spelling.
    pub spelled: String,
    /// Lexically normalised, absolute.
    pub path: PathBuf,
}

/// What a tool says one call would do, before anything is done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Everything that the call would do.
    pub effects: Vec<Effect>,
    /// One line for people.
    pub summary: String,
    /// More for the one who decides, such as a diff.
    pub preview: Option<String>,
}
