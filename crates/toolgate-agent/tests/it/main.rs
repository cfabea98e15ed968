//! The agent's integration tests, in one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs, unreachable_pub)]

mod examples;
mod histories;
mod hooks;
mod images;
mod provider;
mod recordings;
mod replay;
mod requests;
mod session;
mod switch;
mod wires;
