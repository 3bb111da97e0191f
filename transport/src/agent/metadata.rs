//! What an agent tells others of itself, as bytes that anything may carry: a file, a message, a key-value store.
//!
//! What is deliberately absent: regions. A peer hears of those over its connection, as they are registered and
//! deregistered, so that what was exported never grows stale.

use crate::agent::known_peer::KnownPeer;
use crate::fields::FieldReader;
use crate::net::control::hello::{VERSIONS, begin, read_begin};
use crate::wire_error::WireError;
use domain::Versions;
use domain::session::PeerAddress;

/// Why metadata was not imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The bytes are not an agent's metadata.
    #[error("this is not the metadata of an agent: {0}")]
    Foreign(WireError),
    /// The other agent's oldest version of the protocol is none that this agent speaks.
    #[error("its agent speaks version {theirs} of the transport's protocol, this one {ours}")]
    Version {
        /// The oldest one of the other.
        theirs: u32,
        /// Those of this agent.
        ours: Versions,
    },
    /// Its regions have another layout: the same offsets mean other things.
    #[error("its regions have the layout {theirs:016x}, where {ours:016x} is meant")]
    Layout {
        /// Fingerprint of the other's.
        theirs: u64,
        /// Fingerprint of this agent's.
        ours: u64,
    },
}

/// Where an agent is, and the layout of its regions.
pub(crate) fn export(own: &KnownPeer, fingerprint: u64) -> Vec<u8> {
    let PeerAddress { process, unix, tcp } = &own.address;
    let fields = begin(VERSIONS).u64(fingerprint).who((own.id, own.incarnation)).u64(*process);
    fields.text(&own.name).text(unix).text(tcp).finish()
}

/// The agent that `bytes` tell of, if it has the layout `ours`.
pub(crate) fn import(bytes: &[u8], ours: u64) -> Result<KnownPeer, ImportError> {
    let mut fields = FieldReader::new(bytes);
    let theirs = read_begin(&mut fields).map_err(ImportError::Foreign)?;
    if !(VERSIONS.oldest..=VERSIONS.newest).contains(&theirs) {
        return Err(ImportError::Version { theirs, ours: VERSIONS });
    }
    let (fingerprint, known) = decode(fields).map_err(ImportError::Foreign)?;
    if fingerprint != ours {
        return Err(ImportError::Layout { theirs: fingerprint, ours });
    }
    Ok(known)
}

fn decode(mut fields: FieldReader<'_>) -> Result<(u64, KnownPeer), WireError> {
    let (fingerprint, (id, incarnation), process) = (fields.u64()?, fields.who()?, fields.u64()?);
    let (name, unix, tcp) = (fields.text()?, fields.text()?, fields.text()?);
    fields.end()?;
    Ok((fingerprint, KnownPeer { id, incarnation, name, address: PeerAddress { process, unix, tcp } }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::control::hello::MAGIC;
    use domain::{Incarnation, WorkerId};
    use proptest::prelude::*;

    fn known() -> KnownPeer {
        let address = PeerAddress { process: 7, unix: "u".to_owned(), tcp: "h:1".to_owned() };
        KnownPeer { id: WorkerId(1), incarnation: Incarnation(2), name: "näme".to_owned(), address }
    }

    #[test]
    fn what_was_exported_is_imported_where_it_fits() {
        let bytes = export(&known(), 9);
        assert_eq!(format!("{:?}", import(&bytes, 9).unwrap()), format!("{:?}", known()));
        let layout = import(&bytes, 0xAB).unwrap_err();
        assert_eq!(layout, ImportError::Layout { theirs: 9, ours: 0xAB });
        let text = layout.to_string();
        assert!(text.contains("0000000000000009") && text.contains("00000000000000ab"), "{text}");
        let mut other = bytes.clone();
        other[MAGIC.len()] = 99;
        assert_eq!(import(&other, 9).unwrap_err(), ImportError::Version { theirs: 99, ours: VERSIONS });
        for len in 0..bytes.len() {
            assert!(matches!(import(&bytes[..len], 9), Err(ImportError::Foreign(_))), "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn garbage_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(matches!(import(&bytes, 0), Err(ImportError::Foreign(_))));
        }
    }
}
