//! `toolgate trace`: what was written down, for people and for checks.
//!
//! A trace is named by its session's id, or by its files in order. In reading order: which files those are (`find`), one record as
//! people read it (`told`), `list`, `show`, what a session that goes on would know (`rebuilt`), `search`, `verify`, and what may be
//! given away (`export`).

mod export;
mod find;
mod list;
mod rebuilt;
mod search;
mod show;
mod told;
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
        /// Show long texts whole.
        #[arg(long)]
        full: bool,
    },
    /// Find what was said or done, whatever its case.
    Search {
        /// What to look for.
        text: String,
        /// A session's id, or files [default: all sessions].
        trace: Vec<String>,
        /// How many records to show.
        #[arg(long, value_name = "N", default_value_t = 100)]
        most: usize,
        /// Print JSON lines.
        #[arg(long)]
        json: bool,
    },
    /// Write a session into one file that can be given away: a page that needs nothing else, or its records.
    #[command(group = clap::ArgGroup::new("form").required(true))]
    Export {
        /// A session's id, or the files of one session in order.
        #[arg(required = true)]
        trace: Vec<String>,
        /// One page of HTML that opens from disk.
        #[arg(long, group = "form")]
        html: bool,
        /// The records as they stand.
        #[arg(long, group = "form")]
        jsonl: bool,
        /// Where to write it: a file that is not there yet [default: standard output].
        #[arg(short, long, value_name = "FILE")]
        output: Option<std::path::PathBuf>,
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
            Self::Show { trace, json: true, .. } => rebuilt::show(&Files::read(&trace, surroundings)?),
            Self::Show { trace, full, .. } => {
                show::show(&Files::read(&trace, surroundings)?, &show::Style::new(full, surroundings))
            }
            Self::Search { text, trace, most, json } => {
                search::Search { text: text.to_lowercase(), most, json }.run(&trace, surroundings)
            }
            Self::Export { trace, html, output, .. } => {
                export::export(&Files::read(&trace, surroundings)?, html, output.as_deref())
            }
            Self::Verify { trace, head } => verify::check(&Files::read(&trace, surroundings)?, head),
        }
    }
}
