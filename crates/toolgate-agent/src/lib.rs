//! The agent: a loop that asks a model, runs its calls through the runtime's one door, and asks again.
//!
//! Only this crate knows providers and their wire formats, and only those who want a loop pay for HTTP and TLS.
//!
//! In reading order:
//! * [`session`]: a session from its prompt to its end, and how it goes on after a crash;
//! * [`turn`]: one model request and the calls of its answer; `retry`: whether it is asked again;
//! * [`history`]: what a trace says was committed; `summary`: what stands in place of what was said before;
//! * [`subagent`]: sessions that this one hands work to; [`tools`]: the tools that need a model;
//! * [`fetch`]: what tools get from elsewhere;
//! * [`prompt`]: the instructions, which adapt to the tools;
//! * [`provider`]: the port to models, one file a wire, and [`scripted`], a model without a network.

pub mod fetch;
pub mod history;
pub mod prompt;
pub mod provider;
mod retry;
pub mod scripted;
pub mod session;
pub mod subagent;
mod summary;
pub mod tools;
pub mod turn;

pub use toolgate_runtime as runtime;
