//! From a spelling to a place: what people and models write, where it leads, and whether that is inside.
#![allow(clippy::disallowed_methods)] // Names and links are looked at here.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use toolgate_core::tool::Place;

use super::{FileError, names};

/// Links that one path may lead through, the kernel's own number.
const MOST_LINKS: usize = 40;

/// Names of one folder that are compared with a name that does not exist.
const MOST_COMPARED: usize = 10_000;

/// The longest path that the kernel takes, its end included; bytes.
const LONGEST_PATH: usize = 4096;

/// Where spellings start from.
#[derive(Debug, Clone)]
pub(super) struct Base {
    pub(super) root: PathBuf,
    /// What `~` means; nothing without one.
    pub(super) home: Option<PathBuf>,
}

impl Base {
    /// The place of a spelling. The exact name always comes first; only where none exists is it read in another way.
    pub(super) fn resolve(&self, spelled: &str) -> Result<Place, FileError> {
        if spelled.contains('\0') {
            return Err(FileError::Spelling("a path cannot hold a NUL character".into()));
        }
        if spelled.len() >= LONGEST_PATH {
            return Err(FileError::Spelling(format!(
                "a path of {} bytes is too long; {LONGEST_PATH} is the most",
                spelled.len()
            )));
        }
        let exact = self.root.join(spelled);
        let real = real(&exact).ok_or_else(|| FileError::Loop(spelled.to_owned()))?;
        if exists(&real) {
            return Ok(self.place(spelled, &exact, real));
        }
        for other in self.other_readings(spelled) {
            let exact = self.root.join(other);
            if let Some(real) = self::real(&exact).filter(|real| exists(real)) {
                return Ok(self.place(spelled, &exact, real));
            }
        }
        if let Some(exact) = look_alike(spelled, &exact)? {
            let real = self::real(&exact).ok_or_else(|| FileError::Loop(spelled.to_owned()))?;
            return Ok(self.place(spelled, &exact, real));
        }
        // Nothing exists; what begins like a home folder or an address of a file means that, and nothing else, also when it is made.
        let exact = self.root.join(self.meant(spelled).unwrap_or_else(|| spelled.into()));
        let real = self::real(&exact).ok_or_else(|| FileError::Loop(spelled.to_owned()))?;
        Ok(self.place(spelled, &exact, real))
    }

    fn place(&self, spelled: &str, exact: &Path, real: PathBuf) -> Place {
        let inside = real.starts_with(&self.root);
        Place { spelled: spelled.to_owned(), path: normalised(exact), real, inside }
    }

    /// What a spelling means besides its own letters, whether or not that exists.
    fn meant(&self, spelled: &str) -> Option<OsString> {
        if let (Some(rest), Some(home)) = (spelled.strip_prefix('~'), &self.home)
            && (rest.is_empty() || rest.starts_with('/'))
        {
            return Some(home.join(rest.trim_start_matches('/')).into_os_string());
        }
        if let Some(address) = spelled.strip_prefix("file://") {
            return Some(address.strip_prefix("localhost").unwrap_or(address).into());
        }
        names::unquoted(spelled)
    }

    /// Other ways to read a spelling, the likeliest first: as it is meant, and without the `@` that marks a file in many chats.
    fn other_readings(&self, spelled: &str) -> Vec<OsString> {
        let marked = spelled.strip_prefix('@');
        let inner = marked.and_then(|rest| self.meant(rest));
        self.meant(spelled).into_iter().chain(inner).chain(marked.map(OsString::from)).collect()
    }
}

/// Absolute and without `.` and `..`, as the letters say; nothing is looked up.
pub(crate) fn normalised(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

/// Where an absolute path really leads: every link on it is followed, the last one too, as far as there is something. Nothing for links
/// that go round.
pub(super) fn real(path: &Path) -> Option<PathBuf> {
    let mut real = PathBuf::from("/");
    let mut rest: Vec<OsString> = reversed(path);
    let mut links = 0;
    let mut missing = false;
    while let Some(name) = rest.pop() {
        match name.as_bytes() {
            b"." => continue,
            b".." => {
                real.pop();
                continue;
            }
            b"/" => {
                real = PathBuf::from("/");
                continue;
            }
            _ => real.push(&name),
        }
        if missing {
            continue;
        }
        match fs::symlink_metadata(&real) {
            Ok(found) if found.is_symlink() => {
                links += 1;
                if links > MOST_LINKS {
                    return None;
                }
                let target = fs::read_link(&real).ok()?;
                real.pop();
                rest.extend(reversed(&target));
            }
            Ok(_) => {}
            Err(_) => missing = true,
        }
    }
    Some(real)
}

fn reversed(path: &Path) -> Vec<OsString> {
    let mut names: Vec<OsString> = path.components().map(|part| part.as_os_str().to_owned()).collect();
    names.reverse();
    names
}

fn exists(real: &Path) -> bool {
    fs::symlink_metadata(real).is_ok()
}

/// The path under which the same words exist in other characters: a name with another kind of blank, quote or dash, or with accents put
/// together in another way. Only where there is exactly one.
fn look_alike(spelled: &str, exact: &Path) -> Result<Option<PathBuf>, FileError> {
    let mut path = PathBuf::from("/");
    let mut differs = false;
    for component in exact.components() {
        let next = path.join(component);
        if matches!(component, Component::Normal(_)) && fs::symlink_metadata(&next).is_err() {
            let wanted = likeness(component.as_os_str());
            let Ok(entries) = fs::read_dir(&path) else { return Ok(None) };
            let names = entries.take(MOST_COMPARED).flatten().map(|entry| entry.file_name());
            let mut alike: Vec<OsString> = names.filter(|name| likeness(name) == wanted).collect();
            match alike.len() {
                0 => return Ok(None),
                1 => path.push(alike.remove(0)),
                _ => {
                    alike.sort();
                    let names = alike.iter().map(|name| names::told_apart(name)).collect();
                    return Err(FileError::Ambiguous { path: spelled.to_owned(), names });
                }
            }
            differs = true;
        } else {
            path = next;
        }
    }
    Ok(differs.then_some(path))
}

/// What two names that look the same have in common.
fn likeness(name: &OsStr) -> String {
    use unicode_normalization::UnicodeNormalization;
    let name = name.to_string_lossy();
    let plain = name.nfd().filter_map(|c| match c {
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => Some(' '),
        '\u{2018}'..='\u{201b}' | '\u{2032}' => Some('\''),
        '\u{201c}'..='\u{201f}' | '\u{2033}' => Some('"'),
        '\u{2010}'..='\u{2015}' | '\u{2212}' => Some('-'),
        '\u{200b}' | '\u{200c}' | '\u{200d}' | '\u{feff}' => None,
        other => Some(other),
    });
    plain.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn base() -> (tempfile::TempDir, Base) {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        fs::create_dir(top.join("w")).unwrap();
        let base = Base { root: top.join("w"), home: Some(top.clone()) };
        (folder, base)
    }

    #[test]
    fn links_are_followed_and_what_leaves_is_outside() {
        let (_folder, base) = base();
        let (root, top) = (base.root.clone(), base.root.parent().unwrap().to_owned());
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/f"), "").unwrap();
        fs::write(top.join("secret"), "").unwrap();
        symlink("d/f", root.join("in")).unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("nowhere/new", root.join("dangling")).unwrap();
        symlink(top.join("made"), root.join("dangling_out")).unwrap();
        symlink("round", root.join("round")).unwrap();
        for (spelled, real, inside) in [
            ("d/f", root.join("d/f"), true),
            ("./d/../d/f", root.join("d/f"), true),
            ("in", root.join("d/f"), true),
            ("out", top.join("secret"), false),
            ("up/secret", top.join("secret"), false),
            ("up/w/d/f", root.join("d/f"), true),
            ("dangling", root.join("nowhere/new"), true),
            ("dangling_out", top.join("made"), false),
            ("new/folder/file", root.join("new/folder/file"), true),
            ("../secret", top.join("secret"), false),
            ("~/secret", top.join("secret"), false),
            ("@d/f", root.join("d/f"), true),
            ("", root.clone(), true),
        ] {
            let place = base.resolve(spelled).unwrap();
            assert_eq!((place.real, place.inside), (real, inside), "{spelled}");
        }
        let address = format!("file://{}/d/f", root.display());
        assert_eq!(base.resolve(&address).unwrap().real, root.join("d/f"));
        assert!(matches!(base.resolve("round"), Err(FileError::Loop(_))));
        assert!(matches!(base.resolve("a\0b"), Err(FileError::Spelling(_))));
        assert!(matches!(base.resolve(&"a/".repeat(3000)), Err(FileError::Spelling(_))));
    }

    #[test]
    fn the_exact_name_comes_first_and_a_look_alike_only_alone() {
        let (_folder, base) = base();
        let touch = |name: &str| fs::write(base.root.join(name), "").unwrap();
        let found = |spelled: &str| base.resolve(spelled).map(|place| place.real.file_name().unwrap().to_owned());
        touch("at 3.00\u{202f}PM.png");
        touch("cafe\u{301}.txt");
        touch("it\u{2019}s.md");
        assert_eq!(found("at 3.00 PM.png").unwrap(), "at 3.00\u{202f}PM.png");
        assert_eq!(found("caf\u{e9}.txt").unwrap(), "cafe\u{301}.txt");
        assert_eq!(found("it's.md").unwrap(), "it\u{2019}s.md");
        touch("at 3.00 PM.png");
        assert_eq!(found("at 3.00 PM.png").unwrap(), "at 3.00 PM.png");
        touch("a\u{a0}b");
        touch("a\u{202f}b");
        let Err(FileError::Ambiguous { names, .. }) = found("a b") else { panic!("two names look like it") };
        assert_eq!(names, ["\"a\\xc2\\xa0b\"", "\"a\\xe2\\x80\\xafb\""], "and they are told apart");
        assert_eq!(found(&names[1]).unwrap(), "a\u{202f}b");
        touch("@types");
        touch("types");
        assert_eq!(found("@types").unwrap(), "@types");
        fs::write(base.root.join(OsStr::from_bytes(b"bad\xff\nname")), "").unwrap();
        assert_eq!(found("\"bad\\xff\\nname\"").unwrap(), OsStr::from_bytes(b"bad\xff\nname"));
    }
}
