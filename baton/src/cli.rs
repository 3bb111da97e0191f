//! The command line: which commands and flags there are, and what their help says. Values are checked where they are
//! used: a flag is one of the layers of the configuration.

mod access;
mod admin;
mod bench;
mod prefixes;
mod settings;

pub(crate) use self::access::Access;
pub(crate) use self::admin::{AdminArgs, AdminCommand, Watched, WorkerRole};
pub(crate) use self::prefixes::PrefixArgs;
pub(crate) use bench::{
    BenchApi, BenchCommand, BenchDevice, BenchKernels, DeviceBench, EngineBench, ServeBench, TiersBench, TransferBench,
};
pub(crate) use settings::{Router, Serve, Worker};

use crate::doctor::DoctorArgs;
use crate::topo::TopoArgs;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Columns of help, on terminals that have as many.
const WIDTH_MAX: usize = 100;

/// What the help says after the commands.
const TOP_EXAMPLES: &str = "\
Examples:
  baton serve                                 the fetched chat model, or else the bundled one
  baton serve --model path/to/Llama-3.2-1B    a Hugging Face directory
  baton serve --model Qwen/Qwen3-0.6B         a model of a hub, fetched once
  baton decode-worker --listen 127.0.0.1:9011
  baton router --workers 127.0.0.1:9011       one process per role
  baton config show                           every setting, its value and where it came from
  baton bench serve --concurrency 8           load a server, and say how it did
  baton bench engine --model path/to/model    how fast this machine computes it
  baton bench transfer                        how fast KV moves between processes, over each lane
  baton bench tiers                           how soon prompts come back from memory and disk
  baton admin workers                         the workers of a running cluster, and their load
  baton topo http://127.0.0.1:8000            which lanes workers read each other over, and why

Exit status: 0 done; 1 failed; 2 the command line or the configuration is wrong; 130 a second Ctrl-C ended it.";

const SERVE_EXAMPLES: &str = "\
Examples:
  baton serve
  baton serve --model path/to/model --listen 0.0.0.0:8000
  baton serve --prefill 2 --decode 2 --threads 8
  baton serve --prefill 0                     monolithic: decode workers compute prompts themselves
  baton serve --config baton.toml --set router.deadline_s=60
  BATON_KV__DEVICE_BYTES=4GiB baton serve

A flag overrides the environment (BATON_SECTION__KEY), which overrides the file (--config), which overrides the \
default. `baton config show` takes the same flags and prints the outcome.";

const ROUTER_EXAMPLES: &str = "\
Examples:
  baton router --workers 127.0.0.1:9001,127.0.0.1:9011
  baton router --config baton.toml --listen 0.0.0.0:8000

Workers may come and go while it runs. It reads the tokenizer and the chat template of the model, and not the \
weights. All its workers must serve the same model.";

const WORKER_EXAMPLES: &str = "\
Examples:
  baton prefill-worker --listen 127.0.0.1:9001
  baton decode-worker --listen 127.0.0.1:9011
  BATON_CLUSTER__SECRET=... baton decode-worker --listen 0.0.0.0:9011 --name decode-a

SIGTERM or Ctrl-C drains the worker: it takes nothing new, and what runs ends or moves to another worker, within \
worker.drain_s seconds. A second Ctrl-C ends it at once.";

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
  baton model info                            the model that `baton serve` takes
  baton model info path/to/model --tensors
  baton model info Qwen/Qwen3-8B              of a hub; no weights are fetched

Exit status: 0 it can be served here; 1 it cannot, and the last line says why; 2 the command line is wrong.";

const PULL_EXAMPLES: &str = "\
Examples:
  baton model pull Qwen/Qwen3-0.6B
  baton model pull Qwen/Qwen3-0.6B-GGUF:Q8_0
  HF_TOKEN=... baton model pull meta-llama/Llama-3.2-1B-Instruct
  HF_ENDPOINT=https://hub.example.org baton model pull org/name

A transfer that broke goes on where it stopped. `baton serve --model org/name` fetches what is not there yet, and \
does not ask the hub when the model is complete. Variables: HF_TOKEN, HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, \
HF_HUB_OFFLINE, HTTPS_PROXY.";

const RANDOM_EXAMPLES: &str = "\
Examples:
  baton model random --shape tiny target/tiny
  baton model random --shape 125m --family llama --seed 1 target/llama-125m
  baton serve --model target/llama-125m

Equal arguments give equal bytes on every machine. The text of such a model has no meaning.";

const KEYS_EXAMPLES: &str = "\
Examples:
  baton keys add --file keys.json --tenant acme
  baton keys add --file keys.json --tenant acme --requests-per-minute 60 --tokens-per-minute 100000
  baton keys add --file operators.json --tenant ops --admin
  baton serve --set router.keys_file=keys.json
  curl -H 'Authorization: Bearer baton-...' http://127.0.0.1:8000/v1/models
  baton keys list --file keys.json
  baton keys revoke 3f9a0c1b22d4 --file keys.json

The file has hashes of the keys, never the keys. A router that runs takes changes within a second.";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  baton doctor
  baton doctor --all --disk /mnt/nvme0
  baton doctor --record host.json             and, elsewhere: baton doctor --host host.json

It changes nothing. Some facts can be read only by root. Exit status: 0 nothing is wrong; 1 something is wrong.";

const TOPO_EXAMPLES: &str = "\
Examples:
  baton topo                                  this host alone, measured now
  baton topo http://127.0.0.1:8000            the workers of a `baton serve`
  baton topo http://10.0.0.1:9100 http://10.0.0.2:9100
                                              workers at their worker.ops_listen

Exit status: 0 done; 1 a process does not answer; 2 the command line is wrong.";

/// Serves large language models with prefill and decode on separate workers.
#[derive(Debug, Parser)]
#[command(name = "baton", version, after_help = TOP_EXAMPLES, max_term_width = WIDTH_MAX)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a model: router and workers in one process.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Serve),
    /// Serve the API with workers of other processes.
    #[command(after_help = ROUTER_EXAMPLES)]
    Router(Router),
    /// Compute prompts, and hand them off to decode workers.
    #[command(after_help = WORKER_EXAMPLES)]
    PrefillWorker(Worker),
    /// Take over prompts from prefill workers, and generate the tokens.
    #[command(after_help = WORKER_EXAMPLES)]
    DecodeWorker(Worker),
    /// Look into a running cluster, and change it: drain workers, change roles, explain requests.
    Admin(AdminArgs),
    /// Show or check the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Describe a model, or make one with random weights.
    #[command(subcommand)]
    Model(ModelCommand),
    /// Add, list and revoke the keys by which clients use the API.
    #[command(subcommand, after_help = KEYS_EXAMPLES)]
    Keys(KeysCommand),
    /// Measure a server, the engine, the transport or the tiers.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Say what is wrong with this host, and the command that fixes it.
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Show which lanes workers read each other over, how fast, and why no faster one.
    #[command(after_help = TOPO_EXAMPLES)]
    Topo(TopoArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting, its value and where it came from.
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        #[command(flatten)]
        settings: Serve,
        /// Print a reference of all settings as Markdown instead
        #[arg(long)]
        markdown: bool,
    },
    /// Say whether `baton serve` would accept the configuration, and if not, everything that is wrong with it.
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        #[command(flatten)]
        settings: Serve,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Describe a model: whether it can be served here, shape, memory for weights and KV cache.
    #[command(after_help = INFO_EXAMPLES)]
    Info {
        /// Hugging Face directory, GGUF file or model of a hub [default: that of `baton serve`]
        #[arg(value_name = "DIR|FILE|NAME")]
        path: Option<PathBuf>,
        /// List the tensors, too
        #[arg(long)]
        tensors: bool,
        /// Write all figures into a file, too
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Fetch a model from a Hugging Face hub into the cache that other tools share, and print where it lies.
    #[command(after_help = PULL_EXAMPLES)]
    Pull {
        /// org/name, org/name:file.gguf, org/name:Q4_K_M or org/name@revision
        name: String,
    },
    /// List the models in the cache.
    List,
    /// Remove a model from the cache.
    Remove {
        /// org/name
        name: String,
    },
    /// Write a checkpoint with random weights, for tests and measurements.
    #[command(after_help = RANDOM_EXAMPLES)]
    Random(RandomArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key and print it, this once.
    #[command(after_help = KEYS_EXAMPLES)]
    Add(AddKey),
    /// List the keys by name, with their limits.
    List(KeysArgs),
    /// Revoke a key: its open answers end, too.
    Revoke {
        /// Name of the key, as `baton keys list` shows it
        id: String,
        #[command(flatten)]
        keys: KeysArgs,
    },
}

/// Where the keys are.
#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    /// File of the keys [default: the setting router.keys_file]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// TOML file with the setting router.keys_file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// What `keys add` adds.
#[derive(Debug, Args)]
pub(crate) struct AddKey {
    /// Whose key it is; cached prompts are shared within a tenant only
    #[arg(long)]
    pub(crate) tenant: String,
    /// Models that it may ask [default: all]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub(crate) models: Vec<String>,
    /// Most requests a minute; 0: any number
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) requests_per_minute: u32,
    /// Most tokens a minute, those of prompts and of answers; 0: any number
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) tokens_per_minute: u32,
    /// Most requests at once; 0: any number
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) concurrent: u32,
    /// It is an operator's: with it, `baton admin` may ask from another host
    #[arg(long)]
    pub(crate) admin: bool,
    #[command(flatten)]
    pub(crate) keys: KeysArgs,
}

/// What `model random` writes.
#[derive(Debug, Args)]
pub(crate) struct RandomArgs {
    /// Directory to write; it must not hold a model yet
    pub(crate) dir: PathBuf,
    /// Size of the model; an unknown size prints the list
    #[arg(long, value_name = "SHAPE")]
    pub(crate) shape: String,
    /// Family: llama, mistral, qwen2, qwen3, gemma2, gemma3_text, phi3, olmo2, granite or ministral3
    #[arg(long, default_value = "llama")]
    pub(crate) family: String,
    /// Seed of the random weights
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Number format of the weights: f32, f16 or bf16
    #[arg(long, default_value = "bf16")]
    pub(crate) dtype: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Paragraphs are filled by the terminal's width, so they have no line ends of their own; examples fit.
    #[test]
    fn what_is_said_below_flags_breaks_once() {
        let mut commands = vec![Cli::command()];
        while let Some(command) = commands.pop() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = help.lines().collect();
            let is_text = |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
            for (at, line) in lines.iter().enumerate() {
                let breaks = is_text(line) && lines.get(at + 1).is_some_and(|next| is_text(next));
                assert!(!breaks, "{}: {line:?} goes on in the next line", command.get_name());
                assert!(!line.starts_with(' ') || line.len() <= WIDTH_MAX, "{}: {line:?}", command.get_name());
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }

    #[test]
    fn every_flag_sets_its_key() {
        let common = "--model m --log-level v --log-format f --set a=b";
        let computes = "--device d --require-lane r --threads 3";
        for (line, many) in [
            (format!("baton serve --prefill 1 --decode 2 --listen l {computes} {common}"), 9),
            (format!("baton router --workers w --listen l {common}"), 5),
            (format!("baton prefill-worker --name n --id 1 --listen l {computes} {common}"), 9),
            (format!("baton decode-worker --name n --id 1 --listen l {computes} {common}"), 9),
        ] {
            let flags = match Cli::try_parse_from(line.split_whitespace()).expect("it parses").command {
                Command::Serve(settings) => settings.flags(),
                Command::Router(settings) => settings.flags(),
                Command::PrefillWorker(settings) | Command::DecodeWorker(settings) => settings.flags(),
                _ => panic!("another command"),
            };
            assert_eq!((flags.given.len(), flags.set.len()), (many, 1), "{line}");
            for (flag, key, _) in flags.given {
                let known = crate::config::KEYS.iter().any(|(name, _)| *name == key);
                assert!(known, "{flag} sets {key}, which is no setting");
            }
        }
    }

    #[test]
    fn unknown_commands_and_flags_are_refused() {
        for line in ["baton", "baton fly", "baton serve --fly", "baton model random dir"] {
            assert!(Cli::try_parse_from(line.split_whitespace()).is_err(), "{line}");
        }
    }
}
