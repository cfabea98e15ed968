//! The trace: the one writer of what happened, and the order in which it is seen.
//!
//! Whatever happens goes through [`Journal::record`]: it is written first, then shown. One record is one line and one `write`. A trace
//! that cannot be written stays broken, and every later record says so: the run ends, since an audit is not best effort.
#![allow(clippy::disallowed_methods)] // The trace is written here.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use toolgate_core::{
    message::{Body, Event, Extra, Message, ModelMessage, Partial, PartialEvent, Repair, Seal},
    trace::{Broken, Head, Verified, seal_line, verify},
};

use crate::redact::{Pieces, Redactor};

/// A session's record of what happened, and those who watch.
pub struct Journal {
    state: Mutex<State>,
    observer: Arc<dyn Observer>,
}

struct State {
    file: Option<TraceFile>,
    broken: Option<TraceError>,
    /// Texts that are being shown in pieces.
    open: Vec<(Piece, Pieces)>,
}

/// Which text a piece belongs to: what kind of message, and of which call.
#[derive(PartialEq)]
struct Piece(&'static str, Option<String>);

/// Sees every message in order, after it was written. It must not block for long and must not record.
pub trait Observer: Send + Sync {
    /// One message. `seq` is its number in the trace; pieces that are only shown have none.
    fn see(&self, message: &Message, seq: Option<u64>);

    /// Whether [`Observer::live`] does anything; asked once a call, so that nothing is woken for nobody.
    fn watches_live(&self) -> bool {
        false
    }

    /// The newest output of a call that runs: at most 4 KiB, at most ten times a second. It replaces what was shown before, some of it
    /// may never come, and it is no part of any message.
    fn live(&self, call_id: &str, text: &str) {
        let _ = (call_id, text);
    }
}

/// Nobody watches.
pub struct Unwatched;

impl Observer for Unwatched {
    fn see(&self, _message: &Message, _seq: Option<u64>) {}
}

/// A trace that cannot be written or gone on with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The file system refused.
    #[error("the trace {path} cannot be {what}: {reason}")]
    Io {
        /// The file.
        path: PathBuf,
        /// `created`, `opened`, `written` or `synced`.
        what: &'static str,
        /// The system's words.
        reason: String,
    },
    /// Another process writes it.
    #[error("the trace {0} is being written by another toolgate")]
    Locked(PathBuf),
    /// Its records do not hold together.
    #[error("the trace {path} was changed: {broken}")]
    Broken {
        /// The file.
        path: PathBuf,
        /// The first thing that does not hold.
        broken: Broken,
    },
}

impl Journal {
    /// A journal that writes to a file, or only shows.
    pub fn new(file: Option<TraceFile>, observer: Arc<dyn Observer>) -> Self {
        Self { state: Mutex::new(State { file, broken: None, open: Vec::new() }), observer }
    }

    /// Writes one message of the session itself, then shows it.
    ///
    /// # Errors
    /// When it cannot be written, or when an earlier one could not. Nothing is shown then.
    pub fn record(&self, body: impl Into<Body>) -> Result<(), TraceError> {
        let mut state = self.state();
        if let Some(broken) = &state.broken {
            return Err(broken.clone());
        }
        let mut message = Message::new(now(), body);
        let mut seq = None;
        if let Some(file) = &mut state.file {
            match file.append(&message) {
                Ok((number, redacted)) => {
                    seq = Some(number);
                    // What is seen is what is written.
                    message = redacted.unwrap_or(message);
                }
                Err(error) => {
                    state.broken = Some(error.clone());
                    return Err(error);
                }
            }
        }
        // Shown under the lock, so that what is seen has the trace's order.
        self.observer.see(&message, seq);
        Ok(())
    }

    /// Shows a piece of a message that will be recorded when it is whole. Known secrets are taken out, also where pieces share one, so
    /// a piece may come a little later than it was given.
    pub fn show(&self, body: impl Into<Body>) {
        let mut state = self.state();
        for body in state.without_secrets(body.into()) {
            self.observer.see(&Message::new(now(), body), None);
        }
    }

    /// Shows a message of another session, whose origin it names. Nothing of it is recorded here: that session has its own trace.
    pub fn forward(&self, message: &Message) {
        let _order = self.state();
        self.observer.see(message, None);
    }

    /// Whether people watch what a call prints while it runs.
    pub fn watches_live(&self) -> bool {
        self.observer.watches_live()
    }

    /// Shows people the newest output of a call; nothing is recorded.
    pub fn live(&self, call_id: &str, text: &str) {
        let shown = self.state().file.as_ref().map(|file| file.redactor.so_far(text));
        self.observer.live(call_id, shown.as_deref().unwrap_or(text));
    }

    /// Waits until everything recorded so far would survive a power cut.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn sync(&self) -> Result<(), TraceError> {
        let mut state = self.state();
        let Some(file) = &state.file else { return Ok(()) };
        let synced = file.file.sync_data().map_err(|error| file.error("synced", &error));
        if let Err(error) = &synced {
            state.broken = Some(error.clone());
        }
        synced
    }

    /// Does the same beside whatever runs, on a thread of its own; a failure shows at the next record.
    pub fn sync_beside(self: &Arc<Self>) {
        let file = match &self.state().file {
            Some(file) => file.file.try_clone(),
            None => return,
        };
        let journal = self.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = file.and_then(|file| file.sync_data()) {
                let mut state = journal.state();
                state.broken = state.file.as_ref().map(|file| file.error("synced", &error));
            }
        });
    }

    /// Ends a run: writes the seal, waits for the disk and returns the head's hash, which finds a removed tail later.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn seal(&self, status: &str) -> Result<Option<String>, TraceError> {
        let records = match &self.state().file {
            Some(file) => file.next_seq - 1,
            None => return Ok(None),
        };
        self.record(Event::Seal(Seal { records, status: status.to_owned(), extra: Extra::new() }))?;
        self.sync()?;
        Ok(self.state().file.as_ref().map(|file| file.head.to_hex()))
    }

    /// Goes on in the next file of the session, and returns the head of the one before, for the next file's first record. What stands in
    /// the old file is on disk by then.
    ///
    /// # Errors
    /// When the old file cannot be synced or the next one cannot be made.
    pub fn rotate(&self) -> Result<Option<String>, TraceError> {
        self.sync()?;
        let mut state = self.state();
        let Some(file) = &mut state.file else { return Ok(None) };
        let head = file.head.to_hex();
        *file = file.next()?;
        Ok(Some(head))
    }

    /// The file that is being written, if one is.
    pub fn path(&self) -> Option<PathBuf> {
        self.state().file.as_ref().map(|file| file.path.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The files of the session that one of them belongs to, in order: `<session>_001.jsonl`, and what compactions made to follow it. Only
/// the named one where the folder cannot be read or the name has no number.
pub fn files_of(one: &Path) -> Vec<PathBuf> {
    let numbered = |path: &Path| {
        let stem = path.file_stem()?.to_str()?;
        let (session, number) = stem.rsplit_once('_')?;
        Some((session.to_owned(), number.parse::<u32>().ok().filter(|_| path.extension() == one.extension())?))
    };
    let Some((session, _)) = numbered(one) else { return vec![one.to_owned()] };
    let beside = one.parent().and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let beside = beside.map(|entry| entry.path()).filter_map(|path| Some((numbered(&path)?, path)));
    let mut found: Vec<_> = beside.filter(|((of, _), _)| *of == session).collect();
    found.sort();
    let found: Vec<_> = found.into_iter().map(|(_, path)| path).collect();
    if found.is_empty() { vec![one.to_owned()] } else { found }
}

impl State {
    /// A piece as it may be shown: one message mostly, none while all of it is held back, two when the end brings what was held back.
    fn without_secrets(&mut self, body: Body) -> Vec<Body> {
        let Some(redactor) = self.file.as_ref().map(|file| &file.redactor).filter(|redactor| !redactor.is_empty())
        else {
            return vec![body];
        };
        let Body::Model(mut message) = body else { return vec![body] };
        let tag = message.tag();
        let Some(partial) = partial_of(&mut message) else { return vec![Body::Model(message)] };
        let piece = Piece(tag, partial.tool_call_id.clone());
        let place = self.open.iter().position(|(own, _)| *own == piece);
        match partial.event_type {
            PartialEvent::Start => {
                place.map(|place| self.open.swap_remove(place));
                self.open.push((piece, Pieces::default()));
            }
            PartialEvent::Delta => {
                let at = place.unwrap_or_else(|| {
                    self.open.push((piece, Pieces::default()));
                    self.open.len() - 1
                });
                if let Some(text) = text_of(partial) {
                    *text = self.open[at].1.push(redactor, text);
                    if text.is_empty() {
                        return Vec::new();
                    }
                }
            }
            PartialEvent::Stop => {
                let rest = place.map(|place| self.open.swap_remove(place).1.finish(redactor)).unwrap_or_default();
                if !rest.is_empty() {
                    let mut last = message.clone();
                    if let Some(partial) = partial_of(&mut last) {
                        (partial.event_type, partial.stop_reason) = (PartialEvent::Delta, None);
                        *field_of(tag, partial) = Some(rest);
                    }
                    return vec![Body::Model(last), Body::Model(message)];
                }
            }
        }
        vec![Body::Model(message)]
    }
}

fn partial_of(message: &mut ModelMessage) -> Option<&mut Partial> {
    match message {
        ModelMessage::PartialText(partial)
        | ModelMessage::PartialThinking(partial)
        | ModelMessage::PartialToolCall(partial)
        | ModelMessage::PartialToolCallOutput(partial) => Some(partial),
        _ => None,
    }
}

/// The text that a piece brings, whichever kind of message it is of.
fn text_of(partial: &mut Partial) -> Option<&mut String> {
    let Partial { text, thinking, arguments, output, .. } = partial;
    [text, thinking, arguments, output].into_iter().find_map(Option::as_mut)
}

/// Where a kind of message has its text.
fn field_of<'a>(tag: &str, partial: &'a mut Partial) -> &'a mut Option<String> {
    match tag {
        "partial_text" => &mut partial.text,
        "partial_thinking" => &mut partial.thinking,
        "partial_tool_call" => &mut partial.arguments,
        _ => &mut partial.output,
    }
}

/// Now, as OmniMessage writes it: ISO 8601 in UTC with milliseconds.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// A session that was opened to go on.
pub struct Resumed {
    /// Its newest file.
    pub file: TraceFile,
    /// The bytes of all its files in order, as they were found.
    pub files: Vec<Vec<u8>>,
    /// What verifying the newest one found.
    pub found: Verified,
}

/// A timestamp in milliseconds since 1970; `None` for what is none.
pub fn millis_of(timestamp: &str) -> Option<i64> {
    timestamp.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

/// One trace file, locked while it is open.
pub struct TraceFile {
    path: PathBuf,
    file: File,
    head: Head,
    next_seq: u64,
    redactor: Redactor,
}

impl TraceFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a new file (mode 0600, its folders 0700).
    ///
    /// # Errors
    /// When it exists or cannot be made.
    pub fn create(path: &Path, secrets: &[String]) -> Result<Self, TraceError> {
        let fail =
            |error: io::Error| TraceError::Io { path: path.to_owned(), what: "created", reason: error.to_string() };
        if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(fail)?;
        }
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path).map_err(fail)?;
        let mut trace =
            Self { path: path.to_owned(), file, head: Head::empty(), next_seq: 1, redactor: Redactor::default() };
        trace.lock()?;
        trace.hide(secrets);
        Ok(trace)
    }

    /// Opens a file to go on in it, and gives back its bytes. Bytes that a crash tore stay, and a record covers them.
    ///
    /// # Errors
    /// When another process writes it, when it cannot be read, or when its records do not hold together.
    pub fn resume(path: &Path, secrets: &[String]) -> Result<(Self, Vec<u8>), TraceError> {
        let (mut trace, found, bytes) = Self::open(path)?;
        trace.go_on(&found, &bytes, secrets)?;
        Ok((trace, bytes))
    }

    /// Opens a file and looks at it; nothing is written yet.
    fn open(path: &Path) -> Result<(Self, Verified, Vec<u8>), TraceError> {
        let fail =
            |error: io::Error| TraceError::Io { path: path.to_owned(), what: "opened", reason: error.to_string() };
        let mut file = OpenOptions::new().append(true).read(true).open(path).map_err(fail)?;
        let mut trace = Self {
            path: path.to_owned(),
            file: file.try_clone().map_err(fail)?,
            head: Head::empty(),
            next_seq: 1,
            redactor: Redactor::default(),
        };
        trace.lock()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(fail)?;
        let found = verify(&bytes).map_err(|broken| TraceError::Broken { path: path.to_owned(), broken })?;
        (trace.head, trace.next_seq) = (found.head.clone(), found.next_seq);
        Ok((trace, found, bytes))
    }

    fn go_on(&mut self, found: &Verified, bytes: &[u8], secrets: &[String]) -> Result<(), TraceError> {
        self.hide(secrets);
        self.repair(found, bytes)
    }

    /// Opens a session to go on in its newest file, whichever of its files is named, and gives back the bytes of its files in order. A
    /// newest file of which a crash left no whole record is passed over: what it would have begun with stands at the end of the one
    /// before.
    ///
    /// # Errors
    /// As [`TraceFile::resume`].
    pub fn resume_session(one: &Path, secrets: &[String]) -> Result<Resumed, TraceError> {
        let mut paths = files_of(one);
        while let Some(newest) = paths.pop() {
            let (mut trace, found, bytes) = Self::open(&newest)?;
            if found.records == 0 && !paths.is_empty() {
                continue;
            }
            trace.go_on(&found, &bytes, secrets)?;
            let read = |path: &PathBuf| {
                let fail =
                    |error: io::Error| TraceError::Io { path: path.clone(), what: "opened", reason: error.to_string() };
                std::fs::read(path).map_err(fail)
            };
            let mut files = paths.iter().map(read).collect::<Result<Vec<_>, _>>()?;
            files.push(bytes);
            return Ok(Resumed { file: trace, files, found });
        }
        Err(TraceError::Io { path: one.to_owned(), what: "opened", reason: "there is no such file".into() })
    }

    /// The file that follows this one, with the same secrets. A number that a crash left behind is passed over.
    fn next(&self) -> Result<Self, TraceError> {
        let name = self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (session, number) = match name.rsplit_once('_') {
            Some((session, number)) if number.parse::<u32>().is_ok() => (session, number.parse().unwrap_or(1)),
            _ => (name.as_str(), 1),
        };
        let paths = (number + 1..).map(|number| self.path.with_file_name(format!("{session}_{number:03}.jsonl")));
        let path = paths.into_iter().find(|path| !path.exists()).unwrap_or_else(|| self.path.clone());
        Ok(Self { redactor: self.redactor.clone(), ..Self::create(&path, &[])? })
    }

    fn repair(&mut self, found: &Verified, bytes: &[u8]) -> Result<(), TraceError> {
        let unterminated = bytes.last().is_some_and(|last| *last != b'\n');
        if unterminated {
            self.write(b"\n")?;
        }
        if !found.chained && !bytes.is_empty() && found.records > 0 {
            let newline: &[u8] = if unterminated { b"\n" } else { b"" };
            self.head = Head::of_unchained([bytes, newline]);
        }
        let Some((offset, length)) = found.torn else { return Ok(()) };
        let torn = &bytes[offset as usize..(offset + length) as usize];
        let sha256 = toolgate_core::call::Digest::of(torn).as_str().to_owned();
        let repair = Event::Repair(Repair { offset, bytes: length, sha256, extra: Extra::new() });
        self.append(&Message::new(now(), repair)).map(|_| ())
    }

    fn lock(&self) -> Result<(), TraceError> {
        match self.file.try_lock() {
            Ok(()) => Ok(()),
            Err(std::fs::TryLockError::WouldBlock) => Err(TraceError::Locked(self.path.clone())),
            Err(std::fs::TryLockError::Error(error)) => Err(self.error("opened", &error)),
        }
    }

    /// From here on these values are redacted; what is written stays as it is.
    pub fn hide(&mut self, secrets: &[String]) {
        self.redactor.add(secrets);
    }

    /// Writes one record and returns its number, and the message as it was written where that is not as it was given.
    fn append(&mut self, message: &Message) -> Result<(u64, Option<Message>), TraceError> {
        let object = serde_json::to_string(message).map_err(|error| self.error("written", &io::Error::other(error)))?;
        let (object, changed) = self.redactor.record(object);
        let seq = self.next_seq;
        let mut head = self.head.clone();
        let line = seal_line(&mut head, seq, &object);
        self.write(line.as_bytes())?;
        self.head = head;
        self.next_seq += 1;
        Ok((seq, changed.then(|| Message::from_json(&object).ok()).flatten()))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        self.file.write_all(bytes).map_err(|error| self.error("written", &error))
    }

    fn error(&self, what: &'static str, error: &io::Error) -> TraceError {
        TraceError::Io { path: self.path.clone(), what, reason: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::{
        message::{ModelMessage, Role, Text, ToolCallMessage},
        outcome::StopReason,
        tool::ToolCall,
    };

    fn text(text: &str) -> ModelMessage {
        ModelMessage::Text(Text::new(Role::User, text, StopReason::Completed))
    }

    #[test]
    fn every_record_is_one_line_whatever_the_text_holds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("traces/t.jsonl");
        let journal = Journal::new(Some(TraceFile::create(&path, &[]).unwrap()), Arc::new(Unwatched));
        for odd in ["a\nb\rc", "\u{2028}\u{85}", "\0\u{1b}", "\u{FEFF}x"] {
            journal.record(text(odd)).unwrap();
        }
        let head = journal.seal("completed").unwrap().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let found = verify(&bytes).unwrap();
        assert_eq!((found.records, found.sealed, found.head.to_hex()), (5, true, head));
        for line in String::from_utf8(bytes).unwrap().lines() {
            Message::from_json(line).unwrap();
        }
    }

    #[test]
    fn known_secrets_are_redacted_on_the_way_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let secrets = ["sk-\"quoted\"-1234".to_owned(), "short".to_owned()];
        let journal = Journal::new(Some(TraceFile::create(&path, &secrets).unwrap()), Arc::new(Unwatched));
        journal.record(text("the key is sk-\"quoted\"-1234, short")).unwrap();
        let line = std::fs::read_to_string(&path).unwrap();
        assert!(line.contains("the key is [redacted], short") && verify(line.as_bytes()).is_ok());
    }

    /// Remembers what was seen.
    #[derive(Default)]
    struct Seen(Mutex<Vec<Message>>);

    impl Observer for Seen {
        fn see(&self, message: &Message, _: Option<u64>) {
            self.0.lock().unwrap().push(message.clone());
        }

        fn live(&self, _: &str, text: &str) {
            assert!(!text.contains("0123"), "{text}");
        }
    }

    #[test]
    fn what_people_see_in_pieces_reads_like_what_is_written_without_its_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let file = TraceFile::create(&folder.path().join("t.jsonl"), &["sk-secret-0123456789".to_owned()]).unwrap();
        let seen = Arc::new(Seen::default());
        let journal = Journal::new(Some(file), seen.clone());
        let piece = |event, text: Option<&str>, id: &str| {
            let output = text.map(str::to_owned);
            let piece = Partial { output, tool_call_id: Some(id.into()), ..Partial::new(event) };
            journal.show(ModelMessage::PartialToolCallOutput(piece));
        };
        for id in ["a", "b"] {
            piece(PartialEvent::Start, None, id);
        }
        // The pieces of two calls interleave, and each shares a secret with the next; the last one only looks like a beginning.
        let mut so_far = String::new();
        for text in ["key sk-sec", "ret-0123", "456789 and sk-s"] {
            for id in ["a", "b"] {
                piece(PartialEvent::Delta, Some(text), id);
            }
            so_far.push_str(text);
            journal.live("a", &so_far);
        }
        for id in ["a", "b"] {
            piece(PartialEvent::Stop, None, id);
        }
        journal.record(text("key sk-secret-0123456789 and sk-s")).unwrap();
        let seen = seen.0.lock().unwrap();
        for id in ["a", "b"] {
            let own = seen.iter().filter_map(|message| match &message.body {
                Body::Model(ModelMessage::PartialToolCallOutput(piece))
                    if piece.tool_call_id.as_deref() == Some(id) =>
                {
                    Some(piece)
                }
                _ => None,
            });
            let (kinds, texts): (Vec<_>, Vec<_>) =
                own.map(|piece| (piece.event_type, piece.output.clone().unwrap_or_default())).unzip();
            assert_eq!(texts.concat(), "key [redacted] and sk-s");
            assert_eq!((kinds.first(), kinds.last()), (Some(&PartialEvent::Start), Some(&PartialEvent::Stop)));
        }
        let Some(Body::Model(ModelMessage::Text(whole))) = seen.last().map(|message| &message.body) else { panic!() };
        assert_eq!(whole.text, "key [redacted] and sk-s", "the whole message is seen as it is written");
    }

    #[test]
    fn a_secret_that_reads_like_the_protocol_changes_no_record_and_none_hides_in_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let secrets = ["completed".to_owned(), "assistant".into(), "tool_call".into(), "sec\"ret-12345".into()];
        let journal = Journal::new(Some(TraceFile::create(&path, &secrets).unwrap()), Arc::new(Unwatched));
        let arguments = serde_json::json!({ "cmd": "echo 'sec\"ret-12345'" }).to_string();
        let call = ToolCall { id: "completed".into(), name: "x".into(), arguments };
        journal.record(ModelMessage::ToolCall(ToolCallMessage::new(&call))).unwrap();
        let line = std::fs::read_to_string(&path).unwrap();
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let payload = &value["payload"];
        assert_eq!(
            (&payload["type"], &payload["role"], &payload["stop_reason"]),
            (&"tool_call".into(), &"assistant".into(), &"completed".into())
        );
        assert_eq!(
            (&payload["tool_call_id"], &payload["arguments"]),
            (&"completed".into(), &r#"{"cmd":"echo '[redacted]'"}"#.into())
        );
    }

    #[test]
    fn a_second_writer_is_refused_and_a_torn_end_is_covered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let journal = Journal::new(Some(TraceFile::create(&path, &[]).unwrap()), Arc::new(Unwatched));
        journal.record(text("a")).unwrap();
        assert!(matches!(TraceFile::resume(&path, &[]), Err(TraceError::Locked(_))));
        drop(journal);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"timestamp\":\"torn \xe2").unwrap();
        let (file, _) = TraceFile::resume(&path, &[]).unwrap();
        let journal = Journal::new(Some(file), Arc::new(Unwatched));
        journal.record(text("b")).unwrap();
        let found = verify(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((found.records, found.torn), (3, None));
        assert!(found.repaired > 0);
    }

    #[test]
    fn it_goes_on_in_a_file_without_hashes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let line = serde_json::to_string(&Message::new("t", text("old"))).unwrap();
        std::fs::write(&path, format!("{line}\n{{\"torn")).unwrap();
        let (file, _) = TraceFile::resume(&path, &[]).unwrap();
        let journal = Journal::new(Some(file), Arc::new(Unwatched));
        journal.record(text("new")).unwrap();
        let found = verify(&std::fs::read(&path).unwrap()).unwrap();
        assert!(found.chained);
        assert!(TraceFile::resume(&folder.path().join("missing"), &[]).is_err());
    }

    #[test]
    fn a_trace_that_cannot_be_written_stays_broken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let mut file = TraceFile::create(&path, &[]).unwrap();
        file.file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let journal = Journal::new(Some(file), Arc::new(Unwatched));
        let error = journal.record(text("a")).unwrap_err();
        assert!(error.to_string().contains("cannot be written: No space left"), "{error}");
        assert_eq!(journal.record(text("b")).unwrap_err(), error);
    }

    #[test]
    fn a_session_goes_on_in_its_newest_file_that_holds_a_record() {
        let folder = tempfile::tempdir().unwrap();
        let first = folder.path().join("session-1_001.jsonl");
        std::fs::write(folder.path().join("session-10_002.jsonl"), "of another session").unwrap();
        let journal =
            Journal::new(Some(TraceFile::create(&first, &["a-known-secret".to_owned()]).unwrap()), Arc::new(Unwatched));
        journal.record(text("a")).unwrap();
        let head = journal.rotate().unwrap().unwrap();
        assert_eq!(verify(&std::fs::read(&first).unwrap()).unwrap().head.to_hex(), head);
        let second = folder.path().join("session-1_002.jsonl");
        assert_eq!(journal.path().unwrap(), second);
        drop(journal);

        // A crash before its first record: what came before is gone on with, and its number is not used again.
        std::fs::write(&second, "{\"torn").unwrap();
        let Resumed { file, files, .. } = TraceFile::resume_session(&first, &["a-known-secret".to_owned()]).unwrap();
        assert_eq!((file.path(), files.len()), (first.as_path(), 1));
        let journal = Journal::new(Some(file), Arc::new(Unwatched));
        journal.rotate().unwrap();
        journal.record(text("b, a-known-secret")).unwrap();
        let third = folder.path().join("session-1_003.jsonl");
        assert_eq!(files_of(&second), [first.clone(), second, third.clone()]);
        assert!(std::fs::read_to_string(&third).unwrap().contains("b, [redacted]"));
        drop(journal);
        let Resumed { file, files, .. } = TraceFile::resume_session(&first, &[]).unwrap();
        assert_eq!((file.path(), files.len()), (third.as_path(), 3));
    }
}
