//! What a worker asks of its transport: the one way from its decisions to bytes of others.

use domain::WorkerId;
use domain::session::PeerInfo;
use transport::{Agent, AgentCounts, Lane, PostError, PrepareError, Probe, ReadBatch, SendError, TransferId};

/// A transport agent as a worker sees it. [`Agent`] is one; a simulation brings its own. No call waits for a peer: what
/// comes of it arrives as [`transport::AgentEvent`]s in the worker's inbox.
pub trait Transport: Send {
    /// A peer is there, in this life and at this place; a newer life replaces an older one.
    fn introduce(&mut self, peer: PeerInfo);

    /// Begins to connect a peer.
    fn connect(&mut self, peer: WorkerId);

    /// Ends the connection to a peer that nobody needs now: no event tells of it. It is connected again when it is
    /// used again. A simulation keeps its links.
    fn disconnect(&mut self, _: WorkerId) {}

    /// Forgets where a peer is, which left. A simulation keeps its links.
    fn forget(&mut self, _: WorkerId) {}

    /// Sends a small message; it may be lost, which the deadlines of the protocol cover. Errors: it surely is.
    fn send(&mut self, to: WorkerId, bytes: Vec<u8>) -> Result<(), SendError>;

    /// Begins to read from a peer. Errors: [`ReadError`]; nothing was begun then.
    fn read(&mut self, from: WorkerId, batches: Vec<ReadBatch>) -> Result<(TransferId, Lane), ReadError>;

    /// Asks a transfer to end; its end still comes, once.
    fn cancel(&mut self, id: TransferId);

    /// Returns what reading from a connected peer costs. A simulation does not measure.
    fn speed(&self, _: WorkerId) -> Option<Probe> {
        None
    }

    /// Returns what it counted. A simulation counts nothing.
    fn counts(&self) -> AgentCounts {
        AgentCounts::default()
    }
}

/// Why a read was not begun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The peer is being connected: try again when it is.
    #[error("the peer is not connected yet")]
    NotConnected,
    /// It cannot be prepared.
    #[error(transparent)]
    Prepare(PrepareError),
    /// It was not posted.
    #[error(transparent)]
    Post(#[from] PostError),
}

impl Transport for Agent {
    fn introduce(&mut self, peer: PeerInfo) {
        Agent::introduce(self, peer);
    }

    fn connect(&mut self, peer: WorkerId) {
        Agent::connect(self, peer);
    }

    fn disconnect(&mut self, peer: WorkerId) {
        Agent::disconnect(self, peer);
    }

    fn forget(&mut self, peer: WorkerId) {
        Agent::forget(self, peer);
    }

    fn send(&mut self, to: WorkerId, bytes: Vec<u8>) -> Result<(), SendError> {
        Agent::send(self, to, bytes)
    }

    fn read(&mut self, from: WorkerId, batches: Vec<ReadBatch>) -> Result<(TransferId, Lane), ReadError> {
        let transfer = self.prepare(from, batches).map_err(|error| match error {
            PrepareError::NotConnected(_) => ReadError::NotConnected,
            error => ReadError::Prepare(error),
        })?;
        let transfer = transfer.timed();
        let lane = transfer.lane();
        Ok((self.post(&transfer)?, lane))
    }

    fn cancel(&mut self, id: TransferId) {
        Agent::cancel(self, id);
    }

    fn speed(&self, peer: WorkerId) -> Option<Probe> {
        Agent::speed(self, peer)
    }

    fn counts(&self) -> AgentCounts {
        Agent::counts(self)
    }
}
