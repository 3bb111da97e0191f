//! What a worker says of itself in a directory.

use crate::{Address, AddressError};
use domain::session::Role;
use domain::{Incarnation, WorkerId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Largest entry that is read, in bytes of JSON.
pub const ENTRY_BYTES_MAX: usize = 4096;
/// The form of the JSON. Fields may be added within a form; readers skip fields that they do not have.
const FORM: u32 = 1;

/// What a worker says of itself. It is proven by nothing: a session proves who is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The worker.
    pub id: WorkerId,
    /// Its life; a later one is larger.
    pub incarnation: Incarnation,
    /// Its name, for people.
    pub name: String,
    /// What it is there for.
    pub role: Role,
    /// Where it takes sessions.
    pub address: Address,
    /// Where its operators reach it, if others than its host do.
    pub ops: Option<Address>,
    /// The name of its model.
    pub model: String,
    /// The fingerprint of its KV layout.
    pub layout: u64,
    /// Where it is.
    pub topology: Topology,
}

/// Where a worker is. An empty label is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Topology {
    /// The host.
    pub host: String,
    /// The memory node of the host, if the worker uses one alone.
    pub numa: Option<u32>,
    /// The rack.
    pub rack: String,
    /// The domain in which devices reach each other over NVLink.
    pub nvlink_domain: String,
    /// The zone of the data center.
    pub zone: String,
}

/// Why bytes are no entry.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// There are too many of them.
    #[error("it has {0} bytes, at most {ENTRY_BYTES_MAX} are read")]
    TooLong(usize),
    /// They are no JSON of an entry.
    #[error("it is no entry of a worker: {0}")]
    Json(#[from] serde_json::Error),
    /// A later release of Baton wrote them.
    #[error("it has the form {0}, this release reads the form {FORM}")]
    Form(u32),
    /// A number is none.
    #[error("{0:?} is no number")]
    Number(String),
    /// An address is none.
    #[error(transparent)]
    Address(#[from] AddressError),
}

/// An entry as JSON. Numbers of 64 bits are texts: many readers of JSON round them.
#[derive(Serialize, Deserialize)]
struct Written {
    form: u32,
    id: u32,
    incarnation: String,
    name: String,
    role: Role,
    address: String,
    #[serde(default)]
    ops: String,
    #[serde(default)]
    model: String,
    #[serde(default)]
    layout: String,
    #[serde(default)]
    topology: Topology,
}

/// The form alone: all else may have changed in another one.
#[derive(Deserialize)]
struct Form {
    form: u32,
}

impl Entry {
    /// Returns the entry as JSON.
    pub fn encode(&self) -> Vec<u8> {
        let Self { id, incarnation, name, role, address, ops, model, layout, topology } = self.clone();
        let written = Written {
            form: FORM,
            id: id.0,
            incarnation: incarnation.0.to_string(),
            name,
            role,
            address: address.to_string(),
            ops: ops.map_or(String::new(), |ops| ops.to_string()),
            model,
            layout: format!("{layout:016x}"),
            topology,
        };
        serde_json::to_vec(&written).expect("texts and numbers are JSON")
    }

    /// Reads an entry. Errors: [`EntryError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, EntryError> {
        if bytes.len() > ENTRY_BYTES_MAX {
            return Err(EntryError::TooLong(bytes.len()));
        }
        let Form { form } = serde_json::from_slice(bytes)?;
        if form != FORM {
            return Err(EntryError::Form(form));
        }
        let Written { id, incarnation, name, role, address, ops, model, layout, topology, .. } =
            serde_json::from_slice(bytes)?;
        Ok(Self {
            id: WorkerId(id),
            incarnation: Incarnation(incarnation.parse().map_err(|_| EntryError::Number(incarnation))?),
            name,
            role,
            address: address.parse()?,
            ops: if ops.is_empty() { None } else { Some(ops.parse()?) },
            model,
            layout: if layout.is_empty() {
                0
            } else {
                u64::from_str_radix(&layout, 16).map_err(|_| EntryError::Number(layout))?
            },
            topology,
        })
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numa = self.numa.map_or(String::new(), |node| node.to_string());
        let labels = [
            ("host", &self.host),
            ("numa", &numa),
            ("rack", &self.rack),
            ("nvlink_domain", &self.nvlink_domain),
            ("zone", &self.zone),
        ];
        let known = labels.iter().filter(|(_, value)| !value.is_empty());
        let known: Vec<_> = known.map(|(label, value)| format!("{label}={value}")).collect();
        f.write_str(&known.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            id: WorkerId(7),
            incarnation: Incarnation(u64::MAX),
            name: "decode-a".to_owned(),
            role: Role::Decode,
            address: "10.0.0.1:9001".parse().expect("an address"),
            ops: Some("10.0.0.1:9002".parse().expect("an address")),
            model: "tiny-rust".to_owned(),
            layout: 0x0123_4567_89ab_cdef,
            topology: Topology { host: "a".to_owned(), numa: Some(1), zone: "z".to_owned(), ..Topology::default() },
        }
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        let alone = Entry { ops: None, topology: Topology::default(), ..entry() };
        for entry in [entry(), alone] {
            assert_eq!(Entry::decode(&entry.encode()).expect("it can be read"), entry);
        }
        assert_eq!(entry().topology.to_string(), "host=a numa=1 zone=z");
    }

    #[test]
    fn the_written_form_stays_as_it_is() {
        let text = r#"{"form":1,"id":7,"incarnation":"18446744073709551615","name":"decode-a","role":"decode","address":"10.0.0.1:9001","ops":"10.0.0.1:9002","model":"tiny-rust","layout":"0123456789abcdef","topology":{"host":"a","numa":1,"rack":"","nvlink_domain":"","zone":"z"}}"#;
        assert_eq!(String::from_utf8(entry().encode()).expect("JSON is UTF-8"), text);
    }

    #[test]
    fn fields_may_be_added_and_labels_may_be_missing() {
        let text = r#"{"form":1,"id":7,"incarnation":"3","name":"a","role":"prefill","address":"h:1","shape":[1],"topology":{"row":"9"}}"#;
        let entry = Entry::decode(text.as_bytes()).expect("it can be read");
        assert_eq!((entry.ops, entry.layout, entry.topology), (None, 0, Topology::default()));
    }

    #[test]
    fn what_is_no_entry_is_refused_with_the_reason() {
        let refused = |text: &str| Entry::decode(text.as_bytes()).expect_err(text).to_string();
        assert!(refused("").contains("it is no entry of a worker"));
        assert_eq!(refused(r#"{"form":2}"#), "it has the form 2, this release reads the form 1");
        assert_eq!(refused(&" ".repeat(5000)), "it has 5000 bytes, at most 4096 are read");
        let with = |incarnation: &str, address: &str| {
            format!(
                r#"{{"form":1,"id":7,"incarnation":"{incarnation}","name":"a","role":"prefill","address":"{address}"}}"#
            )
        };
        assert_eq!(refused(&with("x", "h:1")), "\"x\" is no number");
        assert_eq!(refused(&with("1", "h")), "\"h\" is not HOST:PORT");
    }
}
