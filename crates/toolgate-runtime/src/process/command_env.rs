//! Which variables a command sees.
//!
//! The user's own environment, without secrets, without what would change how a shell or a loader starts, and with settings that make a
//! program fail loudly where it would otherwise wait for somebody who is not there. Pure: tested without a process.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

/// What the user decided about variables.
#[derive(Debug, Clone, Default)]
pub struct EnvPolicy {
    /// Names that pass although they look like secrets.
    pub pass: Vec<String>,
    /// Names that do not pass although they look harmless, such as that of a model's key.
    pub drop: Vec<String>,
    /// Variables that are added, over everything else.
    pub set: Vec<(String, String)>,
}

/// Set for every command. `GIT_EDITOR=false` fails loudly; `true` would let a rebase rewrite history in silence.
const QUIET: &[(&str, &str)] = &[
    ("GIT_EDITOR", "false"),
    ("GIT_SEQUENCE_EDITOR", "false"),
    ("EDITOR", "false"),
    ("VISUAL", "false"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_PAGER", "cat"),
    ("PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("NO_COLOR", "1"),
    ("TERM", "dumb"),
];

/// What a command in a terminal of its own gets instead.
const IN_TERMINAL: &[(&str, &str)] = &[("TERM", "xterm-256color")];

/// Never passed on: colour that was forced for another terminal, and programs that would ask on a screen.
const DROPPED: &[&str] =
    &["FORCE_COLOR", "CLICOLOR_FORCE", "GPG_TTY", "SSH_ASKPASS", "GIT_ASKPASS", "SUDO_ASKPASS", "SSH_TTY", "_"];

/// Variables that make a shell, a loader or an interpreter run something of its own before the command that was approved.
const STARTERS: &[&str] = &[
    "BASH_ENV",
    "ENV",
    "PROMPT_COMMAND",
    "PS0",
    "PS4",
    "SHELLOPTS",
    "BASHOPTS",
    "BASH_XTRACEFD",
    "IFS",
    "CDPATH",
    "GLOBIGNORE",
    "PYTHONSTARTUP",
    "PERL5OPT",
    "PERL5DB",
    "RUBYOPT",
    "GIT_SSH_COMMAND",
    "GIT_EXTERNAL_DIFF",
];

/// Beginnings of names of the same kind: the dynamic loader's, exported shell functions, and toolgate's own.
const STARTER_PREFIXES: &[&str] = &["LD_", "DYLD_", "BASH_FUNC_", "TOOLGATE_"];

/// Parts of names that hold secrets.
const SECRET_PARTS: &[&str] = &["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL"];

/// Names with such a part that hold none.
const NOT_SECRET: &[&str] = &["KEYBOARD", "KEYMAP", "KEYTIMEOUT"];

/// The variables of a command, as `NAME=value`.
pub fn command_env(
    base: impl IntoIterator<Item = (OsString, OsString)>,
    policy: &EnvPolicy,
    terminal: bool,
) -> Vec<OsString> {
    let mut vars: BTreeMap<OsString, OsString> =
        base.into_iter().filter(|(name, _)| policy.passes(&name.to_string_lossy())).collect();
    let quiet = QUIET.iter().filter(|(name, _)| !(terminal && *name == "NO_COLOR"));
    for (name, value) in quiet.chain(if terminal { IN_TERMINAL } else { &[] }) {
        vars.insert(name.into(), value.into());
    }
    for (name, value) in &policy.set {
        vars.insert(name.into(), value.into());
    }
    vars.into_iter().map(|(name, value)| joined(&name, &value)).collect()
}

impl EnvPolicy {
    /// Whether a variable of this name reaches commands.
    pub fn passes(&self, name: &str) -> bool {
        if self.pass.iter().any(|passed| passed == name) {
            return true;
        }
        let upper = name.to_ascii_uppercase();
        let starter =
            STARTERS.contains(&upper.as_str()) || STARTER_PREFIXES.iter().any(|prefix| upper.starts_with(prefix));
        let dropped = DROPPED.contains(&upper.as_str()) || self.drop.iter().any(|dropped| dropped == name);
        !starter && !dropped && !is_secret(&upper)
    }
}

/// Whether a variable of this name holds a secret, as far as a name can tell.
pub fn is_secret_name(name: &str) -> bool {
    is_secret(&name.to_ascii_uppercase())
}

fn is_secret(upper: &str) -> bool {
    let rest = NOT_SECRET.iter().fold(upper.to_owned(), |rest, word| rest.replace(word, ""));
    SECRET_PARTS.iter().any(|part| rest.contains(part))
}

fn joined(name: &OsStr, value: &OsStr) -> OsString {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(b'=');
    bytes.extend_from_slice(value.as_bytes());
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(base: &[(&str, &str)], policy: &EnvPolicy) -> Vec<String> {
        let base = base.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        command_env(base, policy, false).into_iter().map(|var| var.into_string().unwrap()).collect()
    }

    #[test]
    fn secrets_and_starters_are_dropped_whatever_their_case() {
        let base = [
            ("OPENAI_API_KEY", "x"),
            ("github_token", "x"),
            ("PGPASSWORD", "x"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("LD_PRELOAD", "x"),
            ("BASH_ENV", "x"),
            ("BASH_FUNC_git%%", "() { :; }"),
            ("FORCE_COLOR", "1"),
            ("force_color", "1"),
            ("GPG_TTY", "/dev/tty"),
            ("GOOGLE_APPLICATION_CREDENTIALS", "x"),
            ("TOOLGATE_X", "x"),
            ("KEYBOARD_TOKEN", "x"),
        ];
        let seen = env(&base, &EnvPolicy::default());
        for (name, _) in base {
            assert!(!seen.iter().any(|var| var.starts_with(&format!("{name}="))), "{name}");
        }
    }

    #[test]
    fn the_rest_passes_and_what_is_set_wins() {
        let policy = EnvPolicy {
            pass: vec!["MY_TOKEN".into()],
            drop: vec!["MY_MODEL".into()],
            set: vec![("PAGER".into(), "less".into()), ("API_KEY".into(), "v".into())],
        };
        let seen = env(
            &[
                ("HOME", "/h"),
                ("MY_TOKEN", "t"),
                ("KEYBOARD", "de"),
                ("PAGER", "more"),
                ("X", "a=b"),
                ("MY_MODEL", "k"),
            ],
            &policy,
        );
        assert!(!seen.iter().any(|var| var.starts_with("MY_MODEL=")), "{seen:?}");
        for var in [
            "HOME=/h",
            "MY_TOKEN=t",
            "KEYBOARD=de",
            "PAGER=less",
            "API_KEY=v",
            "X=a=b",
            "GIT_EDITOR=false",
            "TERM=dumb",
            "NO_COLOR=1",
        ] {
            assert!(seen.contains(&var.to_owned()), "{var} in {seen:?}");
        }
    }

    #[test]
    fn a_terminal_may_have_colour() {
        let seen = command_env([], &EnvPolicy::default(), true);
        assert!(seen.contains(&"TERM=xterm-256color".into()) && !seen.contains(&"NO_COLOR=1".into()));
    }
}
