//! Which tools a hook is for: names with `|` between them, where `*` stands for any characters.

/// The names that a hook is for; none means all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matcher(Vec<String>);

impl Matcher {
    /// Reads a matcher. Nothing, `*` and `.*` are for all; `.*` in a name is read as `*`, as it is written elsewhere.
    ///
    /// # Errors
    /// When a name holds what no tool's name has: a hook that never runs is worse than none.
    pub fn parse(text: &str) -> Result<Self, String> {
        if matches!(text.trim(), "" | "*" | ".*") {
            return Ok(Self::default());
        }
        let names: Vec<String> = text.split('|').map(|name| name.trim().replace(".*", "*")).collect();
        let usual = |c: char| c.is_ascii_alphanumeric() || "_-*".contains(c);
        match names.iter().find(|name| name.is_empty() || !name.chars().all(usual)) {
            Some(odd) => Err(format!(
                "`{odd}` is no name of a tool; a matcher is names with | between them, and * for any letters"
            )),
            None => Ok(Self(names)),
        }
    }

    /// The names that are no patterns.
    pub fn plain_names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str).filter(|name| !name.contains('*'))
    }

    /// Whether it is for a tool of this name that answers to others too.
    pub(super) fn fits(&self, answers_to: impl Fn(&str) -> bool, name: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|pattern| answers_to(pattern) || matches(pattern, name))
    }
}

/// Whether a pattern means a name.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            ends.into_iter().any(|at| matches(rest, &name[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_whole_and_patterns_fit_what_they_stand_for() {
        for (text, fitting, not) in [
            ("", &["read", "x"][..], &[][..]),
            ("*", &["read"], &[]),
            ("read", &["read"], &["read_file", "thread", "Read"]),
            ("read | write", &["read", "write"], &["read | write"]),
            ("mcp__git__*", &["mcp__git__log", "mcp__git__"], &["mcp__github__log"]),
            ("mcp__.*__log", &["mcp__git__log"], &["mcp__git__logs"]),
            ("my-tool", &["my-tool"], &["my", "tool"]),
            ("Bash", &["exec_command"], &["bash"]),
        ] {
            let matcher = Matcher::parse(text).unwrap();
            let fits = |name: &str| matcher.fits(|pattern| name == "exec_command" && pattern == "Bash", name);
            assert!(fitting.iter().all(|name| fits(name)), "{text}");
            assert!(!not.iter().any(|name| fits(name)), "{text}");
        }
        for text in ["read,write", "^read$", "read(", "read||write", "re ad", "|"] {
            assert!(Matcher::parse(text).is_err(), "{text}");
        }
    }
}
