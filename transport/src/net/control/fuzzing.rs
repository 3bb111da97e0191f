//! The machines at both ends of a control connection, as a fuzzer feeds them: what the other end says, in pieces.

use super::channel::Channel;
use super::hello::{self, Introduction, Proof, Purpose, Region, RegionPlace, Transcript, kind};
use super::serve::{Next, Serving};
use crate::agent::config::AgentConfig;
use crate::agent::event::AgentEvent;
use crate::agent::link::{Link, Way};
use crate::agent::peers::MESSAGE_BYTES_MAX;
use crate::agent::shared::AgentShared;
use crate::fuzzing::input::{How, frame, known, pair, said};
use crate::lanes::tcp::TcpWay;
use crate::net::socket::Socket;
use crate::regions::RegionId;
use domain::{Incarnation, Secret, WorkerId};
use kv_memory::SealedMemory;
use std::collections::BTreeMap;
use std::sync::Arc;

const OWN: (WorkerId, Incarnation) = (WorkerId(0), Incarnation(1));

fn agent() -> AgentShared {
    let sink = |event| {
        if let AgentEvent::Message { bytes, .. } = event {
            assert!(bytes.len() <= MESSAGE_BYTES_MAX);
        }
        true
    };
    let config = AgentConfig::in_process(OWN.0, OWN.1, "agent".to_owned(), 1);
    AgentShared::without_threads(config, None, Box::new(sink))
}

/// The hello of who knows the secret, which is none.
fn hello() -> (Transcript, Vec<u8>) {
    let mut said = Transcript::over(Vec::new());
    let hello = said.prove(&Secret::default(), Proof::Knock, &hello::opening([5; 32]));
    (said, hello)
}

/// Somebody speaks to the machine that serves it, as a stranger or, where its first byte says so, as a peer who
/// proved who it is.
pub(crate) fn serving(input: &[u8]) {
    let Some((how, bytes)) = How::of(input) else { return };
    let agent = agent();
    agent.register(Arc::new(SealedMemory::new("fuzz", 4096).expect("memory")));
    let (ours, theirs) = pair();
    let mut channel = Channel::new(Socket::plain(ours), true).of_stranger();
    let mut serving = Serving::new();
    if how.checksums {
        let (mut both, hello) = hello();
        said(&theirs, &frame(kind::HELLO, &hello));
        assert!(channel.fill().is_ok());
        assert!(matches!(serving.handle(&agent, &mut channel, true), Ok(Next::Greeted)));
        assert!(channel.flush().is_ok());
        let mut answer = [0; 4096];
        let answered = rustix::net::recv(&theirs, &mut answer, rustix::net::RecvFlags::empty());
        let (count, _) = answered.expect("it is challenged");
        both.add(&answer[5..count]);
        let fingerprint = agent.config.fingerprint;
        let introduction = Introduction { purpose: Purpose::Control, from: known(), to: OWN, fingerprint };
        let proof = both.prove(&Secret::default(), Proof::Dialer, &introduction.encode());
        said(&theirs, &frame(kind::PROOF, &proof));
        assert!(channel.fill().is_ok());
        assert!(matches!(serving.handle(&agent, &mut channel, true), Ok(Next::Admitted)));
    }
    for part in bytes.chunks(how.piece) {
        said(&theirs, part);
        while let Ok(true) = channel.fill() {
            match serving.handle(&agent, &mut channel, true) {
                Ok(Next::Stay | Next::Greeted) => {}
                // Without the challenge's nonce there is no proof.
                Ok(Next::Admitted | Next::Lane { .. }) => panic!("a stranger is taken for a peer"),
                Err(_) => return,
            }
        }
    }
}

/// An owner speaks to the machine that connected it.
pub(crate) fn connected(input: &[u8]) {
    let Some((how, bytes)) = How::of(input) else { return };
    let agent = agent();
    let (ours, theirs) = pair();
    let mut channel = Channel::new(Socket::plain(ours), true);
    let rails = vec![("a rail".to_owned(), None)];
    let way = Way::Tcp(TcpWay::new(BTreeMap::from([(RegionId(0), 4096)]), rails));
    let link = Link::new(&known(), way, &agent.fair_shares);
    for part in bytes.chunks(how.piece) {
        said(&theirs, part);
        while let Ok(true) = channel.fill() {
            if super::handle(&link, &mut channel).is_err() {
                return;
            }
        }
    }
}

/// Returns what is said on good days, by either end.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let hello = frame(kind::HELLO, &hello().1);
    let region = |id, len| frame(kind::REGION, &Region { id: RegionId(id), len, place: RegionPlace::Host }.encode());
    let regions = [region(1, 1 << 40), region(2, 0), frame(kind::WITHDRAWN, &1_u32.to_le_bytes())].concat();
    let messages = [frame(kind::MESSAGE, b"one"), frame(kind::MESSAGE, &[7; 300]), frame(kind::MESSAGE, &[])].concat();
    vec![
        How::PLAIN.before(&[hello.as_slice(), &frame(kind::PROOF, &[9; 32])].concat()),
        How::CHECKED.before(&messages),
        How::PLAIN.before(&regions),
    ]
}
