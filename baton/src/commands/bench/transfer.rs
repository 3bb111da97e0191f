//! `baton bench transfer`: the command line's side of the haul.

use super::file::ReportFile;
use super::parts::Parts;
use crate::cli::TransferBench;
use crate::commands::OwnerProcess;
use crate::error::CommandError;
use crate::output::print;
use haul::{HaulError, Over, Settings, Trust};
use std::ffi::OsStr;
use std::io::{Read, Write};
use transport::{Lane, ListenConfig, Tls};

/// What an over's name ends with where it carries checksums.
const CHECKSUMS: &str = "+checksums";
/// What it ends with, before that, where KV comes encoded.
const INT8: &str = "+int8";

/// Reads and reports, or is read.
pub(crate) fn transfer(asked: &TransferBench) -> Result<(), CommandError> {
    let pool_bytes = usize::try_from(asked.pool.0).map_err(|_| CommandError::Usage("--pool is too large".into()))?;
    let trust = Trust { secret: asked.secret.clone(), tls: tls(asked)? };
    if asked.own {
        return own(asked, pool_bytes, &trust);
    }
    let bytes = |bytes: &crate::config::Bytes| usize::try_from(bytes.0).unwrap_or(usize::MAX);
    let settings = Settings {
        over: asked.lanes.iter().map(|name| over(name, trust.tls.is_some())).collect::<Result<_, _>>()?,
        sizes: asked.sizes.iter().map(bytes).collect(),
        batches: asked.batches.clone(),
        in_flight: asked.in_flight.clone(),
        pool_bytes,
        passes: asked.passes,
        connections: asked.connections,
        trust,
    };
    // Before the run: a report that cannot be written after an hour is a lost hour.
    let json = ReportFile::create(asked.json.as_ref())?;
    let html = ReportFile::create(asked.html.as_ref())?;
    let (_owner, place) = match &asked.peer {
        Some(place) => (None, place.clone()),
        None => OwnerProcess::spawn(asked.pool.0, &flags(asked))
            .map(|(owner, place)| (Some(owner), place))
            .map_err(CommandError::Failed)?,
    };
    let mut parts = Parts::begin();
    let show = &mut |progress: &haul::Progress| parts.show(&progress.what, progress.done, progress.total);
    let report = haul::sweep(&settings, &place, asked.peer.is_none(), show);
    parts.end();
    let report = report.map_err(|error| match error {
        HaulError::Settings(_) => CommandError::Usage(error.into()),
        _ => CommandError::Failed(error.into()),
    })?;
    if let Some(output) = json {
        output.write(|file| Ok(serde_json::to_writer_pretty(file, &report)?))?;
    }
    if let Some(output) = html {
        output.write(|file| file.write_all(haul::page::html(&report).as_bytes()))?;
    }
    Ok(print(&report.to_string())?)
}

/// What encrypts, if anything is to.
fn tls(asked: &TransferBench) -> Result<Option<Tls>, CommandError> {
    let Some([certificate, key, authorities]) = asked.tls.as_deref() else { return Ok(None) };
    Tls::load(certificate, key, authorities).map(Some).map_err(|error| CommandError::Usage(error.into()))
}

/// By what the other end of this host is known.
fn flags(asked: &TransferBench) -> Vec<&OsStr> {
    let mut flags = vec![OsStr::new("--secret"), OsStr::new(&asked.secret)];
    if let Some(files) = &asked.tls {
        flags.push(OsStr::new("--tls"));
        flags.extend(files.iter().map(|file| file.as_os_str()));
    }
    flags
}

/// Is read until somebody ends it.
fn own(asked: &TransferBench, pool_bytes: usize, trust: &Trust) -> Result<(), CommandError> {
    let listen = ListenConfig { bind: asked.listen.clone(), advertise: String::new() };
    let owner = haul::own(pool_bytes, listen, trust);
    let owner =
        owner.map_err(|error| CommandError::Failed(format!("cannot be read at {}: {error}", asked.listen).into()))?;
    let place = owner.place();
    if asked.until_closed {
        println!("{place} {}", place.unix);
        // Whatever ends it: the other end is gone.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        return Ok(());
    }
    println!("baton bench transfer --peer {place} --pool {pool_bytes}");
    loop {
        std::thread::park();
    }
}

/// A lane by its name. Errors: there is none, or this build lacks it.
fn over(name: &str, tls: bool) -> Result<Over, CommandError> {
    let without = |name, suffix| str::strip_suffix(name, suffix).map_or((name, false), |rest| (rest, true));
    let (lane, checksums) = without(name, CHECKSUMS);
    let (lane, int8) = without(lane, INT8);
    let lane: Lane = lane.parse().map_err(|error: transport::LaneParseError| CommandError::Usage(error.into()))?;
    let wrong = |why: &str| Err(CommandError::Usage(format!("--lanes {name}: {why}").into()));
    match lane {
        Lane::Local => wrong("it is within one process; --lanes shm reads another's memory"),
        _ if lane.not_built().is_some() => wrong("this build lacks it"),
        _ if checksums && lane != Lane::Tcp => wrong("only tcp carries checksums"),
        _ if int8 && lane != Lane::Tcp => wrong("only tcp brings KV encoded"),
        _ => Ok(Over { lane, checksums, int8, tls: tls && lane == Lane::Tcp }),
    }
}
