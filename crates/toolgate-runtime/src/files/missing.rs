//! What stands near a path that does not exist: where it breaks off, and which names there are most like the missing one; or the link
//! that leads there.
#![allow(clippy::disallowed_methods)] // A folder is listed here.

use std::{fs, path::Path};

use toolgate_core::tool::Place;

use super::{Kind, local::stands, names};

/// Names that are proposed.
const MOST_NAMES: usize = 8;

/// Entries of the folder that are looked at.
const MOST_ENTRIES: usize = 10_000;

/// The rest of the sentence `PATH does not exist`.
pub(super) fn hint(place: &Place, root: &Path) -> String {
    let real = &place.real;
    if let Ok(target) = fs::read_link(&place.path) {
        return format!(": it is a link to {}, and nothing is there", names::shown(target.as_os_str()));
    }
    let Some((above, missing)) = break_off(real) else { return String::new() };
    let place = above.strip_prefix(root).ok().filter(|inner| !inner.as_os_str().is_empty()).unwrap_or(above);
    let place = if above == root { "the workspace".to_owned() } else { names::shown(place.as_os_str()) };
    match stands(above) {
        Some(Kind::Folder) => {}
        _ => return format!(": {place} is a file, not a folder"),
    }
    let missing = missing.to_string_lossy();
    let entries = fs::read_dir(above).into_iter().flatten().take(MOST_ENTRIES).flatten();
    let mut near: Vec<(usize, String)> = entries
        .map(|entry| {
            let slash = if entry.file_type().is_ok_and(|kind| kind.is_dir()) { "/" } else { "" };
            let name = entry.file_name();
            (nearness(&missing, &name.to_string_lossy()), format!("{}{slash}", names::shown(&name)))
        })
        .collect();
    let all = near.len();
    near.sort_by(|(a, name_a), (b, name_b)| b.cmp(a).then_with(|| name_a.cmp(name_b)));
    near.truncate(MOST_NAMES);
    let names: Vec<String> = near.into_iter().map(|(_, name)| name).collect();
    match all {
        0 => format!("; {place} is empty"),
        _ if all > names.len() => format!("; {place} has {} (+{} more)", names.join(", "), all - names.len()),
        _ => format!("; {place} has {}", names.join(", ")),
    }
}

/// The deepest part that exists, and the first name that does not.
fn break_off(real: &Path) -> Option<(&Path, &std::ffi::OsStr)> {
    real.ancestors().zip(real.ancestors().skip(1)).find_map(|(below, above)| {
        stands(above).is_some().then(|| below.file_name().map(|name| (above, name))).flatten()
    })
}

/// How alike two names are: what they begin with together counts most, then what they end with.
fn nearness(wanted: &str, name: &str) -> usize {
    let (wanted, name) = (wanted.to_lowercase(), name.to_lowercase());
    let front = wanted.chars().zip(name.chars()).take_while(|(a, b)| a == b).count();
    let back = wanted.chars().rev().zip(name.chars().rev()).take_while(|(a, b)| a == b).count();
    4 * front + back
}
