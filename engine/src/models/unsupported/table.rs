//! The table: names of models in config.json (`model_type`) and in GGUF files (`general.architecture`), what they need,
//! and what works instead.
//!
//! Sources: the configurations of transformers 5, and the architectures of llama.cpp (`gguf-py/gguf/constants.py`).

use crate::models::refusal::Feature;
use Feature::{
    Convolution, Diffusion, Encoder, EncoderDecoder, Experts, Images, LatentAttention, LayerNorm, Layers,
    LinearAttention, Pictures, Positions, Sinks, Sound, SparseAttention, StateSpace,
};
use std::fmt;

/// Names that need the same.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) names: &'static [&'static str],
    pub(super) needs: &'static [Feature],
    pub(super) instead: Alternative,
}

/// A model that is served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alternative {
    /// Its family's `model_type`.
    pub(super) family: &'static str,
    /// Its name on a hub.
    pub(super) name: &'static str,
}

impl fmt::Display for Alternative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a model of the family {} such as {}, or a Q4_K_M GGUF of it", self.family, self.name)
    }
}

/// What works instead of a model of whose makers nothing is served.
pub(super) const ANY: Alternative = Alternative { family: "qwen3", name: "Qwen/Qwen3-8B" };

const CODER: Alternative = Alternative { family: "qwen2", name: "Qwen/Qwen2.5-Coder-7B-Instruct" };
const DISTILLED: Alternative = Alternative { family: "qwen2", name: "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B" };
const FALCON: Alternative = Alternative { family: "llama", name: "tiiuae/Falcon3-7B-Instruct" };
const GEMMA: Alternative = Alternative { family: "gemma2", name: "google/gemma-2-9b-it" };
const GRANITE: Alternative = Alternative { family: "granite", name: "ibm-granite/granite-3.3-8b-instruct" };
const LLAMA: Alternative = Alternative { family: "llama", name: "meta-llama/Llama-3.1-8B-Instruct" };
const MISTRAL: Alternative = Alternative { family: "mistral", name: "mistralai/Mistral-7B-Instruct-v0.3" };
const NEMOTRON: Alternative = Alternative { family: "llama", name: "nvidia/Llama-3.1-Nemotron-Nano-8B-v1" };
const OLMO: Alternative = Alternative { family: "olmo2", name: "allenai/OLMo-2-1124-7B-Instruct" };
const PHI: Alternative = Alternative { family: "phi3", name: "microsoft/Phi-4-mini-instruct" };
const SMOL: Alternative = Alternative { family: "llama", name: "HuggingFaceTB/SmolLM2-1.7B-Instruct" };

/// Returns what works instead of a model of a supported family that has experts.
pub(super) fn instead_of_experts(family: &str) -> Alternative {
    match family {
        "llama" | "mistral" => MISTRAL,
        "granite" => GRANITE,
        "phi3" => PHI,
        "olmo2" => OLMO,
        "gemma2" | "gemma3" | "gemma3_text" => GEMMA,
        _ => ANY,
    }
}

const fn row(names: &'static [&'static str], needs: &'static [Feature], instead: Alternative) -> Row {
    Row { names, needs, instead }
}

/// The table. Each name stands in one row, and none of it is served.
pub(super) static ROWS: &[Row] = &[
    // Experts, with attention as it is computed here.
    row(&["mixtral"], &[Experts], MISTRAL),
    row(&["qwen2_moe", "qwen2moe", "qwen3_moe", "qwen3moe"], &[Experts], ANY),
    row(&["llama4", "llama4_text"], &[Experts], LLAMA),
    row(&["granitemoe", "granitemoeshared", "granitemoe_swa"], &[Experts], GRANITE),
    row(&["olmoe", "flex_olmo"], &[Experts], OLMO),
    row(&["phimoe"], &[Experts], PHI),
    row(&["deepseek", "dots1"], &[Experts], DISTILLED),
    row(&["gpt_oss", "gpt-oss"], &[Experts, Sinks], ANY),
    row(&["mimo_v2_flash", "mimo2"], &[Experts, Sinks], ANY),
    row(&["minimax_m2", "minimax-m2"], &[Experts], ANY),
    row(&["glm4_moe", "glm4moe", "ernie4_5_moe", "ernie4_5-moe"], &[Experts], ANY),
    row(&["hunyuan_v1_moe", "hunyuan-moe", "exaone_moe", "exaone-moe"], &[Experts], ANY),
    row(&["bailing_moe", "bailingmoe", "bailingmoe2", "grovemoe", "afmoe"], &[Experts], ANY),
    row(&["dbrx", "cohere2_moe"], &[Experts, LayerNorm], ANY),
    row(&["arctic", "grok", "grok-1", "jetmoe", "solar_open", "step35", "laguna"], &[Experts], ANY),
    // Latent attention.
    row(&["deepseek_v2", "deepseek_v3", "deepseek2", "kimi_k2"], &[LatentAttention, Experts], DISTILLED),
    row(&["deepseek_v32"], &[LatentAttention, SparseAttention, Experts], DISTILLED),
    row(&["deepseek_v4"], &[SparseAttention, Experts], DISTILLED),
    row(&["glm_moe_dsa", "glm-dsa"], &[LatentAttention, SparseAttention, Experts], ANY),
    row(&["mistral4", "mistral_large4"], &[LatentAttention, Experts], MISTRAL),
    row(&["glm4_moe_lite", "longcat_flash", "axk1", "axk2"], &[LatentAttention, Experts], ANY),
    row(&["minicpm3", "youtu", "plm"], &[LatentAttention], ANY),
    // Layers with a state.
    row(&["mamba", "mamba2", "zamba", "zamba2", "bamba", "plamo2"], &[StateSpace], ANY),
    row(&["falcon_mamba", "falcon_h1", "falcon-h1"], &[StateSpace], FALCON),
    row(&["jamba"], &[StateSpace, Experts], ANY),
    row(&["granitemoehybrid", "granitehybrid"], &[StateSpace, Experts], GRANITE),
    row(&["nemotron_h"], &[StateSpace], NEMOTRON),
    row(&["nemotron_h_moe"], &[StateSpace, Experts], NEMOTRON),
    row(&["qwen3_next", "qwen3next", "qwen3_5_moe", "qwen3_5_moe_text", "qwen35moe"], &[LinearAttention, Experts], ANY),
    row(&["qwen3_5", "qwen3_5_text", "qwen35"], &[LinearAttention], ANY),
    row(&["minimax", "minimax_text_01"], &[LinearAttention, Experts], ANY),
    row(&["kimi_linear", "kimi-linear", "bailing_hybrid"], &[LinearAttention, LatentAttention, Experts], ANY),
    row(&["olmo_hybrid"], &[LinearAttention], OLMO),
    row(&["recurrent_gemma"], &[LinearAttention], GEMMA),
    row(&["rwkv", "rwkv5", "rwkv6", "rwkv7", "rwkv6qwen2", "arwkv7", "xlstm"], &[LinearAttention], ANY),
    row(&["lfm2"], &[Convolution], ANY),
    row(&["lfm2_moe", "lfm2moe"], &[Convolution, Experts], ANY),
    // Decoders of another form.
    row(&["gpt2", "gpt_neo", "gpt_bigcode", "opt", "xglm", "biogpt", "openai-gpt"], &[LayerNorm, Positions], SMOL),
    row(&["starcoder"], &[LayerNorm, Positions], CODER),
    row(&["bloom", "mpt", "jais"], &[LayerNorm, Positions], ANY),
    row(&["gptj", "gpt_neox", "gptneox", "codegen", "persimmon", "stablelm", "orion"], &[LayerNorm], ANY),
    row(&["falcon"], &[LayerNorm], FALCON),
    row(&["starcoder2", "codeshell"], &[LayerNorm], CODER),
    row(&["cohere", "cohere2", "command-r"], &[LayerNorm], ANY),
    row(&["phi", "phi2"], &[LayerNorm], PHI),
    row(&["nemotron"], &[LayerNorm], NEMOTRON),
    row(&["olmo"], &[LayerNorm], OLMO),
    row(&["olmo3"], &[Layers], OLMO),
    row(&["gemma", "gemma3n", "gemma3n_text", "gemma4", "gemma4_text", "vaultgemma"], &[Layers], GEMMA),
    row(&["smollm3"], &[Layers], SMOL),
    row(&["ministral"], &[Layers], MISTRAL),
    row(&["deci"], &[Layers], NEMOTRON),
    row(&["granite_swa"], &[Sinks], GRANITE),
    row(&["glm", "glm4", "chatglm", "exaone", "exaone4", "seed_oss", "ernie4_5"], &[Layers], ANY),
    row(&["hunyuan_v1_dense", "hunyuan-dense", "arcee", "apertus", "helium"], &[Layers], ANY),
    row(&["diffllama", "bitnet", "nanochat", "qwen", "baichuan"], &[Layers], ANY),
    row(&["internlm2", "internlm3", "xverse", "minicpm", "openelm", "refact", "plamo"], &[Layers], ANY),
    // No decoder, or more than one.
    row(&["t5", "mt5", "umt5", "longt5", "switch_transformers", "t5gemma", "t5gemma2"], &[EncoderDecoder], ANY),
    row(&["bart", "mbart", "led", "pegasus", "marian", "m2m_100", "nllb-moe", "fsmt"], &[EncoderDecoder], ANY),
    row(&["blenderbot", "blenderbot-small", "prophetnet", "encoder-decoder"], &[EncoderDecoder], ANY),
    row(&["bert", "roberta", "distilbert", "albert", "electra", "deberta", "deberta-v2"], &[Encoder], ANY),
    row(&["xlm-roberta", "camembert", "mpnet", "modernbert", "nomic_bert", "eurobert"], &[Encoder], ANY),
    row(&["modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2"], &[Encoder], ANY),
    row(&["jina-bert-v3", "gemma-embedding", "llama-embed", "t5encoder", "esm"], &[Encoder], ANY),
    row(&["llada", "dream", "rnd1"], &[Diffusion], ANY),
    row(&["llada-moe", "diffusion_gemma"], &[Diffusion, Experts], ANY),
    // Other senses.
    row(&["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen2vl", "qwen3vl"], &[Images], ANY),
    row(&["qwen3_vl_moe", "qwen3vlmoe", "glm4v_moe", "ernie4_5_vl_moe"], &[Images, Experts], ANY),
    row(&["llava", "llava_next", "llava_onevision", "vipllava", "video_llava"], &[Images], ANY),
    row(&["idefics", "idefics2", "idefics3", "smolvlm"], &[Images], SMOL),
    row(&["mllama"], &[Images], LLAMA),
    row(&["paligemma"], &[Images], GEMMA),
    row(&["phi3_v", "phi4_multimodal"], &[Images], PHI),
    row(&["internvl", "internvl_chat", "fuyu", "chameleon", "cogvlm", "pixtral", "janus"], &[Images], ANY),
    row(&["whisper", "qwen2_audio", "voxtral", "moshi", "musicgen", "wavtokenizer-dec"], &[Sound], ANY),
    row(&["clip", "siglip", "vit", "dinov2"], &[Encoder, Images], ANY),
    row(&["flux", "sd1", "sd3", "sdxl", "wan", "hidream", "qwen_image", "lumina2"], &[Pictures], ANY),
];
