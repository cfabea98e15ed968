//! What ignore files keep out of a walk: `.gitignore` and `.git/info/exclude` as git reads them, and `.ignore`, which is read alike and
//! outweighs them. [`Rules`] is one file; [`Layer`] is what holds in one folder, with all that holds above it.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

use globset::{Candidate, Glob, GlobBuilder, GlobSet, GlobSetBuilder};

/// The lines of one ignore file. The last one that matches decides.
#[derive(Debug)]
pub(crate) struct Rules {
    set: GlobSet,
    lines: Vec<Line>,
}

/// What a line says beside its pattern.
#[derive(Debug, Clone, Copy)]
struct Line {
    says: Says,
    only_folders: bool,
}

/// What rules say of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Says {
    /// A pattern names it.
    Named,
    /// A pattern behind `!` takes it out again.
    TakenOut,
}

impl Rules {
    /// Reads an ignore file. A line that is no pattern is passed over, as git does.
    pub(super) fn read(file: &[u8]) -> Self {
        let file = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file);
        let text = String::from_utf8_lossy(file);
        let patterns: Vec<(Glob, Line)> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| pattern(&literal_braces(without_trailing_blanks(line))).ok().flatten())
            .collect();
        // Together they may be too large to be compiled; then each that can be is taken for itself.
        Self::compiled(&patterns).unwrap_or_else(|_| {
            let alone = |one: &(Glob, Line)| Self::compiled(std::slice::from_ref(one)).is_ok();
            let fitting: Vec<_> = patterns.into_iter().filter(alone).take(FALLBACK).collect();
            Self::compiled(&fitting).unwrap_or(Self { set: GlobSet::empty(), lines: Vec::new() })
        })
    }

    /// The rules of a single pattern in the words of an ignore file; `!` in front takes out what it matches.
    ///
    /// # Errors
    /// Why it is no pattern.
    pub(crate) fn one(text: &str) -> Result<Self, String> {
        let patterns: Vec<_> = pattern(text).map_err(|error| error.to_string())?.into_iter().collect();
        Self::compiled(&patterns).map_err(|error| error.to_string())
    }

    /// Whether any pattern is no exception.
    pub(crate) fn names_something(&self) -> bool {
        self.lines.iter().any(|line| line.says == Says::Named)
    }

    /// What they say of a path, taken from the folder in which they stand.
    pub(crate) fn say(&self, path: &Path, is_folder: bool) -> Option<Says> {
        if self.lines.is_empty() {
            return None;
        }
        let matching = self.set.matches_candidate(&Candidate::new(path));
        let deciding = matching.iter().rev().map(|index| self.lines[*index]);
        deciding.into_iter().find(|line| is_folder || !line.only_folders).map(|line| line.says)
    }

    fn compiled(patterns: &[(Glob, Line)]) -> Result<Self, globset::Error> {
        let mut set = GlobSetBuilder::new();
        for (glob, _) in patterns {
            set.add(glob.clone());
        }
        Ok(Self { set: set.build()?, lines: patterns.iter().map(|(_, line)| *line).collect() })
    }
}

/// Patterns that are still tried where all of a file together are too many; far more than any real file holds.
const FALLBACK: usize = 1000;

/// One line as a glob over paths from the folder where it stands; none where nothing is left of it.
fn pattern(line: &str) -> Result<Option<(Glob, Line)>, globset::Error> {
    let mut says = Says::Named;
    let mut rest = line;
    if line.starts_with("\\!") || line.starts_with("\\#") {
        rest = &line[1..];
    } else if let Some(taken_out) = line.strip_prefix('!') {
        (says, rest) = (Says::TakenOut, taken_out);
    }
    let (anchored, rest) = rest.strip_prefix('/').map_or((false, rest), |rest| (true, rest));
    let (only_folders, rest) = rest.strip_suffix('/').map_or((false, rest), |rest| (true, rest));
    if rest.is_empty() {
        return Ok(None);
    }
    // A slash before the end ties a pattern to its folder; without one it holds at any depth.
    let mut glob = if anchored || rest.contains('/') { rest.to_owned() } else { format!("**/{rest}") };
    if glob.ends_with("/**") {
        // What is in the folder, and not the folder.
        glob.push_str("/*");
    }
    let glob = GlobBuilder::new(&glob).literal_separator(true).backslash_escape(true).build()?;
    Ok(Some((glob, Line { says, only_folders })))
}

/// Blanks at the end count only behind a backslash.
fn without_trailing_blanks(line: &str) -> &str {
    let (mut end, mut escaped) = (0, false);
    for (at, c) in line.char_indices() {
        if escaped || c != ' ' {
            end = at + c.len_utf8();
        }
        escaped = !escaped && c == '\\';
    }
    &line[..end]
}

/// The same line with its braces escaped: git knows no alternatives.
fn literal_braces(line: &str) -> String {
    let (mut text, mut escaped, mut in_class) = (String::with_capacity(line.len()), false, false);
    for c in line.chars() {
        if matches!(c, '{' | '}') && !escaped && !in_class {
            text.push('\\');
        }
        if !escaped {
            in_class = c == '[' || in_class && c != ']';
        }
        escaped = !escaped && c == '\\';
        text.push(c);
    }
    text
}

/// What holds in one folder. A folder without ignore files has its parent's.
#[derive(Debug, Default)]
pub(super) struct Layer {
    /// What holds above.
    pub(super) above: Option<Arc<Layer>>,
    /// Bytes of a path in front of what its patterns see.
    pub(super) skip: usize,
    /// `.ignore`.
    pub(super) ignore: Option<Rules>,
    /// `.gitignore`.
    pub(super) git: Option<Rules>,
    /// `.git/info/exclude`.
    pub(super) exclude: Option<Rules>,
    /// Whether a repository begins here: what git is told outside of it does not hold in it.
    pub(super) is_top: bool,
}

impl Layer {
    /// Whether a path is kept out. The nearest file of a kind that says anything decides; `.ignore` before git's, and what stands in the
    /// repository's own settings last.
    pub(super) fn keeps_out(&self, path: &[u8], is_folder: bool) -> bool {
        let (mut ignore, mut git, mut exclude) = (None, None, None);
        let mut same_repository = true;
        let mut layer = Some(self);
        while let Some(at) = layer {
            let seen = Path::new(OsStr::from_bytes(&path[at.skip..]));
            let say = |rules: &Option<Rules>| rules.as_ref().and_then(|rules| rules.say(seen, is_folder));
            ignore = ignore.or_else(|| say(&at.ignore));
            if same_repository {
                git = git.or_else(|| say(&at.git));
                exclude = exclude.or_else(|| say(&at.exclude));
            }
            same_repository &= !at.is_top;
            layer = at.above.as_deref();
        }
        ignore.or(git).or(exclude) == Some(Says::Named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_git_reads_it() {
        use Says::*;
        for (file, path, is_folder, wanted) in [
            ("*.log", "a/b.log", false, Some(Named)),
            ("*.log\n!keep.log", "a/keep.log", false, Some(TakenOut)),
            ("!keep.log\n*.log", "a/keep.log", false, Some(Named)),
            ("/a", "a", false, Some(Named)),
            ("/a", "b/a", false, None),
            ("b/a", "b/a", false, Some(Named)),
            ("b/a", "c/b/a", false, None),
            ("**/b/a", "c/b/a", false, Some(Named)),
            ("build/", "x/build", true, Some(Named)),
            ("build/", "x/build", false, None),
            ("x/**", "x", true, None),
            ("x/**", "x/y", true, Some(Named)),
            ("a/**/b", "a/b", false, Some(Named)),
            ("# no\n\\#yes", "#yes", false, Some(Named)),
            ("\\!x", "!x", false, Some(Named)),
            ("a  ", "a", false, Some(Named)),
            ("a\\ ", "a ", false, Some(Named)),
            ("a\r\nb\r\n", "b", false, Some(Named)),
            ("\u{feff}a", "a", false, Some(Named)),
            ("!\n/\n\n", "a", true, None),
            ("a[\n*.o", "x.o", false, Some(Named)),
            ("{a,b}", "a", false, None),
            ("{a,b}", "{a,b}", false, Some(Named)),
            ("[{]", "{", false, Some(Named)),
            ("a\\\\ ", "a\\", false, Some(Named)),
            ("a\t", "a", false, None),
            ("[a-", "[a-", false, None),
            ("*", "a/b", false, Some(Named)),
            ("a/*", "a/b/c", false, None),
            ("?.c", "x.c", false, Some(Named)),
            ("[!a].c", "a.c", false, None),
        ] {
            assert_eq!(Rules::read(file.as_bytes()).say(Path::new(path), is_folder), wanted, "{file:?} of {path}");
        }
    }

    #[test]
    fn a_repository_in_another_is_told_nothing_by_it() {
        let outer = Arc::new(Layer {
            git: Some(Rules::read(b"*.log\n")),
            ignore: Some(Rules::read(b"*.tmp\n")),
            is_top: true,
            ..Layer::default()
        });
        let inner = Layer {
            above: Some(outer.clone()),
            skip: "inner/".len(),
            exclude: Some(Rules::read(b"/x\n")),
            is_top: true,
            ..Layer::default()
        };
        assert!(outer.keeps_out(b"a.log", false) && !inner.keeps_out(b"inner/a.log", false));
        assert!(inner.keeps_out(b"inner/a.tmp", false), "`.ignore` knows no repositories");
        assert!(inner.keeps_out(b"inner/x", false) && !inner.keeps_out(b"inner/y/x", false));
    }
}
