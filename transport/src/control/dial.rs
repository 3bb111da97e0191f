//! Connecting to a peer: every lane that works, of which the best is kept. Runs on a thread of its own and may block.

use super::channel::{Channel, ChannelError, Frame};
use super::hello::{self, HELLO_BYTES_MAX, Hello, Purpose, kind};
use super::sockets::{ANSWER_MAX, connect_tcp, connect_unix};
use crate::lane::{Lane, LaneStatus, Probe};
use crate::lane_tcp::{Asker, Streams};
use crate::link::{Link, Way};
use crate::mapping::Mapping;
use crate::memory::{Memory, RegionId};
use crate::peers::Known;
use crate::probe::{self, PROBE_BYTES, PROBE_BYTES_MIN, PROBE_REPEATS, Scratch};
use crate::progress_page::ProgressView;
use crate::ranking;
use crate::station::Station;
use crate::transfer::{Copy, ReadBatch, Transfer};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Regions of one agent that others take note of.
pub(crate) const REGIONS_MAX: usize = 4096;
/// Where a peer is reached already, how long each step of reaching it over another lane may take, for the sake of comparing.
const COMPARING_MAX: Duration = Duration::from_millis(200);

/// A peer that was reached.
pub(crate) struct Dialled {
    pub(crate) link: Arc<Link>,
    pub(crate) status: LaneStatus,
    /// Non-blocking, to be watched from now on.
    pub(crate) channel: Channel,
}

/// Connects to `peer` by the best of the lanes that work, each of which is reached and probed where there are several.
/// Errors: why none does, for people.
pub(crate) fn dial(station: &Station, peer: &Known) -> Result<Dialled, String> {
    let config = &station.config;
    let mut passed_over: Vec<(Lane, String)> = Vec::new();
    let mut reached: Vec<Reached> = Vec::new();
    for (lane, missing) in Lane::all() {
        if config.require.is_some_and(|required| lane > required) {
            break;
        }
        let attempt = match (lane, missing) {
            (_, Some(missing)) => Err(missing.to_owned()),
            (lane, None) if !config.lanes.contains(&lane) => Err("forbidden by transport.lanes".to_owned()),
            (Lane::Shm, None) => shm(station, peer),
            (Lane::Tcp, None) => tcp(station, peer, if reached.is_empty() { ANSWER_MAX } else { COMPARING_MAX }),
            (Lane::Local, None) if peer.address.process == station.hub.process() => {
                Err("it is not in this process any more".to_owned())
            }
            (Lane::Local | Lane::CudaIpc | Lane::Rdma, None) => Err("other process".to_owned()),
        };
        match attempt {
            Ok(lane) => reached.push(lane),
            Err(reason) => passed_over.push((lane, reason)),
        }
    }
    if !reached.is_empty() {
        let probes: Vec<_> = reached.iter().map(|(_, probe, _)| *probe).collect();
        let (link, probe, channel) = reached.swap_remove(ranking::best(&probes));
        let lane = link.lane();
        for (other, ..) in reached {
            passed_over.push((other.lane(), "slower, when both were probed".to_owned()));
            let_go(station, &other);
        }
        passed_over.retain(|&(other, _)| other < lane);
        passed_over.sort_by_key(|&(other, _)| other);
        rustix::io::ioctl_fionbio(channel.socket(), true).map_err(|error| error.to_string())?;
        return Ok(Dialled { link, status: LaneStatus { peer: peer.name.clone(), lane, probe, passed_over }, channel });
    }
    let reasons: Vec<_> = passed_over.iter().map(|(lane, reason)| format!("{lane}: {reason}")).collect();
    let reasons = reasons.join("; ");
    Err(match config.require {
        Some(required) => format!(
            "transport.require = \"{required}\", but no lane at least as fast reaches worker {} ({reasons})",
            peer.name
        ),
        None => format!("no lane reaches worker {} ({reasons})", peer.name),
    })
}

type Reached = (Arc<Link>, Probe, Channel);

/// A link that was made is not taken.
pub(super) fn let_go(station: &Station, link: &Link) {
    link.leave();
    if let Some(streams) = &station.streams {
        streams.links_changed();
    }
}

fn shm(station: &Station, peer: &Known) -> Result<Reached, String> {
    if peer.address.unix.is_empty() {
        return Err("the peer offers no Unix socket".to_owned());
    }
    let socket = connect_unix(&peer.address.unix).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => "no common Unix socket: the peer is on another host, or gone".to_owned(),
        _ => format!("its Unix socket cannot be connected: {error}"),
    })?;
    let mut channel = Channel::new(socket, true);
    greet(station, peer, Purpose::Control, &mut channel)?;
    let (mut regions, mut progress) = (Vec::new(), None);
    loop {
        let frame = wait(&mut channel)?;
        match frame.kind {
            kind::REGION => regions.push(map(&frame, &mut channel)?.map(Arc::new)),
            kind::PROGRESS => {
                let file = channel.take_descriptor().ok_or("its progress word came without a descriptor")?;
                progress = Some(ProgressView::new(file)?);
            }
            kind::READY => break,
            _ => return Err(unexpected(&frame)),
        }
        if regions.len() > REGIONS_MAX {
            return Err(format!("it has more than {REGIONS_MAX} regions"));
        }
    }
    if !regions.is_empty() && regions.iter().all(Option::is_none) {
        return Err("its memory is not in files that could be mapped".to_owned());
    }
    let progress = progress.ok_or("it does not show its progress")?;
    let first = regions.iter().flatten().next();
    let probe = first.map_or(Probe::default(), |first: &Arc<Mapping>| probe::copies(first.as_ptr(), first.len()));
    let way = Way::Shm { progress, regions: Mutex::new(regions) };
    Ok((Arc::new(Link::new(peer.id, peer.incarnation, peer.name.clone(), way)), probe, channel))
}

/// Each step of it takes `patience` at most.
fn tcp(station: &Station, peer: &Known, patience: Duration) -> Result<Reached, String> {
    let Some(streams) = &station.streams else { return Err("this worker listens to no other process".to_owned()) };
    if peer.address.tcp.is_empty() {
        return Err("the peer offers no address for it".to_owned());
    }
    let connect = |purpose| {
        let socket = connect_tcp(&peer.address.tcp, patience);
        let socket = socket.map_err(|error| format!("{} cannot be connected: {error}", peer.address.tcp))?;
        let mut channel = Channel::new(socket, false);
        greet(station, peer, purpose, &mut channel)?;
        Ok::<_, String>(channel)
    };
    let mut channel = connect(Purpose::Control)?;
    let mut regions = Vec::new();
    loop {
        let frame = wait(&mut channel)?;
        match frame.kind {
            kind::REGION => regions.push(region(&frame)?.0),
            kind::READY => break,
            _ => return Err(unexpected(&frame)),
        }
        if regions.len() > REGIONS_MAX {
            return Err(format!("it has more than {REGIONS_MAX} regions"));
        }
    }
    let connections = usize::from(station.config.tcp.connections.max(1));
    let mut askers = Vec::with_capacity(connections);
    for index in 0..connections {
        let mut channel = connect(Purpose::Bytes)?;
        let frame = wait(&mut channel)?;
        if frame.kind != kind::READY {
            return Err(unexpected(&frame));
        }
        let socket = channel.into_socket().ok_or("it sent bytes that were not asked for")?;
        rustix::io::ioctl_fionbio(&socket, true).map_err(|error| error.to_string())?;
        askers.push(Arc::new(Asker::new(socket, index)));
    }
    let way = Way::Tcp { regions: Mutex::new(regions), askers, turn: AtomicUsize::new(0) };
    let link = Arc::new(Link::new(peer.id, peer.incarnation, peer.name.clone(), way));
    streams.adopt(link.clone());
    match probe_stream(streams, &link, patience) {
        Ok(probe) => Ok((link, probe, channel)),
        Err(reason) => {
            link.leave();
            streams.links_changed();
            Err(reason)
        }
    }
}

/// Measures reads over a link that nobody else uses yet.
fn probe_stream(streams: &Streams, link: &Arc<Link>, patience: Duration) -> Result<Probe, String> {
    let Some(len) = link.region_len(RegionId(0)).filter(|&len| len > 0) else { return Ok(Probe::default()) };
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(PROBE_BYTES);
    let scratch: Arc<dyn Memory> = Arc::new(Scratch::new(len));
    let fastest = |len: usize| {
        let mut fastest = f64::INFINITY;
        for _ in 0..=PROBE_REPEATS {
            let copies = vec![Copy { from: 0, to: 0 }];
            let batch = ReadBatch { source: RegionId(0), destination: RegionId(0), len, gate: 0, copies };
            let transfer = Transfer::new(link.clone(), vec![batch], false, |_| Some(scratch.clone()));
            let report = streams.read(transfer.map_err(|error| error.to_string())?, patience)?;
            fastest = report.elapsed.as_secs_f64().clamp(1e-9, fastest);
        }
        Ok::<_, String>(fastest)
    };
    Ok(Probe { bytes_per_s: len as f64 / fastest(len)?, latency_s: fastest(len.min(PROBE_BYTES_MIN))? })
}

/// Says hello, until both ends know who the other is.
fn greet(station: &Station, peer: &Known, purpose: Purpose, channel: &mut Channel) -> Result<(), String> {
    let config = &station.config;
    let hello = Hello {
        purpose,
        from: Known {
            id: config.id,
            incarnation: config.incarnation,
            name: config.name.clone(),
            address: station.address.clone(),
        },
        to: (peer.id, peer.incarnation),
        nonce: crate::random::bytes().map_err(|error| format!("no random numbers: {error}"))?,
    };
    let encoded = hello.encode();
    channel.push(kind::HELLO, &encoded, None);
    let answer = wait(channel)?;
    if answer.kind != kind::CHALLENGE {
        return Err(unexpected(&answer));
    }
    let proof = hello::check_answer(&config.secret, &hello, &encoded, &answer.body)?;
    channel.push(kind::PROOF, &proof, None);
    channel.flush().map_err(|error| error.to_string())?;
    Ok(())
}

/// Sends what waits and waits for a frame.
fn wait(channel: &mut Channel) -> Result<Frame, String> {
    let frame = |channel: &mut Channel| {
        if !channel.flush()? {
            return Err(ChannelError::Failed(rustix::io::Errno::TIMEDOUT));
        }
        loop {
            if let Some(frame) = channel.next(HELLO_BYTES_MAX)? {
                return Ok(frame);
            }
            if !channel.fill()? {
                return Err(ChannelError::Failed(rustix::io::Errno::TIMEDOUT));
            }
        }
    };
    frame(channel).map_err(|error| error.to_string())
}

fn unexpected(frame: &Frame) -> String {
    match frame.kind {
        kind::REFUSED => format!("it refuses: {}", String::from_utf8_lossy(&frame.body)),
        other => format!("a frame of kind {other} out of place"),
    }
}

/// Bytes of a region, and where it begins in the file that comes along, if any does.
fn region(frame: &Frame) -> Result<(u64, Option<u64>), String> {
    let body: &[u8; 17] = frame.body.as_slice().try_into().map_err(|_| "a region of another length".to_owned())?;
    let (len, rest) = body.split_first_chunk::<8>().ok_or("a region without a length")?;
    let (offset, has_file) = rest.split_first_chunk::<8>().ok_or("a region without an offset")?;
    Ok((u64::from_le_bytes(*len), (has_file == [1]).then_some(u64::from_le_bytes(*offset))))
}

/// Maps the region that a frame speaks of, if a file comes along.
pub(super) fn map(frame: &Frame, channel: &mut Channel) -> Result<Option<Mapping>, String> {
    let (len, offset) = region(frame)?;
    let Some(offset) = offset else { return Ok(None) };
    let file = channel.take_descriptor().ok_or("a region came without its descriptor")?;
    let len = usize::try_from(len).map_err(|_| "a region too large for this machine".to_owned())?;
    Mapping::new(file.as_fd(), offset, len).map(Some)
}

/// A region that came later than the others.
pub(super) fn add_region(link: &Link, frame: &Frame, channel: &mut Channel) -> Result<(), String> {
    let room = |count: usize| {
        if count < REGIONS_MAX { Ok(()) } else { Err(format!("it has more than {REGIONS_MAX} regions")) }
    };
    match &link.way {
        Way::Shm { regions, .. } => {
            let mapping = map(frame, channel)?.map(Arc::new);
            let mut regions = regions.lock().unwrap_or_else(PoisonError::into_inner);
            room(regions.len())?;
            regions.push(mapping);
        }
        Way::Tcp { regions, .. } => {
            let mut regions = regions.lock().unwrap_or_else(PoisonError::into_inner);
            room(regions.len())?;
            regions.push(region(frame)?.0);
        }
        Way::Local(_) => {}
    }
    Ok(())
}
