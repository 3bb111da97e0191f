//! What a person sees when the service is up: where it is, what it is, and a line to try.

use super::fleet::Fleet;
use super::model::Model;
use super::role_name;
use crate::output::print as out;
use domain::session::Role;
use std::io;

/// A question that the bundled model answers well, and sensible for any other.
const QUESTION: &str = "What is ownership?";

/// Prints it to standard output.
pub(super) fn print(address: &str, model: &Model, fleet: &Fleet) -> io::Result<()> {
    out(&text(address, model, fleet))
}

fn text(address: &str, model: &Model, fleet: &Fleet) -> String {
    let count = |role: Role| fleet.members.iter().filter(|member| member.role == role).count();
    let workers = [Role::Prefill, Role::Decode].map(|role| match count(role) {
        1 => format!("1 {} worker", role_name(role)),
        many => format!("{many} {} workers", role_name(role)),
    });
    let lane = match &fleet.lane {
        Some(status) => {
            let gigabytes = status.probe.bytes_per_s / 1e9;
            format!("KV moves over the lane `{}` ({gigabytes:.1} GB/s)", status.lane)
        }
        None => "no KV moves: decode workers compute prompts themselves".to_owned(),
    };
    let (path, body) = if model.has_template() {
        let message = format!(r#""messages":[{{"role":"user","content":"{QUESTION}"}}]"#);
        ("chat/completions", format!(r#"{{"model":"{}",{message}}}"#, model.name))
    } else {
        ("completions", format!(r#"{{"model":"{}","prompt":"{QUESTION}","max_tokens":32}}"#, model.name))
    };
    format!(
        "baton {version}: listening on http://{address}\n  \
         model    {name} ({context} tokens of context)\n  \
         workers  {prefill}, {decode}; {lane}\n  \
         engine   {device}\n  \
         try      curl http://{address}/v1/{path} -H 'content-type: application/json' \\\n             \
         -d '{body}'\n  \
         end      Ctrl-C\n",
        version = env!("CARGO_PKG_VERSION"),
        name = model.name,
        context = fleet.context_tokens,
        prefill = workers[0],
        decode = workers[1],
        device = fleet.device,
    )
}
