//! The time of one small read, and of the wake-ups around it.

use crate::error::BenchError;
use crate::pool::pool;
use crate::report::Row;
use crate::settings::Wire;
use domain::session::{PeerInfo, Role};
use domain::{Incarnation, ProgressWord, StepId, WorkerId};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use transport::{Agent, AgentConfig, AgentEvent, Copies, Copy, Hub, Lane, ListenConfig, Prepared, ReadBatch, RegionId};

const READ_BYTES: usize = 4 << 10;
/// Reads rotate over a memory that no inner cache holds.
const POOL_BYTES: usize = 64 << 20;
/// Measurements of each kind; the median counts.
const REPEATS: usize = 4000;
const PATIENCE: Duration = Duration::from_secs(10);
const OWNER: WorkerId = WorkerId(0);

/// Two agents that are to each other as those of two processes, but over `local`, so that wake-ups can be timed by
/// one clock.
struct Pair {
    reader: Agent,
    events: Receiver<AgentEvent>,
    word: ProgressWord,
    _owner: Agent,
}

impl Pair {
    fn new(lane: Lane) -> Result<Self, BenchError> {
        let config = |id: u32| {
            let mut config = AgentConfig::in_process(WorkerId(id), Incarnation(1), format!("w{id}"), 1);
            config.listen = Some(ListenConfig { bind: "127.0.0.1:0".to_owned(), advertise: String::new() });
            config.lanes = vec![lane];
            // What it reads is made up.
            config.insecure = true;
            config.tcp.checksums = false;
            config
        };
        let word = ProgressWord::new();
        let hub = Hub::new();
        let owner = Agent::start(&hub, config(0), word.clone(), Box::new(|_| true))?;
        owner.register(pool(POOL_BYTES)?);
        let (sender, events) = sync_channel(8);
        let sink = move |event| sender.try_send(event).is_ok();
        let hub = if lane == Lane::Local { hub } else { Hub::new() };
        let reader = Agent::start(&hub, config(1), ProgressWord::new(), Box::new(sink))?;
        reader.register(pool(POOL_BYTES)?);
        let (incarnation, address) = (Incarnation(1), owner.address());
        reader.introduce(PeerInfo { id: OWNER, incarnation, name: "w0".to_owned(), role: Role::Prefill, address });
        reader.connect(OWNER);
        let pair = Self { reader, events, word, _owner: owner };
        match pair.awaited()? {
            AgentEvent::Connected { .. } => Ok(pair),
            other => Err(BenchError::Owner(format!("is not reached over {lane}: {other:?}"))),
        }
    }

    /// Waits for the end of a read that was posted. Errors: it failed, or nothing comes.
    fn read(&self) -> Result<(), BenchError> {
        match self.awaited()? {
            AgentEvent::Ended(completion) => Ok(completion.result.map(drop)?),
            other => Err(BenchError::Owner(format!("ends no read: {other:?}"))),
        }
    }

    fn awaited(&self) -> Result<AgentEvent, BenchError> {
        let event = self.events.recv_timeout(PATIENCE);
        event.map_err(|_| BenchError::hangs("two agents of one process", PATIENCE))
    }

    /// Begins the `n`-th read, behind `gate`.
    fn post(&self, n: usize, gate: u64) -> Result<Prepared, BenchError> {
        let at = (n * READ_BYTES % POOL_BYTES) as u64;
        let copies = Copies::List(vec![Copy { from: at, to: at }]);
        let region = RegionId(0);
        let batch = ReadBatch { source: region, destination: region, len: READ_BYTES, gate, copies };
        let prepared = self.reader.prepare(OWNER, vec![batch])?;
        self.reader.post(&prepared)?;
        Ok(prepared)
    }
}

/// Returns the rows of one read over each lane that is measured, and of the wake-ups that it is compared with.
pub(crate) fn rows(wires: &[Wire]) -> Result<Vec<Row>, BenchError> {
    let row = |peer, lane, seconds| Row::plain(peer, lane, READ_BYTES, 1, seconds);
    let mut rows = vec![row("eventfd", "to a thread and back".to_owned(), ping_pong()?)];
    let mut lanes: Vec<Lane> = wires.iter().map(|wire| wire.lane).collect();
    lanes.dedup();
    for lane in lanes {
        let pair = Pair::new(lane)?;
        let polled = median(
            |n| {
                // It polls, where polling is worth it.
                pair.post(n, 0)?.wait(PATIENCE);
                Ok(())
            },
            // The first has nothing before it.
            |n| if n > 0 { pair.read() } else { Ok(()) },
        )?;
        pair.read()?;
        let awaited = median(
            |n| {
                pair.post(n, 0)?;
                pair.read()
            },
            |_| Ok(()),
        )?;
        let gated = median(
            |n| {
                pair.word.raise(StepId(n as u64 + 1), 0);
                pair.read()
            },
            |n| {
                pair.post(n, ProgressWord::mark(StepId(n as u64 + 1), 0))?;
                // Until everybody sleeps.
                std::thread::sleep(Duration::from_micros(100));
                Ok(())
            },
        )?;
        rows.push(row("baton", format!("{lane}, polled"), polled));
        rows.push(row("baton", format!("{lane}, awaited"), awaited));
        rows.push(row("baton", format!("{lane}, from the raise of its gate until awaited"), gated));
    }
    Ok(rows)
}

/// Returns the seconds of `timed`, which gets numbers from 0. `between` comes before each and is not timed.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
fn median(
    mut timed: impl FnMut(usize) -> Result<(), BenchError>,
    mut between: impl FnMut(usize) -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    let mut times = Vec::with_capacity(REPEATS);
    for n in 0..REPEATS {
        between(n)?;
        let begin = Instant::now();
        timed(n)?;
        times.push(begin.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[REPEATS / 2])
}

/// Measures the seconds to wake another thread by an eventfd and to be woken by it: one right after the other, as the
/// reads.
fn ping_pong() -> Result<f64, BenchError> {
    let bell = || eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from);
    let (there, back) = (bell()?, bell()?);
    let one = 1_u64.to_ne_bytes();
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| -> io::Result<()> {
            for _ in 0..REPEATS {
                rustix::io::read(&there, &mut [0_u8; 8])?;
                rustix::io::write(&back, &one)?;
            }
            Ok(())
        });
        let time = median(
            |_| {
                rustix::io::write(&there, &one).map_err(io::Error::from)?;
                rustix::io::read(&back, &mut [0_u8; 8]).map_err(io::Error::from)?;
                Ok(())
            },
            |_| Ok(()),
        );
        echo.join().unwrap_or_else(|_| Err(io::Error::other("the other thread panicked")))?;
        time
    })
}
