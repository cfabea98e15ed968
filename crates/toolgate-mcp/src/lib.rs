//! toolgate's side of MCP. This crate alone knows the protocol; so far it knows how tools of other servers are named.

/// The longest name that every provider accepts; characters.
const LONGEST_NAME: usize = 64;

/// The name under which a model sees a server's tool: `mcp__server__tool`. `None` when no provider would accept it.
pub fn tool_name(server: &str, tool: &str) -> Option<String> {
    let word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let name = format!("mcp__{server}__{tool}");
    (word(server) && word(tool) && name.len() <= LONGEST_NAME).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::tool_name;

    #[test]
    fn a_name_that_no_provider_accepts_is_none() {
        assert_eq!(tool_name("git", "log-all").as_deref(), Some("mcp__git__log-all"));
        for (server, tool) in [("", "x"), ("a b", "x"), ("a", "x.y"), ("a", "é"), ("a", &"x".repeat(64))] {
            assert_eq!(tool_name(server, tool), None, "{server} {tool}");
        }
    }
}
