//! The command line: which commands and flags there are, and what their help says. Values are checked where they are
//! used: a flag is one of the layers of the configuration.

mod bench;

pub(crate) use bench::{BenchApi, BenchCommand, ServeBench};

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// What the help says after the commands.
const TOP_EXAMPLES: &str = "\
Examples:
  baton serve                                 the bundled model on http://127.0.0.1:8000
  baton serve --model path/to/Llama-3.2-1B    a Hugging Face directory
  baton config show                           every setting, its value and where it came from
  baton bench serve --concurrency 8           load a server, and say how it did

Exit status: 0 done; 1 failed; 2 the command line or the configuration is wrong.";

const SERVE_EXAMPLES: &str = "\
Examples:
  baton serve
  baton serve --model path/to/model --listen 0.0.0.0:8000
  baton serve --prefill 2 --decode 2 --threads 8
  baton serve --prefill 0                     monolithic: decode workers compute prompts themselves
  baton serve --config baton.toml --set router.deadline_s=60
  BATON_KV__DEVICE_BYTES=4GiB baton serve

Flags go before the environment (BATON_SECTION__KEY), it before the file (--config), it before
the defaults. `baton config show` takes the same flags and prints the outcome.";

const SHOW_EXAMPLES: &str = "\
Examples:
  baton config show
  BATON_ROUTER__LISTEN=0.0.0.0:80 baton config show --config baton.toml --prefill 2
  baton config show --markdown                a reference of all settings";

const CHECK_EXAMPLES: &str = "\
Examples:
  baton config check --config baton.toml";

const INFO_EXAMPLES: &str = "\
Examples:
  baton model info                            the bundled model
  baton model info path/to/model --tensors";

const RANDOM_EXAMPLES: &str = "\
Examples:
  baton model random --shape tiny target/tiny
  baton model random --shape 125m --family llama --seed 1 target/llama-125m
  baton serve --model target/llama-125m

Equal arguments give equal bytes on every machine. Nothing that such a model says has a meaning.";

/// Serves large language models with prefill and decode on separate workers.
#[derive(Debug, Parser)]
#[command(name = "baton", version, after_help = TOP_EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a model: router and workers in one process.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Settings),
    /// Show or check the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Describe a model, or make one with random weights.
    #[command(subcommand)]
    Model(ModelCommand),
    /// Measure.
    #[command(subcommand)]
    Bench(BenchCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting, its value and where it came from.
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        #[command(flatten)]
        settings: Settings,
        /// Print a reference of all settings as Markdown instead.
        #[arg(long)]
        markdown: bool,
    },
    /// Say whether `baton serve` would accept the configuration, and if not, everything that is wrong with it.
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        #[command(flatten)]
        settings: Settings,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Describe a model: shape, parameters, bytes, KV cache per token.
    #[command(after_help = INFO_EXAMPLES)]
    Info {
        /// Hugging Face directory, or a file in it; the bundled model if left out.
        #[arg(value_name = "DIR|FILE")]
        path: Option<PathBuf>,
        /// List the tensors too.
        #[arg(long)]
        tensors: bool,
    },
    /// Write a checkpoint with random weights, for tests and measurements.
    #[command(after_help = RANDOM_EXAMPLES)]
    Random(RandomArgs),
}

/// What `model random` writes.
#[derive(Debug, Args)]
pub(crate) struct RandomArgs {
    /// Directory to write; it must not hold a model.
    pub(crate) dir: PathBuf,
    /// Size of the model; an unknown one is answered with the list.
    #[arg(long, value_name = "SHAPE")]
    pub(crate) shape: String,
    /// Form of the decoder: llama, mistral, qwen2 or qwen3.
    #[arg(long, default_value = "llama")]
    pub(crate) family: String,
    /// Where the weights come from.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Number format of the weights: f32, f16 or bf16.
    #[arg(long, default_value = "bf16")]
    pub(crate) dtype: String,
}

/// The flags that settle the configuration.
#[derive(Debug, Default, Args)]
pub(crate) struct Settings {
    /// Model to serve: a Hugging Face directory or a file in it [default: the bundled model]
    #[arg(long, value_name = "DIR|FILE")]
    pub(crate) model: Option<String>,
    /// Prefill workers; 0: decode workers compute prompts themselves [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) prefill: Option<String>,
    /// Decode workers [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) decode: Option<String>,
    /// Address of the HTTP server; port 0 takes a free one [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// What computes: cpu, sim or cuda [default: cpu]
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Slowest lane that KV may take; a start-up error where only slower ones exist
    #[arg(long, value_name = "LANE")]
    pub(crate) require_lane: Option<String>,
    /// Threads of each worker; 0: as many as cores [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) threads: Option<String>,
    /// Level of the log, or directives such as `info,router=debug` [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// Form of the log: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
    /// TOML file with settings
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Any setting, e.g. `engine.chunk_tokens=256`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

impl Settings {
    /// The flags that are given: name, key of the setting, value.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, &'static str, &str)> {
        [
            ("--model", "model.path", &self.model),
            ("--prefill", "serve.prefill", &self.prefill),
            ("--decode", "serve.decode", &self.decode),
            ("--listen", "router.listen", &self.listen),
            ("--device", "engine.device", &self.device),
            ("--require-lane", "transport.require", &self.require_lane),
            ("--threads", "engine.threads", &self.threads),
            ("--log-level", "log.level", &self.log_level),
            ("--log-format", "log.format", &self.log_format),
        ]
        .into_iter()
        .filter_map(|(flag, key, value)| value.as_deref().map(|value| (flag, key, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_sets_its_key() {
        let line = "baton serve --model m --prefill 1 --decode 2 --listen l --device d --require-lane r --threads 3 \
                    --log-level v --log-format f --set a=b";
        let Command::Serve(settings) = Cli::try_parse_from(line.split_whitespace()).expect("it parses").command else {
            panic!("another command")
        };
        let given: Vec<_> = settings.given().collect();
        assert_eq!(given.len(), 9);
        for (flag, key, _) in given {
            assert!(crate::config::KEYS.iter().any(|(name, _)| *name == key), "{flag} sets {key}, which is no setting");
        }
    }

    #[test]
    fn unknown_commands_and_flags_are_refused() {
        for line in ["baton", "baton fly", "baton serve --fly", "baton model random dir"] {
            assert!(Cli::try_parse_from(line.split_whitespace()).is_err(), "{line}");
        }
    }
}
