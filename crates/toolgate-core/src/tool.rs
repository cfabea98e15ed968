//! What a tool says of itself, and what one call of it would do.

use std::{borrow::Cow, path::PathBuf, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::Digest;

/// The time limit of a call where neither the tool nor the configuration names one; milliseconds (PenguinHarness's default).
pub const DEFAULT_TIMEOUT_MS: i64 = 120_000;

/// A tool's declaration. The model sees `name`, `description` and `parameters` and nothing else.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// What the model calls it.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// A JSON Schema (2020-12) of an object.
    pub parameters: Value,
    /// Whether a call can change anything.
    pub permission: Permission,
    /// What front ends show it as.
    pub kind: ToolKind,
    /// The names that policy rules may use for it, its own aside.
    pub rule_names: Vec<String>,
    /// The time limit of one call in milliseconds; none when it is not positive.
    pub timeout_ms: i64,
    /// How much of a result the model reads, and which part.
    pub bound: Bound,
    /// Whether calls of it may run beside others.
    pub execution: ExecutionMode,
    /// One line for the system prompt; a tool without one is not listed there.
    pub snippet: Option<Cow<'static, str>>,
    /// Lines for the system prompt about how it is used well; most tools need none. They name no other tool, which may not be there.
    pub guidelines: &'static [&'static str],
    /// Programs of which one must be installed; a tool without any needs none.
    pub programs: &'static [&'static str],
    /// The kind of model that it is for; every model without one.
    pub only_for: Option<ForModel>,
    /// The named sets that it belongs to; it always belongs to [`ToolSet::All`].
    pub sets: &'static [ToolSet],
    /// Whether it is switched off: neither sent to a model nor taken from one.
    pub hidden: bool,
}

impl ToolSpec {
    /// A spec with the defaults; the caller sets what differs.
    pub fn new(name: &str, description: &str, parameters: Value) -> Self {
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters,
            permission: Permission::ReadWrite,
            kind: ToolKind::Other,
            rule_names: Vec::new(),
            timeout_ms: DEFAULT_TIMEOUT_MS,
            bound: Bound::default(),
            execution: ExecutionMode::Parallel,
            snippet: None,
            guidelines: &[],
            programs: &[],
            only_for: None,
            sets: &[],
            hidden: false,
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

/// How much of a result the model reads, and which part of it where that is not all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// How much.
    pub most: Most,
    /// Which part.
    pub keep: Truncate,
}

/// How much of a result the model reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Most {
    /// All of it.
    Everything,
    /// So many characters.
    Characters(usize),
    /// Whole lines: so many, and no more bytes than this; whichever comes first. A single line beyond the bytes is cut.
    Lines {
        /// Lines; a line end at the very end begins no further line.
        lines: usize,
        /// Bytes of UTF-8, line ends included.
        bytes: usize,
    },
}

impl Bound {
    /// No bound at all.
    pub const NONE: Self = Self { most: Most::Everything, keep: Truncate::Head };

    /// A number of characters as a configuration writes it: none when it is not positive.
    pub fn characters(most: i64, keep: Truncate) -> Self {
        match usize::try_from(most) {
            Ok(most) if most > 0 => Self { most: Most::Characters(most), keep },
            _ => Self { most: Most::Everything, keep },
        }
    }

    /// 2,000 lines and 51,200 bytes (Pi's numbers).
    pub const fn lines(keep: Truncate) -> Self {
        Self { most: Most::Lines { lines: 2000, bytes: 51_200 }, keep }
    }
}

impl Default for Bound {
    /// The first 16,000 characters (PenguinHarness's default).
    fn default() -> Self {
        Self { most: Most::Characters(16_000), keep: Truncate::Head }
    }
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

/// The kind of model that a tool is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForModel {
    /// One that sees images.
    Vision,
    /// One that does not.
    TextOnly,
}

impl ForModel {
    /// Whether a model that sees images, or does not, is of this kind.
    pub fn is(self, vision: bool) -> bool {
        vision == (self == Self::Vision)
    }
}

/// A named set of tools. Each tool says which sets it belongs to, so no list of names has to be kept in step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolSet {
    /// PenguinHarness's first six: commands, subagents, images.
    Minimal,
    /// Pi's four that change a project.
    Coding,
    /// What only reads.
    ReadOnly,
    /// What a session has when nothing is configured.
    Default,
    /// Every tool there is.
    All,
}

impl ToolSet {
    /// All of them, with the words that people use.
    pub const NAMES: [(Self, &str); 5] = [
        (Self::Minimal, "minimal"),
        (Self::Coding, "coding"),
        (Self::ReadOnly, "read-only"),
        (Self::Default, "default"),
        (Self::All, "all"),
    ];

    /// Whether a tool belongs to it.
    pub fn holds(self, spec: &ToolSpec) -> bool {
        self == Self::All || spec.sets.contains(&self)
    }
}

impl FromStr for ToolSet {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::NAMES.into_iter().find(|(_, name)| *name == word);
        found
            .map(|(set, _)| set)
            .ok_or_else(|| format!("`{word}` is no set of tools; use {}", Self::NAMES.map(|(_, name)| name).join(", ")))
    }
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
    /// Looks through a tree: its names. Whoever reads what its files hold declares [`Effect::Read`] of the same place too.
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

impl Effect {
    /// Whether two effects come out differently in another order: one of them changes what the other looks at. What a command does is not
    /// known, so a command disturbs nothing here.
    pub fn disturbs(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Write(a), Self::Write(b)) => a.real.starts_with(&b.real) || b.real.starts_with(&a.real),
            (Self::Write(written), Self::Read(read)) | (Self::Read(read), Self::Write(written)) => {
                written.real == read.real
            }
            (Self::Write(written), Self::Search(tree)) | (Self::Search(tree), Self::Write(written)) => {
                written.real.starts_with(&tree.real)
            }
            _ => false,
        }
    }
}

/// A path as it was spelled and as it stands on this machine. Rules are held against both paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The argument's own spelling.
    pub spelled: String,
    /// Lexically normalised, absolute.
    pub path: PathBuf,
    /// Where it really leads: links are followed as far as the path exists. This is what is opened.
    pub real: PathBuf,
    /// Whether that is in the workspace.
    pub inside: bool,
}

/// What a tool says one call would do, before anything is done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Everything that the call would do.
    pub effects: Vec<Effect>,
    /// One line for people.
    pub summary: String,
    /// More for the one who decides.
    pub preview: Option<Preview>,
}

/// What the one who decides is shown beside the summary, such as a diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// As it is shown.
    pub text: String,
    /// What it stands for, in full. A decision is about this, so what is done must still be it.
    pub digest: Digest,
}
