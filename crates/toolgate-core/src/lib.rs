//! toolgate's words and its decisions.
//!
//! This crate decides and touches nothing: no I/O, no async runtime, no clock, no environment. A permission decision is a pure
//! function of a checked call and the standing rules, so it can be tested ten thousand times a second and replayed over traces.
//!
//! In reading order:
//! * [`tool`]: what a tool says of itself and what a call would do ([`tool::Effect`]);
//! * [`config`]: what a configuration says of a tool, and the declaration that comes of it;
//! * [`call`]: a call after its check: exact arguments, exact effects, one [`digest`];
//! * [`args`] and [`schema`]: from a model's text to checked arguments;
//! * [`approval`]: questions as keys, decisions, modes;
//! * [`policy`]: rules, and [`policy::decide`];
//! * [`message`] and [`outcome`]: OmniMessage, and how things end;
//! * [`trace`]: the hash chain of a trace, and what verifying it finds.

pub mod approval;
pub mod args;
pub mod call;
pub mod config;
pub mod digest;
pub mod message;
pub mod outcome;
pub mod policy;
pub mod schema;
pub mod tool;
pub mod trace;
