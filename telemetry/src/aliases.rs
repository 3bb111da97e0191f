//! Metrics under the names that others use: those of the model-server protocol of Kubernetes' InferencePool, by which
//! gateways and autoscalers know what a server has to do.
//!
//! An alias is made when metrics are read. So nothing is counted twice, and no other crate knows these names.

use crate::metrics::name;
use crate::series::escaped;
use std::fmt::Write;

/// Another name of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Alias {
    /// The other name.
    pub name: &'static str,
    /// The declared name of the metric.
    pub of: &'static str,
    /// Labels that have another name, too: the declared name, and the other one.
    pub labels: &'static [(&'static str, &'static str)],
}

const fn alias(name: &'static str, of: &'static str) -> Alias {
    Alias { name, of, labels: &[] }
}

/// Every alias. Each series has the label `model_name` in addition.
pub const ALIASES: &[Alias] = &[
    alias("vllm:num_requests_waiting", name::fleet_waiting),
    alias("vllm:num_requests_running", name::fleet_running),
    alias("vllm:kv_cache_usage_perc", name::fleet_kv_used),
    Alias {
        name: "vllm:cache_config_info",
        of: name::fleet_kv_info,
        labels: &[("block_tokens", "block_size"), ("blocks", "num_gpu_blocks")],
    },
    alias("vllm:time_to_first_token_seconds", name::time_to_first_token),
    alias("vllm:time_per_output_token_seconds", name::inter_token),
    alias("vllm:inter_token_latency_seconds", name::inter_token),
    alias("vllm:e2e_request_latency_seconds", name::request_time),
];

/// Adds to `text`, rendered metrics in the Prometheus text format, what they show under other names. `model` is what
/// the label `model_name` says.
pub(crate) fn render(text: &mut String, model: &str) {
    let model = format!("model_name=\"{}\"", escaped(model));
    let mut added = String::new();
    for alias in ALIASES {
        let Some(begin) = text.find(&format!("# HELP {} ", alias.of)) else { continue };
        for line in text[begin..].lines().take_while(|line| !line.is_empty()) {
            alias.line(line, &model, &mut added);
        }
        added.push('\n');
    }
    text.push_str(&added);
}

impl Alias {
    /// Adds what a line about the metric says, under the other name.
    fn line(&self, line: &str, model: &str, added: &mut String) {
        let Self { name, of, labels } = self;
        let said = if let Some(comment) = line.strip_prefix("# ") {
            format!("# {}", comment.replacen(of, name, 1))
        } else {
            let sample = line.strip_prefix(of).unwrap_or(line);
            // Buckets, sums and counts have their ending before the labels.
            let (head, value) = sample.rsplit_once(' ').unwrap_or((sample, ""));
            let (ending, given) = head.split_once('{').unwrap_or((head, "}"));
            let mut given = given.to_owned();
            for (from, to) in *labels {
                given = given.replacen(&format!("{from}="), &format!("{to}="), 1);
            }
            let comma = if given == "}" { "" } else { "," };
            format!("{name}{ending}{{{model}{comma}{given} {value}")
        };
        writeln!(added, "{said}").expect("a text takes all");
    }
}
