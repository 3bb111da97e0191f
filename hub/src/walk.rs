//! What lies in a folder of the cache.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Returns the files in a folder and in its folders, by their paths from there. A link counts if it leads to a file.
pub(crate) fn files_below(folder: &Path) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(inner) = folders.pop() {
        for entry in std::fs::read_dir(folder.join(&inner)).into_iter().flatten().flatten() {
            let path = inner.join(entry.file_name());
            match std::fs::metadata(folder.join(&path)) {
                Ok(data) if data.is_dir() => folders.push(path),
                Ok(_) => {
                    paths.insert(path.to_string_lossy().into_owned());
                }
                Err(_) => {}
            }
        }
    }
    paths
}
