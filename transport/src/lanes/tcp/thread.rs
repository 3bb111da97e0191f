//! The lane's thread: it waits until there is something to do, and does it.

use super::Streams;
use super::engine::{BELL, Engine, Outlook};
use crate::agent::shared::AgentShared;
use crate::clock::now;
use rustix::event::epoll::{self, Event};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::io;
use std::sync::Arc;
use threads::Doing;

/// Events that are taken at once.
const EVENTS_MAX: usize = 256;

/// The thread's body. Returns after [`crate::lanes::lane_queue::LaneQueue::close`], with every open transfer ended
/// as cancelled, or when it cannot go on, with every one failed.
pub(crate) fn run(agent: &Arc<AgentShared>) -> io::Result<()> {
    let Some(streams) = &agent.streams else { return Ok(()) };
    let mut thread = Thread { agent, streams, events: Vec::with_capacity(EVENTS_MAX) };
    agent.watch(|| thread.run());
    agent.finish(|| thread.enter().end());
    Ok(())
}

struct Thread<'a> {
    agent: &'a Arc<AgentShared>,
    streams: &'a Streams,
    events: Vec<Event>,
}

impl<'a> Thread<'a> {
    fn enter(&self) -> Engine<'a> {
        Engine::enter(self.agent, self.streams)
    }

    fn run(&mut self) -> io::Result<()> {
        loop {
            let mut engine = self.enter();
            for event in self.events.drain(..).filter(|event| event.data.u64() != BELL) {
                engine.ready(event.data.u64(), event.flags);
            }
            let outlook = engine.round();
            drop(engine);
            if matches!(outlook, Outlook::End) {
                return Ok(());
            }
            self.wait(&outlook)?;
        }
    }

    /// Waits for something to do: not at all where there is something, a moment without sleeping where bytes or
    /// requests may come soon.
    fn wait(&mut self, outlook: &Outlook) -> io::Result<()> {
        let at_once = Timespec::default();
        if self.poll(Some(&at_once))? || matches!(outlook, Outlook::More) {
            return Ok(());
        }
        let bell = self.streams.lane_queue().bell();
        if matches!(outlook, Outlook::Soon) {
            let begin = now();
            while now().duration_since(begin) < super::SPIN {
                if bell.is_rung() || self.poll(Some(&at_once))? {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
        }
        let timeout = self.enter().lie_down();
        let sleep = |sleep| self.poll(if sleep { timeout.as_ref() } else { Some(&at_once) });
        threads::during(Doing::WaitsForReads, || bell.sleep(sleep))?;
        Ok(())
    }

    /// Asks for events. Whether there are any.
    fn poll(&mut self, timeout: Option<&Timespec>) -> io::Result<bool> {
        match epoll::wait(self.streams.epoll(), rustix::buffer::spare_capacity(&mut self.events), timeout) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}
