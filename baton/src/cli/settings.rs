//! The flags that settle the configuration: each has a key, and what several commands share is declared once.

use crate::config::Flags;
use clap::Args;
use std::path::PathBuf;

/// `baton serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Prefill workers; 0: decode workers compute prompts themselves [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    prefill: Option<String>,
    /// Decode workers [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    decode: Option<String>,
    /// Address of the HTTP server; port 0 takes a free one [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    #[command(flatten)]
    computes: Computes,
    #[command(flatten)]
    common: Common,
}

/// `baton router`.
#[derive(Debug, Args)]
pub(crate) struct Router {
    /// Session addresses of the workers, with commas between them
    #[arg(long, value_name = "ADDR,ADDR")]
    workers: Option<String>,
    /// Address of the HTTP server; port 0 takes a free one [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
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
    /// Number in the cluster, unique; 0: made from the name [default: 0]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    computes: Computes,
    #[command(flatten)]
    common: Common,
}

/// What computes, and how its KV moves.
#[derive(Debug, Args)]
struct Computes {
    /// What computes: cpu, sim or cuda [default: cpu]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Slowest lane that KV may take; peers that only slower ones reach are not connected
    #[arg(long, value_name = "LANE")]
    require_lane: Option<String>,
    /// Threads of each worker; 0: as many as cores [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    threads: Option<String>,
}

/// What every command takes that serves.
#[derive(Debug, Args)]
struct Common {
    /// Model to serve: a Hugging Face directory or a GGUF file [default: the bundled model]
    #[arg(long, value_name = "DIR|FILE")]
    model: Option<String>,
    /// Level of the log, or directives such as `info,router=debug` [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Form of the log: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// TOML file with settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Any setting, e.g. `engine.chunk_tokens=256`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// End with the input: for those that start a server which must not outlive them
    #[arg(long, hide = true)]
    until_closed: bool,
}

impl Serve {
    /// What they say.
    pub(crate) fn flags(self) -> Flags {
        let own = [
            ("--prefill", "serve.prefill", self.prefill),
            ("--decode", "serve.decode", self.decode),
            ("--listen", "router.listen", self.listen),
        ];
        self.common.with(own.into_iter().chain(self.computes.flags()))
    }
}

impl Router {
    /// What they say.
    pub(crate) fn flags(self) -> Flags {
        self.common.with([("--workers", "cluster.workers", self.workers), ("--listen", "router.listen", self.listen)])
    }
}

impl Worker {
    /// What they say.
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
    /// These flags and those of a command.
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
