//! Which workers a router takes: those that serve what the first one serves, each once.

use super::service::Service;
use domain::WorkerId;
use domain::session::{ModelShape, PeerInfo, Role, Served};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The workers with an open session.
#[derive(Debug)]
pub(super) struct Roster {
    /// Of the model that requests are tokenized for.
    shape: ModelShape,
    seats: Arc<Mutex<Seats>>,
}

#[derive(Debug)]
struct Seats {
    /// What the first worker served; it decides for the router's life, for requests are tokenized for it. But for
    /// contexts, which are those of the decode workers that are here; when all have left, those of before.
    service: watch::Sender<Option<Service>>,
    /// Where the first worker was.
    first: String,
    taken: BTreeMap<WorkerId, Taken>,
}

/// A worker that is here.
#[derive(Debug)]
struct Taken {
    address: String,
    role: Role,
    /// The longest context that it takes.
    context: u32,
    /// What it declares of its device.
    batch_invariant: bool,
    grammars: bool,
}

/// Why a worker is not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdmitError {
    /// Another worker has its id, which follows from its name.
    #[error("{name} at {address} has the id {id} of the worker at {other}: give one another name (worker.name)")]
    IdTaken {
        /// Its name.
        name: String,
        /// Its address.
        address: String,
        /// The id of both.
        id: WorkerId,
        /// The other worker's address.
        other: String,
    },
    /// It computes another model than requests are tokenized for.
    #[error(
        "the worker at {address} computes another model ({served}) than this router tokenizes for ({wanted}): give both the \
         same one (--model)"
    )]
    Model {
        /// Its address.
        address: String,
        /// Its model.
        served: ModelShape,
        /// The router's model.
        wanted: ModelShape,
    },
    /// Its model has other weights than the first worker's.
    #[error(
        "the worker at {address} has other weights ({}) than the one at {first_address} ({})",
        digest(served),
        digest(first)
    )]
    Weights {
        /// Its address.
        address: String,
        /// The digest of its weights.
        served: [u8; 32],
        /// The first worker's address.
        first_address: String,
        /// The digest of the first worker's weights.
        first: [u8; 32],
    },
    /// It keeps KV otherwise than the first worker.
    #[error(
        "the worker at {address} has other KV ({served}) than the one at {first_address} ({first}): give both the same \
         model.kv_dtype, engine.block_tokens and kv.encoding"
    )]
    Kv {
        /// Its address.
        address: String,
        /// How it keeps KV.
        served: KvForm,
        /// The first worker's address.
        first_address: String,
        /// How the first worker keeps KV.
        first: KvForm,
    },
}

/// How a worker keeps KV, as far as it has to be the same for others to read its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct KvForm {
    /// Fingerprint of the layout.
    layout: u64,
    /// Tokens of a block.
    block_tokens: u32,
    /// Bytes of a token, over all layers.
    token_bytes: u64,
}

impl From<Served> for KvForm {
    fn from(Served { layout, block_tokens, token_bytes, .. }: Served) -> Self {
        Self { layout, block_tokens, token_bytes }
    }
}

impl fmt::Display for KvForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layout, block_tokens, token_bytes } = self;
        write!(f, "layout {layout:016x}, blocks of {block_tokens} tokens, {token_bytes} bytes a token")
    }
}

/// A worker in the roster, given back when dropped.
#[derive(Debug)]
pub(super) struct RosterEntry {
    id: WorkerId,
    seats: Arc<Mutex<Seats>>,
}

impl Roster {
    pub(super) fn new(shape: ModelShape, service: watch::Sender<Option<Service>>) -> Self {
        let seats = Seats { service, first: String::new(), taken: BTreeMap::new() };
        Self { shape, seats: Arc::new(Mutex::new(seats)) }
    }

    /// Takes the worker at `address`. Errors: it does not serve what the router and the other workers do.
    pub(super) fn admit(&self, address: &str, peer: &PeerInfo, served: Served) -> Result<RosterEntry, AdmitError> {
        let mut seats = lock(&self.seats);
        if let Some(Taken { address: other, .. }) = seats.taken.get(&peer.id) {
            let (name, address, other) = (peer.name.clone(), address.to_owned(), other.clone());
            return Err(AdmitError::IdTaken { name, address, id: peer.id, other });
        }
        if served.shape != self.shape {
            return Err(AdmitError::Model { address: address.to_owned(), served: served.shape, wanted: self.shape });
        }
        let first = *seats.service.borrow();
        match first {
            Some(Service { served: first, .. }) => check(&seats.first, first, address, served)?,
            None => {
                seats.first = address.to_owned();
                let common_context = served.context_tokens;
                seats.service.send_replace(Some(Service { served, common_context }));
            }
        }
        let Served { context_tokens: context, batch_invariant, grammars, .. } = served;
        let taken = Taken { address: address.to_owned(), role: peer.role, context, batch_invariant, grammars };
        seats.taken.insert(peer.id, taken);
        seats.publish();
        Ok(RosterEntry { id: peer.id, seats: self.seats.clone() })
    }
}

impl RosterEntry {
    /// Notes that the worker has another role now.
    pub(super) fn take_role(&self, role: Role) {
        let mut seats = lock(&self.seats);
        seats.taken.get_mut(&self.id).into_iter().for_each(|taken| taken.role = role);
        seats.publish();
    }
}

impl Seats {
    /// Publishes what the workers that are here have in common.
    fn publish(&self) {
        if self.taken.is_empty() {
            return;
        }
        self.take_contexts();
        let all = |is: fn(&Taken) -> bool| self.taken.values().all(is);
        let (batch_invariant, grammars) = (all(|taken| taken.batch_invariant), all(|taken| taken.grammars));
        self.service.send_if_modified(|service| {
            let Some(Service { served, .. }) = service else { return false };
            let before = (served.batch_invariant, served.grammars);
            (served.batch_invariant, served.grammars) = (batch_invariant, grammars);
            before != (batch_invariant, grammars)
        });
    }

    /// Publishes the common contexts. Requests have to fit a worker that decodes, which has all of a sequence at its
    /// end. `placement` knows which workers are too small for one.
    fn take_contexts(&self) {
        let decode = || self.taken.values().filter(|taken| taken.role == Role::Decode);
        let (longest, shortest) =
            (decode().max_by_key(|taken| taken.context), decode().map(|taken| taken.context).min());
        let Some((Taken { address, context, .. }, shortest)) = longest.zip(shortest) else { return };
        self.service.send_if_modified(|service| {
            let Some(service) = service else { return false };
            if service.served.context_tokens != *context {
                tracing::info!(
                    "contexts are limited to {context} tokens, which the worker at {address} takes (kv.device_bytes, kv.pinned_percent)"
                );
            }
            let served = Served { context_tokens: *context, ..service.served };
            let now = Service { served, common_context: shortest };
            std::mem::replace(service, now) != now
        });
    }
}

impl Drop for RosterEntry {
    fn drop(&mut self) {
        let mut seats = lock(&self.seats);
        seats.taken.remove(&self.id);
        seats.publish();
    }
}

/// Locks it. A panic while it was held left nothing half done.
fn lock(seats: &Mutex<Seats>) -> MutexGuard<'_, Seats> {
    seats.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks that `served` is what `first` was. Pools, and with them contexts, may be of different sizes, and devices of
/// different kinds ([`Seats::publish`]).
fn check(first_address: &str, first: Served, address: &str, served: Served) -> Result<(), AdmitError> {
    let (address, first_address) = (address.to_owned(), first_address.to_owned());
    if served.weights != first.weights {
        return Err(AdmitError::Weights { address, served: served.weights, first_address, first: first.weights });
    }
    let (served, first) = (KvForm::from(served), KvForm::from(first));
    if served != first {
        return Err(AdmitError::Kv { address, served, first_address, first });
    }
    Ok(())
}

/// Returns the first bytes of the weights' digest.
fn digest(weights: &[u8; 32]) -> String {
    let start: String = weights[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("digest {start}…")
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Incarnation;
    use domain::session::PeerAddress;

    const SHAPE: ModelShape = ModelShape { vocab: 4096, layers: 2, hidden: 64 };
    const SERVED: Served = Served {
        weights: [1; 32],
        shape: SHAPE,
        layout: 7,
        block_tokens: 16,
        token_bytes: 64,
        context_tokens: 512,
        batch_invariant: true,
        grammars: true,
    };

    fn peer(id: u32) -> PeerInfo {
        let (id, incarnation, name) = (WorkerId(id), Incarnation(1), format!("worker-{id}"));
        PeerInfo { id, incarnation, name, role: Role::Decode, address: PeerAddress::default() }
    }

    fn roster() -> (Roster, watch::Receiver<Option<Service>>) {
        let (first, seen) = watch::channel(None);
        (Roster::new(SHAPE, first), seen)
    }

    #[test]
    fn the_first_worker_decides_what_is_served() {
        let (roster, seen) = roster();
        assert_eq!(*seen.borrow(), None);
        drop(roster.admit("a:1", &peer(1), SERVED).expect("the first one"));
        assert_eq!(*seen.borrow(), Some(Service { served: SERVED, common_context: 512 }));
        let other = Served { weights: [2; 32], ..SERVED };
        assert_eq!(
            roster.admit("b:2", &peer(2), other).expect_err("other weights").to_string(),
            "the worker at b:2 has other weights (digest 020202020202…) than the one at a:1 (digest 010101010101…)"
        );
        let shape = ModelShape { vocab: 512, ..SHAPE };
        assert_eq!(
            roster.admit("b:2", &peer(2), Served { shape, ..SERVED }).expect_err("another model").to_string(),
            "the worker at b:2 computes another model (2 layers of width 64, 512 tokens in the vocabulary) than this router \
             tokenizes for (2 layers of width 64, 4096 tokens in the vocabulary): give both the same one (--model)"
        );
        let other = Served { layout: 8, block_tokens: 32, ..SERVED };
        let error = roster.admit("b:2", &peer(2), other).expect_err("another layout").to_string();
        assert!(error.contains("blocks of 32 tokens") && error.contains("blocks of 16 tokens"), "{error}");
        // So has one that keeps KV in another encoding, though all else is the same.
        let error =
            roster.admit("b:2", &peer(2), Served { layout: 8, ..SERVED }).expect_err("another encoding").to_string();
        assert!(error.contains("layout 0000000000000008") && error.contains("kv.encoding"), "{error}");
    }

    #[test]
    fn contexts_are_as_long_as_the_longest_of_a_decode_worker_that_is_here() {
        let (roster, seen) = roster();
        let contexts = || {
            let service = seen.borrow().expect("there was a worker");
            (service.served.context_tokens, service.common_context)
        };
        let of = |context_tokens| Served { context_tokens, ..SERVED };
        let prefill = PeerInfo { role: Role::Prefill, ..peer(9) };
        let _prefill = roster.admit("p:9", &prefill, of(2048)).expect("the first one");
        let small = roster.admit("b:2", &peer(2), of(128)).expect("a smaller pool");
        assert_eq!(contexts(), (128, 128));
        let large = roster.admit("a:1", &peer(1), of(512)).expect("a larger pool");
        assert_eq!(contexts(), (512, 128));
        large.take_role(Role::Prefill);
        assert_eq!(contexts(), (128, 128));
        large.take_role(Role::Decode);
        assert_eq!(contexts(), (512, 128));
        drop(large);
        assert_eq!(contexts(), (128, 128));
        drop(small);
        assert_eq!(contexts(), (128, 128));
    }

    #[test]
    fn a_service_is_batch_invariant_if_all_workers_are() {
        let (roster, seen) = roster();
        let invariant = || seen.borrow().expect("there was a worker").served.batch_invariant;
        let prefill = PeerInfo { role: Role::Prefill, ..peer(9) };
        let first = roster.admit("p:9", &prefill, SERVED).expect("the first one");
        assert!(invariant());
        let other = Served { batch_invariant: false, ..SERVED };
        let varies = roster.admit("a:1", &peer(1), other).expect("a device of another kind");
        assert!(!invariant());
        drop(varies);
        assert!(invariant());
        drop(first);
        assert!(invariant(), "the last worker's, while none is here");
        drop(roster.admit("a:1", &peer(1), other).expect("the only one"));
        assert!(!invariant());
    }

    #[test]
    fn a_service_has_grammars_if_all_workers_have_them() {
        let (roster, seen) = roster();
        let grammars = || seen.borrow().expect("there was a worker").served.grammars;
        let _first = roster.admit("a:1", &peer(1), SERVED).expect("the first one");
        assert!(grammars());
        let without = roster.admit("b:2", &peer(2), Served { grammars: false, ..SERVED }).expect("an older one");
        assert!(!grammars());
        drop(without);
        assert!(grammars());
    }

    #[test]
    fn an_id_is_taken_while_its_session_is_open() {
        let (roster, _seen) = roster();
        let seat = roster.admit("a:1", &peer(1), SERVED).expect("nobody has it");
        assert_eq!(
            roster.admit("b:2", &peer(1), SERVED).expect_err("it is taken").to_string(),
            "worker-1 at b:2 has the id w1 of the worker at a:1: give one another name (worker.name)"
        );
        drop(seat);
        assert!(roster.admit("b:2", &peer(1), SERVED).is_ok());
    }
}
