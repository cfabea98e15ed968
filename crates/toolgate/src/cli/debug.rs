//! `toolgate debug`: looks inside, for those who build on it.
#![allow(clippy::disallowed_methods)] // Recordings are read here.

use std::path::PathBuf;

use clap::Subcommand;
use toolgate_agent::provider::parse_recording;

use super::{model::Api, print};
use crate::failure::Failure;

/// Subcommands of `toolgate debug`.
#[derive(Subcommand)]
pub(super) enum Debug {
    /// Print what a provider's recorded answer comes to: text, thinking, calls, stop, usage, error.
    Stream {
        /// The wire format of the answer.
        #[arg(long, value_enum)]
        api: Api,
        /// The HTTP status that it came with.
        #[arg(long, value_name = "N", default_value_t = 200)]
        status: u16,
        /// The body as it came: an event stream, or JSON.
        file: PathBuf,
    },
}

impl Debug {
    pub(super) fn run(self) -> Result<u8, Failure> {
        let Self::Stream { api, status, file } = self;
        let Some(api) = api.wire() else {
            return Err(Failure::usage("a script is no recorded answer").hint("--api names one of the wire formats"));
        };
        let bytes = std::fs::read(&file).map_err(|error| {
            Failure::usage(format!("the recording {} cannot be read: {error}", file.display()))
                .hint("give the file with the answer's body")
        })?;
        print::json(&parse_recording(api.as_str(), status, &bytes));
        Ok(0)
    }
}
