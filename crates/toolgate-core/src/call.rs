//! A call after its check: the exact arguments and effects that a decision is about, and the digest that binds it to them.

use serde_json::{Map, Value};

pub use crate::digest::Digest;
use crate::tool::{Effect, Permission, Prepared, Preview};

/// Checked arguments: a JSON object that fits the tool's schema.
pub type Args = Map<String, Value>;

/// A call that may be decided on. What changes after this needs a new check and a new decision.
#[derive(Debug, Clone)]
pub struct CheckedCall {
    id: String,
    tool: String,
    permission: Permission,
    rule_names: Vec<String>,
    args: Args,
    notes: Vec<String>,
    prepared: Prepared,
    digest: Digest,
}

impl CheckedCall {
    /// Binds arguments and effects together. `notes` say what the check changed or left out.
    pub fn new(id: String, spec: &crate::tool::ToolSpec, args: Args, notes: Vec<String>, prepared: Prepared) -> Self {
        // Length-prefixed parts, so that no two different calls can join to the same bytes. The effects belong to the digest:
        // they hold the directory and the program, which the arguments may leave to a default; and so does what is shown beside them.
        let mut bytes = Vec::new();
        let parts = [
            spec.name.clone(),
            serde_json::to_string(&args).unwrap_or_default(),
            serde_json::to_string(&prepared.effects).unwrap_or_else(|_| format!("{:?}", prepared.effects)),
            prepared.preview.as_ref().map_or("", |preview| preview.digest.as_str()).to_owned(),
        ];
        for part in parts {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        let digest = Digest::of(&bytes);
        let (tool, permission, rule_names) = (spec.name.clone(), spec.permission, spec.rule_names.clone());
        Self { id, tool, permission, rule_names, args, notes, prepared, digest }
    }

    /// The call's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The tool's name; an alias is a name of its own.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Whether the tool says that it only reads.
    pub fn permission(&self) -> Permission {
        self.permission
    }

    /// Whether rules of this name speak of the call.
    pub fn answers_to(&self, rule_name: &str) -> bool {
        self.tool == rule_name || self.rule_names.iter().any(|name| name == rule_name)
    }

    /// The names that rules may use for the tool, its own aside.
    pub fn rule_names(&self) -> &[String] {
        &self.rule_names
    }

    /// The arguments that run.
    pub fn args(&self) -> &Args {
        &self.args
    }

    /// What the check changed or left out, for the model to read.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What the call would do.
    pub fn effects(&self) -> &[Effect] {
        &self.prepared.effects
    }

    /// Whether the call must keep its place in order with another one of the same answer.
    pub fn disturbs(&self, other: &Self) -> bool {
        self.effects().iter().any(|effect| other.effects().iter().any(|there| effect.disturbs(there)))
    }

    /// One line for people.
    pub fn summary(&self) -> &str {
        &self.prepared.summary
    }

    /// More for the one who decides.
    pub fn preview(&self) -> Option<&Preview> {
        self.prepared.preview.as_ref()
    }

    /// What a decision on this call is bound to.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }
}
