//! Files that reports go to.

use crate::error::CommandError;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// A file that is there before the run and filled after it.
pub(in crate::commands) struct ReportFile {
    path: PathBuf,
    file: File,
}

impl ReportFile {
    /// Returns the file at `path`, empty; `None` where none is asked for. Errors: it cannot be written, which is better
    /// known before a run than after it.
    pub(in crate::commands) fn create(path: Option<&PathBuf>) -> Result<Option<Self>, CommandError> {
        let Some(path) = path else { return Ok(None) };
        let wrong = |error| CommandError::Usage(format!("cannot write {}: {error}", path.display()).into());
        Ok(Some(Self { path: path.clone(), file: File::create(path).map_err(wrong)? }))
    }

    /// Has `fill` write it. Errors: it could not.
    pub(in crate::commands) fn write(
        self,
        fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<(), CommandError> {
        let mut file = BufWriter::new(self.file);
        let written = fill(&mut file).and_then(|()| file.flush());
        written.map_err(|error| CommandError::Failed(format!("cannot write {}: {error}", self.path.display()).into()))
    }
}
