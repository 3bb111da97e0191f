//! Rotary embeddings in config.json: the base of their frequencies, and how these are scaled for long contexts.
//!
//! Source: Hugging Face transformers, `modeling_rope_utils.py`.

use super::config::{CONTEXT_MAX, Config, ConfigError};
use crate::spec::{Rope, RopeScaling, Yarn};
use serde_json::Value;

/// Frequencies that turn more often within the original context are not scaled by YaRN, where a config does not say.
const FAST_TURNS_DEFAULT: f64 = 32.0;
/// Frequencies that turn less often are scaled in full, where a config does not say.
const SLOW_TURNS_DEFAULT: f64 = 1.0;

/// The rotary embeddings that a family may have.
#[derive(Debug)]
pub(super) struct RopeForm {
    /// Scalings, as config.json spells them.
    pub(super) types: &'static [&'static str],
    /// Base of the frequencies where a config names none.
    pub(super) theta_default: f64,
    /// Only a part of a head may be rotated.
    pub(super) partial: bool,
    /// Layers with a window and layers without one have parameters of their own.
    pub(super) by_layer_type: bool,
}

impl RopeForm {
    /// One for all layers and the whole head.
    pub(super) const PLAIN: RopeForm = RopeForm {
        types: &["default", "linear", "dynamic", "llama3", "yarn"],
        theta_default: 10_000.0,
        partial: false,
        by_layer_type: false,
    };
}

impl Config {
    /// Returns the rotary embedding; that of layers without a window where there are two. `context` is the longest one
    /// that config.json names, in tokens.
    pub(super) fn rope(&self, form: &RopeForm, head_dim: usize, context: usize) -> Result<Rope, ConfigError> {
        let mut scaling = self.rope_parameters()?;
        if form.by_layer_type
            && let Some(full) = scaling.object("full_attention")?
        {
            scaling = full;
        }
        if let Some((key, value)) = scaling.values.iter().find(|(_, value)| value.is_object()) {
            return Err(scaling.unsupported(key, value, "one rotary embedding for all layers"));
        }
        let theta = scaling.positive("rope_theta", Some(self.positive("rope_theta", Some(form.theta_default))?))?;
        let holder = if scaling.names("partial_rotary_factor") { &scaling } else { self };
        let dims = holder.rotary_dims(form, head_dim)?;
        let key = if scaling.get("rope_type").is_some() { "rope_type" } else { "type" };
        let kind = scaling.text(key)?.unwrap_or("default");
        if !form.types.contains(&kind) {
            return Err(scaling.unsupported(key, &Value::from(kind), form.types.join(", ")));
        }
        let scaling = match kind {
            "linear" => RopeScaling::Linear { factor: scaling.positive("factor", None)? },
            "dynamic" => scaling.dynamic()?,
            "llama3" => scaling.llama3(self)?,
            "yarn" => scaling.yarn(self, context)?,
            "longrope" => scaling.longrope(self, dims, context)?,
            _ => RopeScaling::None,
        };
        Ok(Rope { theta, dims, scaling })
    }

    /// Returns the object that says how frequencies are scaled: `rope_parameters` of transformers 5, which has
    /// `rope_theta` too, or `rope_scaling` of transformers 4, where the type was once called `type`.
    pub(super) fn rope_parameters(&self) -> Result<Config, ConfigError> {
        match self.object("rope_parameters")? {
            Some(parameters) => Ok(parameters),
            None => Ok(self.object("rope_scaling")?.unwrap_or_else(|| self.empty("rope_scaling"))),
        }
    }

    /// Returns how many numbers of a head are rotated.
    fn rotary_dims(&self, form: &RopeForm, head_dim: usize) -> Result<usize, ConfigError> {
        let key = "partial_rotary_factor";
        let Some(value) = self.get(key) else { return Ok(head_dim) };
        let factor = self.positive(key, None)?;
        if factor != 1.0 && !form.partial {
            return Err(self.unsupported(key, value, "1 (the whole head is rotated)"));
        }
        let dims = (head_dim as f64 * factor) as usize;
        if factor > 1.0 || dims == 0 || !dims.is_multiple_of(2) {
            return Err(self.value_error(key, value, format!("an even share of head_dim ({head_dim})")));
        }
        Ok(dims)
    }

    /// Returns the context before scaling. `self` is the scaling; `whole` is config.json, where some have it. Where
    /// neither says it, `default`, and without one an error.
    pub(super) fn original_context(&self, whole: &Config, default: Option<usize>) -> Result<usize, ConfigError> {
        let key = "original_max_position_embeddings";
        let holder = if self.get(key).is_none() && whole.get(key).is_some() { whole } else { self };
        holder.count_or(key, 1..=CONTEXT_MAX, default)
    }

    /// Checks the scaling called `dynamic`, which leaves all frequencies as they are. It raises their base with the
    /// length of the sequence, and only of sequences longer than `max_position_embeddings`. There every new token would
    /// change the keys of all earlier ones, which are in the cache; a base for the longest sequence (vLLM takes that)
    /// would change short ones. So the context stays `max_position_embeddings`, where the scaling has no effect.
    fn dynamic(&self) -> Result<RopeScaling, ConfigError> {
        self.positive("factor", None)?;
        match self.get("alpha") {
            Some(alpha) => Err(self.unsupported("alpha", alpha, "dynamic scaling by a factor alone")),
            None => Ok(RopeScaling::None),
        }
    }

    /// Returns the factors of each frequency. There are some for short and some for long sequences. Which are taken
    /// depends on the model's context, not on the sequence: else keys of a prefix would differ by what follows.
    /// `self` is the scaling, `whole` config.json.
    fn longrope(&self, whole: &Config, dims: usize, context: usize) -> Result<RopeScaling, ConfigError> {
        let original = self.original_context(whole, None)?;
        let key = if context > original { "long_factor" } else { "short_factor" };
        let list = self.get(key).ok_or_else(|| self.missing(key))?;
        let positive = |value: &Value| value.as_f64().filter(|factor| *factor > 0.0 && factor.is_finite());
        let factors: Option<Vec<f64>> = list.as_array().and_then(|list| list.iter().map(positive).collect());
        let expected = || format!("a list of {} numbers above 0", dims / 2);
        let factors = factors.filter(|factors| factors.len() == dims / 2);
        let factors = factors.ok_or_else(|| self.value_error(key, list, expected()))?;
        let factor = self.positive("factor", Some(context as f64 / original as f64))?;
        let magnitude = if factor > 1.0 { (1.0 + factor.ln() / (original as f64).ln()).sqrt() } else { 1.0 };
        Ok(RopeScaling::Long { factors, magnitude: self.positive("attention_factor", Some(magnitude))? })
    }

    /// Returns Llama 3.1's scaling. `self` is the scaling, `whole` config.json.
    fn llama3(&self, whole: &Config) -> Result<RopeScaling, ConfigError> {
        let low_freq_factor = self.positive("low_freq_factor", None)?;
        let high_freq_factor = self.positive("high_freq_factor", None)?;
        if high_freq_factor <= low_freq_factor {
            let expected = format!("above low_freq_factor ({low_freq_factor})");
            return Err(self.value_error("high_freq_factor", &high_freq_factor.into(), expected));
        }
        Ok(RopeScaling::Llama3 {
            factor: self.positive("factor", None)?,
            low_freq_factor,
            high_freq_factor,
            original_context: self.original_context(whole, None)? as f64,
        })
    }

    /// Returns YaRN's scaling. `self` is the scaling, `whole` config.json, whose context is the original one where
    /// nothing else says it.
    fn yarn(&self, whole: &Config, context: usize) -> Result<RopeScaling, ConfigError> {
        // Other readers multiply by these; transformers does not know them.
        for key in ["extrapolation_factor", "attn_factor"] {
            if self.positive(key, Some(1.0))? != 1.0 {
                return Err(self.unsupported(key, &self.values[key], 1));
            }
        }
        let original = self.original_context(whole, Some(context))?;
        let factor = self.positive("factor", Some(context as f64 / original as f64))?;
        let slow_turns = self.positive("beta_slow", Some(SLOW_TURNS_DEFAULT))?;
        let fast_turns = self.positive("beta_fast", Some(FAST_TURNS_DEFAULT))?;
        if fast_turns < slow_turns {
            return Err(self.value_error("beta_fast", &fast_turns.into(), format!("from beta_slow ({slow_turns}) on")));
        }
        let grown = |share: f64| if factor > 1.0 { 0.1 * share * factor.ln() + 1.0 } else { 1.0 };
        let (above, below) = (self.not_negative("mscale", 0.0)?, self.not_negative("mscale_all_dim", 0.0)?);
        let magnitude = if above > 0.0 && below > 0.0 { grown(above) / grown(below) } else { grown(1.0) };
        Ok(RopeScaling::Yarn(Yarn {
            factor,
            fast_turns,
            slow_turns,
            whole_pairs: self.flag("truncate", true)?,
            original_context: original as f64,
            magnitude: self.positive("attention_factor", Some(magnitude))?,
        }))
    }
}
