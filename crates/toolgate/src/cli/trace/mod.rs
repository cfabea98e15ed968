//! `toolgate trace`: what was written down, for people and for checks.
//!
//! A trace is named by its session's id, or by its files in order. In reading order: which files those are (`find`), `list`, `show`,
//! what a session that goes on would know (`rebuilt`), `verify`.

mod find;
mod list;
mod rebuilt;
mod show;
mod verify;

use clap::Subcommand;

use crate::{failure::Failure, surroundings::Surroundings};
use find::Files;

/// Subcommands of `toolgate trace`.
#[derive(Subcommand)]
pub(super) enum Trace {
    /// List sessions, newest first.
    List {
        /// Print JSON lines.
        #[arg(long)]
        json: bool,
    },
    /// Show a trace.
    Show {
        /// A session's id, or the files of one session in order.
        #[arg(required = true)]
        trace: Vec<String>,
        /// Print what a session that goes on would know, as one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Check that no record of a trace was changed, added or removed.
    Verify {
        /// A session's id, or the files of one session in order.
        #[arg(required = true)]
        trace: Vec<String>,
        /// The hash that the last record must have; finds a removed tail. By default the one in the session's index.
        #[arg(long, value_name = "HASH")]
        head: Option<String>,
    },
}

impl Trace {
    pub(super) fn run(self, surroundings: &Surroundings) -> Result<u8, Failure> {
        match self {
            Self::List { json } => list::list(json, surroundings),
            Self::Show { trace, json: true } => rebuilt::show(&Files::read(&trace, surroundings)?),
            Self::Show { trace, json: false } => show::show(&Files::read(&trace, surroundings)?),
            Self::Verify { trace, head } => verify::check(&Files::read(&trace, surroundings)?, head),
        }
    }
}
