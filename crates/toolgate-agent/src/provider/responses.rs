//! OpenAI Responses: an answer is a list of items, and each goes back as the item that it was.
//!
//! `Responses` reads answers. What an item is in the end is said when it is done; what came before is shown, and corrected where the
//! two differ. Items are found by their place in the answer, since some servers change ids on the way, else by id, else the last open
//! one of their kind. `form` writes requests.

mod form;

use std::collections::VecDeque;

use serde_json::{Value, json, value::RawValue};

pub(super) use form::ResponsesForm;

use super::{
    ErrorClass, ModelEvent, ProviderError, Stop, Usage, Withdrawn,
    calls::{Call, Calls},
    http::{Progress, Wire},
    json::{filled, parse, raw_at, raw_list},
    native::Origin,
};

/// Reads an answer.
pub(super) struct Responses {
    origin: Origin,
    calls: Calls,
    items: Vec<Item>,
    /// The item whose text or reasoning is the block that stands open.
    open: Option<usize>,
    stop: Option<Stop>,
    refused: bool,
    /// The model called a tool that a client runs but that no one here declared.
    waits: bool,
    usage: Option<Usage>,
}

/// An item as far as it has come.
struct Item {
    place: Option<u64>,
    id: String,
    kind: String,
    /// What was shown of its text or reasoning.
    shown: String,
    /// Its call.
    call: Option<usize>,
    done: bool,
}

/// Calls of tools that OpenAI defines and a client runs. None is ever offered here, so one that comes has no result to go back with.
const CLIENT_CALLS: [&str; 5] =
    ["local_shell_call", "shell_call", "apply_patch_call", "computer_call", "mcp_approval_request"];

impl Responses {
    pub(super) fn new(calls: Calls, origin: Origin) -> Self {
        Self { origin, calls, items: Vec::new(), open: None, stop: None, refused: false, waits: false, usage: None }
    }
}

impl Wire for Responses {
    fn event(&mut self, name: &str, data: &str, out: &mut VecDeque<ModelEvent>) -> Result<Progress, ProviderError> {
        match data.trim() {
            "" => return Ok(Progress::Open),
            "[DONE]" => return Ok(if self.stop.is_some() { Progress::Done } else { Progress::Open }),
            _ => {}
        }
        let Some(event) = parse(data) else {
            return Err(ProviderError::new(ErrorClass::Malformed, "sent a piece of the answer that is no JSON"));
        };
        let kind = filled(&event["type"]).unwrap_or(if event["output"].is_array() { "" } else { name });
        match kind {
            // A plain answer is what a stream's last event holds.
            "" if event["output"].is_array() || event["status"].is_string() => self.take_end(&event, data, &[], out)?,
            "error" => return Err(ProviderError::from_body(None, data.as_bytes())),
            "response.failed" => return Err(failure(&event["response"])),
            "response.completed" | "response.incomplete" | "response.done" => {
                self.take_end(&event["response"], data, &["response"], out)?;
            }
            "response.output_item.added" => {
                self.item_for(&event, &event["item"], out);
            }
            "response.output_item.done" => {
                let at = self.item_for(&event, &event["item"], out);
                self.take_done(at, &event["item"], raw_at(data, &["item"]), out);
            }
            _ => self.take_piece(kind, &event, out),
        }
        if kind.is_empty() && !event["error"].is_null() && self.stop.is_none() {
            return Err(ProviderError::from_body(None, data.as_bytes()));
        }
        Ok(if self.stop.is_some() { Progress::Done } else { Progress::Open })
    }

    fn finish(&mut self, out: &mut VecDeque<ModelEvent>) -> Result<(), ProviderError> {
        out.extend(self.usage.map(ModelEvent::Usage));
        let Some(stop) = self.stop else {
            return Err(ProviderError::new(ErrorClass::Cut, "ended the answer without a stop reason"));
        };
        self.calls.finish(stop == Stop::MaxTokens, stop != Stop::Filtered, out);
        out.push_back(ModelEvent::End(match stop {
            Stop::End if !self.calls.is_empty() || self.waits => Stop::ToolCalls,
            Stop::End if self.refused => Stop::Filtered,
            _ => stop,
        }));
        Ok(())
    }
}

impl Responses {
    /// The item that an event is about; one that has not been seen begins.
    fn item_for(&mut self, event: &Value, item: &Value, out: &mut VecDeque<ModelEvent>) -> usize {
        let kind = item["type"].as_str().unwrap_or_default();
        if let Some(at) = self.find(event["output_index"].as_u64(), filled(&item["id"]), kind) {
            return at;
        }
        let call = matches!(kind, "function_call" | "custom_tool_call").then(|| {
            let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
            self.open = None;
            self.calls.begin(Call { given: text("call_id"), name: text("name"), ..Call::default() }, out)
        });
        self.items.push(Item {
            place: event["output_index"].as_u64(),
            id: item["id"].as_str().unwrap_or_default().to_owned(),
            kind: kind.to_owned(),
            shown: String::new(),
            call,
            done: false,
        });
        self.items.len() - 1
    }

    fn find(&self, place: Option<u64>, id: Option<&str>, kind: &str) -> Option<usize> {
        let mut open = self.items.iter().enumerate().rev().filter(|(_, item)| !item.done);
        if place.is_some() {
            return open.find(|(_, item)| item.place == place).map(|(at, _)| at);
        }
        let named = open.clone().find(|(_, item)| id.is_some_and(|id| id == item.id));
        let named = named.or_else(|| open.find(|(_, item)| id.is_none() && (kind.is_empty() || item.kind == kind)));
        named.map(|(at, _)| at)
    }

    /// A piece of an item: of its text, its reasoning or its arguments. All other events tell nothing that is not said again.
    fn take_piece(&mut self, kind: &str, event: &Value, out: &mut VecDeque<ModelEvent>) {
        let Some(at) = self.find(event["output_index"].as_u64(), filled(&event["item_id"]), "") else { return };
        let more = filled(&event["delta"]);
        match (kind, more) {
            ("response.output_text.delta", Some(more)) => self.show(at, more, ModelEvent::Text, out),
            ("response.refusal.delta", Some(more)) => {
                self.refused = true;
                self.show(at, more, ModelEvent::Refusal, out);
            }
            ("response.reasoning_text.delta" | "response.reasoning_summary_text.delta", Some(more)) => {
                self.show(at, more, ModelEvent::Thinking, out);
            }
            ("response.function_call_arguments.delta" | "response.custom_tool_call_input.delta", Some(more)) => {
                if let Some(call) = self.items[at].call {
                    self.calls.push(call, more, out);
                }
            }
            ("response.function_call_arguments.done", _) => {
                if let (Some(call), Some(whole)) = (self.items[at].call, event["arguments"].as_str()) {
                    self.calls.get_mut(call).arguments = whole.to_owned();
                }
            }
            _ => {}
        }
    }

    fn show(&mut self, at: usize, more: &str, say: fn(String) -> ModelEvent, out: &mut VecDeque<ModelEvent>) {
        self.items[at].shown.push_str(more);
        self.open = Some(at);
        out.push_back(say(more.to_owned()));
    }

    /// An item as it is in the end.
    fn take_done(&mut self, at: usize, item: &Value, raw: Option<&RawValue>, out: &mut VecDeque<ModelEvent>) {
        self.items[at].done = true;
        match item["type"].as_str().unwrap_or_default() {
            "message" => {
                let parts = || item["content"].as_array().into_iter().flatten();
                let refusal: String = parts().filter_map(|part| filled(&part["refusal"])).collect();
                let text: String = parts().filter_map(|part| filled(&part["text"])).collect();
                self.refused |= !refusal.is_empty();
                match text.is_empty() {
                    true => self.settle(at, &refusal, ModelEvent::Refusal, out),
                    false => self.settle(at, &text, ModelEvent::Text, out),
                }
                let kept = json!({ "id": item["id"], "phase": item["phase"] });
                if self.open == Some(at) {
                    out.extend(self.origin.wrap(&kept).map(ModelEvent::Native));
                }
            }
            "reasoning" => {
                let texts = |list: &str| -> String {
                    item[list].as_array().into_iter().flatten().filter_map(|part| filled(&part["text"])).collect()
                };
                let summary = texts("summary");
                let thinking = if summary.is_empty() { texts("content") } else { summary };
                if !thinking.is_empty() {
                    self.settle(at, &thinking, ModelEvent::Thinking, out);
                }
                let wrapped = raw.and_then(|raw| self.origin.wrap(raw));
                if self.open == Some(at) {
                    out.extend(wrapped.map(ModelEvent::Native));
                } else if self.items[at].shown.is_empty() {
                    out.extend(wrapped.map(ModelEvent::Opaque));
                }
                // Reasoning that is done behind the item that it led to has lost its place, and can go back nowhere.
            }
            kind @ ("function_call" | "custom_tool_call") => {
                let Some(index) = self.items[at].call else { return };
                let call = self.calls.get_mut(index);
                for (own, field) in [(&mut call.name, "name"), (&mut call.given, "call_id")] {
                    if own.is_empty() {
                        *own = item[field].as_str().unwrap_or_default().to_owned();
                    }
                }
                match &item["arguments"] {
                    Value::String(whole) if !whole.is_empty() => call.arguments.clone_from(whole),
                    Value::Object(_) => {
                        let whole = raw.and_then(|raw| raw_at(raw.get(), &["arguments"]));
                        call.arguments = whole.map(|raw| raw.get().to_owned()).unwrap_or_default();
                    }
                    _ => {}
                }
                // Free text is a JSON string here, as every call's arguments are JSON.
                if kind == "custom_tool_call" {
                    call.arguments = item["input"].to_string();
                }
                call.native = self.origin.wrap(&json!({ "id": item["id"] }));
                self.calls.announce(index, out);
            }
            kind if CLIENT_CALLS.contains(&kind) => self.waits = true,
            "" => {}
            _ => {
                self.open = None;
                out.extend(raw.and_then(|raw| self.origin.wrap(raw)).map(ModelEvent::Opaque));
            }
        }
        if self.open == Some(at) {
            self.open = None;
        }
    }

    /// Shows what is missing of a block, or shows it again where something else was shown.
    fn settle(&mut self, at: usize, whole: &str, say: fn(String) -> ModelEvent, out: &mut VecDeque<ModelEvent>) {
        let shown = &self.items[at].shown;
        let missing = match whole.strip_prefix(shown.as_str()) {
            Some(missing) => missing,
            // What was shown of a block that has ended stays.
            None if self.open != Some(at) => return,
            None => {
                out.push_back(ModelEvent::Withdrawn(Withdrawn::Block));
                whole
            }
        };
        if !missing.is_empty() {
            self.show(at, missing, say, out);
        }
    }

    fn take_end(
        &mut self,
        response: &Value,
        data: &str,
        path: &[&str],
        out: &mut VecDeque<ModelEvent>,
    ) -> Result<(), ProviderError> {
        self.usage = usage_of(&response["usage"]).or(self.usage);
        // The last event repeats the items, if it does: only where none came by itself they are read from it.
        if self.items.is_empty() {
            let raws = raw_list(raw_at(data, &[path, &["output"]].concat()));
            for (place, item) in response["output"].as_array().into_iter().flatten().enumerate() {
                let at = self.item_for(&json!({ "output_index": place }), item, out);
                self.take_done(at, item, raws.get(place).copied(), out);
            }
        }
        self.stop = Some(match response["status"].as_str() {
            Some("failed" | "cancelled") => return Err(failure(response)),
            Some("incomplete") => match response["incomplete_details"]["reason"].as_str() {
                Some("content_filter") => Stop::Filtered,
                _ => Stop::MaxTokens,
            },
            Some("in_progress" | "queued") => return Ok(()),
            _ => Stop::End,
        });
        Ok(())
    }
}

fn failure(response: &Value) -> ProviderError {
    match &response["error"] {
        Value::Null => ProviderError::new(ErrorClass::Server, "broke the answer off and did not say why"),
        error => ProviderError::from_body(None, error.to_string().as_bytes()),
    }
}

fn usage_of(usage: &Value) -> Option<Usage> {
    let number = |path: &str| usage.pointer(path).and_then(Value::as_u64);
    Some(Usage {
        input: number("/input_tokens")?,
        output: number("/output_tokens").unwrap_or(0),
        cache_read: number("/input_tokens_details/cached_tokens").unwrap_or(0),
        cache_write: number("/input_tokens_details/cache_write_tokens").unwrap_or(0),
        reasoning: number("/output_tokens_details/reasoning_tokens").unwrap_or(0),
    })
}
