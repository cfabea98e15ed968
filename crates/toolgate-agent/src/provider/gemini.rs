//! Gemini's generateContent: an answer is a list of parts that chunks append to.
//!
//! `Gemini` reads answers. A signature belongs to the very part that it came on, so a part with one is a block of its own and kept as
//! the bytes it was; calls without ids get ours, which never go back. `form` writes requests, `partial` puts arguments together that
//! come piece by piece.

mod form;
mod partial;

use std::collections::VecDeque;

use serde_json::{Value, json, value::RawValue};

pub(super) use form::GeminiForm;

use super::{
    ErrorClass, ModelEvent, ProviderError, Stop, Usage,
    calls::{Call, Calls},
    http::{Progress, Wire},
    json::{filled, parse, raw_at, raw_list},
    native::Origin,
};
use partial::PartialArguments;

/// Reads an answer.
pub(super) struct Gemini {
    origin: Origin,
    calls: Calls,
    /// The text without a signature that stands open.
    open: String,
    /// The call whose arguments still come, and what has come of them.
    partial: Option<(usize, PartialArguments, Option<String>)>,
    /// The last stop reason, as it was said.
    reason: Option<String>,
    why: String,
    blocked: bool,
    began: bool,
    usage: Option<Usage>,
}

impl Gemini {
    pub(super) fn new(calls: Calls, origin: Origin) -> Self {
        Self {
            origin,
            calls,
            open: String::new(),
            partial: None,
            reason: None,
            why: String::new(),
            blocked: false,
            began: false,
            usage: None,
        }
    }
}

impl Wire for Gemini {
    fn event(&mut self, _: &str, data: &str, out: &mut VecDeque<ModelEvent>) -> Result<Progress, ProviderError> {
        if matches!(data.trim(), "" | "[DONE]") {
            return Ok(Progress::Open);
        }
        let Some(chunk) = parse(data) else {
            return Err(ProviderError::new(ErrorClass::Malformed, "sent a piece of the answer that is no JSON"));
        };
        // Without `alt=sse` all chunks come as one list.
        if chunk.is_array() {
            for raw in raw_list(serde_json::from_str(data).ok()) {
                self.event("", raw.get(), out)?;
            }
            return Ok(self.progress());
        }
        if !chunk["error"].is_null() {
            return Err(ProviderError::from_body(None, data.as_bytes()));
        }
        self.usage = usage_of(&chunk["usageMetadata"]).or(self.usage);
        self.blocked |= filled(&chunk["promptFeedback"]["blockReason"]).is_some();
        // Where several answers were asked for, ours is the first.
        let candidates = chunk["candidates"].as_array().map(Vec::as_slice).unwrap_or_default();
        let raws = raw_list(raw_at(data, &["candidates"]));
        let first = candidates.iter().zip(raws).find(|(candidate, _)| candidate["index"].as_u64().unwrap_or(0) == 0);
        if let Some((candidate, raw)) = first {
            let raws = raw_list(raw_at(raw.get(), &["content", "parts"]));
            for (part, raw) in candidate["content"]["parts"].as_array().into_iter().flatten().zip(raws) {
                self.take_part(part, raw, out);
            }
            // It can come twice, with text behind the first one.
            if let Some(reason) = filled(&candidate["finishReason"]) {
                self.reason = Some(reason.to_owned());
                self.why = candidate["finishMessage"].as_str().unwrap_or_default().to_owned();
            }
        }
        Ok(self.progress())
    }

    fn finish(&mut self, out: &mut VecDeque<ModelEvent>) -> Result<(), ProviderError> {
        out.extend(self.usage.map(ModelEvent::Usage));
        let Some(reason) = self.reason.take() else {
            if self.blocked {
                out.push_back(ModelEvent::End(Stop::Filtered));
                return Ok(());
            }
            return Err(ProviderError::new(ErrorClass::Cut, "ended the answer without a stop reason"));
        };
        let stop = match reason.as_str() {
            "STOP" if !self.began => {
                return Err(ProviderError::new(ErrorClass::Server, "answered with nothing at all"));
            }
            "STOP" if self.calls.is_empty() => Stop::End,
            "STOP" => Stop::ToolCalls,
            "MAX_TOKENS" => Stop::MaxTokens,
            "SAFETY"
            | "RECITATION"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "MODEL_ARMOR"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION"
            | "LANGUAGE" => Stop::Filtered,
            _ => {
                // The calls are shown and must not run.
                self.calls.finish(false, false, out);
                let class = if reason.contains("CALL") { ErrorClass::ToolUseFailed } else { ErrorClass::Server };
                let why = if self.why.is_empty() { String::new() } else { format!(": {}", self.why) };
                return Err(ProviderError::new(class, format!("broke the answer off with {reason}{why}")));
            }
        };
        let cut = stop == Stop::MaxTokens || self.partial.is_some();
        self.calls.finish(cut, stop != Stop::Filtered, out);
        out.push_back(ModelEvent::End(stop));
        Ok(())
    }
}

impl Gemini {
    fn progress(&self) -> Progress {
        if self.reason.is_some() || self.blocked { Progress::Stopped } else { Progress::Open }
    }

    fn take_part(&mut self, part: &Value, raw: &RawValue, out: &mut VecDeque<ModelEvent>) {
        let signed = filled(&part["thoughtSignature"]).is_some();
        let text = filled(&part["text"]);
        self.began |= signed || text.is_some() || part.get("text").is_none();
        if part["functionCall"].is_object() {
            self.close_text(false, out);
            self.take_call(part, raw, out);
        } else if part.get("text").is_some() {
            let thought = part["thought"] == true;
            // What has no signature must not melt into what has one, nor text into reasoning.
            if signed {
                self.close_text(true, out);
            } else if thought {
                self.close_text(false, out);
            }
            if let Some(text) = text {
                let say = if thought { ModelEvent::Thinking } else { ModelEvent::Text };
                out.push_back(say(text.to_owned()));
                if !thought && !signed {
                    self.open.push_str(text);
                }
            }
            if signed {
                let keep = if text.is_some() { ModelEvent::Native } else { ModelEvent::Opaque };
                out.extend(self.origin.wrap(raw).map(keep));
            }
        } else {
            // Code that ran at the provider, its output, and what else a later version sends.
            self.close_text(false, out);
            out.extend(self.origin.wrap(raw).map(ModelEvent::Opaque));
        }
    }

    /// Text without a signature has ended. Where a part with one follows, the block must end too.
    fn close_text(&mut self, before_signed: bool, out: &mut VecDeque<ModelEvent>) {
        let text = std::mem::take(&mut self.open);
        if before_signed && !text.is_empty() {
            out.extend(self.origin.wrap(&json!({ "text": text })).map(ModelEvent::Native));
        }
    }

    fn take_call(&mut self, part: &Value, raw: &RawValue, out: &mut VecDeque<ModelEvent>) {
        let call = &part["functionCall"];
        let goes_on = call["willContinue"] == true;
        if let Some(name) = filled(&call["name"]) {
            self.close_partial(out);
            let given = call["id"].as_str().unwrap_or_default().to_owned();
            let index = self.calls.begin(Call { given, name: name.to_owned(), ..Call::default() }, out);
            if goes_on || call["partialArgs"].is_array() {
                let signature = filled(&part["thoughtSignature"]).map(str::to_owned);
                self.partial = Some((index, PartialArguments::default(), signature));
            } else {
                let arguments = raw_at(raw.get(), &["functionCall", "args"]).map_or("{}", RawValue::get);
                self.calls.push(index, arguments, out);
                let kept = !part["thoughtSignature"].is_null() || !call["id"].is_null();
                self.calls.get_mut(index).native = kept.then(|| self.origin.wrap(raw)).flatten();
                return;
            }
        }
        if let Some((_, arguments, _)) = &mut self.partial {
            call["partialArgs"].as_array().into_iter().flatten().for_each(|piece| arguments.take(piece));
            if !goes_on {
                self.close_partial(out);
            }
        }
    }

    /// The arguments that came in pieces are whole.
    fn close_partial(&mut self, out: &mut VecDeque<ModelEvent>) {
        let Some((index, arguments, signature)) = self.partial.take() else { return };
        let Some(arguments) = arguments.whole() else {
            // No JSON, so that the call cannot run.
            return self.calls.push(index, "{", out);
        };
        self.calls.push(index, &arguments.to_string(), out);
        let call = self.calls.get_mut(index);
        let mut part = json!({ "functionCall": { "name": call.name, "args": arguments } });
        if !call.given.is_empty() {
            part["functionCall"]["id"] = call.given.clone().into();
        }
        if let Some(signature) = signature {
            part["thoughtSignature"] = signature.into();
        }
        call.native = self.origin.wrap(&part);
    }
}

fn usage_of(usage: &Value) -> Option<Usage> {
    let number = |name: &str| usage[name].as_u64().unwrap_or(0);
    let reasoning = number("thoughtsTokenCount");
    usage.is_object().then(|| Usage {
        input: number("promptTokenCount") + number("toolUsePromptTokenCount"),
        output: number("candidatesTokenCount") + reasoning,
        cache_read: number("cachedContentTokenCount"),
        cache_write: 0,
        reasoning,
    })
}
