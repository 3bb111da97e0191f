//! `baton bench device`: the command line's side of the limits of a card.

use super::engine::{card, failed};
use super::file::ReportFile;
use crate::cli::{BenchKernels, DeviceBench};
use crate::error::CommandError;
use crate::output::print;
use bench_engine::{CardLimits, CardSizes};

/// Measures a card and reports.
pub(crate) fn device(asked: &DeviceBench) -> Result<(), CommandError> {
    let json = ReportFile::create(asked.json.as_ref())?;
    let sizes = CardSizes { bytes: asked.bytes.map(|bytes| bytes.0), samples: asked.samples };
    let limits = CardLimits::measure(&card(asked.card, BenchKernels::Exact), sizes).map_err(failed)?;
    if let Some(output) = json {
        output.write(|file| Ok(serde_json::to_writer_pretty(file, &limits)?))?;
    }
    Ok(print(&limits.to_string())?)
}
