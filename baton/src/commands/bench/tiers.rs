//! `baton bench tiers`: the command line's side of `bench-tiers`.

use super::file::ReportFile;
use super::parts::Parts;
use super::source::Source;
use crate::cli::TiersBench;
use crate::config::{self, Device, Flags};
use crate::error::CommandError;
use crate::output::print;
use bench_tiers::{BenchError, Settings, Subject};
use engine::models::ModelFiles;
use kv_manager::tiers::Tier;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use tempfile::TempDir;

/// Measures the tiers and reports.
pub(crate) fn tiers(asked: &TiersBench) -> Result<(), CommandError> {
    let flags = Flags { given: Vec::new(), set: asked.set.clone(), config: asked.config.clone(), ..Flags::default() };
    let config = config::load(&flags)?.checked()?;
    if config.engine.device == Device::Sim {
        return Err(CommandError::Usage(
            "engine.device: sim computes nothing that tiers could be compared with".into(),
        ));
    }
    let tiers = of_names(&asked.tiers, !config.object.endpoint.is_empty())?;
    let settings = Settings { prompts: asked.prompts.clone(), rounds: asked.rounds, tiers };
    // Before the run: a report that cannot be written after an hour is a lost hour.
    let json = ReportFile::create(asked.json.as_ref())?;
    let html = ReportFile::create(asked.html.as_ref())?;
    let folder = folder(asked.folder.as_deref())?;
    let source = Source::of(asked.model.as_deref(), &asked.shape, &asked.dtype)?;
    let files = ModelFiles::load(&source.path)?;
    let block_tokens = Some(config.engine.block_tokens).filter(|&tokens| tokens > 0);
    let layout = files.spec.kv_layout(config.model.kv_dtype.resolve(files.spec.dtype), block_tokens);
    let subject = Subject {
        program: std::env::current_exe()?,
        flags: serve_flags(asked, &source.path),
        name: source.name.clone().unwrap_or_else(|| files.name.clone()),
        layout: layout.with_encoding(config.kv.encoding),
        context: files.spec.context,
        vocab: files.spec.vocab,
        reserve_percent: config.kv.reserve_percent,
        depth: config.disk.depth,
        folder: folder.path().to_owned(),
    };
    let mut parts = Parts::begin();
    let report = bench_tiers::measure(&subject, &settings, &mut |progress| {
        parts.show(&progress.what, progress.done, progress.total);
    });
    parts.end();
    let report = report.map_err(|error| match error {
        BenchError::Settings(_) => CommandError::Usage(error.into()),
        _ => CommandError::Failed(error.into()),
    })?;
    if let Some(output) = json {
        output.write(|file| Ok(serde_json::to_writer_pretty(file, &report)?))?;
    }
    if let Some(output) = html {
        output.write(|file| file.write_all(bench_tiers::page::html(&report).as_bytes()))?;
    }
    Ok(print(&report.to_string())?)
}

/// Returns the flags of the servers, in addition to those of the measurement: the model, and the settings of the user.
fn serve_flags(asked: &TiersBench, model: &Path) -> Vec<OsString> {
    let mut flags: Vec<OsString> = vec!["--model".into(), model.into(), "--log-level".into(), "warn".into()];
    if let Some(path) = &asked.config {
        flags.extend(["--config".into(), path.into()]);
    }
    flags.extend(asked.set.iter().flat_map(|set| ["--set".into(), set.into()]));
    flags
}

/// A folder that is gone with the run.
fn folder(inside: Option<&Path>) -> Result<TempDir, CommandError> {
    let Some(inside) = inside else { return Ok(tempfile::tempdir()?) };
    let wrong = |error| CommandError::Usage(format!("--folder {}: {error}", inside.display()).into());
    tempfile::tempdir_in(inside).map_err(wrong)
}

/// Those that a prompt can be made to come from. The host tiers of neighbours are of other workers.
const TIERS: [Tier; 3] = [Tier::Host, Tier::Disk, Tier::Object];

/// Returns the tiers with these names, the fastest first. Errors: there is none of a name, or no store for `object`.
fn of_names(names: &[String], store: bool) -> Result<Vec<Tier>, CommandError> {
    let known = TIERS.map(Tier::name);
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(CommandError::Usage(format!("--tiers {name}: there are {}", known.join(", ")).into()));
    }
    let asked = |tier: &Tier| match tier {
        Tier::Object if names.is_empty() => store,
        tier => names.is_empty() || names.iter().any(|name| name == tier.name()),
    };
    let tiers: Vec<Tier> = TIERS.into_iter().filter(asked).collect();
    if tiers.contains(&Tier::Object) && !store {
        let fix = "--tiers object: where is the store? Set object.endpoint and object.bucket";
        return Err(CommandError::Usage(fix.into()));
    }
    Ok(tiers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_are_named_and_a_store_has_to_be_known() {
        let names =
            |names: &[&str], store| of_names(&names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>(), store);
        assert_eq!(names(&[], false).expect("both"), [Tier::Host, Tier::Disk]);
        assert_eq!(names(&[], true).expect("all"), TIERS);
        assert_eq!(names(&["disk", "host"], true).expect("both"), [Tier::Host, Tier::Disk]);
        assert!(names(&["object"], false).expect_err("no store").to_string().contains("object.endpoint"));
        assert!(names(&["tape"], true).expect_err("none").to_string().contains("host, disk, object"));
    }
}
