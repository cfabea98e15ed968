//! Command text, as far as rules need it before the gate reads shell: plain words, and where a command can begin.

/// Characters that make a line more than plain words, quoted or not. An allow rule never covers a line with one of them.
const SPECIAL: &[char] =
    &['$', '`', '(', ')', '<', '>', '|', '&', ';', '*', '?', '[', ']', '{', '}', '~', '!', '#', '\\', '\n', '\r', '\0'];

/// The words of a line that is nothing but words; `None` for every other line.
pub(super) fn plain_words(line: &str) -> Option<Vec<String>> {
    if line.contains(SPECIAL)
        || line.chars().any(|c| c.is_control() && c != '\t' || c.is_whitespace() && !" \t".contains(c))
    {
        return None;
    }
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ' | '\t') => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word.take());
    // `NAME=value` in front is an assignment, not the command.
    let assigns = words.first().is_some_and(|first: &String| first.contains('='));
    (quote.is_none() && !assigns).then_some(words)
}

/// The literal scan for deny and ask: the words behind every place where a command can begin, quoting taken off roughly. It finds
/// too much rather than too little.
pub(super) fn command_positions(line: &str) -> impl Iterator<Item = Vec<String>> {
    line.split([';', '&', '|', '(', ')', '{', '}', '\n', '`', '!'])
        .map(|part| {
            part.split_whitespace()
                .map(|word| word.chars().filter(|c| !"'\"\\".contains(*c)).collect::<String>())
                .skip_while(|word| word.contains('=') && !word.starts_with('='))
                .map(|word| in_system_folder(&word).to_owned())
                .collect::<Vec<_>>()
        })
        .filter(|words| !words.is_empty())
}

/// `/usr/bin/curl` counts as `curl`.
fn in_system_folder(word: &str) -> &str {
    const FOLDERS: [&str; 5] = ["/usr/local/bin/", "/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"];
    FOLDERS.iter().find_map(|folder| word.strip_prefix(folder)).filter(|name| !name.contains('/')).unwrap_or(word)
}

/// Whether some word of the line only exists when it runs.
pub(super) fn has_dynamic_words(line: &str) -> bool {
    line.contains(['$', '`'])
}
