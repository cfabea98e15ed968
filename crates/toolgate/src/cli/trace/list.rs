//! `trace list`: which sessions there are.

use serde_json::json;
use toolgate_core::message::clean;

use super::super::{print, state};
use crate::{failure::Failure, surroundings::Surroundings};

/// Lists them, newest first.
pub(super) fn list(as_json: bool, surroundings: &Surroundings) -> Result<u8, Failure> {
    let sessions = state(surroundings)?.sessions();
    if as_json {
        sessions.iter().for_each(|entry| print::json(&json!(entry)));
        return Ok(0);
    }
    let rows = sessions.iter().map(|entry| {
        let time = entry.updated.get(.."2026-01-01T00:00:00".len()).unwrap_or(&entry.updated).replace('T', " ");
        [&entry.session_id, &entry.kind, &entry.status, &time, &*entry.workspace.display().to_string()]
            .map(|cell| clean(cell).replace(['\n', '\t'], " "))
    });
    for line in aligned(&rows.collect::<Vec<_>>()) {
        print::data(&line);
    }
    Ok(0)
}

/// Rows with each column as wide as its widest cell.
fn aligned<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
