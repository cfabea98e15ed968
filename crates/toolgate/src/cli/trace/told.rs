//! One record as people read it: a line that says what it is, and the text that belongs to it.

use toolgate_core::message::{Body, Event, Message, ModelMessage, Role, ToolCallOutput};

/// What a record is told as.
pub(super) struct Told {
    /// The time of day as the record has it.
    pub(super) time: String,
    /// Who or what it is about: `user`, `model`, `tool`, `decision`, …
    pub(super) who: &'static str,
    /// One line; empty where the text says it all.
    pub(super) line: String,
    /// The rest, as long as it may be.
    pub(super) text: String,
}

/// Tells a record.
pub(super) fn told(message: &Message) -> Told {
    let time = message.timestamp.get("2026-01-01T".len().."2026-01-01T00:00:00.000".len());
    let time = time.unwrap_or(&message.timestamp).to_owned();
    let (who, line, text) = match &message.body {
        Body::SessionMeta(meta) => {
            let line =
                format!("session {} with {}/{} in {}", meta.session_id, meta.provider, meta.model_id, meta.workspace);
            ("session", line, String::new())
        }
        Body::Model(message) => model(message),
        Body::Event(event) => self::event(event),
        Body::Other { kind, payload } => ("other", kind.clone(), payload.get().to_owned()),
    };
    Told { time, who, line, text }
}

fn model(message: &ModelMessage) -> (&'static str, String, String) {
    let none = String::new;
    match message {
        ModelMessage::Text(text) if text.role == Role::User => {
            let sender = text.sender.as_deref().filter(|sender| *sender != "user");
            ("user", sender.map(|sender| format!("from {sender}")).unwrap_or_default(), text.text.clone())
        }
        ModelMessage::Text(text) => ("model", none(), text.text.clone()),
        ModelMessage::Thinking(thinking) => ("thinking", none(), thinking.thinking.clone()),
        ModelMessage::ToolCall(call) => {
            ("call", format!("{} [{}]", call.name, call.tool_call_id), call.arguments.clone())
        }
        ModelMessage::ToolCallOutput(output) => ("result", result(output), output.output.clone()),
        ModelMessage::ImageUrl(image) => ("image", shortened(&image.image_url), none()),
        ModelMessage::InlineData(data) => {
            ("data", format!("{}, {} characters", data.mime_type, data.data.len()), none())
        }
        other => ("model", other.tag().to_owned(), none()),
    }
}

fn result(output: &ToolCallOutput) -> String {
    let stop = output.stop_reason.map_or("", |stop| stop.as_str());
    let images = match output.images.len() {
        0 => String::new(),
        1 => ", 1 image".into(),
        many => format!(", {many} images"),
    };
    format!("[{}] {stop}{images}", output.tool_call_id)
}

fn event(event: &Event) -> (&'static str, String, String) {
    let line = match event {
        Event::ApprovalDecision(made) => return ("decision", decision(made), String::new()),
        Event::ApprovalRequest(asked) => {
            let line = format!("[{}] {} ({})", asked.tool_call_id, asked.summary, asked.reason);
            return ("question", line, String::new());
        }
        Event::Subagent(child) => {
            return ("subagent", format!("{}, with a trace of its own", child.session_id), String::new());
        }
        Event::CallStarted(started) => {
            format!("[{}] started: {}", started.tool_call_id, started.summary.as_deref().unwrap_or("no summary"))
        }
        Event::RequestBegin(_) => "request".into(),
        Event::RequestEnd(end) => {
            let mut line = format!("request {}", end.status);
            line.extend(end.error_message.iter().map(|error| format!(": {error}")));
            line.extend(end.attempt.map(|attempt| format!(", attempt {attempt}")));
            line.extend(end.retry_in_ms.map(|wait| format!(", again in {}", duration(wait))));
            line
        }
        Event::TokenUsage(used) => {
            format!("{} tokens by this request, {} by the session", used.request.total, used.session.total)
        }
        Event::CompactionBegin(begin) => {
            format!("compaction ({}, {}): {} tokens, {} turns", begin.reason, begin.mode, begin.context, begin.turns)
        }
        Event::CompactionEnd(end) => {
            let why = end.error_message.as_ref().map(|error| format!(": {error}"));
            format!("compaction {}{}", end.status, why.unwrap_or_default())
        }
        Event::Abort(abort) => format!("abort: {}", abort.reason.as_deref().unwrap_or("no reason recorded")),
        Event::Sandbox(sandbox) => format!("sandbox tier {}, {}", sandbox.tier, sandbox.mode),
        Event::Hook(hook) => {
            let why = hook.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            format!(
                "hook {} {} after {}: {}{why}",
                hook.hook_event_name,
                hook.hook,
                duration(hook.took_ms),
                hook.outcome
            )
        }
        Event::CommandSession(session) => {
            let detail = session.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
            format!("command {} {}{detail}", session.process_id, session.state)
        }
        Event::Repair(repair) => format!("repair of {} bytes at offset {}", repair.bytes, repair.offset),
        Event::Seal(seal) => format!("sealed: {}, {} records", seal.status, seal.records),
        // The tools' declarations are long and the same each time.
        Event::ToolListReady(list) => format!("tool_list_ready: {} tools", list.tools.len()),
        other => serde_json::to_string(other).unwrap_or_else(|_| other.tag().to_owned()),
    };
    ("event", line, String::new())
}

/// The decision, who made it, by what, why, and how long it was waited for.
fn decision(made: &toolgate_core::message::ApprovalDecided) -> String {
    let mut line = format!("[{}] {}", made.tool_call_id, made.decision);
    line.extend(made.decider.iter().map(|decider| format!(" by {decider}")));
    line.extend(made.source.iter().map(|source| format!(" ({source})")));
    line.extend(made.rule.iter().map(|rule| format!(", rule {rule}")));
    line.extend(made.mode.iter().map(|mode| format!(", mode {mode}")));
    line.extend(made.wait_ms.map(|wait| format!(", waited {}", duration(wait))));
    line.extend(made.reason.iter().map(|reason| format!(": {reason}")));
    line
}

/// Milliseconds as people say them.
pub(super) fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.1} s", ms as f64 / 1_000.0),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
        _ => format!("{} h {} min", ms / 3_600_000, ms / 60_000 % 60),
    }
}

fn shortened(url: &str) -> String {
    /// Characters of an address that are shown; the data of a data URL says nothing to a reader.
    const SHOWN: usize = 80;
    match url.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}… ({} characters)", &url[..end], url.len()),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_tells_who_why_and_how_long_it_was_waited_for() {
        let line = r#"{"timestamp":"2026-01-01T10:11:12.345Z","type":"event_msg","payload":{"type":"approval_decision","decision":"allow","tool_call_id":"a","mode":"always-ask","source":"person","decider":"terminal","reason":"asked","wait_ms":61500}}"#;
        let told = told(&Message::from_json(line).unwrap());
        assert_eq!((told.time.as_str(), told.who), ("10:11:12.345", "decision"));
        assert_eq!(told.line, "[a] allow by terminal (person), mode always-ask, waited 1 min 1 s: asked");
    }
}
