//! What lies in a disk tier's folders and is not this tier's: records of another model, encoding or version. It
//! is not read, and it stays until an operator removes it with the command that the log names.

use crate::model_key::is_model;
use crate::shell_word::quoted;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What releases up to 0.2.0 had in a folder, one model at a time.
const VERSION_1: [&str; 3] = ["records", "log", "log.new"];

/// Bytes of what the system counts as a block.
const BLOCK: u64 = 512;

/// Files of another tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leftover {
    /// Files, or a folder with all that is in it.
    pub(super) paths: Vec<PathBuf>,
    /// Bytes that they take on the device.
    pub(super) bytes: u64,
}

impl Leftover {
    /// Returns the command that removes it.
    pub(super) fn removal(&self) -> String {
        let paths: Vec<_> = self.paths.iter().map(|path| quoted(&path.to_string_lossy())).collect();
        format!("rm -r -- {}", paths.join(" "))
    }
}

/// Finds what lies in these folders beside what `own` is the name of. What cannot be read is logged and left out: it is
/// not this tier's.
pub(super) fn find(folders: &[PathBuf], own: &str) -> Vec<Leftover> {
    let in_folder = |folder: &PathBuf| {
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
        find_in(&folder, own).unwrap_or_else(|error| {
            tracing::warn!(folder = %folder.display(), %error, "what others left in a folder of the disk tier is not counted");
            Vec::new()
        })
    };
    folders.iter().flat_map(in_folder).collect()
}

fn find_in(folder: &Path, own: &str) -> io::Result<Vec<Leftover>> {
    let mut found = Vec::new();
    let mut version_1 = Leftover { paths: Vec::new(), bytes: 0 };
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (name, kind, path) = (entry.file_name(), entry.file_type()?, entry.path());
        let Some(name) = name.to_str() else { continue };
        if kind.is_file() && VERSION_1.contains(&name) {
            version_1.bytes += entry.metadata()?.blocks() * BLOCK;
            version_1.paths.push(path);
        } else if kind.is_dir() && name != own && is_home(name) {
            found.push(Leftover { bytes: bytes_in(&path)?, paths: vec![path] });
        }
    }
    found.extend(Some(version_1).filter(|version_1| !version_1.paths.is_empty()));
    Ok(found)
}

/// Returns whether a folder is called as that of a tier: a version, and a model.
fn is_home(name: &str) -> bool {
    name.split_once('-').is_some_and(|(version, model)| {
        let is_version = !version.is_empty() && version.bytes().all(|digit| digit.is_ascii_digit());
        is_version && is_model(model)
    })
}

fn bytes_in(folder: &Path) -> io::Result<u64> {
    let bytes = |entry: io::Result<fs::DirEntry>| Ok(entry?.metadata()?.blocks() * BLOCK);
    fs::read_dir(folder)?.map(bytes).sum()
}
