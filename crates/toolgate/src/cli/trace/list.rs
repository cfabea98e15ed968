//! `trace list`: which sessions there are.

use serde_json::json;

use super::super::{print, state};
use crate::{failure::Failure, surroundings::Surroundings};

pub(super) fn list(as_json: bool, surroundings: &Surroundings) -> Result<u8, Failure> {
    for entry in state(surroundings)?.sessions() {
        if as_json {
            print::json(&json!(entry));
        } else {
            print::data(&format!(
                "{}  {:4}  {:9}  {}  {}",
                entry.session_id,
                entry.kind,
                entry.status,
                entry.updated,
                entry.workspace.display()
            ));
        }
    }
    Ok(0)
}
