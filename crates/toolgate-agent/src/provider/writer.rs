//! The request writer of all wires: keeps the encoded beginning of a conversation and appends what is new, so that a turn never encodes
//! its history again. The bytes depend on the request alone; what is kept only saves the work.
//!
//! A history is cut into groups, what the model said and what it was told in turn, and a wire says how a group is written ([`Form`]).
//! Whatever stands in the history, a group is fit for a provider before the wire sees it: each call has exactly one result, in call
//! order and before anything else that was said; arguments are JSON objects; no text is empty; what belongs to another model is gone;
//! images that cannot be sent, or that the model cannot see, are named instead ([`super::images`]).

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    hash::{BuildHasher, Hash, Hasher, RandomState},
    sync::Arc,
};

use serde::Serialize;
use serde_json::value::RawValue;
use toolgate_core::{
    message::{ModelMessage, Role, ToolCallOutput},
    outcome::StopReason,
};

use super::{
    Request,
    calls::IdRule,
    images::{Image, first_shown},
    native::Origin,
};

/// How a wire writes a request.
pub(super) trait Form: Send {
    /// From the opening brace to the bracket that opens the conversation. What may change within a session does not belong here.
    fn open(&self, request: &Request<'_>, out: &mut Vec<u8>);

    /// What the model said between two things that it was told. Writes nothing where nothing of it can go back.
    fn assistant(&self, blocks: &[Block<'_>], list: &mut List<'_>);

    /// What the model was told: the results of its calls first, in call order.
    fn user(&self, said: &[Said<'_>], list: &mut List<'_>);

    /// Behind the conversation's closing bracket, each member with a comma before it: what may differ from request to request.
    fn close(&self, request: &Request<'_>, out: &mut Vec<u8>);

    /// What the provider takes for the id of a call.
    fn ids(&self) -> IdRule;

    /// Whether the provider takes images of this kind; those of the others all do.
    fn takes_gif(&self) -> bool {
        true
    }

    /// Whether the provider refuses a conversation that the model opens.
    fn begins_with_user(&self) -> bool {
        false
    }
}

/// A block of what the model said. `native` is what this very model gave with it.
pub(super) enum Block<'a> {
    /// Text; never empty unless it is native.
    Text { text: &'a str, native: Option<&'a RawValue> },
    /// Reasoning, and what has nothing to show.
    Thinking { text: &'a str, native: Option<&'a RawValue> },
    Call {
        call: &'a Asked,
        /// A JSON object.
        arguments: &'a RawValue,
    },
}

/// A call that needs its result.
pub(super) struct Asked {
    /// As the session knows it.
    own_id: String,
    /// How many calls of the same answer before it have the same id.
    twin: usize,
    /// As the provider takes it.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) native: Option<Box<RawValue>>,
}

/// Something that the model was told.
pub(super) enum Said<'a> {
    Result {
        call: &'a Asked,
        /// Never empty.
        output: Cow<'a, str>,
        failed: bool,
        images: Vec<Image<'a>>,
    },
    /// Never empty.
    Text(Cow<'a, str>),
    /// Instructions in the middle of a conversation; never empty.
    System(&'a str),
    Image(Image<'a>),
}

/// The members of the conversation, as far as they are written.
pub(super) struct List<'a>(&'a mut Vec<u8>);

impl<'a> List<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self(out)
    }

    pub(super) fn push(&mut self, item: &(impl Serialize + ?Sized)) {
        if self.0.last() != Some(&b'[') {
            self.0.push(b',');
        }
        write_json(self.0, item);
    }
}

/// Stands for the name of a call that had none: servers refuse a request with an empty one.
const NAMELESS: &str = "nameless";

/// The longest name of a function that all providers take; characters.
const LONGEST_NAME: usize = 64;

/// Stands for the result of a call that has none in the history: every provider wants one for each.
const NO_RESULT: &str = "[no result: the call did not come to an end]";

/// Stands for an output with nothing in it, which some servers refuse.
const NO_OUTPUT: &str = "[no output]";

/// Opens a conversation that the model opened, where a provider wants the user to.
const GO_ON: &str = "[the conversation goes on]";

/// How many conversations' encodings are kept: a session, its eight subagents at most, and one for a request aside.
const KEPT_CONVERSATIONS: usize = 10;

/// Writes requests.
pub(super) struct Writer<F> {
    form: F,
    origin: Origin,
    vision: bool,
    hash: RandomState,
    kept: Vec<Conversation>,
}

/// The encoded beginning of a conversation.
struct Conversation {
    /// Of everything that `bytes` was made from.
    fingerprint: u64,
    /// How many messages of the history `bytes` holds.
    count: usize,
    /// From the opening brace to the last group, with no bracket closed.
    bytes: Vec<u8>,
    /// The last group. What comes next may belong to it.
    last: Option<Group>,
    /// The first message behind the last group, where what stands there wrote nothing and may yet become part of something.
    silent: Option<usize>,
    /// The ids of all calls, as they stand in the session.
    ids: Arc<HashSet<String>>,
    /// The first message whose images are sent.
    shown: usize,
    /// The first message of the group in which each of them was used first.
    used: HashMap<String, usize>,
    /// The calls of the last answer, in order.
    batch: Vec<Asked>,
}

#[derive(Clone, Copy)]
struct Group {
    side: Side,
    /// Its first message.
    first: usize,
    /// Its first byte.
    offset: usize,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Assistant,
    User,
}

impl<F: Form> Writer<F> {
    /// Images are named and not sent where `vision` is off.
    pub(super) fn new(form: F, origin: Origin, vision: bool) -> Self {
        Self { form, origin, vision, hash: RandomState::new(), kept: Vec::new() }
    }

    /// The request's body, and the ids that its history uses.
    pub(super) fn write(&mut self, request: &Request<'_>) -> (Vec<u8>, Arc<HashSet<String>>) {
        let shown = if self.vision { first_shown(request.history) } else { 0 };
        let (found, fingerprint) = self.find(request, shown);
        let mut conversation = match found {
            Some(at) => self.kept.remove(at),
            None => self.open(request, shown),
        };
        self.append(&mut conversation, request.history);
        conversation.fingerprint = fingerprint;
        let mut body = Vec::with_capacity(conversation.bytes.len() + 512);
        body.extend_from_slice(&conversation.bytes);
        // What the history lacks at its end is written for this request and not kept: the next one may have it.
        let mut list = List(&mut body);
        match conversation.last {
            Some(Group { side: Side::Assistant, .. }) if !conversation.batch.is_empty() => {
                self.form.user(&self.said(&conversation.batch, &[], 0), &mut list);
            }
            None if self.form.begins_with_user() => self.form.user(&[Said::Text(GO_ON.into())], &mut list),
            _ => {}
        }
        body.push(b']');
        self.form.close(request, &mut body);
        body.push(b'}');
        let ids = conversation.ids.clone();
        if self.kept.len() == KEPT_CONVERSATIONS {
            self.kept.remove(0);
        }
        self.kept.push(conversation);
        (body, ids)
    }

    /// The longest kept beginning of this very conversation, and the fingerprint of all of it. Hashing reads the history once, a
    /// small part of what encoding it costs, and makes a changed one (a compaction, another session) safe.
    fn find(&self, request: &Request<'_>, shown: usize) -> (Option<usize>, u64) {
        let mut hasher = self.hash.build_hasher();
        (request.system, request.tools, shown).hash(&mut hasher);
        let (mut found, mut fingerprint) = (None, hasher.finish());
        for count in 0..=request.history.len() {
            if count > 0 {
                hash_message(&request.history[count - 1], &mut hasher);
                fingerprint = hasher.finish();
            }
            let same = |kept: &Conversation| kept.count == count && kept.fingerprint == fingerprint;
            found = self.kept.iter().position(same).or(found);
        }
        (found, fingerprint)
    }

    fn open(&self, request: &Request<'_>, shown: usize) -> Conversation {
        let mut bytes = Vec::new();
        self.form.open(request, &mut bytes);
        Conversation {
            fingerprint: 0,
            count: 0,
            bytes,
            last: None,
            silent: None,
            ids: Arc::default(),
            shown,
            used: HashMap::new(),
            batch: Vec::new(),
        }
    }

    fn append(&self, conversation: &mut Conversation, history: &[ModelMessage]) {
        let mut at = conversation.count;
        while at < history.len() {
            let Some(side) = side_of(&history[at]) else {
                at += 1;
                continue;
            };
            let rest = &history[at..];
            let other = |message: &ModelMessage| side_of(message).is_some_and(|other| other != side);
            let end = at + rest.iter().position(other).unwrap_or(rest.len());
            // A group that grows is the one thing that is written again.
            let (first, offset) = match conversation.last {
                Some(last) if last.side == side => (last.first, last.offset),
                _ => (conversation.silent.unwrap_or(at), conversation.bytes.len()),
            };
            conversation.bytes.truncate(offset);
            self.write_group(conversation, side, first, &history[first..end]);
            if conversation.bytes.len() > offset {
                (conversation.last, conversation.silent) = (Some(Group { side, first, offset }), None);
            } else {
                conversation.silent = Some(first);
            }
            at = end;
        }
        conversation.count = history.len();
    }

    fn write_group(&self, conversation: &mut Conversation, side: Side, first: usize, messages: &[ModelMessage]) {
        if side == Side::User {
            let said = self.said(&conversation.batch, messages, conversation.shown.saturating_sub(first));
            if !said.is_empty() {
                self.form.user(&said, &mut List(&mut conversation.bytes));
            }
            return;
        }
        let batch = self.batch(conversation, first, messages);
        let blocks = self.blocks(&batch, messages);
        let start = conversation.bytes.len();
        if conversation.bytes.ends_with(b"[") && self.form.begins_with_user() {
            self.form.user(&[Said::Text(GO_ON.into())], &mut List(&mut conversation.bytes));
        }
        let before = conversation.bytes.len();
        self.form.assistant(&blocks, &mut List(&mut conversation.bytes));
        if conversation.bytes.len() == before {
            conversation.bytes.truncate(start);
            return;
        }
        for call in &batch {
            Arc::make_mut(&mut conversation.ids).insert(call.own_id.clone());
            conversation.used.entry(call.own_id.clone()).or_insert(first);
        }
        conversation.batch = batch;
    }

    /// The calls of an answer. A session gives each call an id of its own; where a history of other origin has one twice, the later call
    /// is told apart by its place.
    fn batch(&self, conversation: &Conversation, first: usize, messages: &[ModelMessage]) -> Vec<Asked> {
        let mut ids: Vec<String> = Vec::new();
        let mut batch: Vec<Asked> = Vec::new();
        for message in messages {
            let ModelMessage::ToolCall(call) = message else { continue };
            let own_id = call.tool_call_id.clone();
            let twin = batch.iter().filter(|other| other.own_id == own_id).count();
            let earlier = conversation.used.get(&own_id).is_some_and(|group| *group < first);
            let mut id = own_id.clone();
            if earlier && self.form.ids() == IdRule::Plain {
                id.push_str(&format!("@{first}"));
            }
            if twin > 0 {
                id.push_str(&format!("#{}", twin + 1));
            }
            ids.push(id);
            let native = self.origin.open(call.fidelity.as_deref()).map(ToOwned::to_owned);
            batch.push(Asked { id: String::new(), own_id, twin, name: name_of(&call.name), native });
        }
        for (call, id) in batch.iter_mut().zip(&ids) {
            call.id = self.form.ids().outbound(id, &ids);
        }
        batch
    }

    fn blocks<'a>(&self, batch: &'a [Asked], messages: &'a [ModelMessage]) -> Vec<Block<'a>> {
        let mut asked = batch.iter();
        let block = |message: &'a ModelMessage| match message {
            ModelMessage::Text(text) if text.role == Role::Assistant => {
                let (text, native) = (text.text.as_str(), self.origin.open(text.fidelity.as_deref()));
                (!text.trim().is_empty() || native.is_some()).then_some(Block::Text { text, native })
            }
            ModelMessage::Thinking(thinking) => {
                let (text, native) = (thinking.thinking.as_str(), self.origin.open(thinking.fidelity.as_deref()));
                (!text.is_empty() || native.is_some()).then_some(Block::Thinking { text, native })
            }
            ModelMessage::ToolCall(call) => {
                // Providers parse the arguments of the past, so a text that is no object would spoil every later request. The call's
                // result tells the model what was wrong with it.
                let arguments = object(&call.arguments).or_else(|| object("{}"))?;
                Some(Block::Call { call: asked.next()?, arguments })
            }
            _ => None,
        };
        messages.iter().filter_map(block).collect()
    }

    /// What a group of messages says. The images of the first `hidden` ones are not sent any more.
    fn said<'a>(&self, batch: &'a [Asked], messages: &'a [ModelMessage], hidden: usize) -> Vec<Said<'a>> {
        let mut said = Vec::new();
        for call in batch {
            // Of several results the first counts; one that belongs to no call of the answer is not sent.
            let mine = |(at, message): (usize, &'a ModelMessage)| match message {
                ModelMessage::ToolCallOutput(result) if result.tool_call_id == call.own_id => Some((at, result)),
                _ => None,
            };
            said.push(match messages.iter().enumerate().filter_map(mine).nth(call.twin) {
                Some((at, result)) => self.result(call, result, at < hidden),
                None => Said::Result { call, output: NO_RESULT.into(), failed: true, images: Vec::new() },
            });
        }
        for (at, message) in messages.iter().enumerate() {
            let hidden = at < hidden;
            match message {
                ModelMessage::Text(text) if text.text.trim().is_empty() => {}
                ModelMessage::Text(text) if text.role == Role::User => said.push(Said::Text((&text.text).into())),
                ModelMessage::Text(text) if text.role == Role::System => said.push(Said::System(&text.text)),
                ModelMessage::ImageUrl(told) => said.push(self.told(hidden, || Image::at(&told.image_url))),
                ModelMessage::InlineData(told) if told.mime_type.starts_with("image/") => {
                    said.push(self.told(hidden, || Image::of(&told.mime_type, &told.data)));
                }
                ModelMessage::InlineData(inline) => {
                    said.push(Said::Text(format!("[{} data, not shown]", inline.mime_type).into()));
                }
                _ => {}
            }
        }
        said
    }

    fn result<'a>(&self, call: &'a Asked, result: &'a ToolCallOutput, hidden: bool) -> Said<'a> {
        let blank = result.output.trim().is_empty();
        let mut output = Cow::Borrowed(if blank { NO_OUTPUT } else { result.output.as_str() });
        let mut images = Vec::new();
        for url in &result.images {
            match self.image(hidden, || Image::at(url)) {
                Ok(image) => images.push(image),
                Err(why) => output = format!("{output}\n{why}").into(),
            }
        }
        let failed = result.stop_reason.is_some_and(|stop| stop != StopReason::Completed);
        Said::Result { call, output, failed, images }
    }

    fn told<'a>(&self, hidden: bool, image: impl FnOnce() -> Result<Image<'a>, String>) -> Said<'a> {
        self.image(hidden, image).map_or_else(|why| Said::Text(why.into()), Said::Image)
    }

    /// An image that the model sees, or the words that stand for it.
    fn image<'a>(&self, hidden: bool, image: impl FnOnce() -> Result<Image<'a>, String>) -> Result<Image<'a>, String> {
        if !self.vision {
            return Err("[an image, not shown: this model sees none]".into());
        }
        if hidden {
            return Err("[an image, no longer shown: newer ones have taken its place]".into());
        }
        let image = image().and_then(|image| if self.form.takes_gif() { Ok(image) } else { image.no_gif() });
        image.map_err(|why| format!("[an image, not shown: {}]", why.trim_end_matches('.')))
    }
}

/// Whose message it is; nobody's for pieces and for reasoning in a form that no wire here writes.
fn side_of(message: &ModelMessage) -> Option<Side> {
    match message {
        ModelMessage::Text(text) if text.role != Role::Assistant => Some(Side::User),
        ModelMessage::Text(_) | ModelMessage::Thinking(_) | ModelMessage::ToolCall(_) => Some(Side::Assistant),
        ModelMessage::ToolCallOutput(_) | ModelMessage::ImageUrl(_) | ModelMessage::InlineData(_) => Some(Side::User),
        ModelMessage::InlineThinking(_)
        | ModelMessage::PartialText(_)
        | ModelMessage::PartialThinking(_)
        | ModelMessage::PartialToolCall(_)
        | ModelMessage::PartialToolCallOutput(_) => None,
    }
}

/// Takes in what of a message can reach the wire.
fn hash_message(message: &ModelMessage, hasher: &mut impl Hasher) {
    let raw = |fidelity: &Option<Box<RawValue>>, hasher: &mut _| {
        fidelity.as_ref().map(|raw| raw.get()).hash(hasher);
    };
    message.tag().hash(hasher);
    match message {
        ModelMessage::Text(text) => {
            (text.role as u8, &text.text).hash(hasher);
            raw(&text.fidelity, hasher);
        }
        ModelMessage::Thinking(thinking) => {
            thinking.thinking.hash(hasher);
            raw(&thinking.fidelity, hasher);
        }
        ModelMessage::ToolCall(call) => {
            (&call.tool_call_id, &call.name, &call.arguments).hash(hasher);
            raw(&call.fidelity, hasher);
        }
        ModelMessage::ToolCallOutput(result) => {
            (&result.tool_call_id, &result.output, &result.images, result.stop_reason).hash(hasher);
        }
        ModelMessage::ImageUrl(image) => image.image_url.hash(hasher),
        ModelMessage::InlineData(data) => (&data.mime_type, &data.data).hash(hasher),
        _ => {}
    }
}

/// The name of a call as every provider takes it: models make up names, and one odd character would spoil every later request.
fn name_of(name: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    if name.is_empty() { NAMELESS.to_owned() } else { name.chars().take(LONGEST_NAME).map(fit).collect() }
}

fn object(text: &str) -> Option<&RawValue> {
    serde_json::from_str(text).ok().filter(|raw: &&RawValue| raw.get().starts_with('{'))
}

/// Writes a member of the request's object, with a comma before it.
pub(super) fn member(out: &mut Vec<u8>, name: &str, value: &(impl Serialize + ?Sized)) {
    out.push(b',');
    write_json(out, name);
    out.push(b':');
    write_json(out, value);
}

pub(super) fn write_json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    // Writing to memory does not fail, and neither do texts and values.
    let _ = serde_json::to_writer(out, value);
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;
    use toolgate_core::{message::Text, tool::ToolCall};

    use super::*;
    use crate::provider::{Api, ModelId};

    /// Writes words and counts what it is given.
    struct Counting(Cell<usize>);

    impl Form for Counting {
        fn open(&self, _: &Request<'_>, out: &mut Vec<u8>) {
            out.extend_from_slice(b"{\"list\":[");
        }

        fn assistant(&self, blocks: &[Block<'_>], list: &mut List<'_>) {
            self.0.set(self.0.get() + blocks.len());
            list.push(&blocks.len());
        }

        fn user(&self, said: &[Said<'_>], list: &mut List<'_>) {
            self.0.set(self.0.get() + said.len());
            list.push(&said.len());
        }

        fn close(&self, _: &Request<'_>, _: &mut Vec<u8>) {}

        fn ids(&self) -> IdRule {
            IdRule::Given
        }
    }

    #[test]
    fn the_five_hundredth_turn_encodes_no_more_than_the_tenth() {
        let id = ModelId { provider: "test".into(), model: "m".into() };
        let mut writer = Writer::new(Counting(Cell::new(0)), Origin::new(Api::OpenaiChat, id), true);
        let mut history = vec![ModelMessage::Text(Text::new(Role::User, "go", StopReason::Completed))];
        let mut encoded = Vec::new();
        for turn in 0..500 {
            let request = Request { system: "", tools: &[], history: &history, max_tokens: None, thinking: None };
            let before = writer.form.0.get();
            let (body, ids) = writer.write(&request);
            encoded.push(writer.form.0.get() - before);
            assert_eq!((ids.len(), body.ends_with(b"]}")), (turn, true));
            let call = ToolCall { id: format!("call_{turn}"), name: "read".into(), arguments: "{}".into() };
            history.push(ModelMessage::ToolCall(toolgate_core::message::ToolCallMessage::new(&call)));
            let line = json!({ "output": "x", "tool_call_id": call.id });
            history.push(ModelMessage::ToolCallOutput(serde_json::from_value(line).unwrap()));
        }
        assert_eq!((encoded[9], encoded[499]), (2, 2), "one call and one result a turn");
    }
}
