//! The command line: what there is, and which file does it.

mod ask;
mod attend;
mod call;
mod chat;
mod config;
mod deadline;
mod debug;
mod demo;
mod doctor;
mod draft;
mod flags;
mod ink;
mod input;
mod markdown;
mod model;
mod models;
mod print;
mod run;
mod screen;
mod signals;
mod terminal;
mod tools;
mod trace;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use tokio_util::sync::CancellationToken;

use self::flags::Common;
use crate::{
    failure::{Failure, INTERRUPTED, USAGE},
    surroundings::Surroundings,
};

/// A tool runtime for language-model agents: every call checked, asked about, bounded and written down.
#[derive(Parser)]
#[command(name = "toolgate", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Give a model one task and run the tools that it calls.
    Run(run::Run),
    /// Have a conversation with a model: it answers as it writes, and asks before what the rules want asked.
    Chat(chat::Chat),
    /// Run one tool call by hand, through the same gate.
    Call(call::Call),
    /// Show a whole session: a scripted model, real commands, one call denied. Needs no key and no network.
    Demo,
    /// List, show and verify what was written down.
    #[command(subcommand)]
    Trace(trace::Trace),
    /// Show what is set and where it came from, check it, and explain every key.
    #[command(subcommand)]
    Config(config::Config),
    /// List the tools, which of them a session would have, and what they cost.
    Tools(tools::Tools),
    /// List the models that can be used, and what is missing for the others.
    Models(models::Models),
    /// Check everything that a run needs.
    Doctor(doctor::Doctor),
    /// Print a script that completes commands and flags in a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Look inside.
    #[command(subcommand)]
    Debug(debug::Debug),
}

/// What happens to a question when nobody is there to answer it.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnAskArg {
    /// It is denied.
    Deny,
    /// The run ends with code 4 and the question stays open; `-r ID --approve MODE` decides it.
    Wait,
}

/// What standard output carries.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// The model's words.
    Text,
    /// One JSON object at the end.
    Json,
    /// Each message as a line of JSON, as it happens.
    StreamJson,
}

/// Reads the command line and does what it says.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    let surroundings = Surroundings::read();
    let done = match cli.command {
        Command::Run(run) => run.run(&surroundings),
        Command::Chat(chat) => chat.run(&surroundings),
        Command::Call(call) => call.run(&surroundings),
        Command::Demo => demo::run(&surroundings),
        Command::Trace(trace) => trace.run(&surroundings),
        Command::Config(config) => config.run(&surroundings),
        Command::Tools(tools) => tools.run(&surroundings),
        Command::Models(models) => models.run(&surroundings),
        Command::Doctor(doctor) => doctor.run(&surroundings),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "toolgate", &mut script);
            print::text(&String::from_utf8_lossy(&script));
            Ok(0)
        }
        Command::Debug(debug) => debug.run(),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            print::to_person(&failure.to_string());
            ExitCode::from(failure.code)
        }
    }
}

/// Runs asynchronous work on this thread. One is enough: commands run in their own processes, and a second thread would cost memory
/// and wake-ups for nothing.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::run(format!("the runtime cannot start: {error}")))?;
    let done = runtime.block_on(work);
    // A thread that still waits for the disk has nothing to say that the seal did not wait for.
    runtime.shutdown_background();
    done
}

/// A token that the first Ctrl-C cancels, and SIGTERM and SIGHUP too. The second Ctrl-C ends the program at once; the supervisor then
/// ends what still runs.
fn interruptible() -> Result<CancellationToken, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let token = CancellationToken::new();
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let mut signals = signal(kind).map_err(|error| Failure::run(format!("signals cannot be received: {error}")))?;
        let token = token.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if token.is_cancelled() {
                    std::process::exit(INTERRUPTED.into());
                }
                token.cancel();
            }
        });
    }
    Ok(token)
}

/// The folder of everything that lasts.
fn state(surroundings: &Surroundings) -> Result<crate::state::State, Failure> {
    surroundings.state_folder().map(crate::state::State::new).ok_or_else(|| {
        Failure::configuration("there is no place for traces: neither HOME nor XDG_STATE_HOME is set")
            .hint("set XDG_STATE_HOME to a folder that toolgate may write")
    })
}
