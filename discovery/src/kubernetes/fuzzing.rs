//! Pages of a list and lines of a watch, as an API server sends them.

use super::client::{Event, read};
use super::messages::{Named, Page, Pod};
use super::pod::{Seen, place, seen};
use crate::fuzzing::reader::Reader;
use crate::{Key, Member, Sight, Topology};

/// What errors call the server.
const SERVER: &str = "http://server";

/// Takes bytes as a page, as the metadata of a node, and as the lines of a watch. What is no answer is an error; the
/// others show pods, whose changes fit each other.
pub fn kubernetes(bytes: &[u8]) {
    let mut reader = Reader::default();
    match read::<Page>(SERVER, bytes) {
        Ok(Page { items, .. }) => reader.show(Sight::All { revision: 1, members: members(&items) }),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(node) = read::<Named>(SERVER, bytes) {
        place(&mut Topology::default(), &node.metadata.labels, "rack");
    }
    for (line, revision) in bytes.split(|&byte| byte == b'\n').zip(2..) {
        match Event::read(SERVER, line) {
            Ok(Event::Put { pod, .. }) => match members(std::slice::from_ref(&pod)).pop() {
                Some(member) => reader.show(Sight::Put { revision, member: Box::new(member) }),
                None => reader.show(Sight::Gone { revision, key: Key(pod.metadata.name) }),
            },
            Ok(Event::Gone(pod)) => reader.show(Sight::Gone { revision, key: Key(pod.metadata.name) }),
            Ok(Event::Bookmark(_)) => {}
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// Returns the workers among pods.
fn members(pods: &[Pod]) -> Vec<Member> {
    let worker = |pod| if let Seen::Worker(member) = seen(pod) { Some(*member) } else { None };
    pods.iter().filter_map(worker).collect()
}
