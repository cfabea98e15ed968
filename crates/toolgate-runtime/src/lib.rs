//! The tool runtime: give it a tool call, get back a gated, bounded, recorded result, with no model and no server.
//!
//! This crate touches the machine. It has no terminal, no home directory and no configuration file: every dependency is a parameter.
//!
//! In reading order:
//! * [`environment`]: the one door; the way of a call from top to bottom; `batch` and `race`: calls beside each other, and against limits;
//! * [`gate`]: the only place that builds a [`gate::Permit`], without which nothing runs; [`approver`]: who is asked; [`hooks`]: programs that may
//!   object;
//! * [`tool`]: what a tool is; [`registry`]: the tools that exist; [`tools`]: one file each; [`external`]: programs of the user's own;
//! * [`output`]: the one writer of deltas and of the complete text; [`close_out`]: how a call ends;
//! * [`process`]: commands and the supervisor that owns them; [`files`]: files and folders; [`edit`]: which bytes an edit means; [`diff`]: what changed in
//!   them; [`workspace`]: the folder that tools are
//!   bound to;
//! * [`notice`]: what ended in the background; [`trace`]: the one writer of what happened.

pub mod approver;
mod batch;
pub mod close_out;
pub mod diff;
pub mod edit;
pub mod environment;
pub mod external;
pub mod fetch;
pub mod files;
pub mod gate;
pub mod hooks;
pub mod ids;
pub mod image;
pub mod notice;
pub mod output;
pub mod process;
mod race;
mod redact;
pub mod registry;
pub mod tool;
pub mod tools;
pub mod trace;
pub mod workspace;

pub use toolgate_core as core;

/// A boxed future, so that ports are plain trait objects.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
