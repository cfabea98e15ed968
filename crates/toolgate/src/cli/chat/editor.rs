//! The line editor for prompts: history, several lines, completion of commands. It is made for a terminal that can be drawn on, when the
//! first prompt is awaited.
#![allow(clippy::disallowed_methods)] // The history is a file of the user's own.

use std::{
    borrow::Cow,
    fs,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use reedline::{
    ColumnarMenu, Completer, CompletionResult, EditCommand, Emacs, FileBackedHistory, Highlighter, KeyCode,
    KeyModifiers, MenuBuilder, Prompt, PromptEditMode, PromptHistorySearch, Reedline, ReedlineEvent, ReedlineMenu,
    Signal, Span, StyledText, Suggestion, ValidationResult, Validator, default_emacs_keybindings,
};

use super::commands;
use crate::cli::ink::Ink;

/// Prompts that the history keeps.
const REMEMBERED: usize = 1000;

const MENU: &str = "commands";

/// What came of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Edited {
    Prompt(String),
    /// Ctrl-C; whether there was something to clear.
    Interrupt(bool),
    /// Ctrl-D on an empty line.
    End,
}

/// The editor. Reading blocks, so it goes to a thread and comes back from there.
pub(super) struct Editor {
    line: Reedline,
    /// Whether the line held something when it was last drawn.
    is_filled: Arc<AtomicBool>,
}

impl Editor {
    /// An editor with its history in this file; without one where it cannot be kept.
    pub(super) fn new(history: &Path, ink: Ink) -> Self {
        let is_filled = Arc::new(AtomicBool::new(false));
        let mut keys = default_emacs_keybindings();
        let menu = ReedlineEvent::Menu(MENU.into());
        keys.add_binding(
            KeyModifiers::NONE,
            KeyCode::Tab,
            ReedlineEvent::UntilFound(vec![menu, ReedlineEvent::MenuNext]),
        );
        keys.add_binding(KeyModifiers::ALT, KeyCode::Enter, ReedlineEvent::Edit(vec![EditCommand::InsertNewline]));
        let menu = Box::new(ColumnarMenu::default().with_name(MENU));
        let mut line = Reedline::create()
            .use_bracketed_paste(true)
            .with_ansi_colors(ink.is_used())
            .with_highlighter(Box::new(Filled(is_filled.clone())))
            .with_validator(Box::new(Backslash))
            .with_completer(Box::new(Commands))
            .with_quick_completions(true)
            .with_menu(ReedlineMenu::EngineCompleter(menu))
            .with_edit_mode(Box::new(Emacs::new(keys)));
        if is_private(history)
            && let Ok(history) = FileBackedHistory::with_file(REMEMBERED, history.to_owned())
        {
            line = line.with_history(Box::new(history));
        }
        Self { line, is_filled }
    }

    /// One prompt. `begun` is what was typed already.
    pub(super) fn read(&mut self, label: &str, begun: &str) -> Result<Edited, String> {
        if !begun.is_empty() {
            self.line.run_edit_commands(&[EditCommand::InsertString(begun.to_owned())]);
        }
        self.is_filled.store(!begun.is_empty(), Ordering::Relaxed);
        let read = self.line.read_line(&Label(format!("{label} > ")));
        let _ = self.line.sync_history();
        match read {
            Ok(Signal::Success(text)) => Ok(Edited::Prompt(text.replace("\\\n", "\n"))),
            Ok(Signal::CtrlC) => Ok(Edited::Interrupt(self.is_filled.load(Ordering::Relaxed))),
            Ok(_) => Ok(Edited::End),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Makes sure that nobody else can read what was typed.
fn is_private(history: &Path) -> bool {
    let make = || {
        if let Some(folder) = history.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        fs::OpenOptions::new().create(true).append(true).mode(0o600).open(history)
    };
    make().is_ok()
}

/// Sees whether there is something in the line; its colours stay as they are.
struct Filled(Arc<AtomicBool>);

impl Highlighter for Filled {
    fn highlight(&self, line: &str, _cursor: usize) -> StyledText {
        self.0.store(!line.is_empty(), Ordering::Relaxed);
        let mut text = StyledText::new();
        text.push((Default::default(), line.to_owned()));
        text
    }
}

/// A backslash at the end goes on with the next line.
struct Backslash;

impl Validator for Backslash {
    fn validate(&self, line: &str) -> ValidationResult {
        if line.ends_with('\\') { ValidationResult::Incomplete } else { ValidationResult::Complete }
    }
}

/// Commands, at the beginning of a line.
struct Commands;

impl Completer for Commands {
    fn complete(&mut self, line: &str, pos: usize) -> CompletionResult {
        let begun = line.get(..pos).unwrap_or(line);
        let fitting = commands::words().filter(|word| begun.starts_with('/') && word.starts_with(begun));
        let suggestions: Vec<Suggestion> = fitting
            .map(|word| Suggestion {
                value: word,
                span: Span::new(0, pos),
                append_whitespace: false,
                ..Suggestion::default()
            })
            .collect();
        CompletionResult::fresh(suggestions)
    }
}

/// What stands before the line.
struct Label(String);

impl Prompt for Label {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.0)
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _mode: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("  ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("search `{}`: ", search.term))
    }
}
