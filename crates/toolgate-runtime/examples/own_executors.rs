//! Executors of your own: files that exist in memory, and commands that are only told of. Every tool works on them as it does on a
//! machine, behind the same gate and with the same close-out; they stand for a container, a remote host or an editor's open buffers.
#![allow(clippy::disallowed_methods)] // An example is a program of its own.
#![allow(clippy::print_stdout)]

use std::{
    collections::BTreeMap,
    error::Error,
    ffi::OsString,
    io::{self, Cursor},
    ops::ControlFlow,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use toolgate_runtime::{
    BoxFuture,
    approver::{OnAsk, Unattended},
    core::{
        approval::ApprovalMode,
        policy::Policy,
        tool::{Place, ToolCall},
    },
    environment::{CallEnd, Environment, Setup},
    files::{Change, Containment, Entry, FileError, Files, Found, Kind, Source, Step, Visit, Walked},
    gate::Permit,
    process::{
        Command, Control, Exit, Living, Output, Processes, Running, Size, StartError, Status, Unasked,
        command_env::EnvPolicy, login_env::EnvSource, table::CommandSetup,
    },
    tool::ToolError,
    tools::builtin,
    workspace::Workspace,
};

/// Files in memory. A folder exists where something stands in it.
pub struct MemoryFiles {
    root: PathBuf,
    files: Mutex<BTreeMap<PathBuf, Vec<u8>>>,
}

impl MemoryFiles {
    /// Files beneath a root, by their paths from it.
    pub fn new(root: &Path, files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, content)| (root.join(path), content.as_bytes().to_vec()));
        Self { root: root.to_owned(), files: Mutex::new(files.collect()) }
    }

    /// What stands in a file.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        self.all().get(&self.root.join(path)).cloned()
    }

    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<PathBuf, Vec<u8>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_folder(&self, path: &Path) -> bool {
        path == self.root || self.all().keys().any(|file| file != path && file.starts_with(path))
    }

    fn wrong(&self, place: &Place, wanted: Kind) -> FileError {
        let path = place.spelled.clone();
        match (self.is_folder(&place.real), self.all().contains_key(&place.real)) {
            (true, _) => FileError::Kind { path, found: Kind::Folder, wanted },
            (_, true) => FileError::Kind { path, found: Kind::File, wanted },
            _ => FileError::Missing { path, hint: String::new() },
        }
    }
}

impl Files for MemoryFiles {
    fn resolve(&self, spelled: &str) -> Result<Place, FileError> {
        let mut path = PathBuf::new();
        for part in self.root.join(spelled).components() {
            match part {
                Component::ParentDir => drop(path.pop()),
                Component::CurDir => {}
                part => path.push(part),
            }
        }
        let inside = path.starts_with(&self.root);
        Ok(Place { spelled: spelled.to_owned(), real: path.clone(), path, inside })
    }

    fn preview(&self, place: &Place) -> Result<Box<dyn Source>, FileError> {
        let content = self.all().get(&place.real).cloned();
        content
            .map(|bytes| Box::new(Cursor::new(bytes)) as Box<dyn Source>)
            .ok_or_else(|| self.wrong(place, Kind::File))
    }

    fn open(&self, _permit: &Permit, place: &Place) -> Result<Box<dyn Source>, FileError> {
        self.preview(place)
    }

    fn update(&self, _permit: &Permit, place: &Place, change: &mut Change<'_>) -> Result<(), ToolError> {
        if self.is_folder(&place.real) {
            return Err(self.wrong(place, Kind::File).into());
        }
        // Under the lock, so that nobody changes it in between.
        let mut files = self.all();
        let mut old = files.get(&place.real).cloned().map(Cursor::new);
        let update = change(old.as_mut().map(|old| old as &mut dyn Source))?;
        if let Some(pieces) = update.pieces() {
            files.insert(place.real.clone(), pieces.concat());
        }
        Ok(())
    }

    fn list(
        &self,
        _permit: &Permit,
        place: &Place,
        visit: &mut dyn FnMut(Entry) -> ControlFlow<()>,
    ) -> Result<(), FileError> {
        if !self.is_folder(&place.real) {
            return Err(self.wrong(place, Kind::Folder));
        }
        let mut names: BTreeMap<OsString, Kind> = BTreeMap::new();
        for file in self.all().keys() {
            let Ok(inner) = file.strip_prefix(&place.real) else { continue };
            let mut parts = inner.components();
            if let Some(first) = parts.next() {
                let kind = if parts.next().is_some() { Kind::Folder } else { Kind::File };
                names.insert(first.as_os_str().to_owned(), kind);
            }
        }
        for (name, kind) in names {
            if visit(Entry { name, kind, link: false }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn walk(&self, _permit: &Permit, place: &Place, visit: &Visit<'_>) -> Result<Walked, FileError> {
        let files: Vec<_> = self.all().iter().map(|(path, bytes)| (path.clone(), bytes.clone())).collect();
        let found = files.iter().filter_map(|(path, bytes)| Some((path.strip_prefix(&place.real).ok()?, bytes)));
        let (mut walked, mut any) = (Walked::default(), false);
        for (path, bytes) in found {
            any = true;
            let open = || -> io::Result<Box<dyn Source>> { Ok(Box::new(Cursor::new(bytes.clone()))) };
            match visit(Found { path, kind: Kind::File, open: &open }) {
                Ok(Step::Stop) => break,
                Ok(_) => {}
                Err(_) => walked.unreadable += 1,
            }
        }
        if any { Ok(walked) } else { Err(self.wrong(place, Kind::Folder)) }
    }

    fn containment(&self) -> Containment {
        Containment::Own
    }
}

/// Commands that are only told of: each line prints what was agreed on, and ends.
pub struct ToldProcesses(pub fn(&str) -> (&'static str, i32));

impl Processes for ToldProcesses {
    fn start<'a>(&'a self, _permit: &'a Permit, command: Command) -> BoxFuture<'a, Result<Running, StartError>> {
        Box::pin(async move {
            let line = command.argv.last().map(|line| line.to_string_lossy().into_owned()).unwrap_or_default();
            let (text, code) = (self.0)(&line);
            let exit = Exit { status: Status::Code(code), living: Vec::new() };
            let (_, exit) = watch::channel(Some(exit));
            Ok(Running {
                output: Output::Stream(Box::new(Cursor::new(text.as_bytes()))),
                input: Some(Box::new(tokio::io::sink())),
                exit,
                control: Arc::new(Over),
                errors: None,
            })
        })
    }

    fn start_unasked(&self, _what: Unasked) -> BoxFuture<'_, Result<Running, StartError>> {
        Box::pin(async { Err(StartError("nothing runs here that no call asked for".into())) })
    }

    fn close(&self) -> BoxFuture<'_, Vec<Living>> {
        Box::pin(async { Vec::new() })
    }
}

/// A command that has ended already.
struct Over;

impl Control for Over {
    fn interrupt(&self) {}
    fn end(&self) {}
    fn resize(&self, _size: Size) {}
    fn waits_for_input(&self) -> bool {
        false
    }
    fn living(&self) -> Vec<Living> {
        Vec::new()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let workspace = Workspace::open(Path::new("."))?;
    let files = Arc::new(MemoryFiles::new(workspace.root(), &[("notes/today.md", "buy milk\n")]));
    let commands = ToldProcesses(|line| if line == "date" { ("a fine day\n", 0) } else { ("", 127) });

    let mut setup = Setup::new(workspace);
    setup.approver = Arc::new(Unattended::new(ApprovalMode::AllowAll, Policy::default(), OnAsk::Deny));
    setup.files = files.clone();
    let variables = EnvSource::new(Vec::new(), None, EnvPolicy::default());
    setup.commands = CommandSetup::new(Arc::new(commands), variables);
    for tool in builtin() {
        setup.registry.add(tool)?;
    }
    let environment = Environment::new(setup);

    for (name, arguments) in [
        ("read", r#"{"path": "notes/today.md"}"#),
        ("write", r#"{"path": "notes/tomorrow.md", "content": "drink it\n"}"#),
        ("ls", r#"{"path": "notes"}"#),
        ("exec_command", r#"{"cmd": "date"}"#),
    ] {
        let call = ToolCall { id: name.into(), name: name.into(), arguments: arguments.into() };
        if let CallEnd::Closed(result, _) = environment.call(call, &CancellationToken::new()).await? {
            println!("{name}: {}", result.output.trim_end());
        }
    }
    environment.close().await;
    assert_eq!(files.content("notes/tomorrow.md").as_deref(), Some(&b"drink it\n"[..]));
    Ok(())
}
