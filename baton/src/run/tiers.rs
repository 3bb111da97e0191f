//! The tiers below a worker's device, as configured.

use crate::config::{Config, NAME_BYTES_MAX};
use crate::output::human_bytes;
use domain::Encoding;
use engine::device::Device;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};
use tiers::{
    DiskConfig, DiskError, FolderError, HostConfig, HostError, Shared, StoreConfig, TierOwner, TierParts,
    open_disk_tier, open_host_tier, open_object_tier,
};
use transport::ObjectCredentials;
use worker::{Inbox, WorkerConfig};

/// Why a tier cannot be opened. Each text begins with the setting to change.
#[derive(Debug, thiserror::Error)]
pub(super) enum TierError {
    /// The slab cannot be shared in this folder.
    #[error("host.folder: {0}")]
    HostFolder(#[source] FolderError),
    /// The slab is too small, or there is no memory for it.
    #[error("host.bytes: {0}")]
    HostBytes(#[source] HostError),
    /// A folder that is made here might be where a disk was to be mounted.
    #[error("disk.folders: there is no folder {}: make it, or mount its disk", .0.display())]
    NoFolder(PathBuf),
    /// The worker's folders are called as it is. No file can be called so, or one elsewhere would be.
    #[error(
        "worker.name: {0:?} cannot be the name of a folder in disk.folders: give it 1 to {NAME_BYTES_MAX} bytes, \
         without slashes and control characters, and no dot at its beginning"
    )]
    FolderName(String),
    /// The files are too small, or the disk has no room for them.
    #[error("disk.bytes: {0}")]
    DiskBytes(#[source] DiskError),
    /// A folder cannot be used.
    #[error("disk.folders: {0}")]
    DiskFolders(#[source] DiskError),
    /// The settings of the store are wrong, or the system refused memory or a thread.
    #[error("object.endpoint: {0}")]
    Object(#[source] io::Error),
}

/// Opens all tiers that are configured. Errors: one cannot be opened.
pub(super) fn open(
    config: &Config,
    worker: &WorkerConfig,
    device: &dyn Device,
    inbox: &Inbox,
) -> Result<Vec<TierParts>, TierError> {
    let owner = inbox.tier_owner(device, &worker.layout);
    let mut tiers = host(config, worker, &owner)?;
    tiers.extend(disk(config, worker, &owner)?);
    tiers.extend(object(config, worker, &owner)?);
    Ok(tiers)
}

/// Says in words which tiers each worker has. `None`: none.
pub(super) fn describe(config: &Config) -> Option<String> {
    let mut tiers = Vec::new();
    if config.host.bytes.0 > 0 {
        let shared = if config.host.folder.is_empty() { String::new() } else { format!(" in {}", config.host.folder) };
        tiers.push(format!("{} of host memory{shared}", human_bytes(config.host.bytes.0)));
    }
    let folders = disk_folders(config).collect::<Vec<_>>().join(", ");
    if !folders.is_empty() {
        tiers.push(format!("{} of disk in {folders}", human_bytes(config.disk.bytes.0)));
    }
    if !config.object.endpoint.is_empty() {
        tiers.push(format!("bucket {} of {}", config.object.bucket, config.object.endpoint));
    }
    let encoding = match config.kv.encoding {
        Encoding::Exact => String::new(),
        encoding => format!("; blocks are kept there as {encoding}"),
    };
    (!tiers.is_empty()).then(|| format!("each worker has {}{encoding}", tiers.join("; ")))
}

fn disk_folders(config: &Config) -> impl Iterator<Item = &str> {
    config.disk.folders.split(',').map(str::trim).filter(|folder| !folder.is_empty())
}

fn host(config: &Config, worker: &WorkerConfig, owner: &TierOwner) -> Result<Vec<TierParts>, TierError> {
    let host = &config.host;
    if host.bytes.0 == 0 {
        return Ok(Vec::new());
    }
    let shared = || Shared {
        folder: PathBuf::from(&host.folder),
        adopted_bytes: host.bytes.0.saturating_mul(host.adopted_percent.into()) / 100,
    };
    let tier = HostConfig {
        name: worker.name.clone(),
        worker: worker.id,
        life: worker.incarnation,
        weights: worker.weights,
        bytes: host.bytes.0,
        write: host.write.into(),
        shared: (!host.folder.is_empty()).then(shared),
    };
    open_host_tier(&tier, &worker.layout, owner).map_err(|error| match error {
        HostError::Folder(error) => TierError::HostFolder(error),
        error => TierError::HostBytes(error),
    })
}

fn disk(config: &Config, worker: &WorkerConfig, owner: &TierOwner) -> Result<Option<TierParts>, TierError> {
    let folders: Vec<&Path> = disk_folders(config).map(Path::new).collect();
    if folders.is_empty() {
        return Ok(None);
    }
    if let Some(missing) = folders.iter().find(|folder| is_missing(folder)) {
        return Err(TierError::NoFolder(missing.to_path_buf()));
    }
    check_name(&worker.name)?;
    let folders: Vec<PathBuf> = folders.into_iter().map(|folder| folder.join(&worker.name)).collect();
    let tier = DiskConfig {
        name: worker.name.clone(),
        worker: worker.id,
        weights: worker.weights,
        folders,
        bytes: config.disk.bytes.0,
        write: config.disk.write.into(),
        depth: config.disk.depth,
    };
    open_disk_tier(&tier, &worker.layout, owner).map(Some).map_err(|error| match error {
        DiskError::TooSmall { .. } => TierError::DiskBytes(error),
        DiskError::System { ref source, .. } if source.kind() == io::ErrorKind::StorageFull => {
            TierError::DiskBytes(error)
        }
        error => TierError::DiskFolders(error),
    })
}

/// Checks that folders can be called as the worker is.
fn check_name(name: &str) -> Result<(), TierError> {
    let is_safe = !name.is_empty()
        && !name.starts_with('.')
        && name.len() <= NAME_BYTES_MAX
        && !name.contains(|c: char| c == '/' || c.is_control());
    if is_safe { Ok(()) } else { Err(TierError::FolderName(name.to_owned())) }
}

/// Returns whether there is no such folder. One that cannot be looked at may be of a disk that fails.
fn is_missing(folder: &Path) -> bool {
    match fs::metadata(folder) {
        Ok(found) => !found.is_dir(),
        Err(error) => matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
    }
}

fn object(config: &Config, worker: &WorkerConfig, owner: &TierOwner) -> Result<Option<TierParts>, TierError> {
    let object = &config.object;
    if object.endpoint.is_empty() {
        return Ok(None);
    }
    let token = Some(object.token.0.clone()).filter(|token| !token.is_empty());
    let tier = StoreConfig {
        name: worker.name.clone(),
        worker: worker.id,
        weights: worker.weights,
        endpoint: object.endpoint.clone(),
        region: object.region.clone(),
        bucket: object.bucket.clone(),
        prefix: object.prefix.clone(),
        credentials: ObjectCredentials { key_id: object.key_id.clone(), secret: object.secret.0.clone(), token },
        write: object.write.into(),
        requests_max: object.requests,
        known_max: object.known_max,
        list_every: Duration::from_secs(object.list_s),
    };
    let opened = open_object_tier(&tier, &worker.layout, owner);
    opened.map(Some).map_err(TierError::Object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_workers_are_names_of_folders() {
        for good in ["decode-1", "decode-host.example-9001", "ä b"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", ".hidden", "../other", "a/b", "/etc", "a\0b", "a\nb", &"a".repeat(256)] {
            let refused = check_name(bad).expect_err(bad).to_string();
            assert!(refused.starts_with("worker.name: "), "{refused}");
        }
    }
}
