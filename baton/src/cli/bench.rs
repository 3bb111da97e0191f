//! The flags of `baton bench`.

use crate::config::Bytes;
use bench_serve::{Slo, Spread, TokenIds};
use bench_transfer::Place;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

const SERVE_EXAMPLES: &str = "\
Examples:
  baton bench serve                           100 requests to a local server, one at a time
  baton bench serve --concurrency 16 --requests 1000 --input 512 --output 64-256
  baton bench serve --rate 8 --duration 60 --warmup 10 --slo ttft=500ms,tpot=50ms --html report.html
  baton bench serve --rate 20 --shared-prefix 1024 --prefixes 8 --duration 60
  baton bench serve --api chat --turns 5 --think 1-3 --concurrency 8 --requests 200
  baton bench serve --trace trace.jsonl --trace-speed 2 --json report.json --records records.jsonl

Lengths, and seconds of --think, are a constant (512), a uniform range (100-300), or lognormal by mean and \
deviation (512~256). In a rate or a trace, latencies count from when a request was due, so that a server \
that falls behind cannot hide it. Ctrl-C sends nothing more and reports what there is; a second one does \
not wait for requests in flight.

Exit status: 0 done; 1 the server cannot be reached, or all requests failed; 2 the command line is wrong.";

const ENGINE_EXAMPLES: &str = "\
Examples:
  baton bench engine                                       a random model of the shape 125m
  baton bench engine --model path/to/model.gguf --html report.html
  baton bench engine --shape 1b --dtype f32 --samples 3
  baton bench engine --prompts 512 --batches 1,64 --contexts 0,1024 --threads 1 --json report.json

Nothing is served: steps run one after the other, without HTTP and scheduling. A prompt goes in chunks of 512 \
tokens; a decode sample is 32 steps of the whole batch. The machine's limits are measured before and after, and \
the better of both counts. Nothing else should run meanwhile.

Exit status: 0 done; 1 it could not be measured; 2 the command line is wrong.";

const TRANSFER_EXAMPLES: &str = "\
Examples:
  baton bench transfer                        shm, tcp, and tcp with checksums, on this host
  baton bench transfer --lanes shm --sizes 64KiB,1MiB --batches 1,32 --html report.html
  baton bench transfer --lanes tcp,tcp+int8,tcp+int8+checksums --sizes 1MiB
  baton bench transfer --own --listen 10.0.0.2:7000    on the host that is read; it says --peer
  baton bench transfer --peer 0123456789abcdef@10.0.0.2:7000 --lanes tcp
  baton bench transfer --lanes file --folder /mnt/nvme0 --folder /mnt/nvme1 --batches 16
  baton bench transfer --lanes object --set object.endpoint=http://store --set object.bucket=b

The pool is read once in a pass, block by block, so that no cache holds the next one; the blocks of a batch lie \
apart. Every byte is compared after each pass. Without --peer the pool belongs to another process of \
this host, and the machine's limits are measured beside it: plain copies of one thread, a plain stream over \
loopback. Nothing else should run meanwhile. The ends of two hosts know each other by cluster.secret, which both find in \
BATON_CLUSTER__SECRET or in cluster.secret_file.

Over file the pool lies in files, over object in a store, a block in each object: they are written, and then read, at \
random, at most 16,384 blocks of a file and 1,024 objects in a pass. So many operations are under way as disk.depth and \
object.requests say. Every byte is compared in the pass that does not count, the ends of each block in the others. \
Objects are under baton-bench/transfer/.

Exit status: 0 done; 1 it could not be measured, or bytes arrived wrong; 2 the command line is wrong.";

const TIERS_EXAMPLES: &str = "\
Examples:
  baton bench tiers                           a random model of the shape 125m, host and disk
  baton bench tiers --prompts 1024,4096 --rounds 2 --folder /mnt/nvme --html report.html
  baton bench tiers --model path/to/model --prompts 512 --tiers host
  baton bench tiers --prompts 32768 --rounds 1
  baton bench tiers --tiers object --set object.endpoint=http://store --set object.bucket=b

Prompts are computed, asked for again while the device has them, and then from each tier, by servers of their own whose \
device holds less than two of the three that take turns; the disk is read past its page cache. Every answer is compared \
(those that may differ, for kv.encoding loses something, are counted), and a prompt counts only for the place that the \
server says it came from. Beside it stand a plain copy and a plain read of the same bytes, and a decode step, of the same \
run. Settings of `baton serve` apply (BATON_..., --config, --set) but for those of \
the tiers' sizes. What is written to a store stays there, under baton-bench/. Nothing else should run meanwhile.

Exit status: 0 done; 1 it could not be measured, or an answer was wrong; 2 the command line is wrong.";

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Load a server that speaks OpenAI's API, and say how it did.
    #[command(after_help = SERVE_EXAMPLES, allow_negative_numbers = true)]
    Serve(Box<ServeBench>),
    /// Measure the CPU engine alone: prompts, decoding, kernels, beside the limits of the machine.
    #[command(after_help = ENGINE_EXAMPLES)]
    Engine(Box<EngineBench>),
    /// Measure the transport alone: reads between two processes over each lane, beside the limits of the machine.
    #[command(after_help = TRANSFER_EXAMPLES)]
    Transfer(Box<TransferBench>),
    /// Measure the tiers of the KV cache: first tokens of prompts that come back from each, beside the limits of
    /// the machine.
    #[command(after_help = TIERS_EXAMPLES)]
    Tiers(Box<TiersBench>),
}

/// What `bench tiers` runs, and where the report goes.
#[derive(Debug, Args)]
pub(crate) struct TiersBench {
    /// Model: a Hugging Face directory or a GGUF file
    #[arg(long, value_name = "DIR|FILE", conflicts_with_all = ["shape", "dtype"])]
    pub(crate) model: Option<PathBuf>,
    /// Instead, a Llama of this size with random weights; an unknown size is answered with the list
    #[arg(long, value_name = "SHAPE", default_value = "125m")]
    pub(crate) shape: String,
    /// Number format of the random weights: f32, f16 or bf16
    #[arg(long, default_value = "bf16")]
    pub(crate) dtype: String,
    /// Lengths of prompts, in tokens that a cache can have; each has one more, which is computed in any case
    #[arg(long, value_name = "TOKENS,..", value_delimiter = ',', default_value = "1024,4096,16384")]
    pub(crate) prompts: Vec<u32>,
    /// How often each prompt comes back from each place; the median is told
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) rounds: usize,
    /// host, disk and object [default: host,disk, and object where object.endpoint is set]
    #[arg(long, value_name = "TIER,..", value_delimiter = ',')]
    pub(crate) tiers: Vec<String>,
    /// Where the files of the disk tier lie meanwhile, in a folder of their own [default: the system's temporary
    /// folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// TOML file with settings of the server
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Any setting of the server, e.g. `engine.threads=2`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the report as a page with plots
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// What `bench engine` runs, and where the report goes.
#[derive(Debug, Args)]
pub(crate) struct EngineBench {
    /// Model: a Hugging Face directory or a GGUF file
    #[arg(long, value_name = "DIR|FILE", conflicts_with_all = ["shape", "dtype"])]
    pub(crate) model: Option<PathBuf>,
    /// Instead, a Llama of this size with random weights; an unknown size is answered with the list
    #[arg(long, value_name = "SHAPE", default_value = "125m")]
    pub(crate) shape: String,
    /// Number format of the random weights: f32, f16 or bf16
    #[arg(long, default_value = "bf16")]
    pub(crate) dtype: String,
    /// Threads that compute [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Keep each thread on processors of its own, whoever else may use them
    #[arg(long)]
    pub(crate) pin: bool,
    /// Lengths of prompts, in tokens
    #[arg(long, value_name = "TOKENS,..", value_delimiter = ',', default_value = "128,512,2048")]
    pub(crate) prompts: Vec<u32>,
    /// Sequences that are decoded at once
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,4,16")]
    pub(crate) batches: Vec<u32>,
    /// Tokens before the decoded ones; every batch is measured after each
    #[arg(long, value_name = "TOKENS,..", value_delimiter = ',', default_value = "128,2016")]
    pub(crate) contexts: Vec<u32>,
    /// Samples of each work, after one that does not count; the median is told
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) samples: usize,
    /// Write the report as JSON, with every sample and every kernel
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the report as a page with plots
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// What `bench transfer` reads, and where the report goes.
#[derive(Debug, Args)]
pub(crate) struct TransferBench {
    /// Lanes (local, which is within one process, shm, rdma, tcp, file, object), and after a plus that they bring
    /// KV encoded (int8), and that they carry checksums
    #[arg(long, value_name = "LANE,..", value_delimiter = ',', default_value = "shm,tcp,tcp+checksums")]
    pub(crate) lanes: Vec<String>,
    /// Bytes of a block
    #[arg(
        long,
        value_name = "BYTES,..",
        value_delimiter = ',',
        default_value = "4KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB,256MiB"
    )]
    pub(crate) sizes: Vec<Bytes>,
    /// Blocks of a transfer
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1")]
    pub(crate) batches: Vec<usize>,
    /// Transfers in flight
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,8")]
    pub(crate) in_flight: Vec<usize>,
    /// Bytes of the pool that is read; of both ends alike, or of the files or objects
    #[arg(long, value_name = "BYTES", default_value = "256MiB")]
    pub(crate) pool: Bytes,
    /// Passes that count, after one that does not; the median is told
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) passes: usize,
    /// Connections of tcp
    #[arg(long, value_name = "N", default_value_t = transport::TcpConfig::default().connections)]
    pub(crate) connections: u16,
    /// Where files lie meanwhile; may be repeated, for as many devices [default: the system's temporary folder]
    #[arg(long, value_name = "DIR", help_heading = "Files and objects")]
    pub(crate) folder: Vec<PathBuf>,
    /// Leave files and objects for others to read
    #[arg(long, help_heading = "Files and objects")]
    pub(crate) keep: bool,
    /// TOML file with settings, of which disk.depth and those of object and cluster count
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// One of those settings, e.g. `disk.depth=64`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Be the end that is read, until Ctrl-C
    #[arg(long, help_heading = "Two hosts", conflicts_with = "peer")]
    pub(crate) own: bool,
    /// Address to be read at; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", help_heading = "Two hosts")]
    pub(crate) listen: String,
    /// The end to read, as it says of itself
    #[arg(long, value_name = "WHO", help_heading = "Two hosts")]
    pub(crate) peer: Option<Place>,
    /// Files with a certificate, its key and the authorities, by which tcp is encrypted and each end knows the other
    #[arg(long, value_names = ["CERTIFICATE", "KEY", "AUTHORITIES"], num_args = 3)]
    pub(crate) tls: Option<Vec<PathBuf>>,
    /// End with the input
    #[arg(long, hide = true, requires = "own")]
    pub(crate) until_closed: bool,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the report as a page with plots
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// What `bench serve` sends, and where the report goes.
#[derive(Debug, Args)]
pub(crate) struct ServeBench {
    /// Where the server is
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    pub(crate) url: String,
    /// Model to ask [default: the first that the server names]
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Which API to call
    #[arg(long, value_enum, default_value_t = BenchApi::Completions)]
    pub(crate) api: BenchApi,
    /// Header of every request, e.g. `authorization: Bearer KEY`; may be repeated; not told in reports
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// Fields for every body, e.g. `{"temperature":0.7}`
    #[arg(long, value_name = "JSON")]
    pub(crate) extra: Option<String>,

    /// Closed loop: N users, each of whom waits for an answer before asking again [default: 1]
    #[arg(long, value_name = "N", group = "arrivals", help_heading = "When requests are sent")]
    pub(crate) concurrency: Option<u32>,
    /// Poisson arrivals: R new conversations a second (of one request each, but for --turns)
    #[arg(long, value_name = "R", group = "arrivals", help_heading = "When requests are sent")]
    pub(crate) rate: Option<f64>,
    /// Arrivals, lengths and shared prefixes of a trace in Mooncake's format (JSON lines)
    #[arg(
        long,
        value_name = "FILE",
        group = "arrivals",
        conflicts_with_all = ["input", "output", "shared_prefix", "turns"],
        help_heading = "When requests are sent"
    )]
    pub(crate) trace: Option<PathBuf>,
    /// Play the trace so many times faster
    #[arg(long, value_name = "X", default_value_t = 1.0, requires = "trace", help_heading = "When requests are sent")]
    pub(crate) trace_speed: f64,
    /// Tokens that a hash id of the trace stands for
    #[arg(
        long,
        value_name = "TOKENS",
        default_value_t = 512,
        requires = "trace",
        help_heading = "When requests are sent"
    )]
    pub(crate) trace_block: u32,
    /// Requests in flight, at most, with --rate or --trace; others wait, and their wait counts
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "concurrency",
        default_value_t = bench_serve::IN_FLIGHT_MAX,
        hide_default_value = true,
        help_heading = "When requests are sent"
    )]
    pub(crate) concurrency_max: u32,
    /// Requests to send [default: 100, the whole trace, or as many as --duration allows]
    #[arg(long, value_name = "N", help_heading = "When requests are sent")]
    pub(crate) requests: Option<u64>,
    /// Seconds to send requests for; those in flight then are awaited
    #[arg(long, value_name = "SECONDS", help_heading = "When requests are sent")]
    pub(crate) duration: Option<f64>,
    /// Requests to send before, which are not counted
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "When requests are sent")]
    pub(crate) warmup: u64,
    /// Seconds that a request may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0, help_heading = "When requests are sent")]
    pub(crate) timeout: f64,

    /// Tokens that each turn adds to the prompt
    #[arg(long, value_name = "TOKENS", default_value = "128", help_heading = "What they ask for")]
    pub(crate) input: Spread,
    /// Tokens of an answer
    #[arg(long, value_name = "TOKENS", default_value = "64", help_heading = "What they ask for")]
    pub(crate) output: Spread,
    /// Tokens before --input that prompts of a group have in common
    #[arg(long, value_name = "TOKENS", default_value_t = 0, help_heading = "What they ask for")]
    pub(crate) shared_prefix: u32,
    /// Groups of prompts with a common prefix
    #[arg(long, value_name = "K", default_value_t = 1, requires = "shared_prefix", help_heading = "What they ask for")]
    pub(crate) prefixes: u32,
    /// Turns of a conversation; each carries all that was said before, with the server's own answers
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "What they ask for")]
    pub(crate) turns: u32,
    /// Seconds between an answer and the next turn
    #[arg(long, value_name = "SECONDS", default_value = "0", requires = "turns", help_heading = "What they ask for")]
    pub(crate) think: Spread,
    /// Token ids that prompts are made of, where the server takes ids; elsewhere they are words
    #[arg(long, value_name = "LOW-HIGH", default_value = "1000-3999", help_heading = "What they ask for")]
    pub(crate) token_ids: TokenIds,
    /// Where all lengths, texts and times come from
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "What they ask for")]
    pub(crate) seed: u64,

    /// Limits of a good request: ttft, tpot (mean per token), itl (its longest gap), e2e
    #[arg(long, value_name = "ttft=500ms,e2e=5s", help_heading = "The report")]
    pub(crate) slo: Option<Slo>,
    /// Write the report as JSON, with the settings
    #[arg(long, value_name = "FILE", help_heading = "The report")]
    pub(crate) json: Option<PathBuf>,
    /// Write every request as a line of JSON
    #[arg(long, value_name = "FILE", help_heading = "The report")]
    pub(crate) records: Option<PathBuf>,
    /// Write the report as a page with plots
    #[arg(long, value_name = "FILE", help_heading = "The report")]
    pub(crate) html: Option<PathBuf>,
}

/// Which API requests go to.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum BenchApi {
    /// `/v1/completions`
    Completions,
    /// `/v1/chat/completions`
    Chat,
}
