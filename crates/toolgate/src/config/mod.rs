//! The configuration: every key once, the layers in which it can be set, and where each value came from.
//!
//! ```text
//! file -> Node (every value knows its line) -> KEYS (one entry a key: what it takes, what it means, how it is read) -> Settings
//! ```
//!
//! Layers are applied weakest first, each key whole: built-in, user, project (its deny and ask rules always, the rest where it is
//! trusted), the file of `--config`, variables, flags, managed. A later value replaces an earlier one; rules add up. Nothing is read
//! that is not there: without files a start costs a few failed look-ups, and the YAML parser is not touched.

mod external;
mod files;
mod hooks;
mod keys;
mod layers;
mod node;
mod penguin;
mod read;
mod reference;
mod rules;
mod selection;
mod settings;
mod wrong;

pub(crate) use files::{paths, read as text_of};
pub(crate) use keys::KEYS;
pub(crate) use layers::{Given, Layer, load};
pub(crate) use node::Node;
pub(crate) use reference::page;
pub(crate) use selection::{Declared, Offer, Selection, of_flag as tools_of_flag, words};
pub(crate) use settings::ModelRef;
pub(crate) use settings::{Agent, LoginUse, Model, Settings};
