//! A caller that waits for a read brings it home itself: its own thread looks out for the bytes, so that no other
//! has to be woken for them, nor to wake it when they are there. The lane's thread listens to that connection
//! again when the read has ended, or when nothing comes for a while; everything else stays with it meanwhile.

use super::engine::Engine;
use super::{SPIN, Streams, TcpWay};
use crate::agent::link::{Link, Way};
use crate::agent::shared::AgentShared;
use crate::clock::now;
use crate::wake::Wake;
use std::sync::Arc;
use std::time::Duration;

/// Reads over `link` until the caller's transfer `is_over`, for `at_most`, and no longer than something comes
/// within [`SPIN`]; not at all where more than one read is under way, since their callers would take turns with
/// the thread. A panic fails the agent, as one of the thread does.
pub(crate) fn drive(agent: &Arc<AgentShared>, link: &Arc<Link>, at_most: Duration, is_over: impl Fn() -> bool) {
    let (Some(streams), Way::Tcp(way)) = (&agent.streams, &link.way) else { return };
    if agent.open_transfers() > 1 || !streams.begin_driving() {
        return;
    }
    agent.watch(|| {
        read(agent, streams, way, link, at_most, is_over);
        Ok(())
    });
    streams.end_driving();
}

fn read(
    agent: &Arc<AgentShared>,
    streams: &Streams,
    way: &TcpWay,
    link: &Arc<Link>,
    at_most: Duration,
    is_over: impl Fn() -> bool,
) {
    if let Some(mut engine) = Engine::try_enter(agent, streams)
        && let Some(connection) = engine.take_over(link)
    {
        let begin = now();
        let mut last = begin;
        loop {
            let came = engine.read(connection);
            if is_over() {
                way.set_driven(true);
                break;
            }
            let now = now();
            last = if came { now } else { last };
            if now.duration_since(last) >= SPIN || now.duration_since(begin) >= at_most {
                break;
            }
            engine.give_way();
        }
        engine.hand_back(connection);
        if !is_over() {
            // The thread did not hear of this read yet: it may have to look after its rail, and for bytes that
            // come soon.
            streams.lane_queue().bell().wake();
        }
    }
}
