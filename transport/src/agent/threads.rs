//! The threads of an agent: one for control, and those that move bytes.

use crate::agent::shared::AgentShared;
use crate::agent::start_error::AgentStartError;
use crate::net::control::{self, Listeners};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The threads that an agent started. The control thread is the first.
pub(super) struct Threads {
    agent: Arc<AgentShared>,
    running: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts the threads that the agent needs: one for control, some that copy, and one for each lane over a network
    /// that may be taken.
    pub(super) fn start(agent: &Arc<AgentShared>, listeners: Listeners) -> Result<Self, AgentStartError> {
        let mut threads = Self { agent: agent.clone(), running: Vec::new() };
        threads.spawn("control", move |agent| control::run(agent, listeners))?;
        for number in 0..agent.copy_threads.all().len() {
            threads.spawn(&format!("copy-{number}"), move |agent| agent.copy_threads.all()[number].run(agent))?;
        }
        if agent.streams.is_some() {
            threads.spawn("tcp", crate::lanes::tcp::run)?;
        }
        if agent.verbs.is_ok() {
            threads.spawn("rdma", |agent| crate::lanes::rdma::run(agent))?;
        }
        Ok(threads)
    }

    fn spawn(
        &mut self,
        name: &str,
        body: impl FnOnce(&Arc<AgentShared>) -> io::Result<()> + Send + 'static,
    ) -> Result<(), AgentStartError> {
        let agent = self.agent.clone();
        let thread = self.agent.spawn(name, move || body(&agent));
        self.running.push(thread.map_err(|source| AgentStartError::Thread { name: name.to_owned(), source })?);
        Ok(())
    }

    /// Ends and joins the threads. Transfers end as cancelled before the links that they go over are cut, so the
    /// control thread ends last.
    pub(super) fn end(&mut self) {
        self.agent.close_lanes();
        while let Some(thread) = self.running.pop() {
            if self.running.is_empty() {
                self.agent.control.close();
            }
            // A panic in it was reported.
            let _ = thread.join();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.end();
    }
}
