//! Ids that are never used twice.

use rustix::rand::{GetRandomFlags, getrandom};

/// A session's id: when it began, in UTC, and eight random hex digits. It names the trace.
pub fn session_id() -> String {
    format!("session-{}-{:08x}", jiff::Timestamp::now().strftime("%Y-%m-%d-%H-%M-%S"), random())
}

/// A command session's id.
pub(crate) fn process_id() -> String {
    format!("proc-{:08x}", random())
}

fn random() -> u32 {
    let mut bytes = [0; 4];
    // The pool is ready long before any of this runs; were it not, the time still tells two ids apart.
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(4) => u32::from_le_bytes(bytes),
        _ => jiff::Timestamp::now().subsec_nanosecond().unsigned_abs() ^ std::process::id(),
    }
}
