//! Layers: what is read, in which order, and who said what.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;

use super::{
    external, files,
    keys::{KEYS, Key},
    node::{Kind, Node},
    penguin,
    selection::may_be_in_a_rule,
    settings::{Settings, Trust},
    wrong::{Wrong, instead},
};
use crate::{failure::Failure, surroundings::Surroundings};

/// The keys of a project's file that count although the project is not trusted: they only make things stricter.
const STRICTER: &[&str] = &["permissions.deny", "permissions.ask"];

/// The key that says whether a project is trusted, which the project itself must not say.
const TRUST: &str = "trust.default";

/// What was said on the command line.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// The file of `--config`.
    pub(crate) config: Option<PathBuf>,
    /// `--trust` or `--no-trust`.
    pub(crate) trust: Option<bool>,
    /// Key, flag and value.
    pub(crate) flags: Vec<(&'static str, &'static str, Node)>,
}

/// Which file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    User,
    Project,
    Given,
    Managed,
}

impl Layer {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
            Self::Given => "--config",
            Self::Managed => "managed",
        }
    }
}

/// Who said something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    File { layer: Layer, path: Arc<Path>, line: u32 },
    Variable(&'static str),
    Flag(&'static str),
}

impl Source {
    /// The folder of the file that said it, as an absolute path.
    pub(super) fn folder(&self) -> Option<Arc<Path>> {
        match self {
            Self::File { path, .. } => std::path::absolute(path.parent()?).ok().map(Arc::from),
            Self::Variable(_) | Self::Flag(_) => None,
        }
    }

    /// The same file, at another line.
    pub(super) fn on_line(&self, new: u32) -> Self {
        match self {
            Self::File { layer, path, line } => {
                Self::File { layer: *layer, path: path.clone(), line: if new > 0 { new } else { *line } }
            }
            other => other.clone(),
        }
    }

    /// An error of what was said there.
    fn failure(&self, wrong: &Wrong) -> Failure {
        let place = self.on_line(wrong.line.unwrap_or(0));
        let what = format!("{place}: {}", wrong.what);
        match self {
            Self::Flag(_) => Failure::usage(what).hint("toolgate config reference shows what each key and flag takes"),
            _ => Failure::configuration(what)
                .hint("toolgate config reference shows every key, what it takes and an example"),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line: 0, .. } => write!(f, "{}", path.display()),
            Self::File { path, line, .. } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "${name}"),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// What was set where, in the order in which it was applied.
#[derive(Debug, Default)]
pub(crate) struct Record(Vec<(&'static str, Value, Source)>);

impl Record {
    /// All that was said of a key, the last one last. Of rules all count, of everything else the last.
    pub(crate) fn of(&self, key: &str) -> impl DoubleEndedIterator<Item = (&Value, &Source)> {
        self.0.iter().filter(move |(known, ..)| *known == key).map(|(_, value, source)| (value, source))
    }

    /// Whether a flag or the administrator said it, which outdoes what a session began with.
    pub(crate) fn is_for_now(&self, key: &str) -> bool {
        let last = self.of(key).next_back();
        last.is_some_and(|(_, source)| matches!(source, Source::Flag(_) | Source::File { layer: Layer::Managed, .. }))
    }

    /// The administrator's file, where it said it: nobody may then say otherwise.
    pub(crate) fn managed(&self, key: &str) -> Option<&Source> {
        let last = self.of(key).next_back();
        last.map(|(_, source)| source).filter(|source| matches!(source, Source::File { layer: Layer::Managed, .. }))
    }

    /// An error of what was said of a key.
    pub(super) fn failure(&self, key: &str, why: &str) -> Failure {
        match self.of(key).next_back() {
            Some((_, source)) => Failure::configuration(format!("{source}: {key}: {why}")),
            None => Failure::configuration(format!("{key}: {why}")),
        }
    }
}

/// Reads all layers.
///
/// # Errors
/// A file that is there and cannot be read or is wrong; a deny or ask rule that cannot be read; a rule test that does not hold.
pub(crate) fn load(given: &Given, workspace: &Path, surroundings: &Surroundings) -> Result<Settings, Failure> {
    let paths = files::paths(surroundings, workspace);
    let mut settings = Settings { keys: files::keys(&paths)?, ..Settings::default() };
    let user = paths.user.as_deref().map(|path| File::read(Layer::User, path)).transpose()?.flatten();
    let project = File::read(Layer::Project, &paths.project)?;
    let config = given.config.as_deref().map(File::given).transpose()?;
    let managed = File::read(Layer::Managed, &paths.managed)?;
    let files = [&user, &project, &config, &managed];
    settings.tools.own_names = files.into_iter().flatten().flat_map(|file| external::names(&file.tree)).collect();
    if let Some(user) = &user {
        settings.take(user, |_| true)?;
    }
    if let Some(project) = &project {
        let trusted = settings.is_trusted(given.trust, config.as_ref(), managed.as_ref())?;
        settings.take_project(project, trusted)?;
    }
    if let Some(config) = &config {
        settings.take(config, |_| true)?;
    }
    for key in KEYS {
        let said = key.variable.and_then(|name| Some((name, surroundings.get(name)?)));
        if let Some((name, text)) = said {
            settings.set(key, &Node::text(&text), &Source::Variable(name))?;
        }
    }
    for (path, flag, node) in &given.flags {
        if let Some(key) = KEYS.iter().find(|key| key.path == *path) {
            settings.set(key, node, &Source::Flag(flag))?;
        }
    }
    if let Some(managed) = &managed {
        settings.take(managed, |_| true)?;
    }
    let known = |name: &str| may_be_in_a_rule(name) || settings.tools.own_names.iter().any(|own| own == name);
    for hook in &settings.hooks {
        let unknown = hook.unknown_names(&known);
        let note =
            |name| format!("{}: the matcher's `{name}` is no tool, so the hook is never asked for it", hook.place());
        settings.notes.extend(unknown.map(note));
    }
    let missing = settings.tools.builtin.missing(&settings.tools.own_names).join(", ");
    if !missing.is_empty() {
        settings.notes.push(format!("tools.builtin: {missing}: not built yet, so these are left out"));
    }
    let lacking: Vec<String> =
        settings.tools.external.iter().filter_map(|external| external.tool(surroundings).err()).collect();
    settings.notes.extend(lacking.into_iter().map(|what| format!("tools.external: {what}, so it is left out")));
    let lacking = settings.tools.builtin.without_program(&|name| surroundings.program(name)).join(", ");
    if !lacking.is_empty() {
        settings.notes.push(format!("tools.builtin: {lacking}, so it is left out"));
    }
    Ok(settings)
}

/// A file that was read.
struct File {
    source: Source,
    tree: Node,
}

impl File {
    fn read(layer: Layer, path: &Path) -> Result<Option<Self>, Failure> {
        let Some(text) = files::read(path)? else { return Ok(None) };
        let source = Source::File { layer, path: path.into(), line: 0 };
        let tree = Node::parse(&text).map_err(|wrong| source.failure(&wrong))?;
        if !matches!(tree.kind, Kind::Map(_)) {
            let wrong = Wrong::new("a configuration is a map of keys, and this is none").at(tree.line);
            return Err(source.failure(&wrong));
        }
        Ok(Some(Self { source, tree }))
    }

    /// The file of `--config`, which has to be there.
    fn given(path: &Path) -> Result<Self, Failure> {
        Self::read(Layer::Given, path)?.ok_or_else(|| {
            Failure::usage(format!("--config: there is no file {}", path.display()))
                .hint("give the path of a configuration, or leave the flag out")
        })
    }
}

impl Settings {
    /// Whether the project's own settings count. What the administrator forbids no flag allows, and a flag can always forbid.
    fn is_trusted(&self, flag: Option<bool>, config: Option<&File>, managed: Option<&File>) -> Result<bool, Failure> {
        let said = |file: Option<&File>| {
            let found = file.and_then(|file| Some((file, file.tree.get("trust")?.get("default")?)));
            let read = found.map(|(file, node)| node.read().map_err(|wrong| file.source.failure(&wrong.of(TRUST))));
            read.transpose()
        };
        let (config, managed): (Option<Trust>, Option<Trust>) = (said(config)?, said(managed)?);
        Ok(match (flag, managed) {
            (Some(false), _) | (_, Some(Trust::Deny)) => false,
            (Some(true), _) => true,
            (None, managed) => managed.or(config).unwrap_or(self.trust) == Trust::Allow,
        })
    }

    fn take_project(&mut self, file: &File, trusted: bool) -> Result<(), Failure> {
        if let Some(said) = file.tree.get("trust") {
            let wrong = Wrong::new("trust: a project cannot say that it is trusted").at(said.line);
            return Err(file.source.failure(&wrong));
        }
        if trusted {
            return self.take(file, |_| true);
        }
        let mut left_out = false;
        self.take(file, |path| {
            let stricter = STRICTER.iter().any(|key| *key == path || key.starts_with(&format!("{path}.")));
            left_out |= !stricter;
            stricter
        })?;
        if left_out {
            let place = &file.source;
            self.notes.push(format!("{place}: this project is not trusted, so only its deny and ask rules count; --trust lets all of it count for one run"));
        }
        Ok(())
    }

    /// Takes a file's keys over, those that `wanted` lets through, and checks what it expects of the rules so far.
    fn take(&mut self, file: &File, mut wanted: impl FnMut(&str) -> bool) -> Result<(), Failure> {
        let before = self.permissions.tests.len();
        if matches!(file.source, Source::File { layer: Layer::Given, .. }) && penguin::is_one(&file.tree) {
            let (tree, note) = penguin::translated(&file.tree).map_err(|wrong| file.source.failure(&wrong))?;
            self.notes.extend(note.map(|note| format!("{}: {note}", file.source)));
            self.take_map("", &tree, &file.source, &mut wanted)?;
        } else {
            self.take_map("", &file.tree, &file.source, &mut wanted)?;
        }
        for test in &self.permissions.tests[before..] {
            test.check(&self.permissions.rules).map_err(|what| test.source.failure(&Wrong::new(what)))?;
        }
        Ok(())
    }

    fn take_map(
        &mut self,
        prefix: &str,
        map: &Node,
        from: &Source,
        wanted: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), Failure> {
        for entry in map.entries() {
            let path = format!("{prefix}{}", entry.key);
            if !wanted(&path) || entry.value.kind == Kind::Nothing {
                continue;
            }
            let below = format!("{path}.");
            if let Some(key) = KEYS.iter().find(|key| key.path == path) {
                self.set(key, &entry.value, &from.on_line(entry.line))?;
            } else if KEYS.iter().any(|key| key.path.starts_with(&below)) {
                if !matches!(entry.value.kind, Kind::Map(_)) {
                    let wrong =
                        Wrong::new(format!("{path}: a map belongs there; {}", instead("", &names_below(&below))))
                            .at(entry.value.line);
                    return Err(from.failure(&wrong));
                }
                self.take_map(&below, &entry.value, from, wanted)?;
            } else {
                let known = names_below(prefix);
                let wrong = Wrong::new(format!("`{path}` is no key; {}", instead(&entry.key, &known))).at(entry.line);
                return Err(from.failure(&wrong));
            }
        }
        Ok(())
    }

    fn set(&mut self, key: &'static Key, node: &Node, from: &Source) -> Result<(), Failure> {
        let set = (key.set)(self, node, from);
        set.map_err(|wrong| from.failure(&if matches!(from, Source::Flag(_)) { wrong } else { wrong.of(key.path) }))?;
        self.record.0.push((key.path, node.value(), from.clone()));
        Ok(())
    }
}

/// The keys right below a prefix, each once.
fn names_below(prefix: &str) -> Vec<&'static str> {
    let mut names: Vec<&str> = KEYS.iter().filter_map(|key| key.path.strip_prefix(prefix)?.split('.').next()).collect();
    names.dedup();
    names
}
