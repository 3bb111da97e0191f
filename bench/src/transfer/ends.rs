//! The two processes: the owner, which says where it is and waits, and the reader, which measures.

use super::{Options, Pool};
use domain::session::{PeerAddress, PeerInfo, Role};
use domain::{Incarnation, ProgressWord, WorkerId};
use serde_json::{Value, json};
use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;
use transport::{
    Agent, AgentConfig, AgentEvent, Copy, Hub, Lane, ListenConfig, Memory, ReadBatch, RegionId, SealedMemory, Transfer,
};

const OWNER: WorkerId = WorkerId(0);
const READER: WorkerId = WorkerId(1);
const LIFE: Incarnation = Incarnation(1);
const REGION: RegionId = RegionId(0);
/// Transfers that may be open.
const POSTED_MAX: usize = 16;
/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Memory, touched and full of what the owner has.
pub(super) fn pool(bytes: usize) -> Result<Pool, Box<dyn Error>> {
    let pool = Arc::new(SealedMemory::new("bench", bytes)?);
    fill(&pool);
    Ok(pool)
}

/// The word at place `n` of a full pool.
fn word(n: usize) -> u64 {
    (n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The place of each word of a pool. Only this thread touches it then: the reader between its passes, the owner before it
/// says where it is.
fn places(pool: &Pool) -> impl Iterator<Item = (usize, *mut u64)> {
    let first = pool.as_ptr().cast::<u64>();
    (0..pool.len() / 8).map(move |n| (n, first.wrapping_add(n)))
}

fn fill(pool: &Pool) {
    // SAFETY: the places are inside the pool and aligned; see `places`.
    places(pool).for_each(|(n, at)| unsafe { at.write(word(n)) });
}

pub(super) fn clear(pool: &Pool) {
    // SAFETY: as above.
    places(pool).for_each(|(_, at)| unsafe { at.write(0) });
}

pub(super) fn is_filled(pool: &Pool) -> bool {
    // SAFETY: as above.
    places(pool).all(|(n, at)| unsafe { at.read() } == word(n))
}

fn config(id: WorkerId) -> AgentConfig {
    let config = AgentConfig::in_process(id, LIFE, id.to_string(), POSTED_MAX);
    AgentConfig { listen: Some(ListenConfig { bind: "127.0.0.1:0".to_owned(), advertise: String::new() }), ..config }
}

/// The owner's life: says where it is, and is there until its input ends.
pub(super) fn own(bytes: usize) -> Result<(), Box<dyn Error>> {
    let agent = Agent::start(&Hub::new(), config(OWNER), ProgressWord::new(), Box::new(|_| true))?;
    agent.register(pool(bytes)?);
    let PeerAddress { process, unix, tcp } = agent.address();
    println!("{}", json!({ "process": process, "unix": unix, "tcp": tcp }));
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// The other process, as the measuring one sees it.
pub(super) struct Owner {
    process: Child,
    /// Its end ends the process.
    input: Option<ChildStdin>,
    info: PeerInfo,
}

impl Owner {
    pub(super) fn spawn(options: &Options) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["transfer", "--owner"]).args(options.quick.then_some("--quick"));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = process.stdin.take();
        let mut line = String::new();
        BufReader::new(process.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let said: Value = serde_json::from_str(&line)?;
        let text = |name: &str| said[name].as_str().map(str::to_owned).ok_or(format!("no {name}"));
        let process_number = said["process"].as_u64().ok_or("no process")?;
        let address = PeerAddress { process: process_number, unix: text("unix")?, tcp: text("tcp")? };
        let info = PeerInfo { id: OWNER, incarnation: LIFE, name: "owner".to_owned(), role: Role::Prefill, address };
        Ok(Self { process, input, info })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.input.take());
        // An error says that it has ended before.
        let _ = self.process.wait();
    }
}

/// The end that reads.
pub(super) struct Reader {
    agent: Agent,
    events: Receiver<AgentEvent>,
    bytes: usize,
}

impl Reader {
    pub(super) fn connect(
        lane: Lane,
        checksums: bool,
        connections: u16,
        owner: &Owner,
        pool: Pool,
    ) -> Result<Self, Box<dyn Error>> {
        let (sender, events) = sync_channel(2 * POSTED_MAX);
        let mut config = AgentConfig { lanes: vec![lane], ..config(READER) };
        (config.tcp.checksums, config.tcp.connections) = (checksums, connections);
        let sink = Box::new(move |event| sender.try_send(event).is_ok());
        let agent = Agent::start(&Hub::new(), config, ProgressWord::new(), sink)?;
        let bytes = pool.len();
        agent.register(pool);
        agent.introduce(owner.info.clone());
        agent.connect(OWNER);
        match events.recv_timeout(PATIENCE)? {
            AgentEvent::Connected { .. } => Ok(Self { agent, events, bytes }),
            other => Err(format!("{other:?}").into()),
        }
    }

    fn prepare(&self, at: usize, len: usize) -> Result<Transfer, Box<dyn Error>> {
        let copies = vec![Copy { from: at as u64, to: at as u64 }];
        let batch = ReadBatch { source: REGION, destination: REGION, len, gate: 0, copies };
        Ok(self.agent.prepare(OWNER, vec![batch])?)
    }

    /// The reads of a pass over the pool, in blocks of `len` bytes.
    pub(super) fn prepare_pass(&self, len: usize) -> Result<Vec<Transfer>, Box<dyn Error>> {
        (0..self.bytes).step_by(len).map(|at| self.prepare(at, len)).collect()
    }

    /// Reads, with `in_flight` reads posted at a time.
    pub(super) fn pass(&self, reads: Vec<Transfer>, in_flight: usize) -> Result<(), Box<dyn Error>> {
        let mut open = 0;
        for read in reads {
            if open == in_flight {
                self.ended()?;
                open -= 1;
            }
            self.agent.post(read)?;
            open += 1;
        }
        (0..open).try_for_each(|_| self.ended())
    }

    fn ended(&self) -> Result<(), Box<dyn Error>> {
        match self.events.recv_timeout(PATIENCE)? {
            AgentEvent::Ended(completion) => {
                completion.result?;
                Ok(())
            }
            other => Err(format!("{other:?}").into()),
        }
    }
}
