//! What a terminal makes of a text: how wide it is, and styles or none. Whether styles may be used is decided once, and nothing is said
//! by colour alone.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar;

use crate::surroundings::Surroundings;

/// Whether styles are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ink(bool);

/// One style, as the parameters of the control sequence that turns it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Style(&'static str);

pub(super) const BOLD: Style = Style("1");
pub(super) const DIM: Style = Style("2");
pub(super) const YELLOW: Style = Style("33");
pub(super) const CYAN: Style = Style("36");

impl Ink {
    /// `FORCE_COLOR` counts most (`0` is no), then `NO_COLOR`, then what is written to.
    pub(super) fn new(surroundings: &Surroundings, is_terminal: bool) -> Self {
        match surroundings.get("FORCE_COLOR") {
            Some(force) => Self(force != "0"),
            None => Self(is_terminal && surroundings.get("NO_COLOR").is_none() && !surroundings.is_dumb()),
        }
    }

    /// Styles, or none.
    pub(super) fn is_used(self) -> bool {
        self.0
    }

    /// A text in a style. The text must be clean.
    pub(super) fn paint(self, style: Style, text: &str) -> Cow<'_, str> {
        if self.0 && !text.is_empty() {
            Cow::Owned(format!("\x1b[{}m{text}\x1b[0m", style.0))
        } else {
            Cow::Borrowed(text)
        }
    }
}

/// Columns that a text takes.
pub(super) fn columns_of(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

#[cfg(test)]
impl Ink {
    pub(super) const ON: Self = Self(true);
    pub(super) const OFF: Self = Self(false);
}
