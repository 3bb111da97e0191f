//! The kernels: one file of sources each in `kernels/`, and beside it here the one place that knows its arguments.
//!
//! A launch is unsafe where the device reads and writes by addresses. What each kernel needs of them says its type.

mod attention;
mod copy_blocks;
mod embed;
mod gated;
mod hidden_sum;
mod history;
mod limits;
mod logits;
mod norm;
mod products;
mod ranges;
mod rope_cache;
mod sampling;
mod update_tables;

pub use attention::{
    AttentionCache, AttentionDecode, AttentionLists, AttentionOperands, AttentionPrefill, AttentionRows,
    AttentionScoring, AttentionShape, AttentionSpan, DecodeArgs, PIECE_TOKENS, PrefillArgs, PrefillTile,
};
pub use copy_blocks::{CopyBlocks, CopyBlocksArgs};
pub use embed::{Embed, EmbedArgs};
pub use gated::{Activation, GateOrder, Gated, GatedArgs};
pub use hidden_sum::{HiddenSums, HiddenSumsArgs, SummedRows};
pub use history::{History, HistoryArgs, HistoryRun};
pub use limits::{LimitKernels, PiecesArgs};
pub use logits::{CapLogits, CapLogitsArgs};
pub use norm::{Norm, NormArgs};
pub use products::{Finish, ProductArgs, ProductKernel, Products, WeightForm};
pub use ranges::{EncodedSection, ExpectedSum, FrameEncoding, FramedRange, Ranges, RangesArgs};
pub use rope_cache::{HeadNorm, ProgressArgs, RopeCache, RopeCacheArgs};
pub use sampling::{
    Bias, EVERY_SHARE, NO_REPORT, PARTS_MAX, SampleKind, SampleRequest, SampleResult, Sampling, SamplingArgs, TOP_MAX,
};
pub use update_tables::{TableUpdate, UpdateTables, UpdateTablesArgs};

use crate::compiler::{self, Cache, CompileError, Compiler, Key, Source};
use crate::driver::{Context, DriverError, Module};
use std::sync::Arc;

/// The files that all kernels include.
const HEADERS: &[(&str, &str)] = &[
    ("activation.cuh", include_str!("../kernels/activation.cuh")),
    ("attention.cuh", include_str!("../kernels/attention.cuh")),
    ("checksum.cuh", include_str!("../kernels/checksum.cuh")),
    ("device.cuh", include_str!("../kernels/device.cuh")),
    ("encoding.cuh", include_str!("../kernels/encoding.cuh")),
    ("product.cuh", include_str!("../kernels/product.cuh")),
    ("ptx.cuh", include_str!("../kernels/ptx.cuh")),
    ("quantised.cuh", include_str!("../kernels/quantised.cuh")),
    ("sampling.cuh", include_str!("../kernels/sampling.cuh")),
];

/// Options of all kernels. Without contraction the same formula has the same bits everywhere; the standard is that of
/// the sources.
pub const OPTIONS: &[&str] = &["--fmad=false", "--std=c++17", "--ptxas-options=-v"];

/// Makes a source of a file in `kernels/`; with a number that is defined ahead of it.
macro_rules! source {
    ($file:literal, $name:ident = $value:literal) => {
        $crate::compiler::Source {
            name: concat!($file, " ", stringify!($name), "=", $value),
            text: concat!(
                "#define ",
                stringify!($name),
                " ",
                $value,
                "\n",
                include_str!(concat!("../../kernels/", $file))
            ),
            headers: $crate::kernels::HEADERS,
        }
    };
    ($file:literal) => {
        $crate::compiler::Source {
            name: $file,
            text: include_str!(concat!("../../kernels/", $file)),
            headers: $crate::kernels::HEADERS,
        }
    };
}
pub(crate) use source;

/// Every source, for checks that compile all of them.
pub const SOURCES: &[Source] = &[
    copy_blocks::SOURCE,
    history::SOURCE,
    sampling::SOURCES[0],
    sampling::SOURCES[1],
    sampling::SOURCES[2],
    embed::BF16,
    embed::QUANTISED[0],
    embed::QUANTISED[1],
    embed::QUANTISED[2],
    embed::QUANTISED[3],
    embed::QUANTISED[4],
    gated::SOURCE,
    hidden_sum::SOURCE,
    limits::SOURCE,
    logits::SOURCE,
    norm::SOURCE,
    products::BF16,
    products::QUANTISED[0],
    products::QUANTISED[1],
    products::QUANTISED[2],
    products::QUANTISED[3],
    products::QUANTISED[4],
    ranges::SOURCE,
    rope_cache::SOURCE,
    update_tables::SOURCE,
    attention::SIZES[0].decode,
    attention::SIZES[0].prefill,
    attention::SIZES[1].decode,
    attention::SIZES[1].prefill,
    attention::SIZES[2].decode,
    attention::SIZES[2].prefill,
    attention::SIZES[3].decode,
    attention::SIZES[3].prefill,
    attention::SIZES[4].decode,
    attention::SIZES[4].prefill,
];

/// A kernel that a step's time depends on.
#[derive(Clone, Copy, Debug)]
pub struct Hot {
    /// The file of its source.
    pub source: &'static str,
    /// Its name.
    pub kernel: &'static str,
    /// Instructions that it must have on an H100: those it is fast by.
    pub instructions: &'static [&'static str],
    /// What it must do before it waits for the kernel ahead of it: compilers move loads behind that wait.
    pub ahead: Option<&'static str>,
}

/// A read of 16 bytes of weights, past the first-level cache.
const WEIGHTS: &str = "LDG.E.NA.LTC128B.128.CONSTANT";

/// Weights by a lane's own reads, and the tensor cores.
const fn few_rows(kernel: &'static str) -> Hot {
    Hot { source: "product.cu", kernel, instructions: &[WEIGHTS, "HMMA.16816.F32.BF16"], ahead: Some(WEIGHTS) }
}

/// Copies to shared memory of 16 bytes, reads of as many, and the tensor cores.
const fn more_rows(kernel: &'static str, ahead: Option<&'static str>) -> Hot {
    const INSTRUCTIONS: &[&str] = &["LDGSTS.E.BYPASS.128", "LDS.128", "HMMA.16816.F32.BF16"];
    Hot { source: "product.cu", kernel, instructions: INSTRUCTIONS, ahead }
}

/// Hot kernels: they keep all of their registers, and have these instructions.
pub const HOT: &[Hot] = &[
    Hot { source: "norm.cu", kernel: "add_norm", instructions: &["LDG.E.128"], ahead: None },
    few_rows("few_rows_8"),
    few_rows("few_rows_16"),
    few_rows("few_rows_16_wide"),
    more_rows("some_rows_32", Some(WEIGHTS)),
    more_rows("some_rows_64", Some(WEIGHTS)),
    more_rows("many_rows", None),
    Hot {
        source: "attention_decode.cu DIM=128",
        kernel: "attention_decode",
        instructions: attention::INSTRUCTIONS,
        ahead: None,
    },
    Hot {
        source: "attention_prefill.cu DIM=128",
        kernel: "attention_prefill",
        instructions: attention::INSTRUCTIONS,
        ahead: None,
    },
];

/// A kernel cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// It does not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The driver does not take it.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// Compiles kernels for one device, or takes them from a folder.
#[derive(Debug)]
pub struct Loader {
    context: Arc<Context>,
    compiler: Compiler,
    cache: Option<Cache>,
    architecture: String,
    /// What an image depends on beside its source.
    host: String,
}

impl Loader {
    /// Makes a loader for a device. Errors: of the driver.
    pub fn new(context: &Arc<Context>, compiler: Compiler, cache: Option<Cache>) -> Result<Self, DriverError> {
        let architecture = compiler::architecture(context.capability()?);
        let (major, minor) = compiler.version();
        let host = format!("{} {architecture} nvrtc {major}.{minor}", context.name()?);
        Ok(Self { context: context.clone(), compiler, cache, architecture, host })
    }

    /// Returns the device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns what kernels are compiled for, as in `sm_90a`.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// Loads the kernels of a source. Errors: [`LoadError`].
    pub fn module(&self, source: &Source) -> Result<Arc<Module>, LoadError> {
        let headers = source.headers.iter().flat_map(|&(name, text)| [name, text]);
        let own = [self.host.as_str(), source.name, source.text];
        let key = Key::of(own.into_iter().chain(headers).chain(OPTIONS.iter().copied()));
        if let Some(image) = self.cache.as_ref().and_then(|cache| cache.get(key)) {
            match Module::load(&self.context, &image) {
                Ok(module) => return Ok(module),
                // Another driver made it, or what it refers to is gone.
                Err(error) => tracing::info!(source = source.name, %error, "a compiled kernel is made once more"),
            }
        }
        let compiled = self.compiler.compile(source, &self.architecture, OPTIONS)?;
        if let Some(cache) = &self.cache
            && let Err(error) = cache.put(key, &compiled.image)
        {
            let folder = cache.folder().display();
            tracing::warn!(%folder, %error, "compiled kernels are not kept: the next start compiles them once more");
        }
        Ok(Module::load(&self.context, &compiled.image)?)
    }
}
