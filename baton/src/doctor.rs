//! `baton doctor`: what is wrong with this host for computing, and for moving KV fast, line by line, with the command
//! that fixes it.
//!
//! A check looks at facts of a host ([`host`]) and says what it found ([`finding`]); it changes nothing. Facts can be
//! recorded and looked at elsewhere. What is deliberately absent: how fast lanes are, which only a transfer tells.

mod checks;
mod finding;
mod host;
#[cfg(test)]
mod tests;

use crate::config::{self, Config, Flags};
use crate::error::CommandError;
use crate::output::print;
use checks::CHECKS;
use finding::{Finding, Verdict};
use host::Host;
use serde::Serialize;
use std::error::Error;
use std::path::{Path, PathBuf};

/// Where a disk tier would most likely be.
pub(crate) const DISK: &str = "/var/tmp";

/// Arguments of `baton doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON instead of lines
    #[arg(long)]
    json: bool,
    /// Show also what is good, and what this host has nothing to check for
    #[arg(long, short)]
    all: bool,
    /// Folder that a disk tier would use
    #[arg(long, value_name = "DIR", default_value = DISK)]
    disk: String,
    /// Write all facts about this host to FILE, to check them elsewhere
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Check a host that was recorded with --record instead of this one
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    host: Option<PathBuf>,
    /// TOML file with settings; what engine.device and the section transport need is checked
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Any setting, e.g. `transport.rdma_traffic_class=104`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// What the checks look at.
struct Subject<'a> {
    host: &'a Host,
    /// Folder of a disk tier.
    disk: &'a str,
    settings: Settings,
}

/// What the settings want of the host.
#[derive(Clone, Copy, Debug, Default)]
struct Settings {
    /// Of RoCE packets.
    traffic_class: u8,
    /// Whether KV is encrypted between hosts.
    tls: bool,
    /// Whether `transport.lanes` leaves the lane `rdma` out.
    forbids_rdma: bool,
    /// Whether `engine.device` is `cuda`.
    wants_cuda: bool,
    /// Whether `engine.kernels` is `fast`.
    wants_fast: bool,
}

impl Settings {
    fn of(config: &Config) -> Self {
        let transport = &config.transport;
        Self {
            traffic_class: transport.rdma_traffic_class,
            wants_cuda: config.engine.device == config::Device::Cuda,
            wants_fast: config.engine.kernels == config::Kernels::Fast,
            tls: !transport.tls_certificate.is_empty(),
            forbids_rdma: !transport.lanes.0.is_empty() && !transport.lanes.0.contains(&transport::Lane::Rdma),
        }
    }

    /// Why the lane `rdma` is not taken, whatever the host has.
    fn rdma_is_off(self) -> Option<&'static str> {
        match (self.forbids_rdma, self.tls) {
            (true, _) => Some("transport.lanes does not name it"),
            (_, true) => Some("transport.tls_certificate is set, and what it moves would not be encrypted"),
            _ => None,
        }
    }
}

/// What one check found.
#[derive(Debug, Serialize)]
struct Report {
    check: &'static str,
    findings: Vec<Finding>,
}

/// Looks, and prints what was found. Errors: something is wrong with the host, which the report says.
pub(crate) fn doctor(args: &DoctorArgs) -> Result<(), CommandError> {
    let host = match &args.host {
        None => Host::this(),
        Some(file) => recorded(file)?,
    };
    let flags = Flags { config: args.config.clone(), set: args.set.clone(), ..Flags::default() };
    let settings = Settings::of(&config::load(&flags)?.checked()?);
    let reports = examine(&Subject { host: &host, disk: &args.disk, settings });
    if let Some(file) = &args.record {
        std::fs::write(file, host.recording())
            .map_err(|error| CommandError::Failed(format!("cannot write {}: {error}", file.display()).into()))?;
    }
    let text = if args.json { format!("{:#}\n", serde_json::json!(reports)) } else { lines(&reports, args.all) };
    print(&text)?;
    match count(&reports, Verdict::Bad) {
        0 => Ok(()),
        1 => Err(CommandError::Failed("1 thing is wrong with this host".into())),
        bad => Err(CommandError::Failed(format!("{bad} things are wrong with this host").into())),
    }
}

fn recorded(file: &Path) -> Result<Host, CommandError> {
    let problem = |why: &dyn Error| CommandError::Usage(format!("{}: {why}", file.display()).into());
    let text = std::fs::read_to_string(file).map_err(|error| problem(&error))?;
    Host::recorded(&text).map_err(|error| problem(&error))
}

fn examine(subject: &Subject<'_>) -> Vec<Report> {
    CHECKS.iter().map(|check| Report { check: check.name, findings: (check.run)(subject) }).collect()
}

fn count(reports: &[Report], verdict: Verdict) -> usize {
    reports.iter().flat_map(|report| &report.findings).filter(|finding| finding.verdict == verdict).count()
}

/// Returns the report for people.
fn lines(reports: &[Report], all: bool) -> String {
    let mut text = String::new();
    for Report { check, findings } in reports {
        for Finding { verdict, what, fix } in findings {
            let sign = match verdict {
                Verdict::Good => "good",
                Verdict::Absent => "none",
                Verdict::Advice => "hint",
                Verdict::Bad => "BAD ",
            };
            if all || fix.is_some() {
                text += &format!("{sign}  {check}: {what}\n");
            }
            if let Some(fix) = fix {
                text += &format!("      fix: {fix}\n");
            }
        }
    }
    let silent = if all { "" } else { " (--all shows them)" };
    text + &format!(
        "{} good{silent}, {} could be better, {} wrong; nothing to check in {} of {} places\n",
        count(reports, Verdict::Good),
        count(reports, Verdict::Advice),
        count(reports, Verdict::Bad),
        reports.iter().filter(|report| report.findings.iter().all(|it| it.verdict == Verdict::Absent)).count(),
        reports.len(),
    )
}
