//! The flags of `baton bench`.

use crate::config::Bytes;
use bench_serve::{Slo, Spread, TokenIds};
use bench_transfer::OwnerAddress;
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

Lengths and seconds of --think are a constant (512), a uniform range (100-300), or lognormal by mean and \
deviation (512~256). With --rate or --trace, a latency counts from when the request was due, so that a server \
that falls behind cannot hide it. Ctrl-C sends nothing more and reports what there is. A second Ctrl-C does \
not wait for requests in flight.

Exit status: 0 done; 1 the server cannot be reached, or all requests failed; 2 the command line is wrong.";

const ENGINE_EXAMPLES: &str = "\
Examples:
  baton bench engine                                       a random model of the shape 125m
  baton bench engine --model path/to/model.gguf --html report.html
  baton bench engine --shape 1b --dtype f32 --samples 3
  baton bench engine --prompts 512 --batches 1,64 --contexts 0,1024 --threads 1 --json report.json
  baton bench engine --device cuda --shape 8b --chunk 2048 --prompts 8192 --batches 1,32

It serves nothing: steps run without HTTP and scheduling, one after the other, or two at once on a card. Prompts are \
computed in chunks (--chunk). A decode sample is so many steps of the whole batch (--decoded). --mixed computes a prompt \
in the steps of a batch that decodes. The limits of the machine are measured before and after, and \
the better result counts. Run nothing else meanwhile.

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

A pass reads the pool once, block by block, so that no cache holds the next block. The blocks of a batch lie \
apart. Every byte is compared after each pass. Without --peer, the pool belongs to another process of \
this host. Then the limits of the machine are measured, too: plain copies of one thread, and a plain stream over \
loopback. Run nothing else meanwhile. Two hosts know each other by cluster.secret: set BATON_CLUSTER__SECRET \
or cluster.secret_file on both.

For the lane file, the pool is in files. For object, it is in a store, one block per object. Blocks are written, and then \
read in random order: at most 16,384 blocks of a file and 1,024 objects in a pass. disk.depth and object.requests set how \
many operations run at once. The pass that does not count compares every byte; the others compare the ends of each block. \
Objects are written under baton-bench/transfer/.

Exit status: 0 done; 1 it could not be measured, or wrong bytes arrived; 2 the command line is wrong.";

const TIERS_EXAMPLES: &str = "\
Examples:
  baton bench tiers                           a random model of the shape 125m, host and disk
  baton bench tiers --prompts 1024,4096 --rounds 2 --folder /mnt/nvme --html report.html
  baton bench tiers --model path/to/model --prompts 512 --tiers host
  baton bench tiers --prompts 32768 --rounds 1
  baton bench tiers --tiers object --set object.endpoint=http://store --set object.bucket=b

Prompts are computed, sent again while the device has them, and then read from each tier. Each tier has a server of its \
own. Three prompts take turns, and the device of that server holds less than two of them. The disk is read past its page \
cache. Every answer is compared; answers that may differ because kv.encoding is lossy are counted. A prompt counts only for \
the place that the server reports. The same run measures a plain copy and a plain read of the same bytes, and a decode step.

Settings of `baton serve` apply (BATON_..., --config, --set), except the sizes of the tiers. What is written to a store \
stays there, under baton-bench/. Run nothing else meanwhile.

Exit status: 0 done; 1 it could not be measured, or an answer was wrong; 2 the command line is wrong.";

const DEVICE_EXAMPLES: &str = "\
Examples:
  baton bench device                          card 0: memory, products, launches, the bus
  baton bench device --card 1 --bytes 4GiB --samples 20 --json limits.json

What a card does at best, with kernels that do nothing else: memory that is read in a row, and in pieces of 64 KiB that \
begin 2 MiB apart, as the blocks of a layer do; bf16 by the instruction that the kernels use, in registers; what a launch \
costs; copies over the bus out of pinned memory, each way and both ways at once. All that is read is compared.

Exit status: 0 done; 1 there is no card, or it read what was not there; 2 the command line is wrong.";

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Load a server that speaks OpenAI's API, and report how fast it answers.
    #[command(after_help = SERVE_EXAMPLES, allow_negative_numbers = true)]
    Serve(Box<ServeBench>),
    /// Measure the engine alone: prompts, decoding and kernels, next to the limits of the machine.
    #[command(after_help = ENGINE_EXAMPLES)]
    Engine(Box<EngineBench>),
    /// Measure a card alone: what it does at best.
    #[command(after_help = DEVICE_EXAMPLES)]
    Device(DeviceBench),
    /// Measure the transport alone: reads between two processes over each lane, next to the limits of the machine.
    #[command(after_help = TRANSFER_EXAMPLES)]
    Transfer(Box<TransferBench>),
    /// Measure the tiers of the KV cache: time to the first token of prompts from each tier, next to the limits of
    /// the machine.
    #[command(after_help = TIERS_EXAMPLES)]
    Tiers(Box<TiersBench>),
}

/// Arguments of `bench tiers`.
#[derive(Debug, Args)]
pub(crate) struct TiersBench {
    /// Model: a Hugging Face directory or a GGUF file
    #[arg(long, value_name = "DIR|FILE", conflicts_with_all = ["shape", "dtype"])]
    pub(crate) model: Option<PathBuf>,
    /// Instead, a Llama of this size with random weights; an unknown size prints the list
    #[arg(long, value_name = "SHAPE", default_value = "125m")]
    pub(crate) shape: String,
    /// Number format of the random weights: f32, f16 or bf16
    #[arg(long, default_value = "bf16")]
    pub(crate) dtype: String,
    /// Lengths of prompts, in tokens that a cache can have; each prompt has one more, which is always computed
    #[arg(long, value_name = "TOKENS,..", value_delimiter = ',', default_value = "1024,4096,16384")]
    pub(crate) prompts: Vec<u32>,
    /// How often each prompt is read from each place; the report has the median
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Tiers to measure: host, disk, object [default: host,disk, and object if object.endpoint is set]
    #[arg(long, value_name = "TIER,..", value_delimiter = ',')]
    pub(crate) tiers: Vec<String>,
    /// Folder for the files of the disk tier; they get a folder of their own in it [default: the system's temporary
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

/// Arguments of `bench device`.
#[derive(Debug, Args)]
pub(crate) struct DeviceBench {
    /// Number of the card, as the driver shows it
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) card: u32,
    /// Memory of the card that is read [default: 32 GiB, or three quarters of what is free]
    #[arg(long, value_name = "BYTES")]
    pub(crate) bytes: Option<Bytes>,
    /// Samples of each limit, after one that does not count; the best counts
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) samples: usize,
    /// Write the limits as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Where `bench engine` computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchDevice {
    /// Processors
    Cpu,
    /// A card of NVIDIA
    Cuda,
}

/// The kernels of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchKernels {
    /// Those whose bits do not depend on other rows
    Exact,
    /// The fastest ones
    Fast,
}

/// Arguments of `bench engine`.
#[derive(Debug, Args)]
pub(crate) struct EngineBench {
    /// What computes
    #[arg(long, default_value = "cpu")]
    pub(crate) device: BenchDevice,
    /// Number of the card, if the device is cuda
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) card: u32,
    /// Kernels of the card, if the device is cuda
    #[arg(long, default_value = "exact")]
    pub(crate) kernels: BenchKernels,
    /// Model: a Hugging Face directory or a GGUF file
    #[arg(long, value_name = "DIR|FILE", conflicts_with_all = ["shape", "dtype"])]
    pub(crate) model: Option<PathBuf>,
    /// Instead, a Llama of this size with random weights; an unknown size prints the list
    #[arg(long, value_name = "SHAPE", default_value = "125m")]
    pub(crate) shape: String,
    /// Number format of the random weights: f32, f16 or bf16
    #[arg(long, default_value = "bf16")]
    pub(crate) dtype: String,
    /// Threads that compute [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Keep each thread on processors of its own, even if other programs use them
    #[arg(long)]
    pub(crate) pin: bool,
    /// Lengths of prompts, in tokens
    #[arg(long, value_name = "TOKENS,..", value_delimiter = ',', default_value = "128,512,2048")]
    pub(crate) prompts: Vec<u32>,
    /// Sequences that are decoded at once
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,4,16")]
    pub(crate) batches: Vec<u32>,
    /// Tokens before the decoded ones; every batch is measured with each
    #[arg(long, value_name = "TOKENS,..", value_delimiter = ',', default_value = "128,2016")]
    pub(crate) contexts: Vec<u32>,
    /// Lengths of prompts, in tokens, that are computed in the steps of batches that decode
    #[arg(long, value_name = "TOKENS,..", value_delimiter = ',')]
    pub(crate) mixed: Vec<u32>,
    /// Tokens of a prompt in a step, at most
    #[arg(long, value_name = "TOKENS", default_value_t = 512)]
    pub(crate) chunk: u32,
    /// Tokens of each sequence in a decode sample
    #[arg(long, value_name = "TOKENS", default_value_t = 32)]
    pub(crate) decoded: u32,
    /// Samples of each measurement, after one that does not count; the report has the median
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) samples: usize,
    /// Write the report as JSON, with every sample and every kernel
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the report as a page with plots
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// Arguments of `bench transfer`.
#[derive(Debug, Args)]
pub(crate) struct TransferBench {
    /// Lanes: local (within one process), shm, rdma, tcp, file, object. `+int8` encodes KV on the way, `+checksums`
    /// adds checksums
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
    /// Bytes of the pool that is read; the same at both ends; for file and object, of the files or objects
    #[arg(long, value_name = "BYTES", default_value = "256MiB")]
    pub(crate) pool: Bytes,
    /// Passes that count, after one that does not; the report has the median
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) passes: usize,
    /// Connections of tcp
    #[arg(long, value_name = "N", default_value_t = transport::TcpConfig::default().connections)]
    pub(crate) connections: u16,
    /// Folder for files; may be repeated, one per device [default: the system's temporary folder]
    #[arg(long, value_name = "DIR", help_heading = "Files and objects")]
    pub(crate) folder: Vec<PathBuf>,
    /// Keep files and objects after the run, for another run to read
    #[arg(long, help_heading = "Files and objects")]
    pub(crate) keep: bool,
    /// TOML file with settings; disk.depth and the sections object and cluster are used
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
    /// The end to read, as that end prints it
    #[arg(long, value_name = "WHO", help_heading = "Two hosts")]
    pub(crate) peer: Option<OwnerAddress>,
    /// Files with a certificate, its key and the authorities: tcp is encrypted, and each end checks the other
    #[arg(long, value_names = ["CERTIFICATE", "KEY", "AUTHORITIES"], num_args = 3)]
    pub(crate) tls: Option<Vec<PathBuf>>,
    /// End when the input ends
    #[arg(long, hide = true, requires = "own")]
    pub(crate) until_closed: bool,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the report as a page with plots
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// Arguments of `bench serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeBench {
    /// Address of the server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    pub(crate) url: String,
    /// Authorities of the certificate of an https server, a PEM file [default: those that the system trusts]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Model to use [default: the first that the server names]
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// API to call
    #[arg(long, value_enum, default_value_t = BenchApi::Completions)]
    pub(crate) api: BenchApi,
    /// Header of every request, e.g. `authorization: Bearer KEY`; may be repeated; not shown in reports
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// Fields for every body, e.g. `{"temperature":0.7}`
    #[arg(long, value_name = "JSON")]
    pub(crate) extra: Option<String>,

    /// Closed loop: N users, each waits for an answer before it sends again [default: 1]
    #[arg(long, value_name = "N", group = "arrivals", help_heading = "When requests are sent")]
    pub(crate) concurrency: Option<u32>,
    /// Poisson arrivals: R new conversations per second (one request each, unless --turns is set)
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
    /// Play the trace X times faster
    #[arg(long, value_name = "X", default_value_t = 1.0, requires = "trace", help_heading = "When requests are sent")]
    pub(crate) trace_speed: f64,
    /// Tokens per hash id of the trace
    #[arg(
        long,
        value_name = "TOKENS",
        default_value_t = 512,
        requires = "trace",
        help_heading = "When requests are sent"
    )]
    pub(crate) trace_block: u32,
    /// Most requests in flight with --rate or --trace; others wait, and their wait counts
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
    /// Seconds during which requests are sent; then it waits for those in flight
    #[arg(long, value_name = "SECONDS", help_heading = "When requests are sent")]
    pub(crate) duration: Option<f64>,
    /// Requests to send first, which are not counted
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "When requests are sent")]
    pub(crate) warmup: u64,
    /// Time limit of a request, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0, help_heading = "When requests are sent")]
    pub(crate) timeout: f64,

    /// Tokens that each turn adds to the prompt
    #[arg(long, value_name = "TOKENS", default_value = "128", help_heading = "What they ask for")]
    pub(crate) input: Spread,
    /// Tokens of an answer
    #[arg(long, value_name = "TOKENS", default_value = "64", help_heading = "What they ask for")]
    pub(crate) output: Spread,
    /// Tokens before those of --input that all prompts of a group share
    #[arg(long, value_name = "TOKENS", default_value_t = 0, help_heading = "What they ask for")]
    pub(crate) shared_prefix: u32,
    /// Groups of prompts with a common prefix
    #[arg(long, value_name = "K", default_value_t = 1, requires = "shared_prefix", help_heading = "What they ask for")]
    pub(crate) prefixes: u32,
    /// Turns of a conversation; each sends all earlier turns with the server's own answers
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "What they ask for")]
    pub(crate) turns: u32,
    /// Seconds between an answer and the next turn
    #[arg(long, value_name = "SECONDS", default_value = "0", requires = "turns", help_heading = "What they ask for")]
    pub(crate) think: Spread,
    /// Token ids that prompts are made of, if the server takes ids; otherwise prompts are words
    #[arg(long, value_name = "LOW-HIGH", default_value = "1000-3999", help_heading = "What they ask for")]
    pub(crate) token_ids: TokenIds,
    /// Seed of all random lengths, texts and times
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "What they ask for")]
    pub(crate) seed: u64,

    /// Limits of a good request: ttft, tpot (mean time per token), itl (longest time between tokens), e2e
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

/// The API that requests use.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum BenchApi {
    /// `/v1/completions`
    Completions,
    /// `/v1/chat/completions`
    Chat,
}
