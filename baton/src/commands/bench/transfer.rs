//! `baton bench transfer`: the command line's side of `bench-transfer`.

use super::file::ReportFile;
use super::parts::Parts;
use crate::cli::TransferBench;
use crate::commands::OwnerProcess;
use crate::config::{self, Config, Flags};
use crate::error::CommandError;
use crate::output::print;
use crate::run::{draw_secret, secrets};
use bench_transfer::{BenchError, Files, Over, Settings, Store, Trust, Wire};
use domain::{Secret, Secrets};
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use transport::{Lane, ListenConfig, ObjectCredentials, Tls};

/// What an over's name ends with where it carries checksums.
const CHECKSUMS: &str = "+checksums";
/// What it ends with, before that, where KV comes encoded.
const INT8: &str = "+int8";

/// Reads and reports, or is read.
pub(crate) fn transfer(asked: &TransferBench) -> Result<(), CommandError> {
    let pool_bytes = usize::try_from(asked.pool.0).map_err(|_| CommandError::Usage("--pool is too large".into()))?;
    if asked.until_closed {
        return own(asked, pool_bytes, &Trust { secrets: told()?, tls: tls(asked)? });
    }
    let flags = Flags { given: Vec::new(), set: asked.set.clone(), config: asked.config.clone(), ..Flags::default() };
    let config = config::load(&flags)?.checked()?;
    if asked.own {
        let trust = Trust { secrets: of_cluster(&config, "--listen", &asked.listen)?, tls: tls(asked)? };
        return own(asked, pool_bytes, &trust);
    }
    // Of the other end, if that is a process of this one.
    let drawn = draw_secret()?;
    let secrets = match &asked.peer {
        Some(place) => of_cluster(&config, "--peer", &place.tcp)?,
        None => Secret::new(drawn.as_str()).into(),
    };
    let trust = Trust { secrets, tls: tls(asked)? };
    let bytes = |bytes: &crate::config::Bytes| usize::try_from(bytes.0).unwrap_or(usize::MAX);
    let over = asked.lanes.iter().map(|name| over(name, trust.tls.is_some())).collect::<Result<Vec<_>, _>>()?;
    let reads_peer = over.iter().any(|over| matches!(over, Over::Peer(wire) if wire.lane != Lane::Local));
    let (depth, store) = stores(asked, config, &over)?;
    let temporary = temporary(asked, &over)?;
    let settings = Settings {
        files: Files { folders: folders(asked, temporary.as_ref())?, depth },
        store,
        keep: asked.keep,
        over,
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
        Some(place) => (None, Some(place.clone())),
        None if !reads_peer => (None, None),
        None => OwnerProcess::spawn(asked.pool.0, &owner_flags(asked), &drawn)
            .map(|(owner, place)| (Some(owner), Some(place)))
            .map_err(CommandError::Failed)?,
    };
    let mut parts = Parts::begin();
    let show = &mut |progress: &bench_transfer::Progress| parts.show(&progress.what, progress.done, progress.total);
    let report = bench_transfer::sweep(&settings, place.as_ref(), asked.peer.is_none(), show);
    parts.end();
    let report = report.map_err(|error| match error {
        BenchError::Settings(_) => CommandError::Usage(error.into()),
        _ => CommandError::Failed(error.into()),
    })?;
    if let Some(output) = json {
        output.write(|file| Ok(serde_json::to_writer_pretty(file, &report)?))?;
    }
    if let Some(output) = html {
        output.write(|file| file.write_all(bench_transfer::page::html(&report).as_bytes()))?;
    }
    Ok(print(&report.to_string())?)
}

/// Reads and writes of files under way, and the store. Errors: objects are asked for, and no store is known;
/// something is said that no lane looks at.
fn stores(asked: &TransferBench, config: Config, over: &[Over]) -> Result<(u32, Option<Store>), CommandError> {
    let objects = over.contains(&Over::Object);
    if !objects && !over.contains(&Over::File) {
        return match asked.folder.is_empty() && !asked.keep {
            true => Ok((1, None)),
            false => Err(usage("--folder and --keep are of --lanes file and object")),
        };
    }
    let object = config.object;
    if objects && object.endpoint.is_empty() {
        return Err(usage(
            "--lanes object: where is the store? --set object.endpoint=http://HOST:PORT --set object.bucket=NAME, and \
             AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
        ));
    }
    let token = Some(object.token.0).filter(|token| !token.is_empty());
    let credentials = ObjectCredentials { key_id: object.key_id, secret: object.secret.0, token };
    let (endpoint, region, bucket) = (object.endpoint, object.region, object.bucket);
    let store = Store { endpoint, region, bucket, credentials, requests: object.requests };
    Ok((config.disk.depth, objects.then_some(store)))
}

/// A folder that is gone with the run, where files are asked for and none is named.
fn temporary(asked: &TransferBench, over: &[Over]) -> Result<Option<TempDir>, CommandError> {
    if !over.contains(&Over::File) || !asked.folder.is_empty() {
        return Ok(None);
    }
    if asked.keep {
        return Err(usage("--keep: the temporary folder is removed; name another --folder"));
    }
    Ok(Some(tempfile::tempdir()?))
}

/// Returns where files lie. Errors: there is no such folder.
fn folders(asked: &TransferBench, temporary: Option<&TempDir>) -> Result<Vec<PathBuf>, CommandError> {
    let is_missing = |folder: &&PathBuf| !Path::is_dir(folder);
    match asked.folder.iter().find(is_missing) {
        Some(folder) => Err(usage(&format!("--folder {}: there is no such folder", folder.display()))),
        None => Ok(asked.folder.iter().cloned().chain(temporary.map(|folder| folder.path().to_owned())).collect()),
    }
}

fn usage(why: &str) -> CommandError {
    CommandError::Usage(why.into())
}

/// Returns what encrypts, if anything is to.
fn tls(asked: &TransferBench) -> Result<Option<Tls>, CommandError> {
    let Some([certificate, key, authorities]) = asked.tls.as_deref() else { return Ok(None) };
    Tls::load(certificate, key, authorities).map(Some).map_err(|error| CommandError::Usage(error.into()))
}

/// Finds what both ends of the cluster know, of which one is at `address`. Errors: they have no secret, and other
/// hosts reach that.
fn of_cluster(config: &Config, flag: &'static str, address: &str) -> Result<Secrets, CommandError> {
    secrets(&config.cluster, &[(flag, address)]).map_err(|error| CommandError::Usage(error.into()))
}

/// Reads the secret that the process says which started this one.
fn told() -> Result<Secrets, CommandError> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(Secret::new(line.trim_end()).into())
}

/// By what the other end of this host is known.
fn owner_flags(asked: &TransferBench) -> Vec<&OsStr> {
    let mut flags = Vec::new();
    if let Some(files) = &asked.tls {
        flags.push(OsStr::new("--tls"));
        flags.extend(files.iter().map(|file| file.as_os_str()));
    }
    flags
}

/// Is read until Ctrl-C.
fn own(asked: &TransferBench, pool_bytes: usize, trust: &Trust) -> Result<(), CommandError> {
    let listen = ListenConfig { bind: asked.listen.clone(), advertise: String::new() };
    let owner = bench_transfer::own(pool_bytes, listen, trust);
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

/// Returns a lane by its name. Errors: there is none, or it reads nothing that this command has.
fn over(name: &str, tls: bool) -> Result<Over, CommandError> {
    let without = |name, suffix| str::strip_suffix(name, suffix).map_or((name, false), |rest| (rest, true));
    let (lane, checksums) = without(name, CHECKSUMS);
    let (lane, int8) = without(lane, INT8);
    let wrong = |why: &str| Err(usage(&format!("--lanes {name}: {why}")));
    match lane.parse::<Lane>() {
        _ if checksums && lane != Lane::Tcp.name() => wrong("only tcp carries checksums"),
        _ if int8 && lane != Lane::Tcp.name() => wrong("only tcp brings KV encoded"),
        Err(_) if lane == "file" => Ok(Over::File),
        Err(_) if lane == "object" => Ok(Over::Object),
        Err(_) => wrong(&format!("there is no lane `{lane}`; there are local, shm, rdma, tcp, file and object")),
        Ok(Lane::Nvlink) => wrong("it reads memory of devices, and this command has none"),
        Ok(lane) => Ok(Over::Peer(Wire { lane, checksums, int8, tls: tls && lane == Lane::Tcp })),
    }
}
