//! What config.json says about quantised weights.
//!
//! What is deliberately absent: which modules are quantised, with how many bits and in which groups. The tensors tell
//! (`checkpoint::quantised`).

#[cfg(test)]
mod tests;

use super::config::{Config, ConfigError, WIDTH_MAX};
use crate::checkpoint::Quantisation;
use serde_json::Value;

/// Ways of quantisation that are read, as `quant_method` says them.
const METHODS: &str = "gptq, awq, fp8, fbgemm_fp8, modelopt (FP8), compressed-tensors";
/// Formats of compressed-tensors that are read. "naive-quantized" is the older name of the two after it.
const COMPRESSED: [&str; 5] = ["pack-quantized", "naive-quantized", "int-quantized", "float-quantized", "dense"];

impl Config {
    /// Returns how the weights are quantised; `None` if they are not. Errors: so that they are not read.
    pub fn quantisation(&self) -> Result<Option<Quantisation>, ConfigError> {
        let Some(config) = self.object("quantization_config")? else { return Ok(None) };
        let method = config.text("quant_method")?.ok_or_else(|| config.missing("quant_method"))?;
        let quantisation = match method {
            "gptq" => config.gptq()?,
            "awq" => {
                config.one_of(if config.get("version").is_some() { "version" } else { "format" }, &["gemm"])?;
                config.one_of("bits", &["4"])?;
                Quantisation::Awq
            }
            "fp8" => {
                config.one_of("fmt", &["e4m3"])?;
                Quantisation::Scaled { block: config.block("weight_block_size")? }
            }
            "fbgemm_fp8" => Quantisation::Scaled { block: None },
            "modelopt" => {
                config.get("quant_algo").ok_or_else(|| config.missing("quant_algo"))?;
                config.one_of("quant_algo", &["FP8"])?;
                Quantisation::Scaled { block: None }
            }
            "compressed-tensors" => config.compressed()?,
            _ => return Err(config.unsupported("quant_method", &Value::from(method), METHODS)),
        };
        Ok(Some(quantisation))
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

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty)
}
