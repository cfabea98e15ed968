//! The calls of an answer, alike on every wire: each has an id of its own in the session, its arguments are text until the answer is
//! whole, and one that was cut off is told apart from one that may run.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use serde_json::value::RawValue;
use toolgate_core::tool::ToolCall;

use super::ModelEvent;

/// The calls of one answer, in the order in which they began.
#[derive(Default)]
pub(super) struct Calls {
    ids: Ids,
    list: Vec<Call>,
}

/// A call as far as it has come.
#[derive(Default)]
pub(super) struct Call {
    /// The provider's index of the call, or of the block or item that holds it.
    pub(super) key: Option<u64>,
    /// The provider's id; may be empty.
    pub(super) given: String,
    /// The tool; empty until the provider says it.
    pub(super) name: String,
    /// JSON text as far as it has come.
    pub(super) arguments: String,
    /// What must come back with it, wrapped.
    pub(super) native: Option<Box<RawValue>>,
    /// The id in the session, which `Calls` gives; empty until the call is announced.
    pub(super) id: String,
}

impl Calls {
    /// `taken` are the ids of the calls in the history.
    pub(super) fn new(taken: Arc<HashSet<String>>) -> Self {
        Self { ids: Ids { taken, ..Ids::default() }, list: Vec::new() }
    }

    pub(super) fn list(&self) -> &[Call] {
        &self.list
    }

    pub(super) fn get_mut(&mut self, index: usize) -> &mut Call {
        &mut self.list[index]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Adds a call and tells of it as soon as it has a name. Gives its index.
    pub(super) fn begin(&mut self, call: Call, out: &mut VecDeque<ModelEvent>) -> usize {
        self.list.push(call);
        let index = self.list.len() - 1;
        if !self.list[index].name.is_empty() {
            self.announce(index, out);
        }
        index
    }

    /// More of a call's arguments.
    pub(super) fn push(&mut self, index: usize, more: &str, out: &mut VecDeque<ModelEvent>) {
        let call = &mut self.list[index];
        call.arguments.push_str(more);
        if !call.id.is_empty() && !more.is_empty() {
            out.push_back(ModelEvent::CallArguments { index, delta: more.to_owned() });
        }
    }

    /// Gives a call its id and tells of it, once.
    pub(super) fn announce(&mut self, index: usize, out: &mut VecDeque<ModelEvent>) {
        let call = &mut self.list[index];
        if !call.id.is_empty() {
            return;
        }
        call.id = self.ids.unique(&call.given);
        out.push_back(ModelEvent::CallStart { index, id: call.id.clone(), name: call.name.clone() });
        if !call.arguments.is_empty() {
            out.push_back(ModelEvent::CallArguments { index, delta: call.arguments.clone() });
        }
    }

    /// Forgets all of them: the answer begins anew.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.ids.given_out.clear();
        self.ids.numbers.clear();
    }

    /// Hands the calls out. Where the answer was `cut`, its last call is suspect even if it parses: a limit can fall inside a number.
    /// `runnable` is false where the provider itself takes the calls back.
    pub(super) fn finish(&mut self, cut: bool, runnable: bool, out: &mut VecDeque<ModelEvent>) {
        let last = self.list.len().wrapping_sub(1);
        for index in 0..self.list.len() {
            self.announce(index, out);
            let Call { id, name, arguments, native, .. } = &mut self.list[index];
            let arguments = if matches!(arguments.trim(), "" | "null") { "{}" } else { arguments };
            let valid = runnable && is_json(arguments) && !(cut && index == last);
            let call = ToolCall { id: id.clone(), name: name.clone(), arguments: arguments.to_owned() };
            out.push_back(ModelEvent::Call { index, call, valid, native: native.take() });
        }
    }
}

/// Gives ids that no other call of the session has.
#[derive(Default)]
struct Ids {
    taken: Arc<HashSet<String>>,
    given_out: HashSet<String>,
    /// How often each given id was asked for, so that an answer full of equal ids costs no more than one of different ones.
    numbers: HashMap<String, usize>,
}

impl Ids {
    fn unique(&mut self, given: &str) -> String {
        loop {
            let next = self.numbers.entry(given.to_owned()).or_insert(0);
            *next += 1;
            let id = match (given.is_empty(), *next) {
                // Nine letters and digits: what the strictest server (Mistral) takes back.
                (true, number) => format!("call{:05}", self.taken.len() + number),
                (false, 1) => given.to_owned(),
                (false, number) => format!("{given}#{number}"),
            };
            if !self.taken.contains(&id) && self.given_out.insert(id.clone()) {
                return id;
            }
        }
    }
}

/// What a provider takes for the id of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdRule {
    /// What it gave itself; chat servers also take the same id in two turns.
    Given,
    /// Exactly nine letters and digits: Mistral.
    Nine,
    /// Letters, digits, `_` and `-`, 64 of them at most, each id once in a request: Anthropic, and the Responses wire.
    Plain,
}

/// The longest id of the strictest among the providers that take any characters; bytes.
const LONGEST_ID: usize = 64;

impl IdRule {
    /// The id that goes to the provider for a call of the session, the same in every request. `batch` holds the ids of all calls of
    /// its answer: where the provider gave two of them the same one, the later keeps its number, since each result must find its own.
    pub(super) fn outbound(self, id: &str, batch: &[String]) -> String {
        match self {
            Self::Plain => {
                let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-');
                let fits = !id.is_empty() && id.len() <= LONGEST_ID && id.bytes().all(plain);
                if fits { id.to_owned() } else { format!("call_{:016x}", mark(id)) }
            }
            Self::Given | Self::Nine => {
                let own = given(id);
                let twins_before = batch.iter().take_while(|other| *other != id).any(|other| given(other) == own);
                let own = if twins_before { id.replace('#', "_") } else { own.to_owned() };
                let nine = own.len() == 9 && own.bytes().all(|c| c.is_ascii_alphanumeric());
                match self {
                    Self::Nine if !nine => nine_of(mark(&own)),
                    _ if own.len() > LONGEST_ID => format!("call_{:016x}", mark(&own)),
                    _ => own,
                }
            }
        }
    }
}

/// The id without what made it unique in the session.
fn given(id: &str) -> &str {
    match id.rsplit_once('#') {
        Some((own, number)) if !own.is_empty() && number.parse::<u32>().is_ok_and(|n| n >= 2) => own,
        _ => id,
    }
}

/// FNV-1a: the same on every machine and in every version, so that an id that was mapped once is mapped alike for ever.
fn mark(id: &str) -> u64 {
    id.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn nine_of(mut number: u64) -> String {
    const SIGNS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut text = String::with_capacity(9);
    for _ in 0..9 {
        text.push(char::from(SIGNS[(number % 36) as usize]));
        number /= 36;
    }
    text
}

pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_fit_the_provider_and_stay_the_same() {
        let batch = ["a:0", "a:0#2", "call_b#2"].map(str::to_owned);
        let long = "x".repeat(65);
        let cases = [
            (IdRule::Given, "a:0", "a:0"),
            (IdRule::Given, "a:0#2", "a:0_2"),
            (IdRule::Given, "call_b#2", "call_b"),
            (IdRule::Given, "odd#name", "odd#name"),
            (IdRule::Plain, "toolu_1-B", "toolu_1-B"),
        ];
        for (rule, id, want) in cases {
            assert_eq!(rule.outbound(id, &batch), want, "{rule:?} {id}");
        }
        for rule in [IdRule::Given, IdRule::Plain, IdRule::Nine] {
            let all: HashSet<String> = ["a:0", "a:0#2", "", &long].iter().map(|id| rule.outbound(id, &batch)).collect();
            assert_eq!(all.len(), 4, "{rule:?} keeps different ids apart");
            assert!(all.iter().all(|id| id.len() <= LONGEST_ID), "{all:?}");
        }
        let nine = IdRule::Nine.outbound("toolu_01A", &[]);
        assert!(nine.len() == 9 && nine.bytes().all(|c| c.is_ascii_alphanumeric()), "{nine}");
        assert_eq!(IdRule::Nine.outbound("call00002", &[]), "call00002");
    }
}
