//! `trace verify`: whether the records are those that were written.

use toolgate_core::trace::{Verified, check_head, verify};

use super::{
    super::print,
    find::{File, Files},
};
use crate::failure::{Failure, VERIFICATION};

/// Checks each file, and the head of the newest.
pub(super) fn check(files: &Files, head: Option<String>) -> Result<u8, Failure> {
    let head = head.or_else(|| files.known_head().map(str::to_owned));
    let mut code = 0;
    for (place, File { path, bytes }) in (1..).zip(&files.each) {
        let wanted = head.as_ref().filter(|_| place == files.each.len());
        let verified = verify(bytes).and_then(|verified| match wanted {
            Some(wanted) => check_head(&verified, wanted).map(|()| verified),
            None => Ok(verified),
        });
        let told = match verified {
            Ok(Verified { records: 0, .. }) => Err("it has no records".to_owned()),
            Ok(verified) => Ok(described(&verified)),
            Err(broken) => Err(broken.to_string()),
        };
        match told {
            Ok(told) => print::data(&format!("{}: {told}", path.display())),
            Err(why) => {
                print::data(&format!("{}: does not hold: {why}", path.display()));
                code = VERIFICATION;
            }
        }
    }
    Ok(code)
}

pub(super) fn described(verified: &Verified) -> String {
    let mut parts = vec![format!("{} records", verified.records)];
    if !verified.chained {
        parts.push("unchained: the records carry no hashes, so nothing can be proved".into());
        return parts.join(", ");
    }
    parts.push(format!("holds, head {}", verified.head.to_hex()));
    if verified.repaired > 0 {
        parts.push(format!("{} bytes torn by a crash are covered by a repair", verified.repaired));
    }
    if let Some((offset, length)) = verified.torn {
        parts.push(format!("{length} bytes at offset {offset} were torn by a crash and are not covered yet"));
    }
    if !verified.sealed {
        parts.push("not sealed: its last run did not end by itself, or is still on".into());
    }
    parts.join(", ")
}
