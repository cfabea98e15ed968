//! What a person can say to toolgate itself: a word behind a slash.

use toolgate_core::approval::ApprovalMode;

use crate::nearest::distance;

/// A command and what it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    Help,
    Mode(Option<String>),
    Tools,
    Compact,
    Resume(Option<String>),
    Trace,
    Quit,
    /// None of these, and the nearest of them.
    Unknown(String, &'static str),
}

/// Each command, what it takes, and what it does.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("/help", "", "shows this"),
    ("/mode", "[MODE]", "shows or changes the approval mode, also for open questions"),
    ("/tools", "", "lists the tools that the model can call"),
    ("/compact", "", "makes the conversation shorter"),
    ("/resume", "[ID]", "lists this workspace's sessions, or goes on with one"),
    ("/trace", "", "shows the session's trace and the hash of its last record"),
    ("/quit", "", "ends the conversation and everything that it started"),
];

impl Command {
    /// The command in a line; none when it is something to say to the model. A path is no command.
    pub(super) fn of(line: &str) -> Option<Self> {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let name = word.strip_prefix('/')?;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphabetic() || c == '-') {
            return None;
        }
        let argument = Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty());
        Some(match name {
            "help" => Self::Help,
            "mode" => Self::Mode(argument),
            "tools" => Self::Tools,
            "compact" => Self::Compact,
            "resume" => Self::Resume(argument),
            "trace" => Self::Trace,
            "quit" | "exit" => Self::Quit,
            _ => Self::Unknown(word.to_owned(), nearest(word)),
        })
    }
}

/// All that can be completed: commands, and the modes behind `/mode`.
pub(super) fn words() -> impl Iterator<Item = String> {
    let modes = ApprovalMode::ALL.into_iter().map(|mode| format!("/mode {mode}"));
    COMMANDS.iter().map(|(word, ..)| (*word).to_owned()).chain(modes)
}

/// The help.
pub(super) fn help() -> String {
    let mut text = String::new();
    for (word, takes, does) in COMMANDS {
        text.push_str(&format!("{:<14} {does}\n", format!("{word} {takes}")));
    }
    text.push_str(
        "Enter sends; Alt-Enter, or a backslash before Enter, begins a further line.\n\
         What is typed while a run is on reaches the model with its next request.\n\
         Ctrl-C denies a question, stops a run, clears the line, quits.",
    );
    text
}

fn nearest(word: &str) -> &'static str {
    let near = COMMANDS.iter().min_by_key(|(known, ..)| distance(word, known));
    near.map_or("/help", |(known, ..)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_or_something_to_say() {
        for (line, command) in [
            ("/help", Some(Command::Help)),
            (" /mode ", Some(Command::Mode(None))),
            ("/mode read-only", Some(Command::Mode(Some("read-only".into())))),
            ("/exit", Some(Command::Quit)),
            ("/resme x", Some(Command::Unknown("/resme".into(), "/resume"))),
            ("/qiut", Some(Command::Unknown("/qiut".into(), "/quit"))),
            ("/etc/hosts what is it?", None),
            ("/", None),
            ("what is /help?", None),
        ] {
            assert_eq!(Command::of(line), command, "{line:?}");
        }
    }
}
