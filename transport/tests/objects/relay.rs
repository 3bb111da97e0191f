//! A relay before a store that does what networks and stores do on bad days.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What becomes of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Day {
    /// It is joined to the store.
    Good,
    /// It is answered with this status.
    Status(u16),
    /// It ends after so many bytes of the answer.
    CutAfter(usize),
    /// Nothing is ever answered.
    Silence,
    /// So many bytes are answered, and then nothing.
    SilenceAfter(usize),
    /// Whoever wants to write is told that somebody else is about to (409); others are joined to the store.
    Conflict,
}

/// A relay. It ends with its process.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    /// What becomes of the next connections, and of those after them.
    days: Arc<Mutex<(Vec<Day>, Day)>>,
    /// Where the store is.
    store: Arc<Mutex<SocketAddr>>,
    /// Connections whose day has begun.
    begun: Arc<AtomicUsize>,
}

impl Relay {
    pub(crate) fn start(store: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let days = Arc::new(Mutex::new((Vec::new(), Day::Good)));
        let (store, begun) = (Arc::new(Mutex::new(store)), Arc::new(AtomicUsize::new(0)));
        let theirs = (days.clone(), store.clone(), begun.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (days, store, begun) = &theirs;
                let (first, later) = &mut *days.lock().expect("nobody panicked");
                let day = if first.is_empty() { *later } else { first.remove(0) };
                let store = *store.lock().expect("nobody panicked");
                begun.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || carry(client, store, day));
            }
        });
        Self { address, days, store, begun }
    }

    /// The store is there from now on.
    pub(crate) fn lead_to(&self, store: SocketAddr) {
        *self.store.lock().expect("nobody panicked") = store;
    }

    /// Connections whose day has begun.
    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    /// The next connections fare like `first`, all others like `later`.
    pub(crate) fn fare(&self, first: &[Day], later: Day) {
        *self.days.lock().expect("nobody panicked") = (first.to_vec(), later);
    }
}

fn carry(client: TcpStream, store: SocketAddr, day: Day) {
    match day {
        Day::Good => join(client, store, usize::MAX, true),
        Day::CutAfter(bytes) => join(client, store, bytes, true),
        Day::SilenceAfter(bytes) => join(client, store, bytes, false),
        Day::Silence => swallow(client),
        Day::Conflict => {
            let mut word = [0; 4];
            while client.peek(&mut word).is_ok_and(|len| (1..word.len()).contains(&len)) {
                std::thread::yield_now();
            }
            carry(client, store, if &word == b"PUT " { Day::Status(409) } else { Day::Good });
        }
        Day::Status(status) => {
            // Who is answered before it has asked takes that for a connection that broke.
            let mut asked = BufReader::new(&client).lines();
            while asked.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let answer = format!("HTTP/1.1 {status} -\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy");
            let _ = (&client).write_all(answer.as_bytes());
            let _ = client.shutdown(Shutdown::Write);
            swallow(client);
        }
    }
}

/// Reads until the other side has enough.
fn swallow(mut client: TcpStream) {
    let _ = std::io::copy(&mut client, &mut std::io::sink());
}

/// Carries bytes both ways, but no more than so many of the answer; then it ends, or says nothing more.
fn join(client: TcpStream, store: SocketAddr, bytes: usize, ends: bool) {
    let Ok(server) = TcpStream::connect(store) else { return };
    let (from_client, mut to_server) = (client.try_clone().expect("a clone"), server.try_clone().expect("a clone"));
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut &from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let _ = std::io::copy(&mut server.take(bytes as u64), &mut &client);
    if ends {
        let _ = client.shutdown(Shutdown::Both);
    } else {
        swallow(client);
    }
}
