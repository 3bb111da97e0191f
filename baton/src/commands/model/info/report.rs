//! The figures of a model, as people and programs get them, and the verdict.

use crate::commands::model::dtype_name;
use crate::config::Config;
use crate::output::{grouped, human_bytes};
use crate::pools::{HOST_POOL_BYTES, demand};
use engine::checkpoint::FormatShare;
use engine::cpu::LoadPlan;
use engine::models::{ModelInfo, Outline};
use kv_manager::sizing::PoolDemand;
use serde::{Serialize, Serializer};
use std::path::Path;

/// Contexts whose KV cache is told, in tokens, beside the full one.
const CONTEXTS: [u64; 2] = [2048, 8192];
/// Memory for what is neither weights nor KV cache: buffers, the tokenizer and the program.
const OTHER_BYTES: u64 = 256 << 20;
/// A context that is too short to be of use, in tokens.
const CONTEXT_MIN: u64 = 128;

/// A model in figures.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) name: String,
    path: String,
    pub(super) family: Option<String>,
    /// Whether this host can serve it.
    pub(super) served: bool,
    /// Why not.
    reason: Option<String>,
    parameters: Option<u64>,
    pub(super) weights: Weights,
    kv: Option<Kv>,
    memory: Memory,
}

/// Its weights.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Weights {
    pub(super) stored_bytes: u64,
    files: usize,
    /// In memory once they are loaded.
    memory_bytes: Option<u64>,
    /// Whether that is worked out of every tensor; else it is near.
    exact: bool,
    #[serde(serialize_with = "serialize_formats")]
    pub(super) formats: Vec<FormatShare>,
    #[serde(serialize_with = "serialize_repacked", rename = "repacked")]
    pub(super) plan: Option<LoadPlan>,
    /// Why they cannot be loaded.
    #[serde(skip)]
    pub(super) refused: Option<String>,
}

/// Its KV cache, of one worker.
#[derive(Debug, Serialize)]
struct Kv {
    dtype: &'static str,
    bytes_per_token: u64,
    contexts: Vec<Context>,
}

/// The KV cache of a context.
#[derive(Debug, Serialize)]
struct Context {
    tokens: u64,
    bytes: u64,
}

/// Memory of this host.
#[derive(Debug, Serialize)]
struct Memory {
    available_bytes: Option<u64>,
    /// The longest context that fits beside the weights.
    context_tokens_max: Option<u64>,
}

impl Weights {
    /// Weights of which no more is known than how they are stored.
    pub(super) fn stored(bytes: u64, files: usize, formats: &[FormatShare]) -> Self {
        Self { stored_bytes: bytes, files, formats: formats.to_vec(), ..Self::default() }
    }

    /// Adds what loading them takes.
    pub(super) fn planned(&mut self, plan: &LoadPlan) {
        (self.memory_bytes, self.exact, self.plan) = (Some(plan.bytes), true, Some(plan.clone()));
    }

    /// Adds what loading them takes about.
    pub(super) fn estimated(&mut self, bytes: u64) {
        self.memory_bytes = Some(bytes);
    }

    pub(super) fn in_words(&self) -> String {
        let files = match self.files {
            0 => String::new(),
            1 => " in 1 file".to_owned(),
            many => format!(" in {many} files"),
        };
        let memory = self.memory_bytes.map_or_else(String::new, |bytes| {
            format!(", {}{} in memory", if self.exact { "" } else { "about " }, human_bytes(bytes))
        });
        format!("{}{files}{memory}", human_bytes(self.stored_bytes))
    }
}

impl Report {
    /// Returns the figures of a model that is supported.
    pub(super) fn of(name: String, path: &Path, info: &ModelInfo, weights: Weights, available: Option<u64>) -> Self {
        let full = info.spec.context as u64;
        let per_token = info.kv_bytes_per_token;
        let tokens = CONTEXTS.into_iter().filter(|tokens| *tokens < full).chain([full]);
        let layout = info.spec.kv_layout(info.spec.dtype, None);
        // A sequence that is alone may use the reserve.
        let pools = demand(&Config::default(), &layout, info.spec.context, HOST_POOL_BYTES);
        let pools = PoolDemand { reserve_percent: 0, ..pools };
        let blocks = |tokens: u64| u32::try_from(tokens.div_ceil(layout.block_tokens.into())).unwrap_or(u32::MAX);
        let contexts = tokens.map(|tokens| Context { tokens, bytes: pools.bytes_of(blocks(tokens)) }).collect();
        let longest = available.zip(weights.memory_bytes).map(|(available, taken)| {
            let bytes = available.saturating_sub(taken.saturating_add(OTHER_BYTES));
            PoolDemand { bytes, ..pools }.sizes().map_or(0, |sizes| sizes.context_tokens.into())
        });
        let reason = weights.refused.clone().or_else(|| too_little(available?, weights.memory_bytes?, longest?, full));
        Self {
            name,
            path: path.display().to_string(),
            family: Some(info.spec.family.to_owned()),
            served: reason.is_none(),
            reason,
            parameters: Some(info.parameters),
            weights,
            kv: Some(Kv { dtype: dtype_name(info.spec.dtype), bytes_per_token: per_token, contexts }),
            memory: Memory { available_bytes: available, context_tokens_max: longest },
        }
    }

    /// Returns what is known of a model that is not supported.
    pub(super) fn of_refused(
        name: String,
        path: &Path,
        outline: &Outline,
        reason: &str,
        weights: Weights,
        available: Option<u64>,
    ) -> Self {
        Self {
            name,
            path: path.display().to_string(),
            family: outline.family.clone(),
            served: false,
            reason: Some(reason.to_owned()),
            parameters: None,
            weights,
            kv: None,
            memory: Memory { available_bytes: available, context_tokens_max: None },
        }
    }

    /// Says whether the model can be served here, and else why not.
    pub(super) fn verdict(&self) -> String {
        match (&self.reason, self.memory.context_tokens_max, &self.kv) {
            (Some(reason), ..) => format!("no: {reason}"),
            (None, Some(longest), Some(kv)) => {
                let full = kv.contexts.last().is_some_and(|full| full.tokens == longest);
                let all = if full { ", its full context" } else { "" };
                format!("yes, up to {} tokens in one worker{all}", grouped(longest))
            }
            (None, ..) => "yes".to_owned(),
        }
    }

    /// Lines about memory.
    pub(super) fn memory_rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        if let Some(kv) = &self.kv {
            let context = |context: &Context| format!("{} at {}", human_bytes(context.bytes), grouped(context.tokens));
            let contexts = kv.contexts.iter().map(context).collect::<Vec<_>>().join(", ");
            rows.push(("KV cache", format!("{} per token in {}", human_bytes(kv.bytes_per_token), kv.dtype)));
            rows.push(("of one worker", format!("{contexts} tokens")));
        }
        if let Some(available) = self.memory.available_bytes {
            rows.push(("memory here", format!("{} available", human_bytes(available))));
        }
        rows
    }
}

/// Returns why the memory is too little, if it is.
fn too_little(available: u64, weights: u64, longest: u64, full: u64) -> Option<String> {
    let said = || {
        format!(
            "its weights take {}, and {} are available; instead works a smaller model, or one of fewer bits: a Q4_K_M GGUF",
            human_bytes(weights),
            human_bytes(available)
        )
    };
    (longest < CONTEXT_MIN.min(full)).then(said)
}

fn serialize_formats<S: Serializer>(formats: &[FormatShare], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Format<'a> {
        format: &'a str,
        is_read: bool,
        packed: Option<String>,
        tensors: usize,
        bytes: u64,
    }
    serializer.collect_seq(formats.iter().map(|share| Format {
        format: &share.format,
        is_read: share.is_read,
        packed: share.packed.map(|format| format.to_string()),
        tensors: share.tensors,
        bytes: share.bytes,
    }))
}

fn serialize_repacked<S: Serializer>(plan: &Option<LoadPlan>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Repacked {
        format: String,
        tensors: usize,
        stored_bytes: u64,
        memory_bytes: u64,
        error_measured: Option<f32>,
        error_max: f32,
    }
    let shares = plan.iter().flat_map(|plan| &plan.repacked);
    serializer.collect_seq(shares.map(|share| Repacked {
        format: share.format.clone(),
        tensors: share.tensors,
        stored_bytes: share.stored_bytes,
        memory_bytes: share.kept_bytes,
        error_measured: share.error,
        error_max: share.error_max,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::models::ModelDescription;

    /// Returns the report about the bundled model on a host with so much memory, with weights of so many bytes.
    fn report(available: Option<u64>, weights: u64) -> Report {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny-rust");
        let model = ModelDescription::read(&dir).expect("it is bundled");
        let mut stored = Weights::stored(weights, 1, &[]);
        stored.estimated(weights);
        Report::of("m".to_owned(), &dir, &ModelInfo::of(&model.spec), stored, available)
    }

    #[test]
    fn the_verdict_follows_the_memory() {
        let plenty = report(Some(64 << 30), 1 << 20);
        let full = plenty.kv.as_ref().expect("it is served").contexts.last().expect("the full one").tokens;
        assert_eq!(plenty.verdict(), format!("yes, up to {} tokens in one worker, its full context", grouped(full)));
        let per_token = plenty.kv.as_ref().expect("it is served").bytes_per_token;
        let tight = report(Some((1 << 30) + OTHER_BYTES + 320 * per_token), 1 << 30);
        assert!(tight.served && tight.verdict() == "yes, up to 320 tokens in one worker", "{}", tight.verdict());
        let less = report(Some((1 << 30) + OTHER_BYTES + 127 * per_token), 1 << 30);
        assert!(!less.served && less.verdict().starts_with("no: its weights take 1 GiB"), "{}", less.verdict());
        assert_eq!(report(None, 1 << 40).verdict(), "yes", "nothing is known of the memory");
    }

    #[test]
    fn contexts_have_their_bytes() {
        let report = report(None, 1 << 20);
        let kv = report.kv.expect("it is served");
        assert!(kv.contexts.iter().all(|context| context.bytes == context.tokens * kv.bytes_per_token));
        assert!(kv.contexts.windows(2).all(|pair| pair[0].tokens < pair[1].tokens), "{:?}", kv.contexts);
    }
}
