//! Connects a peer over one lane: opens connections, agrees on what the lane needs, and measures it. `dial` chooses
//! the lane that is kept.

use super::channel::{Channel, ChannelError, Frame};
use super::connect_error::ConnectError;
use super::hello::{self, Identity, Introduction, Proof, Purpose, Region, RegionPlace, Transcript, kind};
use super::sockets::{ANSWER_MAX, connect_tcp, connect_unix};
use crate::agent::config::TcpConfig;
use crate::agent::event::TransferReport;
use crate::agent::known_peer::KnownPeer;
use crate::agent::link::{Link, Way};
use crate::agent::shared::AgentShared;
use crate::clock::now;
use crate::fields::read_region;
use crate::lanes::Probe;
use crate::lanes::lane_queue::LaneReadError;
use crate::lanes::nvlink::{NotFetched, NvlinkWay};
use crate::lanes::rails::RAILS_MAX;
use crate::lanes::shm::progress_page::ProgressView;
use crate::lanes::tcp::{self, JoinedRail, Order, TcpWay};
use crate::net::HELLO_BYTES_MAX;
use crate::net::socket::Socket;
use crate::regions::{RegionId, take_note};
use crate::speed::probe::{self, PROBE_BYTES, PROBE_BYTES_MIN, PROBE_REPEATS, Scratch};
use crate::transfer::prepared::Prepared;
use crate::transfer::{Copies, Copy, ReadBatch, Transfer};
use crate::wire_error::WireError;
use domain::session::PeerAddress;
use kv_memory::{Copier, Memory, PeerMapping, PeerMemory};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use threads::Doing;

/// Attempts to reach a peer begin no further step after so long, whatever its addresses and lanes: others wait for
/// its place.
const DIAL_MAX: Duration = Duration::from_secs(10);
/// After so long a connection is tried again that the other end closed before it knew who this is, as it does for
/// the sake of others while strangers connect at full pace; no more often.
const RETRY_PAUSES_MS: [u64; 5] = [10, 20, 40, 80, 160];

/// How long reaching a peer may take: each step, of which the last may end later, and all of them.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    step: Duration,
    until: Instant,
}

impl Patience {
    /// From now on.
    pub(super) fn new(step: Duration) -> Self {
        Self { step, until: now() + DIAL_MAX }
    }

    /// Returns the same with other steps.
    pub(super) fn with_steps(self, step: Duration) -> Self {
        Self { step, ..self }
    }

    /// For the next step. Errors: there is no time left.
    fn next(self) -> Result<Duration, ConnectError> {
        match self.until.saturating_duration_since(now()) {
            Duration::ZERO => Err(ConnectError::TimedOut(DIAL_MAX.as_secs())),
            left => Ok(self.step.min(left)),
        }
    }
}

/// A link that was made and measured, and is not taken yet.
pub(super) struct ConnectedLink {
    pub(super) link: Arc<Link>,
    pub(super) probe: Probe,
    /// The link's connection for messages.
    pub(super) channel: Channel,
}

pub(super) fn shm(agent: &AgentShared, peer: &KnownPeer) -> Result<ConnectedLink, ConnectError> {
    let mut regions = BTreeMap::new();
    let (channel, progress) = over_unix(agent, peer, Purpose::Control, |frame, channel| {
        let (region, mapping) = map(frame, channel)?;
        if let RegionPlace::Device(device) | RegionPlace::Exported(device, _) = region.place {
            return Err(ConnectError::OfDevice(device));
        }
        Ok(take_note(&mut regions, region.id, mapping.map(Arc::new))?)
    })?;
    if !regions.is_empty() && regions.values().all(Option::is_none) {
        return Err(ConnectError::NotMappable);
    }
    let first = regions.values().flatten().next();
    let probe = first.map_or(Probe::default(), |first: &Arc<PeerMapping>| probe::copies(first.as_ptr(), first.len()));
    let way = Way::Shm { progress, regions: Mutex::new(regions) };
    Ok(ConnectedLink { link: Arc::new(Link::new(peer, way, &agent.fair_shares)), probe, channel })
}

pub(super) fn nvlink(agent: &AgentShared, peer: &KnownPeer) -> Result<ConnectedLink, ConnectError> {
    let (reader, mut regions) = (agent.reader_device()?, BTreeMap::new());
    let met = over_unix(agent, peer, Purpose::Devices, |frame, channel| {
        let region = Region::decode(&frame.body)?;
        let mapped = reader.map(&region, exported(&region, channel))?;
        Ok(take_note(&mut regions, region.id, mapped)?)
    });
    let (channel, progress) = met.map_err(|error| match error {
        ConnectError::NoUnixSocket | ConnectError::OtherHost => ConnectError::NoFabric(Box::new(error)),
        other => other,
    })?;
    let first = regions.values().next().ok_or(NotFetched::NothingThere)?;
    let probe = probe_fetches(&**reader.copier(), first)?;
    let way = Way::Nvlink(NvlinkWay::new(reader, progress, regions));
    Ok(ConnectedLink { link: Arc::new(Link::new(peer, way, &agent.fair_shares)), probe, channel })
}

/// Connects a peer of this host, which passes descriptors: of each region that `region` takes note of, and of its
/// progress word.
fn over_unix(
    agent: &AgentShared,
    peer: &KnownPeer,
    purpose: Purpose,
    mut region: impl FnMut(&Frame, &mut Channel) -> Result<(), ConnectError>,
) -> Result<(Channel, ProgressView), ConnectError> {
    if peer.address.unix.is_empty() {
        return Err(ConnectError::NoUnixSocket);
    }
    let mut channel = persist(|| {
        let socket = connect_unix(&peer.address.unix).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => ConnectError::OtherHost,
            _ => ConnectError::UnixSocket(error),
        })?;
        greet(agent, peer, purpose, Channel::new(Socket::plain(socket), true))
    })?;
    let (mut progress, begin) = (None, now());
    loop {
        let frame = wait(&mut channel, begin)?;
        match frame.kind {
            kind::REGION => region(&frame, &mut channel)?,
            kind::PROGRESS => {
                let file = channel.take_descriptor().ok_or(WireError::ProgressWithoutFile)?;
                progress = Some(ProgressView::new(file)?);
            }
            kind::READY => break,
            other => return Err(WireError::OutOfPlace(other).into()),
        }
    }
    Ok((channel, progress.ok_or(ConnectError::NoProgress)?))
}

/// Takes the descriptor that came with a region of a device, if one did.
fn exported(region: &Region, channel: &mut Channel) -> Option<OwnedFd> {
    matches!(region.place, RegionPlace::Exported(..)).then(|| channel.take_descriptor()).flatten()
}

/// Measures what a copier fetches out of a peer's memory.
fn probe_fetches(copier: &dyn Copier, source: &Arc<PeerMemory>) -> Result<Probe, ConnectError> {
    let len = source.len().min(PROBE_BYTES);
    let time = |len: usize| probe::fastest_of(|| copier.try_out(source, len).wait().map(drop));
    Ok(Probe { bytes_per_s: len as f64 / time(len)?, latency_s: time(len.min(PROBE_BYTES_MIN))? })
}

pub(super) fn tcp(agent: &AgentShared, peer: &KnownPeer, patience: Patience) -> Result<ConnectedLink, ConnectError> {
    let streams = agent.streams.as_ref().ok_or(ConnectError::NotListening)?;
    let (channel, regions) = control_over_tcp(agent, peer, patience)?;
    let device = regions.values().find_map(|region| match region.place {
        RegionPlace::Device(device) | RegionPlace::Exported(device, _) => Some(device),
        RegionPlace::Host | RegionPlace::File(_) => None,
    });
    let regions: BTreeMap<RegionId, u64> = regions.into_iter().map(|(id, region)| (id, region.len)).collect();
    let connections = usize::from(agent.config.tcp.connections.max(1));
    let addresses: Vec<&str> = addresses(peer).flat_map(|address| std::iter::repeat_n(address, connections)).collect();
    let count = addresses.len().min(RAILS_MAX);
    // One alone needs no comparison.
    let measured = regions.iter().find(|&(_, &len)| len > 0 && count > 1).map(|(&id, &len)| (id, len));
    let (mut rails, mut first_error) = (Vec::with_capacity(count), None);
    for &address in &addresses[..count] {
        let joined = match rail(agent, peer, address, measured, patience) {
            Ok(joined) => Some(joined),
            Err(error) => {
                first_error.get_or_insert(error);
                None
            }
        };
        rails.push((address.to_owned(), joined));
    }
    if let Some(error) = first_error.filter(|_| rails.iter().all(|(_, joined)| joined.is_none())) {
        return Err(error);
    }
    let way = Way::Tcp(TcpWay::new(regions, rails).of_device(device));
    let link = Arc::new(Link::new(peer, way, &agent.fair_shares));
    streams.lane_queue().ask(Order::Adopt(link.clone()));
    let read = |transfer| streams.lane_queue().read(transfer, patience.step, tcp::begin);
    let probe = probe_reads(&link, |len| Arc::new(Scratch::new(len)), read);
    keep(agent, link, probe, channel)
}

/// Connects a rail of the lane `tcp`, and reads over it alone from the region `measured`, of so many bytes, if
/// there is one. What its owner does wrong is counted.
fn rail(
    agent: &AgentShared,
    peer: &KnownPeer,
    address: &str,
    measured: Option<(RegionId, u64)>,
    patience: Patience,
) -> Result<JoinedRail, ConnectError> {
    connect_rail(agent, peer, address, measured, patience).map_err(|error| error.count(&agent.counts))
}

fn connect_rail(
    agent: &AgentShared,
    peer: &KnownPeer,
    address: &str,
    measured: Option<(RegionId, u64)>,
    patience: Patience,
) -> Result<JoinedRail, ConnectError> {
    let channel = lane_over_tcp(agent, peer, address, Purpose::Bytes, patience)?;
    let socket = channel.into_socket().ok_or(WireError::Unasked)?;
    let bytes_per_s = measured.map(|(region, len)| tcp::try_out(&socket, region, len, patience.step)).transpose()?;
    rustix::io::ioctl_fionbio(&socket, true).map_err(io::Error::from)?;
    Ok(JoinedRail { socket, bytes_per_s })
}

/// Connects a rail of a link anew, in the background; the lane hears how it went.
pub(crate) fn join(agent: &Arc<AgentShared>, link: &Arc<Link>, rail_number: usize) {
    let (own, its) = (agent.clone(), link.clone());
    let tell = move |agent: &AgentShared, link: Arc<Link>, joined: Result<_, ConnectError>| {
        if let Some(streams) = &agent.streams {
            let joined = joined.inspect_err(|error| {
                tracing::debug!(worker = agent.config.name, peer = link.name, rail = rail_number, %error, "a rail stays aside");
            });
            let joined = joined.ok();
            streams.lane_queue().ask(Order::Rejoin(link, rail_number, joined));
        }
    };
    let dial = move || {
        threads::does(Doing::Dials);
        let Way::Tcp(way) = &its.way else { return Ok(()) };
        let address = way.address(rail_number).to_owned();
        let known = PeerAddress { tcp: address.clone(), ..PeerAddress::default() };
        let peer = KnownPeer { id: its.peer, incarnation: its.incarnation, name: its.name.clone(), address: known };
        let measured = its.any_region();
        let joined = rail(&own, &peer, &address, measured, Patience::new(ANSWER_MAX));
        tell(&own, its.clone(), joined);
        Ok(())
    };
    if let Err(error) = agent.spawn("rail", dial) {
        tell(agent, link.clone(), Err(ConnectError::Thread(error)));
    }
}

pub(super) fn rdma(agent: &AgentShared, peer: &KnownPeer, patience: Patience) -> Result<ConnectedLink, ConnectError> {
    let verbs = agent.usable_verbs()?;
    // First what may be refused.
    let queues = first_address(agent, peer, |address| lane_over_tcp(agent, peer, address, Purpose::Queues, patience))?;
    let begin = now();
    let met = verbs.meet(queues, agent.config.fingerprint, |channel| wait(channel, begin))?;
    let (channel, _) = control_over_tcp(agent, peer, patience)?;
    let way = Way::Rdma(met.way.clone());
    let link = Arc::new(Link::new(peer, way, &agent.fair_shares));
    verbs.adopt(link.clone(), met);
    let probe = probe_reads(
        &link,
        |_| verbs.scratch(),
        |transfer| verbs.lane_queue().read(transfer, patience.step, |_, _| true),
    );
    keep(agent, link, probe, channel)
}

/// A link is kept if it could be measured.
fn keep(
    agent: &AgentShared,
    link: Arc<Link>,
    probe: Result<Probe, ConnectError>,
    channel: Channel,
) -> Result<ConnectedLink, ConnectError> {
    match probe {
        Ok(probe) => Ok(ConnectedLink { link, probe, channel }),
        Err(error) => {
            agent.discard(&link);
            Err(error)
        }
    }
}

/// Where a peer listens, one address for each of its networks.
fn addresses(peer: &KnownPeer) -> impl Iterator<Item = &str> {
    peer.address.tcp.split(',').map(str::trim).filter(|address| !address.is_empty())
}

/// Returns what works with the first of a peer's addresses with which it does. What is wrong with others is counted.
fn first_address<T>(
    agent: &AgentShared,
    peer: &KnownPeer,
    connect: impl Fn(&str) -> Result<T, ConnectError>,
) -> Result<T, ConnectError> {
    let mut result = Err(ConnectError::NoAddress);
    for address in addresses(peer) {
        result = connect(address).map_err(|error| error.count(&agent.counts));
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Connects a peer that knows this worker then.
fn connect(
    agent: &AgentShared,
    peer: &KnownPeer,
    address: &str,
    purpose: Purpose,
    patience: Patience,
) -> Result<Channel, ConnectError> {
    let tls = agent.config.tls.as_ref();
    let explain = |source| ConnectError::Address { address: address.to_owned(), source };
    persist(|| {
        let step = patience.next()?;
        let socket = connect_tcp(address, step).and_then(|socket| Socket::connected(socket, tls, step));
        greet(agent, peer, purpose, Channel::new(socket.map_err(explain)?, false))
    })
}

/// Tries again for a while what ends with a connection that the other end closed without a word.
fn persist<T>(attempt: impl Fn() -> Result<T, ConnectError>) -> Result<T, ConnectError> {
    for pause_ms in RETRY_PAUSES_MS {
        match attempt() {
            Err(error) if error.is_closed() => std::thread::sleep(Duration::from_millis(pause_ms)),
            result => return result,
        }
    }
    attempt()
}

/// Returns a link's connection for messages, and each region of the peer.
fn control_over_tcp(
    agent: &AgentShared,
    peer: &KnownPeer,
    patience: Patience,
) -> Result<(Channel, BTreeMap<RegionId, Region>), ConnectError> {
    let mut channel = first_address(agent, peer, |address| connect(agent, peer, address, Purpose::Control, patience))?;
    let (mut regions, begin) = (BTreeMap::new(), now());
    loop {
        let frame = wait(&mut channel, begin)?;
        match frame.kind {
            kind::REGION => {
                let region = Region::decode(&frame.body)?;
                take_note(&mut regions, region.id, region)?;
            }
            kind::READY => return Ok((channel, regions)),
            other => return Err(WireError::OutOfPlace(other).into()),
        }
    }
}

/// A connection that is a lane's own.
fn lane_over_tcp(
    agent: &AgentShared,
    peer: &KnownPeer,
    address: &str,
    purpose: Purpose,
    patience: Patience,
) -> Result<Channel, ConnectError> {
    let mut channel = connect(agent, peer, address, purpose, patience)?;
    let frame = wait(&mut channel, now())?;
    if frame.kind == kind::READY { Ok(channel) } else { Err(WireError::OutOfPlace(frame.kind).into()) }
}

/// Measures reads, by `read`, over a link that nobody else uses yet, into what `scratch` gives.
fn probe_reads(
    link: &Arc<Link>,
    scratch: impl Fn(usize) -> Arc<dyn Memory>,
    read: impl Fn(Transfer) -> Result<TransferReport, LaneReadError>,
) -> Result<Probe, ConnectError> {
    let Some((source, len)) = link.any_region() else { return Ok(Probe::default()) };
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(PROBE_BYTES);
    let scratch = scratch(len);
    // The bytes themselves: what encoding costs or saves, real reads tell.
    let tcp = TcpConfig { checksums: false, ..TcpConfig::default() };
    let fastest = |len: usize| {
        let mut fastest = f64::INFINITY;
        for _ in 0..=PROBE_REPEATS {
            let copies = Copies::List(vec![Copy { from: 0, to: 0 }]);
            let batch = ReadBatch { source, destination: RegionId(0), len, gate: 0, copies };
            // The scratch is nobody's: several probes may write it together.
            let claims = Arc::default();
            let own = |_| Some(scratch.clone());
            let prepared = Prepared::check(Weak::new(), link.clone(), vec![batch], &tcp, &claims, own);
            let report = read(prepared?.take()?)?;
            fastest = report.elapsed.as_secs_f64().clamp(1e-9, fastest);
        }
        Ok::<_, ConnectError>(fastest)
    };
    Ok(Probe { bytes_per_s: len as f64 / fastest(len)?, latency_s: fastest(len.min(PROBE_BYTES_MIN))? })
}

/// Proves to the other end that this one belongs to the cluster, and who it is, and then has it prove the same.
fn greet(agent: &AgentShared, peer: &KnownPeer, purpose: Purpose, channel: Channel) -> Result<Channel, ConnectError> {
    let config = &agent.config;
    let (secret, mut channel) = (config.secrets.own(), channel.of_stranger());
    let binding = channel.binding()?;
    let nonce = crate::random::bytes().map_err(|error| ConnectError::Random(error.into()))?;
    let mut transcript = Transcript::over(binding);
    channel.push(kind::HELLO, &transcript.prove(secret, Proof::Knock, &hello::opening(nonce)), None);
    let challenge = expect(&mut channel, kind::CHALLENGE)?;
    hello::check_opening(&challenge, hello::VERSIONS)?;
    transcript.add(&challenge);

    let meant = Identity { who: (peer.id, peer.incarnation), fingerprint: config.fingerprint };
    let introduction = Introduction { purpose, from: agent.known(), to: meant.who, fingerprint: meant.fingerprint };
    channel.push(kind::PROOF, &transcript.prove(secret, Proof::Dialer, &introduction.encode()), None);
    meant.check(&mut transcript, secret, &expect(&mut channel, kind::IDENTITY)?)?;
    channel.trust();
    Ok(channel)
}

/// Sends what waits and waits for this frame of an answer. Its body.
fn expect(channel: &mut Channel, kind: u8) -> Result<Vec<u8>, ConnectError> {
    let answer = wait(channel, now())?;
    if answer.kind == kind { Ok(answer.body) } else { Err(WireError::OutOfPlace(answer.kind).into()) }
}

/// Sends what waits and waits for a frame of an answer that was asked for at `begin`: for [`ANSWER_MAX`] in all,
/// however slowly frames come, and however many. One that says why this end is not served is an error.
fn wait(channel: &mut Channel, begin: Instant) -> Result<Frame, ConnectError> {
    let late = || ChannelError::Failed(io::ErrorKind::TimedOut.into());
    let frame = |channel: &mut Channel| {
        match channel.flush() {
            Ok(true) => {}
            Ok(false) => return Err(late()),
            // What it said before it closed the connection is why.
            Err(error) => return Err(channel.fill().err().unwrap_or(error)),
        }
        loop {
            if let Some(frame) = channel.next(HELLO_BYTES_MAX)? {
                return Ok(frame);
            }
            if !channel.fill()? || now().duration_since(begin) > ANSWER_MAX {
                return Err(late());
            }
        }
    };
    let frame = frame(channel)?;
    match frame.kind {
        kind::REFUSED if frame.body == hello::REFUSAL.as_bytes() => Err(ConnectError::NotProven),
        kind::REFUSED => Err(ConnectError::Refused(String::from_utf8_lossy(&frame.body).into_owned())),
        _ => Ok(frame),
    }
}

/// Maps the region that a frame speaks of, if a file comes along.
fn map(frame: &Frame, channel: &mut Channel) -> Result<(Region, Option<PeerMapping>), ChannelError> {
    let region = Region::decode(&frame.body)?;
    let RegionPlace::File(offset) = region.place else { return Ok((region, None)) };
    let file = channel.take_descriptor().ok_or(WireError::RegionWithoutFile)?;
    let len = usize::try_from(region.len).map_err(|_| WireError::RegionTooLarge)?;
    Ok((region, Some(PeerMapping::new(file.as_fd(), offset, len)?)))
}

/// A region that came later than the others.
pub(super) fn add_region(link: &Link, frame: &Frame, channel: &mut Channel) -> Result<(), ChannelError> {
    match &link.way {
        Way::Shm { regions, .. } => {
            let (region, mapping) = map(frame, channel)?;
            let mut regions = regions.lock().unwrap_or_else(PoisonError::into_inner);
            take_note(&mut regions, region.id, mapping.map(Arc::new))?;
        }
        Way::Nvlink(way) => {
            let region = Region::decode(&frame.body)?;
            way.add_region(&region, exported(&region, channel))?;
        }
        Way::Tcp(way) => way.add_region(Region::decode(&frame.body)?)?,
        // The lane `rdma` hears of regions, with their keys, over a connection of its own.
        Way::Local(_) | Way::Rdma(_) => {}
    }
    Ok(())
}

/// A region that is registered no more. Prepared transfers out of it keep what they have mapped.
pub(super) fn withdraw_region(link: &Link, frame: &Frame) -> Result<(), WireError> {
    let id = read_region(&frame.body)?;
    match &link.way {
        Way::Shm { regions, .. } => drop(regions.lock().unwrap_or_else(PoisonError::into_inner).remove(&id)),
        Way::Nvlink(way) => way.withdraw_region(id),
        Way::Tcp(way) => way.withdraw_region(id),
        Way::Local(_) | Way::Rdma(_) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn an_answer_that_goes_on_is_waited_for_no_longer() {
        let (own, mut peer) = UnixStream::pair().expect("there are descriptors");
        let mut channel = Channel::new(Socket::plain(own.into()), true);
        let mut say = || peer.write_all(&[1, 0, 0, 0, kind::REGION]).expect("it is open");
        say();
        assert!(wait(&mut channel, now()).is_ok_and(|frame| frame.kind == kind::REGION));
        say();
        assert!(wait(&mut channel, now() - 2 * ANSWER_MAX).is_err());
    }
}
