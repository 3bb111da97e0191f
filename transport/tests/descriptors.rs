//! An agent whose process has no descriptors left. A process of its own: the limit is the process'.

use domain::{Incarnation, ProgressWord, Secret, WorkerId};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketType, connect, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use transport::{Agent, AgentConfig, Hub, ListenConfig};

/// What the agent said of its listening: to people, and in all.
static WARNED: AtomicU64 = AtomicU64::new(0);
static SAID: AtomicU64 = AtomicU64::new(0);

struct Listening;

impl Subscriber for Listening {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        if event.metadata().target().starts_with("transport::net::control") {
            SAID.fetch_add(1, Ordering::SeqCst);
            WARNED.fetch_add(u64::from(*event.metadata().level() == Level::WARN), Ordering::SeqCst);
        }
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how often it may try depends on how long the test takes")]
fn without_descriptors_listening_pauses_and_goes_on_later() {
    tracing::subscriber::set_global_default(Listening).expect("there is no other");
    let mut config = AgentConfig::in_process(WorkerId(0), Incarnation(1), "w0".to_owned(), 1);
    config.listen = Some(ListenConfig { bind: "127.0.0.1:0".to_owned(), advertise: String::new() });
    config.secrets = Secret::new("of this program").into();
    let agent = Agent::start(&Hub::new(), config, ProgressWord::new(), Box::new(|_| true)).expect("it starts");
    let address: SocketAddr = agent.address().tcp.parse().expect("it listens");

    let client = socket(AddressFamily::INET, SocketType::STREAM, None).expect("there are descriptors");
    let limit = Rlimit { current: Some(256), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).expect("it may be lowered");
    let more = || std::iter::repeat_with(|| File::open("/dev/null")).map_while(Result::ok).map(OwnedFd::from);
    let mut taken: Vec<OwnedFd> = more().collect();
    // Those too that the agent's threads had for a moment, until there are no more.
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let before = taken.len();
        taken.extend(more());
        if taken.len() == before {
            break;
        }
    }
    let begin = Instant::now();
    connect(&client, &address).expect("the system takes it in for now");
    while WARNED.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(400));
    let said = u128::from(SAID.load(Ordering::SeqCst));
    // A try every hundred milliseconds, and the warning.
    assert!(said <= begin.elapsed().as_millis() / 100 + 3, "{said} times");
    assert_eq!(WARNED.load(Ordering::SeqCst), 1);

    drop(taken);
    // It is heard now: what it says is refused, and its connection closed.
    rustix::net::send(&client, b"GET / HTTP/1.1\r\n\r\n", rustix::net::SendFlags::empty()).expect("it is connected");
    let mut polled = [PollFd::new(&client, PollFlags::IN)];
    let patience = rustix::time::Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(poll(&mut polled, Some(&patience)), Ok(1), "nobody answers");
    assert_eq!(agent.counts().refused.iter().map(|(_, count)| count).sum::<u64>(), 1);
}
