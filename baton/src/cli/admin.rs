//! `baton admin`: what operators ask of a cluster.

use super::prefixes::{PrefixArgs, pin_duration};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  baton admin workers                         the workers of the router on this host
  baton admin drain decode-2                  take nothing new there, and move what runs
  baton admin undrain decode-2
  baton admin role decode-2 prefill           let it compute prompts from now on
  baton admin pin system.json --for 7d        keep the prompt of this request on the devices
  baton admin unpin system.json
  echo '{\"prompt\": \"Once upon a time\"}' | baton admin park -
                                              move what is cached of it to the tiers; undo: unpark
  baton admin explain req_00c0ffee00c0ffee    why there, and what it took: the id is in x-request-id
  baton admin --json requests | jq .
  baton admin watch                           workers and requests, as they change
  baton admin --server http://127.0.0.1:9002 dump
                                              what one worker does, at its worker.ops_listen
  baton admin --server https://router:8001 --ca ca.pem --cert me.pem --key-file me.key workers

A worker is named by its name, or by its id such as w7. Every change has its undo: undrain, the other role, unpin, \
unpark, the log filter that was printed.

A server on another host is asked with a key (`baton keys add --admin`), which only https keeps secret, or with a \
certificate. For https, what no flag says is taken from the settings tls.ca, tls.cert, tls.key and tls.server_name \
(--config, BATON_TLS__CA and so on).

Exit status: 0 done; 1 the server is not reached or fails; 2 the command line is wrong; 3 there is no such worker or \
request; 4 the call is refused, maybe by some of its workers.";

/// Arguments of `baton admin`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AdminArgs {
    /// Operations listener of a router (`router.ops_listen`) or of a worker (`worker.ops_listen`)
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8001", global = true)]
    pub(crate) server: String,
    /// Key with the right admin, for a server on another host; other users of this host can read flags [default:
    /// BATON_KEY of the environment]
    #[arg(long, value_name = "KEY", global = true)]
    pub(crate) key: Option<String>,
    /// Authorities of the server's certificate, a PEM file [default: tls.ca, or else those that the system trusts]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) ca: Option<PathBuf>,
    /// Certificate to show, a PEM file; with one that `tls.client_ca` accepts, every host may ask [default: tls.cert]
    #[arg(long, value_name = "FILE", requires = "key_file", global = true)]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of the certificate, a PEM file [default: tls.key]
    #[arg(long, value_name = "FILE", requires = "cert", global = true)]
    pub(crate) key_file: Option<PathBuf>,
    /// Name that the server's certificate must be for [default: tls.server_name, or else the host of the URL]
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) tls_name: Option<String>,
    /// TOML file with the section `tls`
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: AdminCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    /// List the workers: role, state, load, blocks.
    Workers,
    /// List the lanes that workers read each other over, and why no faster ones.
    Lanes {
        /// Only of this worker
        worker: Option<String>,
    },
    /// List where workers keep KV: the device and the tiers below it.
    Tiers {
        /// Only of this worker
        worker: Option<String>,
    },
    /// List the models that are served.
    Models,
    /// List the open requests, and what each waits for.
    Requests,
    /// Say why a request was served where it was, and what it took.
    Explain {
        /// The id in the header x-request-id of its answer
        id: String,
    },
    /// Let a worker take nothing new, and move what decodes there. It stays in the cluster.
    Drain {
        /// The worker
        worker: String,
        /// Also the last decode worker, so that requests are refused
        #[arg(long)]
        force: bool,
    },
    /// Let a worker take work again.
    Undrain {
        /// The worker
        worker: String,
    },
    /// Let a worker do the work of the other role from now on. What it has goes on.
    Role {
        /// The worker
        worker: String,
        /// What it is there for
        role: WorkerRole,
        /// Also the last decode worker, so that requests are refused
        #[arg(long)]
        force: bool,
    },
    /// Drop the cached KV on a worker's device that nothing holds.
    Flush {
        /// The worker
        worker: String,
    },
    /// Keep a prefix, such as a system prompt, on the devices, from when it is there. Ends with the worker's process.
    Pin {
        #[command(flatten)]
        prefix: PrefixArgs,
        /// How long from now on, with s, m, h or d behind it; 30d at most
        #[arg(long = "for", value_name = "TIME", default_value = "24h", value_parser = pin_duration)]
        duration: Duration,
    },
    /// End the pin of exactly this prefix.
    Unpin {
        #[command(flatten)]
        prefix: PrefixArgs,
    },
    /// Move what is cached of a prefix, such as a conversation, off the devices, to the lowest tier of each host.
    Park {
        #[command(flatten)]
        prefix: PrefixArgs,
    },
    /// Load what tiers have of a prefix to the devices, ahead of its next turn.
    Unpark {
        #[command(flatten)]
        prefix: PrefixArgs,
    },
    /// Change what the process logs, until it ends. Prints the filter before.
    Log {
        /// A level, or directives such as `info,router=debug`; without one, the filter is printed
        filter: Option<String>,
    },
    /// Say what every request waits for, and what a worker does.
    Dump {
        /// Also what this worker says of itself
        worker: Option<String>,
    },
    /// Show workers and requests as they change: in place on a terminal, else one after the other.
    Watch {
        /// Time between two looks, 100 to 60000
        #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(100..=60_000))]
        every_ms: u32,
        /// Looks after which it ends; 0: none [default: 0]
        #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
        count: u64,
    },
}

/// What a worker is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkerRole {
    /// It computes prompts, and hands them off.
    Prefill,
    /// It takes prompts over, and generates the tokens.
    Decode,
}
