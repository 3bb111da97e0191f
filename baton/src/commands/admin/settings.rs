//! Settings that can change at run time, as tables.

use super::tables::with_head;
use proto::admin::{ListSettingsResponse, Setting, SettingChange};

/// Lists settings, one a line.
pub(super) fn limits(answer: &ListSettingsResponse) -> String {
    let row = |setting: &Setting| {
        let unit = if setting.unit.is_empty() { "-" } else { &setting.unit };
        [setting.name.clone(), setting.value.clone(), unit.to_owned(), setting.from.clone()]
    };
    let none = "no setting of this process can change at run time";
    with_head(["SETTING", "VALUE", "UNIT", "FROM"], answer.settings.iter().map(row).collect(), none)
}

/// Lists what changed, one a line.
pub(super) fn changes(changes: &[SettingChange]) -> String {
    let row = |change: &SettingChange| [change.name.clone(), change.before.clone(), change.after.clone()];
    with_head(["SETTING", "BEFORE", "AFTER"], changes.iter().map(row).collect(), "nothing changed")
}

/// Lists what a call changed, and the command that undoes it.
pub(super) fn changes_and_undo(changed: &[SettingChange]) -> String {
    let undo = changed.iter().map(|change| format!(" {}={}", change.name, in_shell(&change.before)));
    let undo: String = undo.collect();
    let undo = if undo.is_empty() { undo } else { format!("undo: baton admin limits{undo}\n") };
    changes(changed) + &undo
}

/// Returns a value of TOML as a shell takes it.
fn in_shell(value: &str) -> String {
    let plain = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    let is_word = |text: &str| text.chars().all(|it| it.is_ascii_alphanumeric() || "._-:,=/".contains(it));
    if is_word(plain) { plain.to_owned() } else { format!("'{}'", value.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, before: &str, after: &str) -> SettingChange {
        SettingChange { name: name.to_owned(), before: before.to_owned(), after: after.to_owned() }
    }

    #[test]
    fn a_change_is_shown_with_its_undo() {
        let changed = [
            change("router.requests_max", "1024", "8"),
            change("placement.fetch", "\"auto\"", "\"never\""),
            change("cluster.workers", "\"a:1, b:2\"", "\"a:1\""),
            change("log.level", "\"it's\"", "\"info\""),
        ];
        let expect = r#"
SETTING              BEFORE        AFTER
router.requests_max  1024          8
placement.fetch      "auto"        "never"
cluster.workers      "a:1, b:2"    "a:1"
log.level            "it's"        "info"
undo: baton admin limits router.requests_max=1024 placement.fetch=auto cluster.workers='"a:1, b:2"' log.level='"it'\''s"'
"#;
        let wanted: Vec<Vec<&str>> =
            expect.trim_start().lines().map(|line| line.split_whitespace().collect()).collect();
        let text = changes_and_undo(&changed);
        assert_eq!(text.lines().map(|line| line.split_whitespace().collect()).collect::<Vec<Vec<&str>>>(), wanted);
        assert_eq!(changes_and_undo(&[]), "nothing changed\n");
    }

    #[test]
    fn settings_are_a_table_with_units() {
        let deadline = Setting {
            name: "router.deadline_s".to_owned(),
            value: "600".to_owned(),
            unit: "s".to_owned(),
            from: "default".to_owned(),
            ..Setting::default()
        };
        let level = Setting {
            name: "log.level".to_owned(),
            value: "\"info\"".to_owned(),
            from: "admin call".to_owned(),
            ..Setting::default()
        };
        let expect = "\
SETTING            VALUE   UNIT  FROM
router.deadline_s  600     s     default
log.level          \"info\"  -     admin call
";
        assert_eq!(limits(&ListSettingsResponse { settings: vec![deadline, level] }), expect);
    }
}
