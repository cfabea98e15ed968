//! The `toolgate` binary: people, the file system's usual places, and the wiring of everything else.
//!
//! Only this crate reads the environment, the home directory and the configuration. Standard output is data, standard error is for
//! people (see STYLE.md for how they are spoken to).

mod children;
mod cli;
mod config;
mod conversation;
mod failure;
mod models;
mod nearest;
mod recorded;
mod state;
mod surroundings;
mod tools;
mod wiring;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The supervisor is this same program. It must stay small, so it turns off here, before anything else is touched.
    if std::env::args_os().nth(1).is_some_and(|word| word == wiring::SUPERVISOR) {
        toolgate_runtime::process::host::supervise();
    }
    cli::main()
}
