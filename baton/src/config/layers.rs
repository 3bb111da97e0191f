//! Merging the layers, with the origin of every value.

use super::check::{Problem, problems};
use super::flags::Flags;
use super::hidden::SHOWN;
use super::origin::Origin;
use super::tree::{Config, HIDDEN, KEYS, SECTIONS};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// What names of environment variables begin with.
const PREFIX: &str = "BATON_";
/// The key that `baton admin` shows, which is no setting: no process that serves wants it.
const OPERATOR_KEY: &str = "BATON_KEY";
/// What others' tools read of the environment, and the settings that it is the default of.
const USUAL: [(&str, &str); 7] = [
    ("AWS_ACCESS_KEY_ID", "object.key_id"),
    ("AWS_SECRET_ACCESS_KEY", "object.secret"),
    ("AWS_SESSION_TOKEN", "object.token"),
    ("AWS_REGION", "object.region"),
    ("KUBERNETES_SERVICE_HOST", "discovery.kubernetes.service_host"),
    ("KUBERNETES_SERVICE_PORT", "discovery.kubernetes.service_port"),
    ("XDG_RUNTIME_DIR", "cluster.runtime_folder"),
];
/// A key further than this from what was written is no likely meaning of it (Jaro-Winkler similarity).
const LIKENESS_MIN: f64 = 0.7;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file is no TOML.
    #[error("{path} is not TOML: {reason}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What and where.
        reason: String,
    },
    /// There is no such setting.
    #[error("{origin}: there is no setting {key:?}; {}", suggestion(.nearest))]
    Unknown {
        /// Who names it.
        origin: Origin,
        /// The name.
        key: String,
        /// What may have been meant.
        nearest: Option<&'static str>,
    },
    /// A setting cannot have this value.
    #[error("{origin}: {key}: {reason}")]
    Value {
        /// Who says it.
        origin: Origin,
        /// The setting.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// `--set` without a key and a value.
    #[error("--set {0:?}: write it as KEY=VALUE, for example --set engine.chunk_tokens=256")]
    Set(String),
    /// Each value is possible, all of them together are not.
    #[error("{}", .0.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
    Problems(Vec<Problem>),
}

fn suggestion(nearest: &Option<&'static str>) -> String {
    match nearest {
        Some(key) => format!("did you mean {key}?"),
        None => "`baton config show` lists all".to_owned(),
    }
}

/// A configuration, and where each value came from.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    config: Config,
    values: BTreeMap<&'static str, (Value, Origin)>,
}

/// A setting, for printing.
pub(crate) struct Entry {
    /// Its key.
    pub(crate) key: String,
    /// Its value as TOML.
    pub(crate) value: String,
    /// Its default as TOML.
    pub(crate) default: String,
    /// Where the value came from.
    pub(crate) origin: Origin,
    /// What it is.
    pub(crate) about: &'static str,
}

/// A setting that two configurations do not share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Its key.
    pub(crate) key: &'static str,
    /// Its value in the first one, as TOML; of a secret, whether there is one.
    pub(crate) from: String,
    /// Its value in the second one.
    pub(crate) to: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} -> {})", self.key, self.from, self.to)
    }
}

/// Reads file and environment and lays the flags over them. Errors: [`ConfigError`].
pub(crate) fn load(flags: &Flags) -> Result<Loaded, ConfigError> {
    let file = match &flags.config {
        None => None,
        Some(path) => {
            let read = std::fs::read_to_string(path);
            Some((path.as_path(), read.map_err(|source| ConfigError::Read { path: path.clone(), source })?))
        }
    };
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    let environment = std::env::vars_os();
    resolve(file.as_ref().map(|(path, text)| (*path, text.as_str())), environment, flags)
}

/// Returns the key of an operator that the environment has, if it has one.
#[expect(clippy::disallowed_methods, reason = "this module alone reads the environment")]
pub(crate) fn operator_key() -> Option<String> {
    std::env::var(OPERATOR_KEY).ok().filter(|key| !key.is_empty())
}

/// Returns the layers as data. Errors: [`ConfigError`].
pub(super) fn resolve(
    file: Option<(&Path, &str)>,
    environment: impl Iterator<Item = (OsString, OsString)>,
    flags: &Flags,
) -> Result<Loaded, ConfigError> {
    let mut layers = Layers::new();
    let environment: Vec<(OsString, OsString)> = environment.collect();
    layers.usual(&environment)?;
    if let Some((path, text)) = file {
        layers.file(path, text)?;
    }
    layers.environment(environment.into_iter())?;
    for (flag, key, value) in &flags.given {
        layers.text(key, value, Origin::Flag((*flag).to_owned()))?;
    }
    for assignment in &flags.set {
        let (key, value) = assignment.split_once('=').ok_or_else(|| ConfigError::Set(assignment.clone()))?;
        layers.flag(key.trim(), value)?;
    }
    layers.unmix();
    Ok(layers.finish())
}

impl Loaded {
    /// Returns the settings. Errors: [`ConfigError::Problems`], all of them.
    pub(crate) fn checked(self) -> Result<Config, ConfigError> {
        self.check()?;
        Ok(self.config)
    }

    /// Checks that the settings go together. Errors: [`ConfigError::Problems`], all of them.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let found = problems(&self.config, |key| self.values[key].1.clone());
        if found.is_empty() { Ok(()) } else { Err(ConfigError::Problems(found)) }
    }

    /// Returns the settings, whether or not they go together.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the same with these values, which an operator gives: by key, as TOML or as a flag says them. Errors:
    /// [`ConfigError`], if a key or a value is wrong by itself.
    pub(crate) fn with(&self, values: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let mut layers = Layers { values: self.values.clone() };
        values.iter().try_for_each(|(key, value)| layers.text(key, &plain(value), Origin::Call))?;
        Ok(layers.finish())
    }

    /// Lists the settings that have other values in `other`, in the order of the tree.
    pub(crate) fn differences(&self, other: &Self) -> Vec<Difference> {
        let changed = KEYS.iter().filter(|(key, _)| self.values[key].0 != other.values[key].0);
        let (from, to) = (|key| self.shown(key), |key| other.shown(key));
        changed.map(|&(key, _)| Difference { key, from: from(key), to: to(key) }).collect()
    }

    /// Returns a value as TOML, or what stands for it.
    fn shown(&self, key: &str) -> String {
        let value = &self.values[key].0;
        if HIDDEN.contains(&key) { hidden(value) } else { as_toml(value) }
    }

    /// Every setting, in the order of the tree.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        let defaults = Layers::new().values;
        KEYS.iter().map(move |&(key, about)| Entry {
            key: key.to_owned(),
            value: self.shown(key),
            default: as_toml(&defaults[key].0),
            origin: self.values[key].1.clone(),
            about: about.trim(),
        })
    }
}

/// Values so far.
struct Layers {
    values: BTreeMap<&'static str, (Value, Origin)>,
}

impl Layers {
    /// Returns the defaults.
    fn new() -> Self {
        let defaults = Table::try_from(Config::default()).expect("the defaults are plain values");
        let value = |key: &str| {
            let (section, field) = key.rsplit_once('.').expect("a key names its section");
            (defaults[section][field].clone(), Origin::Default)
        };
        Self { values: KEYS.iter().map(|&(key, _)| (key, value(key))).collect() }
    }

    fn file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let syntax = |reason: String| ConfigError::Syntax { path: path.to_owned(), reason };
        let table: Table = text.parse().map_err(|error: toml::de::Error| syntax(error.to_string()))?;
        let origin = Origin::File(path.to_owned());
        table.into_iter().try_for_each(|(name, value)| self.section(&name, value, &origin))
    }

    /// Takes a section of the file, and those within it.
    fn section(&mut self, section: &str, value: Value, origin: &Origin) -> Result<(), ConfigError> {
        let is_section = |path: &str| SECTIONS.iter().any(|(known, _)| *known == path);
        match value {
            Value::Table(entries) if is_section(section) => entries.into_iter().try_for_each(|(field, value)| {
                let key = format!("{section}.{field}");
                if is_section(&key) { self.section(&key, value, origin) } else { self.set(&key, value, origin.clone()) }
            }),
            _ => Err(unknown(section, origin.clone())),
        }
    }

    /// Takes what `--set` says. Secrets are refused: every user of the machine can read flags.
    fn flag(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let origin = Origin::Flag("--set".to_owned());
        if HIDDEN.contains(&key) {
            let has_file = KEYS.iter().any(|(known, _)| known.strip_suffix("_file") == Some(key));
            let file = if has_file { format!(", or say {key}_file") } else { String::new() };
            let variable = format!("{PREFIX}{}", key.to_ascii_uppercase().replace('.', "__"));
            let reason = format!(
                "others of this machine can read flags: say it in the environment ({variable}) or the file{file}"
            );
            return Err(ConfigError::Value { origin, key: key.to_owned(), reason });
        }
        self.text(key, value, origin)
    }

    /// What others' tools go by too: whatever is said to us overrules it.
    fn usual(&mut self, variables: &[(OsString, OsString)]) -> Result<(), ConfigError> {
        for (name, key) in USUAL {
            let value = variables.iter().find(|(known, _)| known == name).and_then(|(_, value)| value.to_str());
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                self.text(key, value, Origin::Environment(name.to_owned()))?;
            }
        }
        Ok(())
    }

    /// A token is of the key that it was given with. That of others' tools is not sent along with a key of ours.
    fn unmix(&mut self) {
        let usual = |key: &str| {
            let name = USUAL.iter().find(|(_, known)| *known == key).map(|(name, _)| *name);
            matches!(&self.values[key].1, Origin::Environment(origin) if Some(origin.as_str()) == name)
        };
        if usual("object.token") && !(usual("object.key_id") && usual("object.secret")) {
            self.values.insert("object.token", (Value::String(String::new()), Origin::Default));
        }
    }

    fn environment(&mut self, variables: impl Iterator<Item = (OsString, OsString)>) -> Result<(), ConfigError> {
        let mut ours: Vec<(String, OsString)> = variables
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.starts_with(PREFIX) && name != OPERATOR_KEY && !is_of_kubernetes(name))
            .collect();
        ours.sort();
        for (name, value) in ours {
            let key = name[PREFIX.len()..].to_ascii_lowercase().replace("__", ".");
            let origin = Origin::Environment(name);
            match value.into_string() {
                Ok(value) => self.text(&key, &value, origin)?,
                Err(_) => return Err(ConfigError::Value { origin, key, reason: "it is not UTF-8".to_owned() }),
            }
        }
        Ok(())
    }

    /// A value that came as text; the default's type says how to read it.
    fn text(&mut self, key: &str, text: &str, origin: Origin) -> Result<(), ConfigError> {
        let default = self.values.get(key).map(|(value, _)| value);
        let (value, wanted) = match default {
            Some(Value::Integer(_)) => (text.replace('_', "").parse().ok().map(Value::Integer), "a whole number"),
            Some(Value::Float(_)) => (text.parse().ok().map(Value::Float), "a number"),
            Some(Value::Boolean(_)) => (text.parse().ok().map(Value::Boolean), "true or false"),
            _ => (Some(Value::String(text.to_owned())), "a text"),
        };
        let wrong = || ConfigError::Value {
            origin: origin.clone(),
            key: key.to_owned(),
            reason: format!("{text:?} is not {wanted}"),
        };
        self.set(key, value.ok_or_else(wrong)?, origin.clone())
    }

    fn set(&mut self, key: &str, value: Value, origin: Origin) -> Result<(), ConfigError> {
        let Some((&key, (current, _))) = self.values.get_key_value(key) else { return Err(unknown(key, origin)) };
        // Quantities are texts with units; a plain number is one without.
        let value = match (current, value) {
            (Value::String(_), Value::Integer(number)) => Value::String(number.to_string()),
            (Value::String(_), Value::Float(number)) => Value::String(number.to_string()),
            (Value::Float(_), Value::Integer(number)) => Value::Float(number as f64),
            (_, value) => value,
        };
        // Alone among defaults, so that an error is this value's.
        let mut alone = Self::new();
        alone.values.insert(key, (value.clone(), origin.clone()));
        if let Err(error) = alone.config() {
            let reason = error.message().trim().to_owned();
            return Err(ConfigError::Value { origin, key: key.to_owned(), reason });
        }
        self.values.insert(key, (value, origin));
        Ok(())
    }

    fn config(&self) -> Result<Config, toml::de::Error> {
        let mut sections = Table::new();
        for (key, (value, _)) in &self.values {
            let (section, field) = key.rsplit_once('.').expect("a key names its section");
            let section = sections.entry(section).or_insert_with(|| Value::Table(Table::new()));
            let section = section.as_table_mut().expect("sections are tables");
            section.insert(field.to_owned(), value.clone());
        }
        sections.try_into()
    }

    fn finish(self) -> Loaded {
        let config = self.config().expect("every value was tried when it was set");
        Loaded { config, values: self.values }
    }
}

/// Returns whether it is a variable that Kubernetes tells pods of a service by, one that is called `baton` or
/// `baton-router`, say.
fn is_of_kubernetes(name: &str) -> bool {
    let port = |rest: &str| ["_TCP", "_UDP", "_SCTP"].iter().any(|kind| rest.contains(kind));
    let of_port = name.split_once("_PORT_").is_some_and(|(_, rest)| port(rest));
    let ends = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT"].iter().any(|end| name.ends_with(end));
    !name.contains("__") && (of_port || ends || name.contains("_SERVICE_PORT_"))
}

fn unknown(key: &str, origin: Origin) -> ConfigError {
    let likeness = |known: &str| {
        let field = known.rsplit_once('.').map_or(known, |(_, field)| field);
        strsim::jaro_winkler(key, known).max(strsim::jaro_winkler(key, field))
    };
    let best = KEYS.iter().map(|&(known, _)| (known, likeness(known))).max_by(|a, b| a.1.total_cmp(&b.1));
    let nearest = best.filter(|(_, likeness)| *likeness >= LIKENESS_MIN).map(|(known, _)| known);
    ConfigError::Unknown { origin, key: key.to_owned(), nearest }
}

/// Returns a text of TOML without its quotation marks, and anything else as it is.
fn plain(value: &str) -> String {
    let table = format!("value = {value}").parse::<Table>().ok();
    let text = table.and_then(|mut table| match table.remove("value") {
        Some(Value::String(text)) if table.is_empty() => Some(text),
        _ => None,
    });
    text.unwrap_or_else(|| value.to_owned())
}

/// Returns what stands for a value that is not shown.
fn hidden(value: &Value) -> String {
    if value.as_str().is_none_or(str::is_empty) { as_toml(value) } else { SHOWN.to_owned() }
}

fn as_toml(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Integer(number) => number.to_string(),
        // With a point, by which TOML knows it.
        Value::Float(number) => format!("{number:?}"),
        Value::Boolean(is_so) => is_so.to_string(),
        other => unreachable!("settings are texts, numbers, true or false, not {other:?}"),
    }
}
