//! `baton config`.

use crate::config::Loaded;
use crate::error::CommandError;
use crate::output::{print, table};

/// Every setting, its value and where it came from.
pub(crate) fn show(loaded: &Loaded) -> Result<(), CommandError> {
    let rows: Vec<_> = loaded.entries().map(|entry| [entry.key, entry.value, entry.origin.to_string()]).collect();
    Ok(print(&table(&rows))?)
}

/// Prints the reference of all settings.
pub(crate) fn markdown(loaded: &Loaded) -> Result<(), CommandError> {
    Ok(print(&reference(loaded))?)
}

/// A page about all settings; the values of `loaded` do not matter, its keys do.
fn reference(loaded: &Loaded) -> String {
    let mut text = String::from("# Configuration\n\n");
    text += "Defaults < TOML file (`--config`) < environment (`BATON_ROUTER__LISTEN=...`) < flags. Unknown keys are \
             errors.\n`baton config show` prints every value and where it came from; \
             `baton config show --markdown` prints this page.\n";
    let mut section = "";
    let entries: Vec<_> = loaded.entries().collect();
    for entry in &entries {
        let (head, key) = entry.key.split_once('.').expect("a key names its section");
        if head != section {
            section = head;
            text += &format!("\n## [{section}]\n\n| key | default | what it is |\n| --- | --- | --- |\n");
        }
        text += &format!("| `{key}` | `{}` | {} |\n", entry.default, entry.about);
    }
    text
}

/// Whether `baton serve` would accept it.
pub(crate) fn check(loaded: Loaded) -> Result<(), CommandError> {
    loaded.checked()?;
    Ok(print("the configuration is good\n")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Flags;
    use crate::config::load;

    #[test]
    fn the_committed_reference_is_current() {
        let text = reference(&load(&Flags::default()).expect("the defaults resolve"));
        let fix = "docs/configuration.md is stale: baton config show --markdown > docs/configuration.md";
        assert_eq!(include_str!("../../../docs/configuration.md"), text, "{fix}");
    }
}
