//! Takes reasoning out of a text that opens with `<think>`, as small local models write it. The tags may be cut anywhere.

use std::collections::VecDeque;

use super::super::ModelEvent;

/// What has come of a text and of its tags.
#[derive(Default)]
pub(super) struct ThinkTags {
    state: Think,
    /// What may turn out to be a tag.
    held: String,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Think {
    /// Nothing but blanks and perhaps the beginning of a tag has come.
    #[default]
    Undecided,
    Inside,
    /// Behind the closing tag; blanks before the text are the template's.
    Behind,
    Text,
}

const OPEN_TAG: &str = "<think>";
const CLOSE_TAG: &str = "</think>";

impl ThinkTags {
    pub(super) fn push(&mut self, text: &str, out: &mut VecDeque<ModelEvent>) {
        if self.state == Think::Text {
            if !text.is_empty() {
                out.push_back(ModelEvent::Text(text.to_owned()));
            }
            return;
        }
        self.held.push_str(text);
        if self.state == Think::Undecided {
            let lead = self.held.trim_start();
            if let Some(inside) = lead.strip_prefix(OPEN_TAG) {
                (self.state, self.held) = (Think::Inside, inside.to_owned());
            } else if !OPEN_TAG.starts_with(lead) {
                self.state = Think::Text;
            }
        }
        if self.state == Think::Inside {
            let (end, behind) = match self.held.find(CLOSE_TAG) {
                Some(end) => (end, Some(end + CLOSE_TAG.len())),
                // The tag's beginning may stand at the end of what has come.
                None => (
                    (1..CLOSE_TAG.len())
                        .rev()
                        .find(|&n| self.held.ends_with(&CLOSE_TAG[..n]))
                        .map_or(self.held.len(), |n| self.held.len() - n),
                    None,
                ),
            };
            if end > 0 {
                out.push_back(ModelEvent::Thinking(self.held[..end].to_owned()));
            }
            self.held.drain(..behind.unwrap_or(end));
            if behind.is_some() {
                self.state = Think::Behind;
            }
        }
        if self.state == Think::Behind && !self.held.trim_start().is_empty() {
            self.held = self.held.trim_start().to_owned();
            self.state = Think::Text;
        }
        if self.state == Think::Text && !self.held.is_empty() {
            out.push_back(ModelEvent::Text(std::mem::take(&mut self.held)));
        }
    }

    pub(super) fn finish(&mut self, out: &mut VecDeque<ModelEvent>) {
        let held = std::mem::take(&mut self.held);
        match self.state {
            _ if held.is_empty() => {}
            Think::Inside => out.push_back(ModelEvent::Thinking(held)),
            Think::Behind => {}
            Think::Undecided | Think::Text => out.push_back(ModelEvent::Text(held)),
        }
    }
}
