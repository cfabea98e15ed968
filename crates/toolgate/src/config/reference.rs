//! The reference page: what `docs/configuration.md` holds and `toolgate config reference` prints, written from [`KEYS`].

use super::keys::KEYS;
use crate::models::VENDORS;

const HEAD: &str = "# Configuration

This page is written by `toolgate config reference`; a test fails when it is out of step with the program.

A configuration is a YAML file: a map of the keys below. Only `true` and `false` are yes and no, a key must not stand there twice, and an
unknown key is an error that names its line.

| layer, weakest first | where |
|---|---|
| built-in | the defaults below |
| user | `$XDG_CONFIG_HOME/toolgate/config.yaml`, by default `~/.config/toolgate/config.yaml` |
| project | `.toolgate/config.yaml` in the workspace; where the project is not trusted, only `permissions.deny` and `permissions.ask` |
| `--config FILE` | one more file; PenguinHarness's `system_config.yaml` is read as well |
| variables | named below; an empty one counts as unset |
| flags | named below |
| managed | `/etc/toolgate/config.yaml` |

A later layer replaces the value of an earlier one, lists whole; rules (`permissions.allow`, `ask`, `deny`, `tests`) and `hooks` add up over all layers.
`toolgate config show` prints each value and where it came from, `toolgate config check` reads everything and says what is wrong,
`toolgate config path` prints where the files stand. A file that is not there is no error; one that cannot be read stops the start with
exit code 3.

## Models and keys

A run asks the model of `--model [PROVIDER/]ID`, else a resumed session's own, else `default_model`, else the default model of the first
well-known provider whose key is in the environment or in the file of keys, else, where exactly one server with models answers on its usual
port of this machine, that server's first model. `toolgate models` shows what can be used, why, and what is missing for the rest.

A key comes from the variable that the model's `api_key_env` names, else from the provider's own variable, else from
`$XDG_CONFIG_HOME/toolgate/keys.yaml`: a map of keys by provider, which only its owner may read (mode 0600). Where
`OPENAI_BASE_URL` or `--base-url` leads elsewhere, `openai` speaks `openai-chat`.

";

const KEYS_HEAD: &str = "
## Keys
";

/// The whole page.
pub(crate) fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str(
        "| well-known provider | wire | its key | its address instead | its default model |\n|---|---|---|---|---|\n",
    );
    for vendor in VENDORS {
        let keys: Vec<String> = vendor.keys.iter().map(|name| format!("`${name}`")).collect();
        let address = vendor.base_variable.map_or_else(String::new, |name| format!("`${name}`"));
        let line =
            [vendor.name, vendor.api.as_str(), &keys.join(", "), &address, &format!("`{}`", vendor.model)].join(" | ");
        page.push_str(&format!("| {line} |\n"));
    }
    page.push_str(KEYS_HEAD);
    for key in KEYS {
        let also = [
            key.flag.map(|flag| format!("`{}`", flag.replace(", ", "`, `"))),
            key.variable.map(|name| format!("`${name}`")),
        ];
        let also: Vec<String> = also.into_iter().flatten().collect();
        page.push_str(&format!(
            "\n### `{}`\n\n{}\n\n* Takes: {}\n* Default: {}\n",
            key.path, key.means, key.takes, key.default
        ));
        if !also.is_empty() {
            page.push_str(&format!("* Also: {}\n", also.join(", ")));
        }
        page.push_str(&format!("\n```yaml\n{}```\n", key.example));
    }
    page
}
