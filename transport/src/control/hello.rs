//! How two agents find out who the other is, and that it belongs to the cluster.
//!
//! The one that connects says hello; the other answers with a challenge and proves that it knows the secret; then the first
//! proves it too. A proof is a keyed hash of both messages, with the nonces of both ends in them, so it is good for
//! nothing else. What follows is neither encrypted nor authenticated byte by byte: the network is trusted not to alter it.

use super::unreached::Unreached;
use crate::counts::Refusal;
use crate::memory::RegionId;
use crate::peers::Known;
use domain::session::PeerAddress;
use domain::{Incarnation, Secret, WorkerId};

/// Version of everything that agents say to each other. Other versions are refused.
pub(crate) const VERSION: u16 = 4;
/// What every first message begins with, in all versions.
pub(crate) const MAGIC: &[u8; 6] = b"baton\0";
/// Bytes of a message before the proofs are checked.
pub(crate) const HELLO_BYTES_MAX: usize = 4096;
/// Bytes of a proof.
const PROOF_BYTES: usize = 32;

/// What kind each frame is.
pub(crate) mod kind {
    /// Who connects, and to whom.
    pub(crate) const HELLO: u8 = 1;
    /// Who answers, with its proof.
    pub(crate) const CHALLENGE: u8 = 2;
    /// The proof of who connects.
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
}

/// A region, as its owner tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) id: RegionId,
    pub(crate) len: u64,
    /// Where it begins in the file that comes along, if any does.
    pub(crate) offset: Option<u64>,
}

impl Region {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut bytes = self.id.0.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.len.to_le_bytes());
        bytes.extend_from_slice(&self.offset.unwrap_or(0).to_le_bytes());
        bytes.push(u8::from(self.offset.is_some()));
        bytes
    }

    /// Errors: what is wrong with it, in words.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut rest = Rest(bytes);
        let (id, len) = (rest.region()?, u64::from_le_bytes(rest.take()?));
        let (offset, has_file) = (u64::from_le_bytes(rest.take()?), rest.take::<1>()?);
        rest.end()?;
        Ok(Self { id, len, offset: (has_file == [1]).then_some(offset) })
    }
}

/// The region that is registered no more. Errors: it is none.
pub(crate) fn withdrawn(bytes: &[u8]) -> Result<RegionId, String> {
    let mut rest = Rest(bytes);
    let id = rest.region()?;
    rest.end()?;
    Ok(id)
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
}

/// The first message.
#[derive(Clone, Debug)]
pub(crate) struct Hello {
    pub(crate) purpose: Purpose,
    pub(crate) from: Known,
    /// Who is meant.
    pub(crate) to: (WorkerId, Incarnation),
    /// Of the layout that its regions have: an agent whose regions have another turns it away.
    pub(crate) fingerprint: u64,
    pub(crate) nonce: [u8; 32],
}

/// The answer, without its proof.
#[derive(Clone, Debug)]
pub(crate) struct Challenge {
    pub(crate) from: (WorkerId, Incarnation),
    pub(crate) nonce: [u8; 32],
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = [MAGIC.as_slice(), &VERSION.to_le_bytes()].concat();
        bytes.push(match self.purpose {
            Purpose::Control => 0,
            Purpose::Bytes => 1,
            Purpose::Queues => 2,
        });
        for (id, incarnation) in [(self.from.id, self.from.incarnation), self.to] {
            bytes.extend_from_slice(&id.0.to_le_bytes());
            bytes.extend_from_slice(&incarnation.0.to_le_bytes());
        }
        bytes.extend_from_slice(&self.fingerprint.to_le_bytes());
        bytes.extend_from_slice(&self.nonce);
        bytes.extend_from_slice(&self.from.address.process.to_le_bytes());
        for text in [&self.from.name, &self.from.address.unix, &self.from.address.tcp] {
            put_text(&mut bytes, text);
        }
        bytes
    }

    /// Errors: what is wrong with it, in words.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut rest = Rest(bytes);
        rest.expect_version()?;
        let purpose = match rest.take::<1>()? {
            [0] => Purpose::Control,
            [1] => Purpose::Bytes,
            [2] => Purpose::Queues,
            [other] => return Err(format!("a connection for purpose {other}")),
        };
        let (id, incarnation) = rest.who()?;
        let to = rest.who()?;
        let fingerprint = u64::from_le_bytes(rest.take()?);
        let nonce = rest.take()?;
        let process = u64::from_le_bytes(rest.take()?);
        let (name, unix, tcp) = (rest.text()?, rest.text()?, rest.text()?);
        rest.end()?;
        let from = Known { id, incarnation, name, address: PeerAddress { process, unix, tcp } };
        Ok(Self { purpose, from, to, fingerprint, nonce })
    }
}

impl Challenge {
    /// The challenge alone; its proof follows it.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = [MAGIC.as_slice(), &VERSION.to_le_bytes()].concat();
        bytes.extend_from_slice(&self.from.0.0.to_le_bytes());
        bytes.extend_from_slice(&self.from.1.0.to_le_bytes());
        bytes.extend_from_slice(&self.nonce);
        bytes
    }

    /// The challenge, and the bytes that are its own. Errors: what is wrong with it, in words.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, &[u8], [u8; PROOF_BYTES]), String> {
        let mut rest = Rest(bytes);
        rest.expect_version()?;
        let from = rest.who()?;
        let nonce = rest.take()?;
        let own = &bytes[..bytes.len() - rest.0.len()];
        let proof = rest.take()?;
        rest.end()?;
        Ok((Self { from, nonce }, own, proof))
    }
}

/// The answer to a hello, with the proof that this end knows the secret.
pub(crate) fn answer(secret: &Secret, hello: &[u8], challenge: &[u8]) -> Vec<u8> {
    let proof = secret.prove(ANSWERS, &[hello, challenge]);
    [challenge, &proof].concat()
}

/// Checks the answer to `hello`; the proof to send back. Errors: it is none, not who was meant, or does not know the secret.
pub(crate) fn check_answer(
    secret: &Secret,
    hello: &Hello,
    encoded: &[u8],
    answer: &[u8],
) -> Result<[u8; PROOF_BYTES], Unreached> {
    let (challenge, own, proof) = Challenge::decode(answer).map_err(Unreached::lie)?;
    if challenge.from != hello.to {
        let ((id, incarnation), (meant, life)) = (challenge.from, hello.to);
        let reason =
            format!("worker {id} in its life {incarnation} answers where {meant} in its life {life} was meant");
        return Err(Unreached::refused(Refusal::Identity, reason));
    }
    if !secret.holds(ANSWERS, &[encoded, own], &proof) {
        return Err(Unreached::refused(Refusal::Identity, OTHER_SECRET));
    }
    Ok(secret.prove(CONNECTS, &[encoded, own]))
}

/// Checks what came back for `challenge`. Errors, in words: the other end does not know the secret.
pub(crate) fn check_proof(secret: &Secret, hello: &[u8], challenge: &[u8], proof: &[u8]) -> Result<(), String> {
    let proof = proof.try_into().map_err(|_| "a proof of another length".to_owned())?;
    if secret.holds(CONNECTS, &[hello, challenge], proof) { Ok(()) } else { Err(OTHER_SECRET.to_owned()) }
}

/// What proofs of the secret are for: one end's does not serve as the other's, nor any other protocol's.
const ANSWERS: &str = "transport answers";
const CONNECTS: &str = "transport connects";

const OTHER_SECRET: &str = "it does not know this cluster's secret";

/// Appends a text, of which a kilobyte is the most.
pub(crate) fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let text = &text.as_bytes()[..text.floor_char_boundary(1024)];
    bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
    bytes.extend_from_slice(text);
}

/// What is left of a message.
pub(crate) struct Rest<'a>(pub(crate) &'a [u8]);

impl Rest<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (part, rest) = self.0.split_first_chunk().ok_or("a message that ends too early")?;
        self.0 = rest;
        Ok(*part)
    }

    /// The version that is spoken.
    pub(crate) fn version(&mut self) -> Result<u16, String> {
        if &self.take::<6>()? != MAGIC {
            return Err("not the protocol of an agent".to_owned());
        }
        Ok(u16::from_le_bytes(self.take()?))
    }

    fn expect_version(&mut self) -> Result<(), String> {
        match self.version()? {
            VERSION => Ok(()),
            other => {
                Err(format!("it speaks version {other} of the transport's protocol, this worker version {VERSION}"))
            }
        }
    }

    fn region(&mut self) -> Result<RegionId, String> {
        Ok(RegionId(u32::from_le_bytes(self.take()?)))
    }

    pub(crate) fn who(&mut self) -> Result<(WorkerId, Incarnation), String> {
        Ok((WorkerId(u32::from_le_bytes(self.take()?)), Incarnation(u64::from_le_bytes(self.take()?))))
    }

    pub(crate) fn text(&mut self) -> Result<String, String> {
        let len = usize::from(u16::from_le_bytes(self.take()?));
        let (text, rest) = self.0.split_at_checked(len).ok_or("a text that ends too early")?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| "a text that is not UTF-8".to_owned())
    }

    pub(crate) fn end(&self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err("a message that goes on after its end".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello() -> Hello {
        let address = PeerAddress { process: 7, unix: "u".to_owned(), tcp: "h:1".to_owned() };
        let from = Known { id: WorkerId(1), incarnation: Incarnation(2), name: "näme".to_owned(), address };
        Hello { purpose: Purpose::Bytes, from, to: (WorkerId(3), Incarnation(4)), fingerprint: 8, nonce: [5; 32] }
    }

    #[test]
    fn a_hello_is_what_it_was() {
        let bytes = hello().encode();
        assert_eq!(format!("{:?}", Hello::decode(&bytes).unwrap()), format!("{:?}", hello()));
        for len in 0..bytes.len() {
            assert!(Hello::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn regions_are_told_of_and_withdrawn() {
        for offset in [None, Some(4096)] {
            let region = Region { id: RegionId(7), len: 1 << 40, offset };
            let bytes = region.encode();
            assert_eq!(Region::decode(&bytes), Ok(region));
            (0..bytes.len()).for_each(|len| assert!(Region::decode(&bytes[..len]).is_err(), "{len} bytes"));
            assert!(Region::decode(&[bytes.as_slice(), &[0]].concat()).is_err());
        }
        assert_eq!(withdrawn(&7_u32.to_le_bytes()), Ok(RegionId(7)));
        assert!(withdrawn(&[0; 3]).is_err() && withdrawn(&[0; 5]).is_err());
    }

    #[test]
    fn proofs_are_bound_to_their_secret_their_end_and_all_that_was_said() {
        let (secret, other) = (Secret::new("one"), Secret::new("two"));
        let (hello, encoded) = (hello(), hello().encode());
        let challenge = Challenge { from: hello.to, nonce: [6; 32] }.encode();
        let answer = answer(&secret, &encoded, &challenge);
        let proof = check_answer(&secret, &hello, &encoded, &answer).unwrap();
        assert_eq!(check_proof(&secret, &encoded, &challenge, &proof), Ok(()));

        let refused = Unreached::refused(Refusal::Identity, OTHER_SECRET);
        assert_eq!(check_answer(&other, &hello, &encoded, &answer), Err(refused));
        assert!(check_proof(&other, &encoded, &challenge, &proof).is_err());
        assert!(check_proof(&Secret::default(), &encoded, &challenge, &proof).is_err());
        // The answer's own proof does not do.
        assert!(check_proof(&secret, &encoded, &challenge, &answer[challenge.len()..]).is_err());
        for at in 0..encoded.len() {
            let mut altered = encoded.clone();
            altered[at] ^= 1;
            assert!(check_proof(&secret, &altered, &challenge, &proof).is_err(), "byte {at}");
        }
        let mut meant = hello.clone();
        meant.to.1 = Incarnation(9);
        assert!(check_answer(&secret, &meant, &encoded, &answer).unwrap_err().to_string().contains("i9 was meant"));
    }

    proptest! {
        #[test]
        fn garbage_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Hello::decode(&bytes).is_err());
            prop_assert!(Challenge::decode(&bytes).is_err());
            // Some are of the right length; whatever is read of them is written alike, but for what means nothing.
            if let Ok(region) = Region::decode(&bytes) {
                prop_assert_eq!(Region::decode(&region.encode()), Ok(region));
            }
        }
    }
}
