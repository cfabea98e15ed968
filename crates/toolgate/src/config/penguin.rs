//! PenguinHarness's `system_config.yaml`, read as a configuration: what both programs have is honoured, the rest is named.

use super::{
    node::{Entry, Kind, Node},
    wrong::Wrong,
};

/// Keys that only its file has.
const TELLING: &[&str] = &["kernel_version", "model", "memory", "vault", "skills", "schedules"];

/// Keys that say what the file is, and set nothing.
const ABOUT_ITSELF: &[&str] = &["name", "description", "version", "kernel_version"];

/// Its keys and ours.
const SAME: &[(&str, &str)] = &[
    ("system_prompt", "system_prompt"),
    ("max_turns", "max_turns"),
    ("model.max_tokens", "max_tokens"),
    ("model.thinking_level", "thinking"),
    ("compaction.mode", "compaction.mode"),
    ("compaction.prompt", "compaction.prompt"),
    ("compaction.max_context_length", "compaction.max_context"),
    ("compaction.max_session_turns", "compaction.max_turns"),
    ("tools.builtin", "tools.builtin"),
    ("tools.mcpServers", "tools.mcpServers"),
];

/// How long its requests may be silent, and how long ours may; milliseconds.
const SILENCE: (&str, i64) = ("model.timeoutMs", 120_000);

/// Whether a file is PenguinHarness's, by what it holds.
pub(super) fn is_one(tree: &Node) -> bool {
    let compaction = tree
        .get("compaction")
        .is_some_and(|part| part.get("max_context_length").is_some() || part.get("max_session_turns").is_some());
    compaction || TELLING.iter().any(|key| tree.get(key).is_some())
}

/// The file as one of ours, and what of it counts for nothing here.
pub(super) fn translated(tree: &Node) -> Result<(Node, Option<String>), Wrong> {
    let mut ours = Node { line: tree.line, kind: Kind::Map(Vec::new()) };
    let mut left_out = Vec::new();
    for top in tree.entries().iter().filter(|entry| !ABOUT_ITSELF.contains(&entry.key.as_str())) {
        let parts = matches!(top.key.as_str(), "model" | "compaction" | "tools");
        let leaves: Vec<(String, &Entry)> = match parts {
            true => top.value.entries().iter().map(|entry| (format!("{}.{}", top.key, entry.key), entry)).collect(),
            false => vec![(top.key.clone(), top)],
        };
        for (path, entry) in leaves {
            match SAME.iter().find(|(theirs, _)| *theirs == path) {
                Some((_, path)) => put(&mut ours, path, entry),
                None if path == SILENCE.0 && entry.value.read::<i64>()? == SILENCE.1 => {}
                None => left_out.push(path),
            }
        }
    }
    let note = format!(
        "read as a configuration of PenguinHarness; toolgate has no {}, so they are left out",
        left_out.join(", ")
    );
    Ok((ours, (!left_out.is_empty()).then_some(note)))
}

/// Puts a value at a path of at most two keys.
fn put(tree: &mut Node, path: &str, from: &Entry) {
    let Kind::Map(entries) = &mut tree.kind else { return };
    match path.split_once('.') {
        None => entries.push(Entry { key: path.to_owned(), line: from.line, value: from.value.clone() }),
        Some((first, rest)) => {
            if !entries.iter().any(|entry| entry.key == first) {
                let value = Node { line: from.line, kind: Kind::Map(Vec::new()) };
                entries.push(Entry { key: first.to_owned(), line: from.line, value });
            }
            if let Some(entry) = entries.iter_mut().find(|entry| entry.key == first) {
                put(&mut entry.value, rest, from);
            }
        }
    }
}
