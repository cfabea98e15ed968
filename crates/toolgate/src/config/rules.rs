//! Rules as configurations write them. A deny or ask rule that cannot be read stops the start; an allow rule is dropped, with a note.

use std::sync::Arc;

use serde::Deserialize;
use toolgate_core::{
    approval::ApprovalMode,
    call::{Args, CheckedCall},
    policy::{Facts, Policy, Rule, SandboxMode, Standing, Tier, Verdict, decide},
    tool::{Effect, Prepared},
};
use toolgate_runtime::registry::forms;

use super::{
    layers::Source,
    node::{Kind, Node},
    selection::may_be_in_a_rule,
    wrong::Wrong,
};
use crate::tools::builtin;

/// The class of rules about commands.
const COMMANDS: &str = "Bash";

/// What a person expects of the rules.
#[derive(Debug, Clone)]
pub(crate) struct RuleTest {
    cmd: String,
    expect: Expect,
    pub(crate) source: Source,
}

/// What rules say of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Expect {
    Allow,
    Ask,
    Deny,
}

impl Expect {
    fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// Reads the rules of one tier. Those of `allow` that cannot be read come back as notes.
/// `own` are the names of the user's own tools.
pub(crate) fn read(
    tier: Tier,
    node: &Node,
    source: &Source,
    own: &[String],
) -> Result<(Vec<Rule>, Vec<String>), Wrong> {
    let (mut rules, mut notes) = (Vec::new(), Vec::new());
    if !matches!(node.kind, Kind::List(_)) {
        return Err(Wrong::new("a list of rules belongs there").at(node.line));
    }
    for item in node.items() {
        let place = source.on_line(item.line);
        match rule(tier, item, &place, own) {
            Ok(rule) => rules.push(rule),
            Err(what) if tier == Tier::Allow => {
                notes.push(format!("{place}: {what}; the rule is dropped, so what it would allow asks"))
            }
            Err(what) => return Err(Wrong::new(what).at(item.line)),
        }
    }
    Ok((rules, notes))
}

fn rule(tier: Tier, item: &Node, place: &Source, own: &[String]) -> Result<Rule, String> {
    let text = match &item.kind {
        Kind::Text(text) => text,
        Kind::Bool(value) => {
            return Err(format!(
                "`{value}` without quotes is a yes or no and no rule; write \"{value}\" in quotes, or Bash({value}) for the command"
            ));
        }
        Kind::Map(_) => return Err("this is a map and no rule; put a rule that holds `: ` in quotes".into()),
        _ => return Err("this is no rule; a rule is Tool or Tool(words), in quotes".into()),
    };
    let rule = Rule::parse(tier, text, &place.to_string())
        .map_err(|error| format!("the rule `{text}` cannot be read: {}", error.reason))?;
    let name = text.split('(').next().unwrap_or_default();
    if !may_be_in_a_rule(name) && !own.iter().any(|own| own == name) {
        let meant = if text.contains('(') {
            format!("the classes are {COMMANDS}, Read, Edit and WebFetch, else a tool's own name")
        } else {
            format!("a rule for the command is written {COMMANDS}({text})")
        };
        return Err(format!("`{name}` is no tool; {meant}"));
    }
    Ok(rule)
}

/// Reads what the rules are expected to say.
pub(crate) fn read_tests(node: &Node, source: &Source) -> Result<Vec<RuleTest>, Wrong> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Written {
        cmd: String,
        expect: Expect,
    }
    if !matches!(node.kind, Kind::List(_)) {
        return Err(Wrong::new("a list of {cmd, expect} belongs there").at(node.line));
    }
    let tests = node.items().iter().map(|item| {
        let Written { cmd, expect } = item.read()?;
        Ok(RuleTest { cmd, expect, source: source.on_line(item.line) })
    });
    tests.collect()
}

impl RuleTest {
    /// What is wrong when the rules say something else.
    pub(crate) fn check(&self, rules: &[Rule]) -> Result<(), String> {
        let found = judge(&self.cmd, rules);
        if found == self.expect {
            return Ok(());
        }
        Err(format!(
            "permissions.tests: `{}` is expected to be {}, and the rules say {}",
            self.cmd,
            self.expect.as_str(),
            found.as_str()
        ))
    }
}

/// What the rules alone say of a command: no mode, no grant, no sandbox.
fn judge(line: &str, rules: &[Rule]) -> Expect {
    let tools = builtin();
    let spec = tools
        .iter()
        .flat_map(|tool| forms(tool.as_ref()))
        .find(|spec| spec.rule_names.iter().any(|name| name == COMMANDS));
    let Some(spec) = spec else { return Expect::Ask };
    let effects = vec![Effect::Run { line: line.to_owned(), cwd: "/".into() }];
    let call =
        CheckedCall::new(String::new(), spec, Args::new(), Vec::new(), Prepared { effects, ..Prepared::default() });
    let policy = Arc::new(Policy { rules: rules.to_vec() });
    // Of the modes in which allow rules count, the one that lets no command run by itself.
    let standing = Standing { mode: ApprovalMode::ReadOnly, policy, version: 1 };
    match decide(&call, &standing, &Facts { sandbox: SandboxMode::Off }) {
        Verdict::Allow(_) => Expect::Allow,
        Verdict::Ask(..) => Expect::Ask,
        Verdict::Deny(_) => Expect::Deny,
    }
}
