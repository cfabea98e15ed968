//! The runtime's integration tests, in one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    missing_docs,
    unreachable_pub
)]

mod close_out;
mod commands;
mod definitions;
mod door;
mod edit_calls;
mod edits;
mod examples;
mod external;
mod files;
mod fuzz;
mod hooks;
mod images;
mod own_executors;
mod search;
mod shells;
mod supervisor;
mod support;
