//! `baton admin`: what operators ask of a cluster.

use super::access::Access;
use super::prefixes::{PrefixArgs, pin_duration};
use clap::{Args, Subcommand, ValueEnum};
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
  baton admin limits                          the limits and policies that can change now
  baton admin limits router.requests_max=64 placement.handoff=never
  baton admin reload                          take up the configuration file as it is now
  baton admin requests --ended 20             also the last 20 that ended
  baton admin explain req_00c0ffee00c0ffee    why there, and what it took: the id is in x-request-id
  baton admin --json requests | jq .
  baton admin watch                           workers and requests, as they change
  baton admin --server http://127.0.0.1:9002 dump
                                              what one worker does, at its worker.ops_listen
  baton admin --server https://router:8001 --ca ca.pem --cert me.pem --key-file me.key workers

A worker is named by its name, or by its id such as w7. Every change has its undo: undrain, the other role, unpin, \
unpark, the log filter or the values that were printed.

A server on another host is asked with a key (`baton keys add --admin`), which only https keeps secret, or with a \
certificate. For https, what no flag says is taken from the settings tls.ca, tls.cert, tls.key and tls.server_name \
(--config, BATON_TLS__CA and so on).

Exit status: 0 done; 1 the server is not reached or fails; 2 the command line is wrong; 3 there is no such worker, \
request or setting; 4 the call is refused, maybe by some of its workers.";

/// Arguments of `baton admin`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AdminArgs {
    /// Operations listener of a router (`router.ops_listen`) or of a worker (`worker.ops_listen`)
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8001", global = true)]
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) access: Access,
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
    Requests {
        /// Also so many that ended, the latest first; a router keeps as many as admin.explained_max says
        #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
        ended: u32,
    },
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
    /// List the limits and policies of the process that can change while it runs, or change some of them.
    Limits {
        /// Settings to change, all or none; prints what they were before. A value holds until the configuration changes
        /// it, or the process ends
        #[arg(value_name = "NAME=VALUE", value_parser = assignment)]
        changes: Vec<(String, String)>,
    },
    /// Let the process read its configuration again, as SIGHUP does. All of it is taken, or nothing.
    Reload,
    /// Change what the process logs, until it ends. Prints the filter before.
    Log {
        /// A level, or directives such as `info,router=debug`; without one, the filter is printed
        filter: Option<String>,
    },
    /// Say what every request and every thread of the process waits for, and what a worker does.
    ///
    /// For when something hangs: it answers even if the step loop of a worker does not.
    Dump {
        /// Also what this worker says of itself
        worker: Option<String>,
    },
    /// Show workers, tiers and requests as they change: in place on a terminal, else one after the other.
    Watch {
        /// What to show, with commas between
        #[arg(long, value_name = "WHAT", value_delimiter = ',', default_value = "workers,tiers,requests")]
        show: Vec<Watched>,
        /// Time between two looks, 100 to 60000
        #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(100..=60_000))]
        every_ms: u32,
        /// Looks after which it ends; 0: none [default: 0]
        #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
        count: u64,
    },
}

/// A setting without a value, or a value without a setting.
#[derive(Debug, thiserror::Error)]
#[error("write it as NAME=VALUE, for example router.requests_max=64")]
struct NoAssignment;

/// Reads `NAME=VALUE`. Errors: it is none.
fn assignment(text: &str) -> Result<(String, String), NoAssignment> {
    let pair = text.split_once('=').filter(|(name, _)| !name.trim().is_empty());
    let pair = pair.map(|(name, value)| (name.trim().to_owned(), value.to_owned()));
    pair.ok_or(NoAssignment)
}

/// A table that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Watched {
    /// The workers.
    Workers,
    /// What their devices and tiers hold.
    Tiers,
    /// The lanes between them.
    Lanes,
    /// The models.
    Models,
    /// The open requests.
    Requests,
}

/// What a worker is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkerRole {
    /// It computes prompts, and hands them off.
    Prefill,
    /// It takes prompts over, and generates the tokens.
    Decode,
}
