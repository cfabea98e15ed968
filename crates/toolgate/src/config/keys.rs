//! Every key: what it takes, what it means, where else it can be set, and how it is read. The reference page is written from this table.

use toolgate_core::policy::Tier;

use super::{
    external, hooks,
    layers::Source,
    node::{Kind, Node},
    rules,
    selection::{Selection, read_patterns},
    settings::{Model, Network, Settings, compaction_mode, thinking_level},
    wrong::Wrong,
};

/// One key.
pub(crate) struct Key {
    /// Its way through the maps of a file, with dots.
    pub(crate) path: &'static str,
    /// What it takes.
    pub(crate) takes: &'static str,
    /// What holds without it.
    pub(crate) default: &'static str,
    /// What it means; sentences.
    pub(crate) means: &'static str,
    /// A file that sets it.
    pub(crate) example: &'static str,
    /// The flag that sets it.
    pub(crate) flag: Option<&'static str>,
    /// The variable that sets it.
    pub(crate) variable: Option<&'static str>,
    /// Takes a value over.
    pub(super) set: fn(&mut Settings, &Node, &Source) -> Result<(), Wrong>,
}

/// All keys, in the order of the reference page.
pub(crate) const KEYS: &[Key] = &[
    Key {
        path: "models",
        takes: "list of models",
        default: "none; well-known providers are known without it",
        means: "Models that can be chosen by their name. `provider` and `id` are the model's name, both needed. `api` is the wire: `openai-chat`, `openai-responses`, `anthropic-messages` or `google-generate-content`. `base_url` says where it is, `api_key_env` which variable holds its key; both are known for well-known providers. `vision` says whether it sees images (default true), `context_window` and `max_tokens` are tokens, `thinking` is `off`, `low`, `medium`, `high`, `xhigh` or `max`.",
        example: "models:\n  - provider: local\n    id: qwen3\n    api: openai-chat\n    base_url: http://127.0.0.1:8080/v1\n    vision: false\n    context_window: 32768\n",
        flag: None,
        variable: None,
        set: |to, node, _| set_models(to, node),
    },
    Key {
        path: "default_model",
        takes: "a model: `provider/id`, or a map of `provider` and `id`",
        default: "the first provider with a key in the environment",
        means: "The model of a new session that names none.",
        example: "default_model: anthropic/claude-sonnet-4-5\n",
        flag: Some("--model"),
        variable: Some("TOOLGATE_MODEL"),
        set: |to, node, _| store(&mut to.default_model, node.read()),
    },
    Key {
        path: "vision_model",
        takes: "a model, as `default_model`",
        default: "none",
        means: "The model that describes images to one that does not see them.",
        example: "vision_model:\n  provider: openai\n  id: gpt-5-mini\n",
        flag: None,
        variable: None,
        set: |to, node, _| store(&mut to.vision_model, node.read()),
    },
    Key {
        path: "agents",
        takes: "map of agents by name",
        default: "none",
        means: "Other agents that a subagent can be: their `system_prompt`, `tools` (as `tools.builtin`) and `model` (as `default_model`). What an agent leaves out is the session's own.",
        example: "agents:\n  reviewer:\n    system_prompt: You review changes and change nothing.\n    tools: minimal\n",
        flag: None,
        variable: None,
        set: |to, node, _| store(&mut to.agents, node.read()),
    },
    Key {
        path: "system_prompt",
        takes: "text",
        default: "built-in instructions that name the tools that are there",
        means: "The instructions of new sessions, in place of the built-in ones. The workspace's path follows them.",
        example: "system_prompt: |\n  You are careful and brief.\n",
        flag: Some("--system-prompt"),
        variable: None,
        set: |to, node, _| store(&mut to.system_prompt, node.read()),
    },
    Key {
        path: "thinking",
        takes: "`off`, `low`, `medium`, `high`, `xhigh` or `max`",
        default: "the model's own entry, else what its provider does by itself",
        means: "How much models think before they answer. Wires that know fewer levels take the nearest one.",
        example: "thinking: high\n",
        flag: Some("--thinking"),
        variable: None,
        set: |to, node, _| store(&mut to.thinking, word(node, thinking_level).map(Some)),
    },
    Key {
        path: "max_tokens",
        takes: "number of tokens",
        default: "the model's own entry, else what its provider does by itself",
        means: "The longest answer.",
        example: "max_tokens: 32000\n",
        flag: None,
        variable: None,
        set: |to, node, _| store(&mut to.max_tokens, limit(node)),
    },
    Key {
        path: "max_turns",
        takes: "number; 0 and below are no limit",
        default: "no limit",
        means: "Model requests of one run. A run that reaches it ends with exit code 5 and can go on.",
        example: "max_turns: 50\n",
        flag: Some("--max-turns"),
        variable: None,
        set: |to, node, _| store(&mut to.max_turns, small_limit(node)),
    },
    Key {
        path: "timeout_ms",
        takes: "milliseconds; 0 and below are no limit",
        default: "no limit",
        means: "How long a run may take in all. It then ends as an interrupt would end it, with exit code 124.",
        example: "timeout_ms: 600000\n",
        flag: Some("--timeout"),
        variable: None,
        set: |to, node, _| store(&mut to.timeout_ms, limit(node)),
    },
    Key {
        path: "compaction.mode",
        takes: "`summarize` or `discard`",
        default: "summarize",
        means: "What becomes of a conversation that is too long: the model sums it up, or it is dropped at the end of the run.",
        example: "compaction:\n  mode: summarize\n",
        flag: None,
        variable: None,
        set: |to, node, _| store(&mut to.compaction.mode, word(node, compaction_mode)),
    },
    Key {
        path: "compaction.max_context",
        takes: "number of tokens; 0 and below are no bound of one's own",
        default: "256000, at most what the model's window leaves",
        means: "The size of a request from which on a conversation is too long.",
        example: "compaction:\n  max_context: 100000\n",
        flag: None,
        variable: None,
        set: |to, node, _| store(&mut to.compaction.max_context, limit(node)),
    },
    Key {
        path: "compaction.max_turns",
        takes: "number; 0 and below are no limit",
        default: "no limit",
        means: "Turns from which on a conversation is too long.",
        example: "compaction:\n  max_turns: 200\n",
        flag: None,
        variable: None,
        set: |to, node, _| store(&mut to.compaction.max_turns, small_limit(node)),
    },
    Key {
        path: "compaction.prompt",
        takes: "text",
        default: "built-in words",
        means: "What the model is asked to write as a summary.",
        example: "compaction:\n  prompt: Sum up what was done and what is left, between [summary] and [/summary].\n",
        flag: None,
        variable: None,
        set: |to, node, _| store(&mut to.compaction.prompt, node.read()),
    },
    Key {
        path: "tools.builtin",
        takes: "a set (`minimal`, `coding`, `read-only`, `default`, `all`), or a list of tools",
        default: "default; for `toolgate call`, all",
        means: "The tools of a session. The list is whole: what it does not name is not there. An entry is a tool's name, or a map of `name` and what differs: `description`, `parameters` (a JSON Schema), `permission` (`r` or `rw`), `forModel` (`vision` or `text-only`), `timeoutMs`, `maxOutputLength`, `truncate` (`head`, `tail` or `middle`), `execution` (`sequential` runs a batch with a call of it one after the other, in call order), `call_description`, `hidden`. What an entry leaves out is the built-in declaration; one with its own `parameters` keeps the beginning of a long output where it says nothing else.",
        example: "tools:\n  builtin:\n    - exec_command\n    - name: kill_command\n      timeoutMs: 10000\n",
        flag: Some("--tools, --no-tools"),
        variable: None,
        set: |to, node, _| store(&mut to.tools.builtin, Selection::read(node, &to.tools.own_names)),
    },
    Key {
        path: "tools.exclude",
        takes: "list of tools' names and patterns with `*`",
        default: "none",
        means: "What is left out of `tools.builtin`, under all its names. What means no tool is an error.",
        example: "tools:\n  builtin: all\n  exclude: [bash, \"*_subagent\"]\n",
        flag: Some("--exclude-tools"),
        variable: None,
        set: |to, node, _| store(&mut to.tools.exclude, read_patterns(node, &to.tools.own_names)),
    },
    Key {
        path: "tools.external",
        takes: "list of programs as tools",
        default: "none",
        means: "Programs of your own that are tools beside the built-in ones; `docs/tools.md` is a guide. Every set of `tools.builtin` has them too, `read-only` those of `permission: r`; a list has those that it names. `name`, `description` and `parameters` (a JSON Schema; no arguments without it) are what the model is told. `command` is the program and its arguments: a bare word is looked for on PATH, a path leads on from the folder of the file that holds it. It gets the call's arguments as one JSON object on standard input; `protocol` says what its output is: `lines` (one JSON message a line, the default) or `text`. `effects` says what a call would do, as a list of `read`, `write`, `search` (a path), `connect` (a host) or `run` (a line of shell) with arguments in braces; without it nobody knows, and a call asks in every mode but `allow-all`. `permission`, `timeoutMs`, `maxOutputLength` and `truncate` are as in `tools.builtin`; `execution` is `parallel` or `sequential`; `snippet` is its line in the system prompt.",
        example: "tools:\n  external:\n    - name: count_words\n      description: Count the words of a file.\n      parameters:\n        type: object\n        properties:\n          path: {type: string}\n        required: [path]\n      command: [./count_words.py]\n      permission: r\n      effects:\n        - read: \"{path}\"\n",
        flag: None,
        variable: None,
        set: |to, node, from| store(&mut to.tools.external, external::read(node, from)),
    },
    Key {
        path: "tools.parallel",
        takes: "`true` or `false`",
        default: "true",
        means: "Whether the calls of one answer may run beside each other.",
        example: "tools:\n  parallel: false\n",
        flag: None,
        variable: None,
        set: |to, node, _| store(&mut to.tools.parallel, node.read()),
    },
    Key {
        path: "tools.max_parallel",
        takes: "number from 1",
        default: "8",
        means: "How many of them run at the same time.",
        example: "tools:\n  max_parallel: 4\n",
        flag: None,
        variable: None,
        set: |to, node, _| store(&mut to.tools.max_parallel, at_least_one(node)),
    },
    Key {
        path: "tools.mcpServers",
        takes: "map of servers by name, or a list of maps of `name` and `config`",
        default: "none",
        means: "MCP servers, as other programs write them: `command`, `args` and `env` of one to start, or `url` and `headers` of one that runs. They are checked and kept; toolgate does not start them yet, and `toolgate doctor` says so.",
        example: "tools:\n  mcpServers:\n    files:\n      command: mcp-files\n      args: [--root, .]\n",
        flag: None,
        variable: None,
        set: |to, node, _| set_servers(to, node),
    },
    Key {
        path: "permissions.mode",
        takes: "`allow-all`, `read-only`, `always-ask` or `deny-all`",
        default: "allow-all",
        means: "What happens to a call that no rule decides. A session that goes on keeps its mode unless the flag or the managed file says another.",
        example: "permissions:\n  mode: read-only\n",
        flag: Some("--approve"),
        variable: Some("TOOLGATE_APPROVE"),
        set: |to, node, _| store(&mut to.permissions.mode, word(node, |word| word.parse()).map(Some)),
    },
    Key {
        path: "permissions.policy",
        takes: "`rules` or `token-allowlist`",
        default: "rules",
        means: "Which policy judges. `token-allowlist` is not built yet and is refused.",
        example: "permissions:\n  policy: rules\n",
        flag: None,
        variable: None,
        set: |to, node, _| store(&mut to.permissions.policy, node.read()),
    },
    Key {
        path: "permissions.allow",
        takes: "list of rules",
        default: "none",
        means: "What may run without a question. A rule that cannot be read is dropped, with a note. Rules of all layers add up. An address that is private, of this machine or of its link is fetched only under a rule that names that very host, such as `WebFetch(domain:127.0.0.1)`.",
        example: "permissions:\n  allow:\n    - Bash(git status)\n    - Bash(cargo test *)\n",
        flag: Some("--allow"),
        variable: None,
        set: |to, node, from| add_rules(to, Tier::Allow, node, from),
    },
    Key {
        path: "permissions.ask",
        takes: "list of rules",
        default: "none",
        means: "What asks in every mode. A rule that cannot be read stops the start. Those of a project count also where it is not trusted.",
        example: "permissions:\n  ask:\n    - Bash(git push *)\n",
        flag: Some("--ask"),
        variable: None,
        set: |to, node, from| add_rules(to, Tier::Ask, node, from),
    },
    Key {
        path: "permissions.deny",
        takes: "list of rules",
        default: "none",
        means: "What may not run. A rule that cannot be read stops the start. Those of a project count also where it is not trusted.",
        example: "permissions:\n  deny:\n    - Bash(rm -rf *)\n",
        flag: Some("--deny"),
        variable: None,
        set: |to, node, from| add_rules(to, Tier::Deny, node, from),
    },
    Key {
        path: "permissions.tests",
        takes: "list of maps of `cmd` and `expect` (`allow`, `ask` or `deny`)",
        default: "none",
        means: "What the rules of this file and the weaker layers are expected to say of a command, checked at every start. They speak of rules alone: no mode enters.",
        example: "permissions:\n  allow: [Bash(git status)]\n  tests:\n    - cmd: git status\n      expect: allow\n",
        flag: None,
        variable: None,
        set: |to, node, from| add_tests(to, node, from),
    },
    Key {
        path: "sandbox.mode",
        takes: "`read-only`, `workspace-write` or `off`",
        default: "off, since there is no sandbox yet",
        means: "What commands may change. The first two are refused until there is a sandbox that holds them.",
        example: "sandbox:\n  mode: \"off\"\n",
        flag: Some("--sandbox"),
        variable: Some("TOOLGATE_SANDBOX"),
        set: |to, node, _| store(&mut to.sandbox.mode, node.read()),
    },
    Key {
        path: "sandbox.required",
        takes: "`true` or `false`",
        default: "false",
        means: "Whether nothing may run without a sandbox. `true` is refused until there is one.",
        example: "sandbox:\n  required: false\n",
        flag: None,
        variable: None,
        set: |to, node, _| store(&mut to.sandbox.required, node.read()),
    },
    Key {
        path: "sandbox.writable",
        takes: "list of folders",
        default: "none",
        means: "Folders beside the workspace that commands may change. Without a sandbox they may change whatever the user may.",
        example: "sandbox:\n  writable: [/var/cache/builds]\n",
        flag: None,
        variable: None,
        set: |to, node, _| store(&mut to.sandbox.writable, node.read()),
    },
    Key {
        path: "network",
        takes: "`on`, `off`, or a list of hosts",
        default: "on, since there is no sandbox yet",
        means: "What commands may reach. All but `on` is refused until there is a sandbox that holds it.",
        example: "network: \"on\"\n",
        flag: Some("--network"),
        variable: Some("TOOLGATE_NETWORK"),
        set: |to, node, _| store(&mut to.network, network(node)),
    },
    Key {
        path: "env.pass",
        takes: "list of variables' names",
        default: "none",
        means: "Variables that reach commands although their names look like secrets.",
        example: "env:\n  pass: [NPM_TOKEN]\n",
        flag: None,
        variable: None,
        set: |to, node, _| store(&mut to.env.pass, node.read()),
    },
    Key {
        path: "env.set",
        takes: "map of texts by variables' names",
        default: "none",
        means: "Variables that commands get over everything else. Values under names of secrets are redacted in traces and shown by no command.",
        example: "env:\n  set:\n    RUST_BACKTRACE: \"1\"\n",
        flag: None,
        variable: None,
        set: |to, node, _| set_env(to, node),
    },
    Key {
        path: "login_shell",
        takes: "`once`, `per_command` or `off`",
        default: "once",
        means: "How commands get the variables of the user's login shell: read once a session, read by every command (`bash -lc`), or not at all.",
        example: "login_shell: \"off\"\n",
        flag: None,
        variable: None,
        set: |to, node, _| store(&mut to.login_shell, node.read()),
    },
    Key {
        path: "trust.default",
        takes: "`allow`, `ask` or `deny`",
        default: "ask, which is no: nobody is asked yet",
        means: "Whether a project's own settings count. Its deny and ask rules always do. A project's file cannot set it.",
        example: "trust:\n  default: deny\n",
        flag: Some("--trust, --no-trust"),
        variable: None,
        set: |to, node, _| store(&mut to.trust, node.read()),
    },
    Key {
        path: "hooks",
        takes: "map of lists by event: `SessionStart`, `UserPromptSubmit`, `PreToolUse`, `PermissionRequest`, `PostToolUse`, `Stop`, `SessionEnd`",
        default: "none",
        means: "Programs of your own that are asked before a call, a question, a prompt or an end, and may object; `docs/tools.md` is a guide. `command` is a line of shell, or a list of a program and its arguments (found as in `tools.external`). `matcher` holds the names of tools, or of their rules, with `|` between them and `*` for any letters; all without it. `timeout` is in seconds (60 without it). `on_failure` says what a crash, a late answer or one that cannot be understood means: `block` (the default of `PreToolUse` and `UserPromptSubmit`) or `continue` (of the others). The nested form of other programs, a `matcher` with a list `hooks`, is read too. Hooks of all layers add up and are asked in their order; those of a project only where it is trusted.",
        example: "hooks:\n  PreToolUse:\n    - matcher: Bash\n      command: ~/bin/check-command\n      timeout: 10\n  Stop:\n    - command: make -s check >&2 || exit 2\n      timeout: 300\n",
        flag: None,
        variable: None,
        set: |to, node, from| {
            to.hooks.extend(hooks::read(node, from)?);
            Ok(())
        },
    },
];

fn store<T>(place: &mut T, value: Result<T, Wrong>) -> Result<(), Wrong> {
    *place = value?;
    Ok(())
}

fn set_models(to: &mut Settings, node: &Node) -> Result<(), Wrong> {
    let models: Vec<Model> = node.read()?;
    for (at, model) in models.iter().enumerate() {
        if model.provider.is_empty() || model.id.is_empty() {
            return Err(
                Wrong::new("half a pair: `provider` and `id` both have to say something").at(node.items()[at].line)
            );
        }
        if models[..at].iter().any(|other| (&other.provider, &other.id) == (&model.provider, &model.id)) {
            return Err(
                Wrong::new(format!("two models are named {}/{}", model.provider, model.id)).at(node.items()[at].line)
            );
        }
    }
    to.models = models;
    Ok(())
}

fn set_servers(to: &mut Settings, node: &Node) -> Result<(), Wrong> {
    to.tools.servers.clear();
    let listed = node.items().iter().map(|item| {
        let name: String =
            item.get("name").ok_or_else(|| Wrong::new("the key `name` is missing").at(item.line))?.read()?;
        let config = item.get("config").ok_or_else(|| Wrong::new("the key `config` is missing").at(item.line))?;
        Ok((name, config))
    });
    let mapped = node.entries().iter().map(|entry| Ok((entry.key.clone(), &entry.value)));
    if !matches!(node.kind, Kind::List(_) | Kind::Map(_)) {
        return Err(Wrong::new("a map of servers by name belongs there").at(node.line));
    }
    for server in listed.chain(mapped) {
        let (name, config): (String, &Node) = server?;
        check_server(config)?;
        if to.tools.servers.insert(name.clone(), config.value()).is_some() {
            return Err(Wrong::new(format!("two servers are named `{name}`")).at(config.line));
        }
    }
    Ok(())
}

/// What every form of a server has; what only some programs write is kept as it stands.
fn check_server(config: &Node) -> Result<(), Wrong> {
    let text = |key: &str| config.get(key).map(Node::read::<String>).transpose();
    match (text("command")?, text("url")?) {
        (Some(_), Some(_)) => return Err(Wrong::new("a server has a `command` or a `url`, not both").at(config.line)),
        (None, None) => {
            return Err(
                Wrong::new("a server needs a `command` to start it, or the `url` where it runs").at(config.line)
            );
        }
        _ => {}
    }
    config.get("args").map(Node::read::<Vec<String>>).transpose()?;
    for key in ["env", "headers"] {
        config.get(key).map(Node::read::<std::collections::BTreeMap<String, String>>).transpose()?;
    }
    Ok(())
}

fn add_rules(to: &mut Settings, tier: Tier, node: &Node, from: &Source) -> Result<(), Wrong> {
    let (rules, notes) = rules::read(tier, node, from, &to.tools.own_names)?;
    to.permissions.rules.extend(rules);
    to.notes.extend(notes);
    Ok(())
}

fn add_tests(to: &mut Settings, node: &Node, from: &Source) -> Result<(), Wrong> {
    to.permissions.tests.extend(rules::read_tests(node, from)?);
    Ok(())
}

fn set_env(to: &mut Settings, node: &Node) -> Result<(), Wrong> {
    let odd = node.entries().iter().find(|entry| entry.key.is_empty() || entry.key.contains(['=', '\0']));
    if let Some(entry) = odd {
        return Err(Wrong::new(format!("`{}` cannot be a variable's name", entry.key)).at(entry.line));
    }
    to.env.set = node.read()?;
    Ok(())
}

fn network(node: &Node) -> Result<Network, Wrong> {
    match &node.kind {
        Kind::List(_) => Ok(Network::Hosts(node.read()?)),
        _ => word(node, |word| match word {
            "on" => Ok(Network::On),
            "off" => Ok(Network::Off),
            _ => Err(format!("`{word}` is not known here; there is on, off, or a list of hosts")),
        }),
    }
}

fn word<T>(node: &Node, meaning: impl Fn(&str) -> Result<T, String>) -> Result<T, Wrong> {
    meaning(&node.read::<String>()?).map_err(|what| Wrong::new(what).at(node.line))
}

/// A number that is a limit where it is positive.
fn limit(node: &Node) -> Result<Option<u64>, Wrong> {
    Ok(u64::try_from(node.read::<i64>()?).ok().filter(|limit| *limit > 0))
}

fn small_limit(node: &Node) -> Result<Option<u32>, Wrong> {
    Ok(limit(node)?.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)))
}

fn at_least_one(node: &Node) -> Result<usize, Wrong> {
    match node.read::<usize>()? {
        0 => Err(Wrong::new("0 would run nothing; `tools.parallel: false` runs one after the other").at(node.line)),
        many => Ok(many),
    }
}
