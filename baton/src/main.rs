//! The one binary. This file is the table of contents: parse the command line, read the configuration, run the command.

mod cli;
mod commands;
mod config;
mod error;
mod model_dir;
mod output;
mod progress;
mod serve;

use clap::Parser;
use cli::{BenchCommand, Cli, Command, ConfigCommand, ModelCommand};
use error::CommandError;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("baton: {}", error.with_causes());
            error.exit_code()
        }
    }
}

fn run(cli: Cli) -> Result<(), CommandError> {
    match cli.command {
        Command::Serve(settings) => {
            let config = config::load(&settings)?.checked()?;
            let log = &config.log;
            let timeline = (!log.timeline.is_empty()).then_some(Path::new(&log.timeline));
            telemetry::logging::init(&log.level, log.format.into(), output::stderr_is_terminal(), timeline)
                .map_err(|error| CommandError::Usage(error.into()))?;
            serve::run(&config).map_err(CommandError::Failed)
        }
        Command::Config(ConfigCommand::Show { settings, markdown: true }) => {
            commands::config::markdown(&config::load(&settings)?)
        }
        Command::Config(ConfigCommand::Show { settings, markdown: false }) => {
            commands::config::show(&config::load(&settings)?)
        }
        Command::Config(ConfigCommand::Check { settings }) => commands::config::check(config::load(&settings)?),
        Command::Model(ModelCommand::Info { path, tensors }) => commands::model::info(&path, tensors),
        Command::Model(ModelCommand::Random(request)) => commands::model::random(&request),
        Command::Bench(BenchCommand::Serve(asked)) => commands::bench::serve(&asked),
    }
}
