#![doc = include_str!("../README.md")]

mod cli;
mod commands;
mod config;
mod doctor;
mod error;
#[cfg(feature = "failpoints")]
mod failpoint;
mod hub_model;
mod memory;
mod model_dir;
mod output;
#[cfg(test)]
mod pages;
mod pools;
mod progress;
mod repacking;
mod run;
mod topo;

use clap::Parser;
use cli::{BenchCommand, Cli, Command, ConfigCommand, KeysCommand, ModelCommand};
use config::{Config, Flags, Part};
use domain::session::Role;
use error::{CommandError, with_causes};
use run::Running;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use threads::Doing;

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    failpoint::arm();
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("baton: {}", with_causes(&error));
            error.exit_code()
        }
    }
}

fn run(cli: Cli) -> Result<(), CommandError> {
    match cli.command {
        Command::Serve(settings) => serving(Part::All, settings.flags(), run::serve),
        Command::Router(settings) => serving(Part::Router, settings.flags(), run::router),
        Command::PrefillWorker(settings) => {
            serving(Part::Worker, settings.flags(), |running| run::worker(running, Role::Prefill))
        }
        Command::DecodeWorker(settings) => {
            serving(Part::Worker, settings.flags(), |running| run::worker(running, Role::Decode))
        }
        Command::Admin(args) => commands::admin::admin(args),
        Command::Config(ConfigCommand::Show { settings, markdown: true }) => {
            commands::config::markdown(&config::load(&settings.flags())?)
        }
        Command::Config(ConfigCommand::Show { settings, markdown: false }) => {
            commands::config::show(&config::load(&settings.flags())?)
        }
        Command::Config(ConfigCommand::Check { settings }) => {
            commands::config::check(&config::load(&settings.flags())?)
        }
        Command::Model(ModelCommand::Info { path, tensors, json }) => {
            commands::model::info(path.as_deref(), tensors, json.as_ref())
        }
        Command::Model(ModelCommand::Pull { name }) => commands::model::pull(&name),
        Command::Model(ModelCommand::List) => commands::model::list(),
        Command::Model(ModelCommand::Remove { name }) => commands::model::remove(&name),
        Command::Model(ModelCommand::Random(request)) => commands::model::random(&request),
        Command::Keys(KeysCommand::Add(key)) => commands::keys::add(&key),
        Command::Keys(KeysCommand::List(keys)) => commands::keys::list(&keys),
        Command::Keys(KeysCommand::Revoke { id, keys }) => commands::keys::revoke(&id, &keys),
        Command::Bench(BenchCommand::Serve(asked)) => commands::bench::serve(&asked),
        Command::Bench(BenchCommand::Transfer(asked)) => commands::bench::transfer(&asked),
        Command::Bench(BenchCommand::Engine(asked)) => commands::bench::engine(&asked),
        Command::Bench(BenchCommand::Device(asked)) => commands::bench::device(&asked),
        Command::Bench(BenchCommand::Tiers(asked)) => commands::bench::tiers(&asked),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Topo(args) => topo::topo(&args),
    }
}

/// Runs a command that serves, with its settings. The log is open from here on, and requests are traced.
fn serving(
    part: Part,
    flags: Flags,
    serve: impl FnOnce(&Arc<Running>) -> Result<(), Box<dyn Error>>,
) -> Result<(), CommandError> {
    threads::register("baton", Doing::Starts);
    let loaded = config::load(&flags)?;
    loaded.check()?;
    let config = loaded.config();
    if flags.until_closed {
        run::end_with_input();
    }
    let Config { log, traces, .. } = config;
    let wrong = |error: Box<dyn Error>| CommandError::Usage(error);
    let is_traced = !traces.endpoint.is_empty();
    // Dropped at the end: what was traced last is sent.
    let exporting = is_traced.then(|| telemetry::traces::start(&traces.endpoint, traces.sample)).transpose();
    let _exporting = exporting.map_err(|error| wrong(error.into()))?;
    let timeline = (!log.timeline.is_empty()).then_some(Path::new(&log.timeline));
    telemetry::logging::init(&log.level, log.format.into(), output::stderr_is_terminal(), timeline)
        .map_err(|error| wrong(error.into()))?;
    serve(&Running::new(part, flags, loaded)).map_err(CommandError::Failed)
}
