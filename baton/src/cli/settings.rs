//! The flags that are settings. Each flag has the key of its setting, and flags of several commands are declared once.

use crate::config::Flags;
use clap::Args;
use std::path::PathBuf;

/// `baton serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Number of prefill workers; 0: decode workers compute prompts themselves [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    prefill: Option<String>,
    /// Number of decode workers [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    decode: Option<String>,
    /// Address of the HTTP server; port 0 takes a free one [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    #[command(flatten)]
    keys: ApiKeys,
    #[command(flatten)]
    computes: Computes,
    #[command(flatten)]
    common: Common,
}

/// `baton router`.
#[derive(Debug, Args)]
pub(crate) struct Router {
    /// Session addresses of the workers, separated by commas
    #[arg(long, value_name = "ADDR,ADDR")]
    workers: Option<String>,
    /// Address of the HTTP server; port 0 takes a free one [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    #[command(flatten)]
    keys: ApiKeys,
    #[command(flatten)]
    common: Common,
}

/// `baton prefill-worker` and `baton decode-worker`.
#[derive(Debug, Args)]
pub(crate) struct Worker {
    /// Address for sessions with routers; port 0 takes a free one [default: 127.0.0.1:9001]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Name in logs and metrics, unique in the cluster [default: its role, the host's name and the port]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Id in the cluster, unique; 0: derived from the name [default: 0]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    computes: Computes,
    #[command(flatten)]
    common: Common,
}

/// The keys of the API that need no file.
#[derive(Debug, Args)]
struct ApiKeys {
    /// Key of the API; may be repeated. Other users of the host can read flags: BATON_ROUTER__API_KEYS in the
    /// environment says the same, with commas, unseen
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,
}

/// Flags about what computes, and how its KV moves.
#[derive(Debug, Args)]
struct Computes {
    /// Device that computes: cpu, cuda or sim [default: cpu]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Slowest lane that KV may use; a peer that only slower lanes reach is not connected
    #[arg(long, value_name = "LANE")]
    require_lane: Option<String>,
    /// Threads of each worker; 0: as many as cores [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<String>,
}

/// Flags of every command that serves.
#[derive(Debug, Args)]
struct Common {
    /// Model to serve: a Hugging Face directory, a GGUF file, or a model of a hub such as org/name or
    /// org/name:Q4_K_M [default: the fetched chat model, or else the bundled one]
    #[arg(long, value_name = "DIR|FILE|NAME")]
    model: Option<String>,
    /// Level of the log, or directives such as `info,router=debug` [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Format of the log: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// TOML file with settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Any setting, e.g. `engine.chunk_tokens=256`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// End when the input ends: for programs that start a server which must not outlive them
    #[arg(long, hide = true)]
    until_closed: bool,
}

impl Serve {
    /// Returns the flags that were given.
    pub(crate) fn flags(self) -> Flags {
        let own = [
            ("--prefill", "serve.prefill", self.prefill),
            ("--decode", "serve.decode", self.decode),
            ("--listen", "router.listen", self.listen),
        ];
        self.common.with(own.into_iter().chain([self.keys.flag()]).chain(self.computes.flags()))
    }
}

impl Router {
    /// Returns the flags that were given.
    pub(crate) fn flags(self) -> Flags {
        let own = [
            ("--workers", "cluster.workers", self.workers),
            ("--listen", "router.listen", self.listen),
            self.keys.flag(),
        ];
        self.common.with(own)
    }
}

impl Worker {
    /// Returns the flags that were given.
    pub(crate) fn flags(self) -> Flags {
        let own = [
            ("--listen", "worker.listen", self.listen),
            ("--name", "worker.name", self.name),
            ("--id", "worker.id", self.id),
        ];
        self.common.with(own.into_iter().chain(self.computes.flags()))
    }
}

/// A flag's name, the key of its setting, and its value if it is given.
type Flag = (&'static str, &'static str, Option<String>);

impl ApiKeys {
    fn flag(self) -> Flag {
        ("--api-key", "router.api_keys", Some(self.api_key.join(",")).filter(|keys| !keys.is_empty()))
    }
}

impl Computes {
    fn flags(self) -> [Flag; 3] {
        [
            ("--device", "engine.device", self.device),
            ("--require-lane", "transport.require", self.require_lane),
            ("--threads", "engine.threads", self.threads),
        ]
    }
}

impl Common {
    /// Returns these flags and those of a command.
    fn with(self, own: impl IntoIterator<Item = Flag>) -> Flags {
        let common = [
            ("--model", "model.path", self.model),
            ("--log-level", "log.level", self.log_level),
            ("--log-format", "log.format", self.log_format),
        ];
        let given = own.into_iter().chain(common).filter_map(|(flag, key, value)| Some((flag, key, value?)));
        Flags { given: given.collect(), set: self.set, config: self.config, until_closed: self.until_closed }
    }
}
