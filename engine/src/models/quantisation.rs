//! What config.json says about quantised weights, or hf_quant_config.json beside it. What it refuses it refuses with
//! what works instead.
//!
//! What is deliberately absent: which modules are quantised, with how many bits and in which groups. The tensors tell
//! (`checkpoint::quantised`).

#[cfg(test)]
mod tests;

use super::config::{Config, ConfigError, WIDTH_MAX};
use super::refusal::Refusal;
use crate::checkpoint::Quantisation;
use serde_json::Value;

/// Name of the file in which ModelOpt says how weights are quantised, if config.json does not say it.
pub(super) const MODELOPT_FILE: &str = "hf_quant_config.json";
/// What says it in config.json, and what compressed-tensors once called it.
const KEYS: [&str; 2] = ["quantization_config", "compression_config"];
/// What works instead of weights that are not read.
const INSTEAD: &str = "the same model in bf16, or a Q4_K_M or Q8_0 GGUF of it";
/// Ways of quantisation that are read, as `quant_method` says them.
const METHODS: &str = "gptq, awq, fp8, fbgemm_fp8, modelopt (FP8), compressed-tensors";
/// Formats of compressed-tensors that are read. "naive-quantized" is the older name of the two after it.
const COMPRESSED: [&str; 5] = ["pack-quantized", "naive-quantized", "int-quantized", "float-quantized", "dense"];

impl Config {
    /// Returns how the weights are quantised; `None` if they are not. Errors: so that they are not read.
    pub fn quantisation(&self) -> Result<Option<Quantisation>, ConfigError> {
        match (self.quantisation_config()?, self.mlx()) {
            (Some(config), None) => config.method().map(Some).map_err(with_instead),
            (Some(config), _) if config.get("quant_method").is_some() => {
                config.method().map(Some).map_err(with_instead)
            }
            (_, Some(refusal)) => Err(refusal.into()),
            (None, None) => Ok(None),
        }
    }

    /// As [`Config::quantisation`], of ModelOpt's own file.
    pub(super) fn modelopt_quantisation(&self) -> Result<Option<Quantisation>, ConfigError> {
        match self.object("quantization")? {
            Some(config) if config.get("quant_algo").is_some() => config.modelopt().map(Some).map_err(with_instead),
            // What is quantised is the KV cache alone.
            _ => Ok(None),
        }
    }

    /// Returns what config.json says of it, which may stand in `text_config` where a model has several parts.
    fn quantisation_config(&self) -> Result<Option<Config>, ConfigError> {
        let text = self.object("text_config").ok().flatten();
        for (holder, key) in std::iter::once(self).chain(&text).flat_map(|holder| KEYS.map(|key| (holder, key))) {
            if let Some(found) = holder.object(key)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns why weights that MLX quantised are not read, if these are. MLX names no method.
    fn mlx(&self) -> Option<Refusal> {
        let mlx = self.get("quantization").filter(|mlx| mlx.get("bits").is_some())?;
        let found = format!("{} bits in groups of {}", mlx["bits"], mlx["group_size"]);
        let (key, what) = ("quantization".to_owned(), "weights that MLX quantised are not read");
        Some(Refusal::Other { key, found, what, instead: INSTEAD })
    }

    /// Returns how the weights are quantised, by the method that this object names.
    fn method(&self) -> Result<Quantisation, ConfigError> {
        let method = match self.text("quant_method")? {
            Some(method) => method,
            None if self.get("config_groups").is_some() => "compressed-tensors",
            None => return Err(self.missing("quant_method")),
        };
        match method {
            "gptq" => self.gptq(),
            "awq" => {
                self.one_of(if self.get("version").is_some() { "version" } else { "format" }, &["gemm"])?;
                self.one_of("bits", &["4"])?;
                Ok(Quantisation::Awq)
            }
            "fp8" => {
                self.one_of("fmt", &["e4m3"])?;
                Ok(Quantisation::Scaled { block: self.block("weight_block_size")? })
            }
            "fbgemm_fp8" => Ok(Quantisation::Scaled { block: None }),
            "modelopt" => self.modelopt(),
            "compressed-tensors" => self.compressed(),
            _ => Err(self.unsupported("quant_method", &Value::from(method), METHODS)),
        }
    }

    fn modelopt(&self) -> Result<Quantisation, ConfigError> {
        self.get("quant_algo").ok_or_else(|| self.missing("quant_algo"))?;
        self.one_of("quant_algo", &["FP8"])?;
        Ok(Quantisation::Scaled { block: None })
    }

    fn gptq(&self) -> Result<Quantisation, ConfigError> {
        let key = if self.get("checkpoint_format").is_some() { "checkpoint_format" } else { "format" };
        self.one_of(key, &["gptq", "gptq_v2"])?;
        self.one_of("bits", &["2", "3", "4", "8"])?;
        self.one_of("pack_dtype", &["int32"])?;
        let is_second = self.text(key)?.is_some_and(|format| format.eq_ignore_ascii_case("gptq_v2"));
        Ok(Quantisation::Gptq { zero_offset: u8::from(!is_second) })
    }

    fn compressed(&self) -> Result<Quantisation, ConfigError> {
        if let Some(sparsity) = self.object("sparsity_config")? {
            sparsity.one_of("format", &["dense"])?;
        }
        if let Some(transforms) = self.get("transform_config").filter(|value| !is_empty(value)) {
            return Err(self.unsupported("transform_config", transforms, "weights that are not rotated"));
        }
        let groups = self.object("config_groups")?.ok_or_else(|| self.missing("config_groups"))?;
        let mut block = None;
        for name in groups.keys() {
            // A list of modules stands for a preset.
            let Ok(Some(group)) = groups.object(name) else { continue };
            let holder = if group.get("format").is_some() { &group } else { self };
            holder.one_of("format", &COMPRESSED)?;
            let Some(weights) = group.object("weights")? else { continue };
            let floats = weights.text("type")? == Some("float");
            weights.one_of("num_bits", if floats { &["8"] } else { &["2", "3", "4", "8"] })?;
            let found = weights.block("block_structure")?;
            if block.is_some() && found.is_some() && block != found {
                let list = weights.get("block_structure").unwrap_or(&Value::Null);
                return Err(weights.unsupported("block_structure", list, "one for all groups"));
            }
            block = block.or(found);
        }
        Ok(Quantisation::Scaled { block })
    }

    /// Refuses another value at `key` than these; letters may be large or small, and no value is fine.
    fn one_of(&self, key: &str, known: &[&str]) -> Result<(), ConfigError> {
        let Some(value) = self.get(key) else { return Ok(()) };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if known.iter().any(|known| known.eq_ignore_ascii_case(&text)) {
            return Ok(());
        }
        Err(self.unsupported(key, value, known.join(", ")))
    }

    /// Returns the outputs and inputs of a block.
    fn block(&self, key: &str) -> Result<Option<[usize; 2]>, ConfigError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let size =
            |value: &Value| value.as_u64().filter(|size| (1..=WIDTH_MAX).contains(size)).map(|size| size as usize);
        let sizes: Option<Vec<usize>> = value.as_array().and_then(|list| list.iter().map(size).collect());
        match sizes.as_deref() {
            Some(&[outputs, inputs]) => Ok(Some([outputs, inputs])),
            _ => Err(self.value_error(key, value, "a list of two whole numbers above 0")),
        }
    }
}

/// Adds what works instead to an error that says that something is not supported.
fn with_instead(error: ConfigError) -> ConfigError {
    match error {
        ConfigError::Unsupported { key, found, supported } => {
            let found = found.trim_matches('"').to_owned();
            Refusal::Unknown { key, found, supported, instead: INSTEAD.to_owned() }.into()
        }
        other => other,
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty)
}
