//! `baton config`.

use crate::config::{Loaded, SECTIONS, changeable};
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

/// What the reference says before its first section.
const HEAD: &str = r#"# Configuration

Baton reads settings from four places. A later place overrides an earlier one: the defaults, a TOML file
(`--config`), the environment, flags.

| place | example |
| --- | --- |
| TOML file | `listen = "0.0.0.0:8000"` in the section `[router]` |
| environment | `BATON_ROUTER__LISTEN=0.0.0.0:8000` |
| flag | `--set router.listen=0.0.0.0:8000` |

An unknown setting is an error. Sizes take a unit (`64KiB`, `16MiB`, `1GiB`) or are a number of bytes. The end of a name
says its unit: `_s` seconds, `_ms` milliseconds, `_us` microseconds, `_percent` percent.

A process reads its configuration at the start, and again on SIGHUP or when an operator asks. Settings that say "Can
change at run time" are then changed. If any other one differs, nothing is changed, and the log names it. `baton admin
limits` changes them without the configuration ([change settings at run time](../operate/reload.md)).

- `baton config show` prints every setting, its value and where the value came from.
- `baton config check` says whether `baton serve` would accept the configuration.
- `baton config show --markdown` prints this page.
"#;

/// Returns the page about all settings. It depends on the keys of `loaded`, not on its values.
pub(crate) fn reference(loaded: &Loaded) -> String {
    let mut text = HEAD.to_owned();
    let entries: Vec<_> = loaded.entries().collect();
    for (section, about) in SECTIONS {
        text +=
            &format!("\n## [{section}]\n\n{}\n\n| setting | default | meaning |\n| --- | --- | --- |\n", about.trim());
        for entry in &entries {
            if let Some((_, key)) = entry.key.rsplit_once('.').filter(|(head, _)| head == section) {
                let changes = if changeable(&entry.key).is_some() { " Can change at run time." } else { "" };
                text += &format!("| `{key}` | `{}` | {}{changes} |\n", entry.default, entry.about);
            }
        }
    }
    text
}

/// Whether `baton serve` would accept it.
pub(crate) fn check(loaded: &Loaded) -> Result<(), CommandError> {
    loaded.check()?;
    Ok(print("the configuration is good\n")?)
}
