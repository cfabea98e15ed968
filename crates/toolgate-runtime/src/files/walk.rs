//! Trees: what stands in a folder and below it, less what ignore files name.

use std::{io, os::fd::OwnedFd};

use toolgate_core::tool::Place;

use super::{Visit, WalkRules, Walked};

pub(super) fn walk(_root: &OwnedFd, _place: &Place, _rules: &WalkRules, _visit: &Visit<'_>) -> io::Result<Walked> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}
