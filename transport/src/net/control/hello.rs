//! How two agents find out who the other is, and that it belongs to the cluster. The dialer proves itself first:
//!
//! 1. It says hello: a nonce, and a knock, which is a proof over that nonce. Whoever cannot knock is refused at once.
//! 2. The listener answers with a challenge: a nonce, and nothing of its own.
//! 3. The dialer introduces itself ([`Introduction`]), with a proof over all that was said.
//! 4. Now the listener says who it is ([`Identity`]), with a proof over all that was said.
//!
//! A proof is a keyed hash over all messages up to its own, and over the TLS channel where there is one
//! ([`Transcript`]). So it is good for nothing else, and nobody can relay it over another channel. What follows is
//! neither encrypted nor authenticated byte by byte without TLS: the network is trusted not to alter it.
//!
//! A hello and a challenge say which versions their senders speak ([`VERSIONS`]). The oldest comes first, where release
//! 0.2.0, which knows no ranges, has its only one. The newest follows the nonce: that release skips it, and its proofs
//! cover it like all that was said. The connection has the newest version that both ends speak.
//!
//! Until the dialer has proven itself, it hears one word whatever is wrong ([`REFUSAL`]), but for the version,
//! which is no secret. A proof shows that its maker belongs to the cluster, not which member it is: members trust
//! each other.

use crate::agent::known_peer::KnownPeer;
use crate::fields::{FieldReader, FieldWriter};
use crate::regions::RegionId;
use crate::wire_error::WireError;
use domain::session::PeerAddress;
use domain::{Incarnation, Secret, Secrets, Versions, WorkerId};
use kv_memory::DeviceId;

/// Versions of everything that agents say to each other that this release speaks. Agents without a common one refuse
/// each other. Each fits into two bytes.
pub(crate) const VERSIONS: Versions = Versions { oldest: 6, newest: 6 };
/// What every first message begins with, in all versions.
pub(crate) const MAGIC: &[u8; 6] = b"baton\0";
/// What an end that has not proven itself is told, whatever is wrong.
pub(crate) const REFUSAL: &str = "refused";
/// Bytes of a proof.
const PROOF_BYTES: usize = 32;

/// What kind each frame is.
pub(crate) mod kind {
    /// The dialer's nonce, with its knock.
    pub(crate) const HELLO: u8 = 1;
    /// The listener's nonce.
    pub(crate) const CHALLENGE: u8 = 2;
    /// Who the dialer is and whom it means, with its proof.
    pub(crate) const PROOF: u8 = 3;
    /// The other end is not served; the body says why.
    pub(crate) const REFUSED: u8 = 4;
    /// A region: [`super::Region`]. The descriptor of its file comes along, if it has one.
    pub(crate) const REGION: u8 = 5;
    /// The descriptor of the progress word's page comes along.
    pub(crate) const PROGRESS: u8 = 6;
    /// All that there was to say is said.
    pub(crate) const READY: u8 = 7;
    /// A message.
    pub(crate) const MESSAGE: u8 = 8;
    /// A region is registered no more: its number.
    pub(crate) const WITHDRAWN: u8 = 9;
    /// Who the listener is, with its proof.
    pub(crate) const IDENTITY: u8 = 10;
}

/// A region, as its owner tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) id: RegionId,
    pub(crate) len: u64,
    pub(crate) place: RegionPlace,
}

/// Where a region is, as far as peers are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionPlace {
    /// In host memory that peers cannot map.
    Host,
    /// In the file that comes along, from this offset on.
    File(u64),
    /// In memory of a device.
    Device(DeviceId),
    /// In memory of a device, of which a descriptor comes along.
    Exported(DeviceId, Exported),
}

/// Memory of a device that other devices of its kind map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exported {
    /// What drives the device, by its number: a later release may know more kinds.
    pub(crate) kind: u8,
    /// Where the region begins in what the descriptor is of.
    pub(crate) offset: u64,
    /// Bytes of that.
    pub(crate) bytes: u64,
}

/// The kinds of places, on the wire. Release 0.2.0 takes whatever is not a file for host memory.
const IN_HOST: u8 = 0;
const IN_FILE: u8 = 1;
const IN_DEVICE: u8 = 2;
/// What was exported follows. Only a reader that connects for `Purpose::Devices` is told so.
const IN_EXPORT: u8 = 3;

impl Region {
    pub(crate) fn encode(self) -> Vec<u8> {
        let fields = FieldWriter::default().region(self.id).u64(self.len);
        let (number, kind) = match self.place {
            RegionPlace::Host => (0, IN_HOST),
            RegionPlace::File(offset) => (offset, IN_FILE),
            RegionPlace::Device(DeviceId(id)) => (id.into(), IN_DEVICE),
            RegionPlace::Exported(DeviceId(id), _) => (id.into(), IN_EXPORT),
        };
        let fields = fields.u64(number).u8(kind);
        match self.place {
            RegionPlace::Exported(_, Exported { kind, offset, bytes }) => fields.u8(kind).u64(offset).u64(bytes),
            RegionPlace::Host | RegionPlace::File(_) | RegionPlace::Device(_) => fields,
        }
        .finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut fields = FieldReader::new(bytes);
        let (id, len, number, kind) = (fields.region()?, fields.u64()?, fields.u64()?, fields.u8()?);
        let place = match kind {
            IN_FILE => RegionPlace::File(number),
            IN_DEVICE => RegionPlace::Device(DeviceId(number as u32)),
            IN_EXPORT => {
                let (kind, offset, bytes) = (fields.u8()?, fields.u64()?, fields.u64()?);
                RegionPlace::Exported(DeviceId(number as u32), Exported { kind, offset, bytes })
            }
            _ => RegionPlace::Host,
        };
        fields.end()?;
        Ok(Self { id, len, place })
    }
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Messages, regions, and the life of the link.
    Control,
    /// Bytes of regions.
    Bytes,
    /// What both ends of the lane `rdma` must know of each other.
    Queues,
    /// As [`Purpose::Control`], with what drivers export of regions in memory of devices.
    Devices,
}

/// What a proof is for: one does not serve as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The dialer knocks.
    Knock,
    /// The dialer introduces itself.
    Dialer,
    /// The listener says who it is.
    Listener,
}

impl Proof {
    /// Its purpose, which no other protocol has either.
    fn purpose(self) -> &'static str {
        match self {
            Self::Knock => "transport knocks",
            Self::Dialer => "transport connects",
            Self::Listener => "transport answers",
        }
    }
}

/// All that both ends have said over a channel, in its order: what proofs are over.
#[derive(Clone, Debug)]
pub(crate) struct Transcript(Vec<Vec<u8>>);

impl Transcript {
    /// Begins with what tells the channel from all others: nothing, where there is no TLS.
    pub(crate) fn over(channel: Vec<u8>) -> Self {
        Self(vec![channel])
    }

    /// Adds a message that has no proof.
    pub(crate) fn add(&mut self, message: &[u8]) {
        self.0.push(message.to_vec());
    }

    /// Adds `content`. Returns the message to send: `content` with the proof over all that was said by now.
    pub(crate) fn prove(&mut self, secret: &Secret, proof: Proof, content: &[u8]) -> Vec<u8> {
        self.add(content);
        [content, &secret.prove(proof.purpose(), &self.parts())].concat()
    }

    /// Adds the content of a message of the other end, and returns it with the secret that its proof was made
    /// with. `None`: it was made with no accepted one.
    pub(crate) fn check<'a>(
        &mut self,
        accepted: &Secrets,
        proof: Proof,
        message: &'a [u8],
    ) -> Option<(&'a [u8], Secret)> {
        let (content, made) = message.split_last_chunk::<PROOF_BYTES>()?;
        self.add(content);
        let secret = accepted.accepted(proof.purpose(), &self.parts(), made)?;
        Some((content, secret.clone()))
    }

    fn parts(&self) -> Vec<&[u8]> {
        self.0.iter().map(Vec::as_slice).collect()
    }
}

/// Returns what either end begins with: the content of a hello, or a challenge.
pub(crate) fn opening(nonce: [u8; 32]) -> Vec<u8> {
    begin(VERSIONS).bytes(&nonce).u16(VERSIONS.newest as u16).finish()
}

/// Begins a message that is understood in all versions: it says that an agent sends it, and the oldest version that it
/// speaks.
pub(crate) fn begin(versions: Versions) -> FieldWriter {
    FieldWriter::default().bytes(MAGIC).u16(versions.oldest as u16)
}

/// Takes what such a message begins with: the oldest version that its sender speaks.
pub(crate) fn read_begin(fields: &mut FieldReader<'_>) -> Result<u32, WireError> {
    if &fields.bytes()? != MAGIC {
        return Err(WireError::Foreign);
    }
    fields.u16().map(u32::from)
}

/// Checks the content of what the other end begins with, and that `ours` have a version in common with it.
pub(crate) fn check_opening(content: &[u8], ours: Versions) -> Result<(), WireError> {
    let mut fields = FieldReader::new(content);
    let oldest = read_begin(&mut fields)?;
    // A later version may have something else than a nonce.
    let nonce = fields.bytes::<32>();
    let newest = fields.u16().map_or(oldest, |newest| oldest.max(newest.into()));
    let theirs = Versions { oldest, newest };
    if ours.common(theirs).is_none() {
        return Err(WireError::Versions { theirs, ours });
    }
    nonce.map(drop)
}

/// Returns the content of a hello, without its proof. A message without room for one has nothing but content.
pub(crate) fn content(hello: &[u8]) -> &[u8] {
    hello.split_last_chunk::<PROOF_BYTES>().map_or(hello, |(content, _)| content)
}

/// How a dialer introduces itself.
#[derive(Clone, Debug)]
pub(crate) struct Introduction {
    pub(crate) purpose: Purpose,
    pub(crate) from: KnownPeer,
    /// Who is meant.
    pub(crate) to: (WorkerId, Incarnation),
    /// Of the layout that its regions have: an agent whose regions have another turns it away.
    pub(crate) fingerprint: u64,
}

impl Introduction {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let purpose = match self.purpose {
            Purpose::Control => 0,
            Purpose::Bytes => 1,
            Purpose::Queues => 2,
            Purpose::Devices => 3,
        };
        let KnownPeer { id, incarnation, name, address } = &self.from;
        let fields = FieldWriter::default().u8(purpose).who((*id, *incarnation)).who(self.to);
        let fields = fields.u64(self.fingerprint).u64(address.process);
        fields.text(name).text(&address.unix).text(&address.tcp).finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut fields = FieldReader::new(bytes);
        let purpose = match fields.u8()? {
            0 => Purpose::Control,
            1 => Purpose::Bytes,
            2 => Purpose::Queues,
            3 => Purpose::Devices,
            other => return Err(WireError::Purpose(other)),
        };
        let ((id, incarnation), to) = (fields.who()?, fields.who()?);
        let (fingerprint, process) = (fields.u64()?, fields.u64()?);
        let (name, unix, tcp) = (fields.text()?, fields.text()?, fields.text()?);
        fields.end()?;
        let from = KnownPeer { id, incarnation, name, address: PeerAddress { process, unix, tcp } };
        Ok(Self { purpose, from, to, fingerprint })
    }
}

/// Who the listener is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) who: (WorkerId, Incarnation),
    /// Of the layout that its regions have.
    pub(crate) fingerprint: u64,
}

impl Identity {
    pub(crate) fn encode(self) -> Vec<u8> {
        FieldWriter::default().who(self.who).u64(self.fingerprint).finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut fields = FieldReader::new(bytes);
        let (who, fingerprint) = (fields.who()?, fields.u64()?);
        fields.end()?;
        Ok(Self { who, fingerprint })
    }

    /// Checks the listener's message: it comes from the worker that was meant, which has the secret that the dialer
    /// proved itself by.
    pub(crate) fn check(
        self,
        transcript: &mut Transcript,
        secret: &Secret,
        message: &[u8],
    ) -> Result<(), IdentityError> {
        let proven = transcript.check(&secret.clone().into(), Proof::Listener, message);
        let (content, _) = proven.ok_or(IdentityError::OtherSecret)?;
        let answers = Self::decode(content)?;
        if answers == self { Ok(()) } else { Err(IdentityError::Other { answers, meant: self }) }
    }
}

/// Why a listener is not taken for the worker that was dialed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IdentityError {
    /// Its proof was made with another secret.
    #[error("{OTHER_SECRET}")]
    OtherSecret,
    /// It is another worker, another life of the worker, or its regions have another layout.
    #[error(
        "worker {} in its life {} (layout {:x}) answers where {} in its life {} (layout {:x}) was meant",
        answers.who.0, answers.who.1, answers.fingerprint, meant.who.0, meant.who.1, meant.fingerprint
    )]
    Other { answers: Identity, meant: Identity },
    /// It proved itself, and its message is broken.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// What is wrong where a proof does not hold.
pub(crate) const OTHER_SECRET: &str = "it does not know this cluster's secret";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::read_region;
    use crate::net::HELLO_BYTES_MAX;
    use proptest::prelude::*;

    fn introduction() -> Introduction {
        let address = PeerAddress { process: 7, unix: "u".to_owned(), tcp: "h:1".to_owned() };
        let from = KnownPeer { id: WorkerId(1), incarnation: Incarnation(2), name: "näme".to_owned(), address };
        Introduction { purpose: Purpose::Bytes, from, to: (WorkerId(3), Incarnation(4)), fingerprint: 8 }
    }

    #[test]
    fn an_introduction_is_what_it_was() {
        let bytes = introduction().encode();
        assert_eq!(format!("{:?}", Introduction::decode(&bytes).unwrap()), format!("{:?}", introduction()));
        for len in 0..bytes.len() {
            assert!(Introduction::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn the_longest_introduction_fits_into_what_is_read_of_an_end_that_has_not_proven_itself() {
        let mut longest = introduction();
        let text = "x".repeat(5000);
        longest.from.name = text.clone();
        longest.from.address = PeerAddress { process: 7, unix: text.clone(), tcp: text };
        let frames = 2 * 5 + opening([0; 32]).len() + longest.encode().len() + 2 * PROOF_BYTES;
        assert!(frames <= HELLO_BYTES_MAX, "{frames}");
    }

    #[test]
    fn another_version_is_told_from_garbage() {
        let mut bytes = opening([1; 32]);
        assert_eq!(check_opening(&bytes, VERSIONS), Ok(()));
        bytes[6] = 4;
        (bytes[40], bytes[41]) = (5, 0);
        let versions = |newest| Err(WireError::Versions { theirs: Versions { oldest: 4, newest }, ours: VERSIONS });
        assert_eq!(check_opening(&bytes, VERSIONS), versions(5));
        // Of the version alone, too: what follows may mean something else there.
        assert_eq!(check_opening(&bytes[..8], VERSIONS), versions(4));
        assert_eq!(check_opening(b"GET / HTTP/1.1", VERSIONS), Err(WireError::Foreign));
        let text = check_opening(&bytes, VERSIONS).expect_err("it is older").to_string();
        assert!(text.contains("version 4 to 5 of the transport's protocol, this worker 6; they have no"), "{text}");
        assert!(text.contains("upgrade one release at a time"), "{text}");
    }

    #[test]
    fn agents_of_neighbouring_releases_meet() {
        let said =
            |oldest: u16, newest: u16| [MAGIC, &oldest.to_le_bytes()[..], &[1; 32], &newest.to_le_bytes()].concat();
        let ours = Versions { oldest: 6, newest: 7 };
        for (oldest, newest) in [(6, 7), (7, 8), (6, 6), (5, 6), (7, 7)] {
            assert_eq!(check_opening(&said(oldest, newest), ours), Ok(()), "{oldest} to {newest}");
        }
        for (oldest, newest) in [(5, 5), (8, 9)] {
            assert!(check_opening(&said(oldest, newest), ours).is_err(), "{oldest} to {newest}");
        }
        // An agent of release 0.2.0 says nothing behind its nonce.
        assert_eq!(check_opening(&said(6, 0)[..40], ours), Ok(()));
        assert!(check_opening(&said(5, 0)[..40], ours).is_err());
    }

    /// A line for each frame of release 0.2.0, by its own code: its name, its kind, its body in hexadecimal.
    const RECORDED: &str = include_str!("frames/0.2.0.txt");

    /// Returns the body of a recorded frame, which has this kind.
    fn recorded(name: &str, kind: u8) -> Vec<u8> {
        let line = RECORDED.lines().find_map(|line| line.strip_prefix(&format!("{name}: {kind} ")));
        let hex = line.unwrap_or_else(|| panic!("{name} of kind {kind} is recorded")).as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16).expect("a byte");
        hex.chunks(2).map(byte).collect()
    }

    #[test]
    fn an_agent_of_the_release_before_is_served_and_serves() {
        let secret = Secret::new("hush, says this test");
        let secrets = Secrets::from(secret.clone());
        let messages = [("hello", kind::HELLO), ("challenge", kind::CHALLENGE), ("proof", kind::PROOF)];
        let messages = messages.map(|(name, kind)| recorded(name, kind));
        for opening in [content(&messages[0]), &messages[1]] {
            assert_eq!(check_opening(opening, VERSIONS), Ok(()));
        }
        let (transcript, _) = heard(&secrets, b"", &messages).expect("both proofs hold");
        let said = Introduction::decode(content(&messages[2])).expect("it can be read");
        assert_eq!(format!("{said:?}"), format!("{:?}", introduction()));
        let identity = Identity { who: introduction().to, fingerprint: 8 };
        let answer = recorded("identity", kind::IDENTITY);
        assert_eq!(identity.check(&mut transcript.clone(), &secret, &answer), Ok(()));
        // What this release says to it is the same.
        assert_eq!(transcript.clone().prove(&secret, Proof::Listener, &identity.encode()), answer);
        assert_eq!(introduction().encode(), content(&messages[2]));
        for (name, place) in [("region", RegionPlace::Host), ("region in a file", RegionPlace::File(4096))] {
            let region = Region { id: RegionId(7), len: 1 << 40, place };
            assert_eq!(region.encode(), recorded(name, kind::REGION));
            assert_eq!(Region::decode(&region.encode()), Ok(region));
        }
        let metadata = recorded("metadata", 0);
        assert_eq!(crate::agent::metadata::export(&introduction().from, 9), metadata);
        assert!(crate::agent::metadata::import(&metadata, 9).is_ok());
    }

    #[test]
    fn regions_are_told_of_and_withdrawn() {
        let exported = RegionPlace::Exported(DeviceId(5), Exported { kind: 1, offset: 4096, bytes: 1 << 41 });
        for place in [RegionPlace::Host, RegionPlace::File(4096), RegionPlace::Device(DeviceId(5)), exported] {
            let region = Region { id: RegionId(7), len: 1 << 40, place };
            let bytes = region.encode();
            assert_eq!(Region::decode(&bytes), Ok(region));
            (0..bytes.len()).for_each(|len| assert!(Region::decode(&bytes[..len]).is_err(), "{len} bytes"));
            assert!(Region::decode(&[bytes.as_slice(), &[0]].concat()).is_err());
        }
        assert_eq!(read_region(&7_u32.to_le_bytes()), Ok(RegionId(7)));
        assert!(read_region(&[0; 3]).is_err() && read_region(&[0; 5]).is_err());
    }

    /// Returns what the dialer has said once it has introduced itself over `channel`: hello, challenge, introduction,
    /// as messages.
    fn dialled(secret: &Secret, channel: &[u8], introduction: &[u8]) -> (Transcript, [Vec<u8>; 3]) {
        let (mut transcript, challenge) = (Transcript::over(channel.to_vec()), opening([6; 32]));
        let hello = transcript.prove(secret, Proof::Knock, &opening([5; 32]));
        transcript.add(&challenge);
        let introduction = transcript.prove(secret, Proof::Dialer, introduction);
        (transcript, [hello, challenge, introduction])
    }

    /// Returns what a listener makes of such messages: its own view of what was said, if both proofs hold.
    fn heard(accepted: &Secrets, channel: &[u8], messages: &[Vec<u8>; 3]) -> Option<(Transcript, Secret)> {
        let (mut transcript, [hello, challenge, introduction]) = (Transcript::over(channel.to_vec()), messages);
        let (_, secret) = transcript.check(accepted, Proof::Knock, hello)?;
        transcript.add(challenge);
        let (_, secret) = transcript.check(&secret.into(), Proof::Dialer, introduction)?;
        Some((transcript, secret))
    }

    #[test]
    fn proofs_are_bound_to_their_secret_their_channel_their_end_and_all_that_was_said() {
        let (secret, other) = (Secret::new("one"), Secret::new("two"));
        let (own, identity) = (Secrets::from(secret.clone()), Identity { who: introduction().to, fingerprint: 8 });
        let (mut transcript, messages) = dialled(&secret, b"channel", &introduction().encode());
        let (mut listener, accepted) = heard(&own, b"channel", &messages).expect("it is proven");
        let answer = listener.prove(&accepted, Proof::Listener, &identity.encode());
        assert_eq!(identity.check(&mut transcript.clone(), &secret, &answer), Ok(()));

        let refused = Err(IdentityError::OtherSecret);
        assert_eq!(identity.check(&mut transcript.clone(), &other, &answer), refused);
        let relayed = dialled(&secret, b"another channel", &introduction().encode());
        assert_eq!(identity.check(&mut relayed.0.clone(), &secret, &answer), refused, "another channel");
        for strange in [Secrets::from(other), Secrets::default()] {
            assert!(heard(&strange, b"channel", &messages).is_none());
        }
        assert!(heard(&own, b"another channel", &messages).is_none());
        for message in 0..messages.len() {
            for at in 0..messages[message].len() {
                let mut altered = messages.clone();
                altered[message][at] ^= 1;
                assert!(heard(&own, b"channel", &altered).is_none(), "byte {at} of message {message}");
            }
        }
        // What one end proved does not serve as the other's proof.
        let [_, _, introduced] = &messages;
        assert!(transcript.check(&own, Proof::Listener, introduced).is_none());
    }

    #[test]
    fn who_answers_in_place_of_who_was_meant_is_refused() {
        let secret = Secret::new("one");
        let meant = Identity { who: (WorkerId(3), Incarnation(9)), fingerprint: 8 };
        for answers in [
            Identity { who: (WorkerId(3), Incarnation(4)), ..meant },
            Identity { who: (WorkerId(4), Incarnation(9)), ..meant },
            Identity { fingerprint: 7, ..meant },
        ] {
            let (mut transcript, _) = dialled(&secret, b"", &introduction().encode());
            let answer = transcript.clone().prove(&secret, Proof::Listener, &answers.encode());
            let refused = meant.check(&mut transcript, &secret, &answer).expect_err("it is somebody else").to_string();
            assert!(refused.contains("in its life i9 (layout 8) was meant"), "{refused}");
        }
    }

    #[test]
    fn while_the_secret_is_replaced_both_prove_a_dialer() {
        let both = Secrets::new(Secret::new("new"), Some(Secret::new("old")));
        for known in [Secret::new("new"), Secret::new("old")] {
            let (_, messages) = dialled(&known, b"", &introduction().encode());
            assert_eq!(heard(&both, b"", &messages).map(|(_, secret)| secret), Some(known));
        }
    }

    proptest! {
        #[test]
        fn garbage_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(check_opening(&bytes, VERSIONS).is_err());
            // Some are of the right length; whatever is read of them is written alike.
            if let Ok(introduction) = Introduction::decode(&bytes) {
                prop_assert_eq!(introduction.encode(), bytes.clone());
            }
            if let Ok(identity) = Identity::decode(&bytes) {
                prop_assert_eq!(identity.encode(), bytes.clone());
            }
            // But for what means nothing.
            if let Ok(region) = Region::decode(&bytes) {
                prop_assert_eq!(Region::decode(&region.encode()), Ok(region));
            }
        }
    }
}
