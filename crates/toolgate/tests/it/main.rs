//! The binary's integration tests, in one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    missing_docs,
    unreachable_pub
)]

mod chat;
mod cli;
mod config;
mod every_tool;
mod files;
mod guide;
mod images;
mod kill;
mod pty;
mod subagents;
mod support;
mod tidy;
mod tools;
mod trace;
