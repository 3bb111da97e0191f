//! `baton config`.

use crate::config::Loaded;
use crate::error::CommandError;
use crate::output::{print, table};

/// Every setting, its value and where it came from.
pub(crate) fn show(loaded: &Loaded) -> Result<(), CommandError> {
    let rows: Vec<_> = loaded.entries().map(|entry| [entry.key, entry.value, entry.origin.to_string()]).collect();
    Ok(print(&table(&rows))?)
}

/// A reference of all settings.
pub(crate) fn markdown(loaded: &Loaded) -> Result<(), CommandError> {
    let mut text = String::from("# Configuration\n\n");
    text += "Defaults < TOML file (`--config`) < environment (`BATON_ROUTER__LISTEN=...`) < flags. Unknown keys are \
             errors.\n`baton config show` prints every value and where it came from; \
             `baton config show --markdown` prints this page.\n";
    let mut section = "";
    let entries: Vec<_> = loaded.entries().collect();
    for entry in &entries {
        let (head, key) = entry.key.split_once('.').unwrap_or(("", &entry.key));
        if head != section {
            section = head;
            text += &format!("\n## [{section}]\n\n| key | default | what it is |\n| --- | --- | --- |\n");
        }
        text += &format!("| `{key}` | `{}` | {} |\n", entry.default, entry.about);
    }
    Ok(print(&text)?)
}

/// Whether `baton serve` would accept it.
pub(crate) fn check(loaded: Loaded) -> Result<(), CommandError> {
    loaded.checked()?;
    Ok(print("the configuration is good\n")?)
}
