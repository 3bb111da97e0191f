//! A way through which bytes pass late, and some of them later still: what a lost segment does to a connection.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// How long everything takes.
const DELAY: Duration = Duration::from_millis(5);
/// How much longer it takes where something was lost: until it is sent again.
const SENT_AGAIN: Duration = Duration::from_millis(200);
/// One in so many pieces is lost.
const LOST_ONE_IN: u64 = 50;

/// Passes on what comes to one address to another, for as long as the test runs.
pub(super) struct Relay {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    open: Mutex<Vec<TcpStream>>,
    pieces: AtomicU64,
}

impl Relay {
    /// Takes connections at `at` and continues them to `to`.
    pub(super) fn start(at: SocketAddr, to: SocketAddr) -> Self {
        let listener = TcpListener::bind(at).expect("the address is free");
        let shared = Arc::<Shared>::default();
        let relay = shared.clone();
        spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                // Where nobody listens, the connection ends at once.
                let Ok(far) = TcpStream::connect(to) else { continue };
                for end in [&near, &far] {
                    end.set_nodelay(true).expect("a socket takes its options");
                }
                let copies = [&near, &far].map(|end| end.try_clone().expect("there are descriptors left"));
                relay.open.lock().expect("nobody panics with it").extend(copies);
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let [from, to] = [from, to].map(|end| end.try_clone().expect("there are descriptors left"));
                    let shared = relay.clone();
                    spawn(move || pass(&shared, from, to));
                }
            }
        });
        Self { shared }
    }

    /// Breaks all connections; new ones may come.
    pub(super) fn cut(&self) {
        for end in self.shared.open.lock().expect("nobody panics with it").drain(..) {
            // It may have ended already.
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// Pieces that were lost and sent again.
    pub(super) fn lost(&self) -> u64 {
        self.shared.pieces.load(Ordering::Relaxed) / LOST_ONE_IN
    }
}

/// Passes bytes on until either end is gone.
fn pass(shared: &Shared, mut from: TcpStream, mut to: TcpStream) {
    let mut piece = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        sleep(DELAY);
        if (shared.pieces.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(LOST_ONE_IN) {
            sleep(SENT_AGAIN);
        }
        if to.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    for end in [from, to] {
        let _ = end.shutdown(Shutdown::Both);
    }
}
