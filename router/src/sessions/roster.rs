//! Which workers a router takes: those that serve what the first one serves, each once.

use domain::WorkerId;
use domain::session::{Hello, ModelShape, Served};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The workers with an open session.
#[derive(Debug)]
pub(super) struct Roster {
    /// Of the model that requests are tokenized for.
    shape: ModelShape,
    /// What the first worker served, and where it was. It decides for the router's life: requests are tokenized for it.
    first: watch::Sender<Option<Served>>,
    seats: Arc<Mutex<Seats>>,
}

#[derive(Debug, Default)]
struct Seats {
    /// Where the first worker was.
    first: String,
    /// Where the worker with an id is.
    taken: BTreeMap<WorkerId, String>,
}

/// A worker's place in the roster, given back when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    id: WorkerId,
    seats: Arc<Mutex<Seats>>,
}

impl Roster {
    pub(super) fn new(shape: ModelShape, first: watch::Sender<Option<Served>>) -> Self {
        Self { shape, first, seats: Arc::default() }
    }

    /// Takes the worker at `address`. Errors: why not, for people.
    pub(super) fn admit(&self, address: &str, hello: &Hello) -> Result<Seat, String> {
        let (peer, served) = (&hello.peer, hello.served);
        let mut seats = lock(&self.seats);
        if let Some(other) = seats.taken.get(&peer.id) {
            let name = &peer.name;
            return Err(format!(
                "{name} at {address} has the id {} of the worker at {other}: give one another name (worker.name)",
                peer.id
            ));
        }
        if served.shape != self.shape {
            return Err(format!(
                "the worker at {address} computes another model ({}) than this router tokenizes for ({}): give both the same one (--model)",
                served.shape, self.shape
            ));
        }
        let first = *self.first.borrow();
        match first {
            Some(first) => check(&seats.first, first, address, served)?,
            None => {
                seats.first = address.to_owned();
                self.first.send_replace(Some(served));
            }
        }
        seats.taken.insert(peer.id, address.to_owned());
        Ok(Seat { id: peer.id, seats: self.seats.clone() })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.seats).taken.remove(&self.id);
    }
}

/// A panic while it was held left nothing half done.
fn lock(seats: &Mutex<Seats>) -> MutexGuard<'_, Seats> {
    seats.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Errors: `served` is not what `first` was. Pools, and with them contexts, may be of different sizes.
fn check(first_address: &str, first: Served, address: &str, served: Served) -> Result<(), String> {
    let both = |what: &str, first: String, other: String| {
        format!("the worker at {address} has other {what} ({other}) than the one at {first_address} ({first})")
    };
    if served.weights != first.weights {
        return Err(both("weights", digest(&first), digest(&served)));
    }
    let layout = |served: Served| {
        let Served { layout, block_tokens, token_bytes, .. } = served;
        (layout, block_tokens, token_bytes)
    };
    if layout(served) != layout(first) {
        let text = |served: Served| {
            let Served { layout, block_tokens, token_bytes, .. } = served;
            format!("layout {layout:016x}, blocks of {block_tokens} tokens, {token_bytes} bytes a token")
        };
        let mend = "give both the same model.kv_dtype, engine.block_tokens and kv.encoding";
        return Err(format!("{}: {mend}", both("KV", text(first), text(served))));
    }
    Ok(())
}

/// The first bytes of the weights' digest.
fn digest(served: &Served) -> String {
    let start: String = served.weights[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("digest {start}…")
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Incarnation;
    use domain::session::{PROTOCOL, PeerAddress, PeerInfo, Role};

    const SHAPE: ModelShape = ModelShape { vocab: 4096, layers: 2, hidden: 64 };
    const SERVED: Served =
        Served { weights: [1; 32], shape: SHAPE, layout: 7, block_tokens: 16, token_bytes: 64, context_tokens: 512 };

    fn hello(id: u32, served: Served) -> Hello {
        let (id, incarnation, name) = (WorkerId(id), Incarnation(1), format!("worker-{id}"));
        let peer = PeerInfo { id, incarnation, name, role: Role::Decode, address: PeerAddress::default() };
        Hello { protocol: PROTOCOL, peer, served, nonce: [0; 32], proof: [0; 32] }
    }

    fn roster() -> (Roster, watch::Receiver<Option<Served>>) {
        let (first, seen) = watch::channel(None);
        (Roster::new(SHAPE, first), seen)
    }

    #[test]
    fn the_first_worker_decides_what_is_served() {
        let (roster, seen) = roster();
        assert_eq!(*seen.borrow(), None);
        drop(roster.admit("a:1", &hello(1, SERVED)).expect("the first one"));
        assert_eq!(*seen.borrow(), Some(SERVED));
        let other = Served { weights: [2; 32], ..SERVED };
        assert_eq!(
            roster.admit("b:2", &hello(2, other)).expect_err("other weights"),
            "the worker at b:2 has other weights (digest 020202020202…) than the one at a:1 (digest 010101010101…)"
        );
        let shape = ModelShape { vocab: 512, ..SHAPE };
        assert_eq!(
            roster.admit("b:2", &hello(2, Served { shape, ..SERVED })).expect_err("another model"),
            "the worker at b:2 computes another model (2 layers of width 64, 512 tokens in the vocabulary) than this router \
             tokenizes for (2 layers of width 64, 4096 tokens in the vocabulary): give both the same one (--model)"
        );
        let other = Served { layout: 8, block_tokens: 32, ..SERVED };
        let error = roster.admit("b:2", &hello(2, other)).expect_err("another layout");
        assert!(error.contains("blocks of 32 tokens") && error.contains("blocks of 16 tokens"), "{error}");
        // So has one that keeps KV in another encoding, though all else is the same.
        let error = roster.admit("b:2", &hello(2, Served { layout: 8, ..SERVED })).expect_err("another encoding");
        assert!(error.contains("layout 0000000000000008") && error.contains("kv.encoding"), "{error}");
        assert!(roster.admit("b:2", &hello(2, Served { context_tokens: 128, ..SERVED })).is_ok(), "a smaller pool");
        assert_eq!(*seen.borrow(), Some(SERVED));
    }

    #[test]
    fn an_id_is_taken_while_its_session_is_open() {
        let (roster, _seen) = roster();
        let seat = roster.admit("a:1", &hello(1, SERVED)).expect("nobody has it");
        assert_eq!(
            roster.admit("b:2", &hello(1, SERVED)).expect_err("it is taken"),
            "worker-1 at b:2 has the id w1 of the worker at a:1: give one another name (worker.name)"
        );
        drop(seat);
        assert!(roster.admit("b:2", &hello(1, SERVED)).is_ok());
    }
}
