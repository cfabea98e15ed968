//! What happened around the conversation: requests, questions and decisions, calls and commands, and the trace's own marks.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Extra;

payloads! {
    /// What happened around the conversation.
    Event {
        /// The tools that the model can see, which are those that can be dispatched.
        ToolListReady(ToolListReady) = "tool_list_ready",
        /// Servers start.
        McpConnectBegin(Plain) = "mcp_connect_begin",
        /// Servers have started, or not.
        McpConnectEnd(Plain) = "mcp_connect_end",
        /// A model request leaves.
        RequestBegin(RequestBegin) = "request_begin",
        /// A model request is over; only a `completed` one commits its turn.
        RequestEnd(RequestEnd) = "request_end",
        /// A question that a person must answer.
        ApprovalRequest(ApprovalRequested) = "approval_request",
        /// The one decision on a call.
        ApprovalDecision(ApprovalDecided) = "approval_decision",
        /// From here on the call may have changed the world.
        CallStarted(CallStarted) = "call_started",
        /// A program beside the gate was asked.
        Hook(HookAsked) = "hook",
        /// A command session's way: started, yielded, exited, killed.
        CommandSession(CommandSessionEvent) = "command_session",
        /// What confines commands, and how far.
        Sandbox(SandboxEvent) = "sandbox",
        /// Tokens used.
        TokenUsage(TokenUsage) = "token_usage",
        /// A compaction starts.
        CompactionBegin(CompactionBegin) = "compaction_begin",
        /// A compaction is over.
        CompactionEnd(CompactionEnd) = "compaction_end",
        /// The run ended before its answer was whole.
        Abort(Abort) = "abort",
        /// A child session, whose trace stands beside this one.
        Subagent(SubagentPointer) = "subagent",
        /// A goal is over.
        GoalFinished(Plain) = "goal_finished",
        /// A record that a crash tore is covered.
        Repair(Repair) = "repair",
        /// The run is over and its records are whole.
        Seal(Seal) = "seal",
    }
}

payload! {
    /// An event with no fields that toolgate reads.
    Plain {}
}

impl Plain {
    /// An event with nothing to say but that it happened.
    pub fn new() -> Self {
        Self { extra: Extra::new() }
    }
}

impl Default for Plain {
    fn default() -> Self {
        Self::new()
    }
}

payload! {
    /// The tools of the session.
    ToolListReady {
        /// As the model sees them: name, description, parameters.
        tools: Vec<Value>,
    }
}

payload! {
    /// A model request leaves. A session may go on with another model than it began with.
    RequestBegin {
        /// The provider that is asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider: Option<String>,
        /// The model that is asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model_id: Option<String>,
    }
}

payload! {
    /// A model request's end.
    RequestEnd {
        /// `completed`, `timeout`, `malformed`, `aborted`, `failed` or `auth`.
        status: String,
        /// What went wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error_message: Option<String>,
        /// 1-based; absent on a clean first try.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<u32>,
        /// Only when a retry follows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_in_ms: Option<u64>,
    }
}

payload! {
    /// A question, as it was put.
    ApprovalRequested {
        /// The call.
        tool_call_id: String,
        /// What the question is bound to: the bytes that run.
        args_digest: String,
        /// What was shown.
        summary: String,
        /// Why it asks.
        reason: String,
    }
}

payload! {
    /// A decision, and who made it.
    ApprovalDecided {
        /// `allow` or `deny`; PenguinHarness's `forbidden` is a deny.
        decision: String,
        /// The call.
        tool_call_id: String,
        /// The approval mode in force.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
        /// `mode`, `rule`, `grant`, `person`, `default` or `hook`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        /// The rule that decided.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Who.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decider: Option<String>,
        /// What the decision is bound to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        args_digest: Option<String>,
        /// How long a person was waited for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_ms: Option<u64>,
    }
}

impl ApprovalDecided {
    /// `allow`, or `deny` for whatever else stands there.
    pub fn verdict(&self) -> &'static str {
        if self.decision == "allow" { "allow" } else { "deny" }
    }
}

payload! {
    /// The call passed the gate and starts now.
    CallStarted {
        /// The call.
        tool_call_id: String,
        /// One line for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
    }
}

payload! {
    /// A program beside the gate was asked, and what it said.
    HookAsked {
        /// What it was asked about, such as `PreToolUse`.
        hook_event_name: String,
        /// What runs.
        hook: String,
        /// The call that it was asked about, if it was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_call_id: Option<String>,
        /// `passed`, `allow`, `ask`, `deny`, `block`, `changed`, `stop` or `failed`.
        outcome: String,
        /// Why, in its words; what went wrong where it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// How long it took.
        took_ms: u64,
    }
}

payload! {
    /// One step in a command session's life.
    CommandSessionEvent {
        /// `started`, `yielded`, `exited` or `killed`.
        state: String,
        /// The session.
        process_id: String,
        /// The call that caused it, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_call_id: Option<String>,
        /// How it ended, or who ended it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    }
}

payload! {
    /// What confines commands in this session.
    SandboxEvent {
        /// `A`, `B` or `C` (none).
        tier: String,
        /// `read-only`, `workspace-write` or `off`.
        mode: String,
    }
}

/// Tokens of one request or of a whole session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Read from the provider's cache.
    #[serde(default)]
    pub cache_read: u64,
    /// Sent, and not read from the cache.
    #[serde(default)]
    pub cache_write: u64,
    /// Written by the model.
    #[serde(default)]
    pub output: u64,
    /// All of them.
    #[serde(default)]
    pub total: u64,
}

payload! {
    /// Tokens used.
    TokenUsage {
        /// By the session so far.
        session: Tokens,
        /// By the last request.
        request: Tokens,
    }
}

payload! {
    /// The run ended early.
    Abort {
        /// A sentence.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    }
}

payload! {
    /// A child session.
    SubagentPointer {
        /// The child's id, which names its trace.
        session_id: String,
    }
}

payload! {
    /// Bytes that a crash left behind, covered so that the chain goes on.
    Repair {
        /// Where the torn bytes begin in the file.
        offset: u64,
        /// How many there are, the newline that now ends them not counted.
        bytes: u64,
        /// SHA-256 of the torn bytes.
        sha256: String,
    }
}

payload! {
    /// The end of a run.
    Seal {
        /// Records before this one.
        records: u64,
        /// `completed`, `failed`, `aborted`, `waiting` or `limit`.
        status: String,
    }
}

payload! {
    /// A compaction starts.
    CompactionBegin {
        /// `context`, `turns` or `manual`.
        #[serde(default)]
        reason: String,
        /// `summarize` or `discard`.
        #[serde(default)]
        mode: String,
        /// Tokens of the last request.
        #[serde(default)]
        context: u64,
        /// Turns.
        #[serde(default)]
        turns: u64,
    }
}

payload! {
    /// A compaction is over.
    CompactionEnd {
        /// As at its begin.
        #[serde(default)]
        reason: String,
        /// As at its begin.
        #[serde(default)]
        mode: String,
        /// `completed`, `failed` or `aborted`.
        #[serde(default)]
        status: String,
        /// What went wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error_message: Option<String>,
        /// 1-based.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<u32>,
    }
}
