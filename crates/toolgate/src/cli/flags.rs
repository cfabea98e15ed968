//! The flags that several commands share, and the settings that come of them and the configuration.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::Args;
use toolgate_core::approval::ApprovalMode;

use super::print;
use crate::{
    config::{self, Given, Node, Settings, words},
    failure::Failure,
    surroundings::Surroundings,
};

/// What every command that runs tools takes.
#[derive(Args, Default)]
pub(super) struct Common {
    /// What happens to a call that no rule decides: allow-all, read-only, always-ask or deny-all [default: allow-all; a session that
    /// goes on keeps its mode].
    #[arg(long, value_name = "MODE", value_parser = ApprovalMode::from_str)]
    pub(super) approve: Option<ApprovalMode>,
    /// The workspace: the folder that the tools are bound to.
    #[arg(short = 'C', value_name = "DIR")]
    pub(super) workspace: Option<PathBuf>,
    /// A further configuration, over the user's and the project's.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The tools: sets (minimal, coding, read-only, default, all), names and patterns with `*`, commas between them; no other is there.
    #[arg(long, value_name = "LIST", conflicts_with = "no_tools")]
    tools: Option<String>,
    /// What is left out of them: names and patterns with `*`, commas between them.
    #[arg(long, value_name = "LIST")]
    exclude_tools: Option<String>,
    /// No tools at all.
    #[arg(long)]
    no_tools: bool,
    /// A rule for what may run without a question, such as "Bash(git status)"; can be given several times.
    #[arg(long, value_name = "RULE")]
    allow: Vec<String>,
    /// A rule for what asks in every mode.
    #[arg(long, value_name = "RULE")]
    ask: Vec<String>,
    /// A rule for what may not run.
    #[arg(long, value_name = "RULE")]
    deny: Vec<String>,
    /// What commands may change: read-only, workspace-write or off. There is no sandbox yet, so the first two are refused.
    #[arg(long, value_name = "MODE")]
    sandbox: Option<String>,
    /// What commands may reach: on, off, or hosts with commas between them. There is no sandbox yet, so all but `on` is refused.
    #[arg(long, value_name = "on|off|HOSTS")]
    network: Option<String>,
    /// A further folder for the tools. Not built yet, so it is refused.
    #[arg(long, value_name = "DIR")]
    add_dir: Vec<PathBuf>,
    /// Let the project's own configuration count, all of it, for this run.
    #[arg(long, conflicts_with = "no_trust")]
    trust: bool,
    /// Let only the project's deny and ask rules count, whatever trust.default says.
    #[arg(long)]
    no_trust: bool,
    /// How long all of it may take, in milliseconds or as 30s, 5m, 1h; then it ends with code 124.
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    timeout: Option<u64>,
}

impl Common {
    /// The settings for a workspace: every layer, these flags and those that the command has beside them. What people should know about
    /// them is told, and what cannot be held is refused.
    pub(super) fn settings(
        &self,
        beside: Vec<(&'static str, &'static str, Node)>,
        workspace: &Path,
        surroundings: &Surroundings,
    ) -> Result<Settings, Failure> {
        if let Some(folder) = self.add_dir.first() {
            let what = format!("--add-dir {}: further folders are not built yet", folder.display());
            return Err(Failure::configuration(what).hint("-C DIR binds the tools to a folder that holds both"));
        }
        let mut given = self.given();
        given.flags.extend(beside);
        let mut settings = config::load(&given, workspace, surroundings)?;
        settings.refuse_what_is_not_built()?;
        std::mem::take(&mut settings.notes).iter().for_each(|note| print::to_person(&format!("note: {note}")));
        Ok(settings)
    }

    /// What these flags say.
    pub(super) fn given(&self) -> Given {
        let texts = |list: &[String]| (!list.is_empty()).then(|| Node::texts(list.iter().map(String::as_str)));
        let flags = [
            ("permissions.mode", "--approve", self.approve.map(|mode| Node::text(mode.as_str()))),
            ("tools.builtin", "--tools", self.tools.as_deref().map(config::tools_of_flag)),
            ("tools.builtin", "--no-tools", self.no_tools.then(|| Node::texts([]))),
            ("tools.exclude", "--exclude-tools", self.exclude_tools.as_deref().map(|text| Node::texts(words(text)))),
            ("permissions.allow", "--allow", texts(&self.allow)),
            ("permissions.ask", "--ask", texts(&self.ask)),
            ("permissions.deny", "--deny", texts(&self.deny)),
            ("sandbox.mode", "--sandbox", self.sandbox.as_deref().map(Node::text)),
            ("network", "--network", self.network.as_deref().map(hosts)),
            ("timeout_ms", "--timeout", self.timeout.map(Node::number)),
        ];
        let said = |(key, flag, value): (_, _, Option<Node>)| Some((key, flag, value?));
        Given {
            config: self.config.clone(),
            trust: (self.trust || self.no_trust).then_some(self.trust),
            flags: flags.into_iter().filter_map(said).collect(),
        }
    }
}

/// `on`, `off`, or a list.
fn hosts(text: &str) -> Node {
    match text {
        "on" | "off" => Node::text(text),
        hosts => Node::texts(words(hosts)),
    }
}

/// A time as people write it.
fn milliseconds(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("a time is a number of milliseconds, or 30s, 5m, 1h".into()),
    };
    let number: u64 = number.parse().map_err(|_| "a time begins with a number")?;
    number
        .checked_mul(factor)
        .filter(|time| *time > 0)
        .ok_or_else(|| "a time is more than nothing and ends some day".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_people_write_them() {
        for (text, wanted) in [
            ("1500", Some(1500)),
            ("250ms", Some(250)),
            ("30s", Some(30_000)),
            ("5m", Some(300_000)),
            ("1h", Some(3_600_000)),
            ("0", None),
            ("", None),
            ("s", None),
            ("1d", None),
            ("-1", None),
            ("99999999999999999h", None),
        ] {
            assert_eq!(milliseconds(text).ok(), wanted, "{text:?}");
        }
    }
}
