//! What a person sees when a process is up: where it is, what it is, and what to do next. Its first line ends with the
//! address.

use super::role_name::role_name;
use super::tiers;
use super::worker_setup::{Pool, WorkerSetup};
use crate::config::{Config, Hidden};
use domain::session::{PeerAddress, Role};
use proto::tls::Port;
use router::{Listeners, ModelCard, OutputForms};
use std::io;
use transport::{Lane, LaneStatus};

/// A question that any chat model answers. Without its second sentence, the small model that `make serve` fetches is as
/// likely to begin in French, and which it does depends on the rounding of the processor's instruction set.
const QUESTION: &str = "What is the capital of France? Answer in one sentence.";
/// The bundled model, and a question that it was trained on: it knows little else.
const BUNDLED: (&str, &str) = ("tiny-rust", "What is ownership?");
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Of `baton serve`. `lane`: how KV moves, where it does.
pub(super) fn serve(
    config: &Config,
    listeners: &Listeners,
    card: &ModelCard,
    pool: &Pool,
    setups: &[WorkerSetup],
    lane: Option<&LaneStatus>,
) -> io::Result<String> {
    let url = listeners.api.url()?;
    let count = |role: Role| setups.iter().filter(|setup| setup.who.role == role).count();
    let workers = [Role::Prefill, Role::Decode].map(|role| match count(role) {
        1 => format!("1 {} worker", role_name(role)),
        many => format!("{many} {} workers", role_name(role)),
    });
    let lane = match lane {
        Some(status) => {
            let gigabytes = status.probe.bytes_per_s / 1e9;
            format!("KV moves over the lane `{}` ({gigabytes:.1} GB/s)", status.lane)
        }
        None => "no KV moves: decode workers compute prompts themselves".to_owned(),
    };
    Ok(format!(
        "baton {VERSION}: listening on {url}\n  \
         model    {name} ({context} tokens of context){unnamed}\n  \
         workers  {prefill}, {decode}; {lane}\n  \
         engine   {device}\n\
         {output}{tiers}{ops}{console}  \
         {attempt}  \
         end      Ctrl-C\n",
        output = output(card),
        tiers = line("tiers", tiers::describe(config)),
        ops = ops(listeners.ops.as_ref())?,
        console = console(listeners.ops.as_ref())?,
        name = card.name,
        unnamed = unnamed(config, &card.name),
        context = pool.context_tokens(),
        prefill = workers[0],
        decode = workers[1],
        device = setups[0].device(),
        attempt = attempt(config, &url, card),
    ))
}

/// Of `baton router`. `workers`: where they are, in words.
pub(super) fn router(config: &Config, listeners: &Listeners, card: &ModelCard, workers: &str) -> io::Result<String> {
    let url = listeners.api.url()?;
    Ok(format!(
        "baton {VERSION} router: listening on {url}\n  \
         model    {name}{unnamed}\n  \
         workers  {workers}; they may come and go\n\
         {output}{ops}{console}  \
         {attempt}  \
         end      Ctrl-C\n\
         ready, as soon as a decode worker is\n",
        name = card.name,
        unnamed = unnamed(config, &card.name),
        output = output(card),
        ops = ops(listeners.ops.as_ref())?,
        console = console(listeners.ops.as_ref())?,
        attempt = attempt(config, &url, card),
    ))
}

/// Of `baton prefill-worker` and `baton decode-worker`.
pub(super) fn worker(
    port: &Port,
    model: &str,
    pool: &Pool,
    setup: &WorkerSetup,
    ops_at: Option<&Port>,
    tiers: Option<String>,
) -> io::Result<String> {
    let peer = setup.peer();
    Ok(format!(
        "baton {VERSION} {role} worker: listening for routers {over}on {address}\n  \
         name     {name}, id {id}\n  \
         model    {model} ({context} tokens of context)\n  \
         engine   {device}\n  \
         lanes    {lanes}\n\
         {tiers}{ops}  \
         end      Ctrl-C\n\
         ready\n",
        role = role_name(peer.role),
        over = if port.acceptor.is_some() { "over TLS " } else { "" },
        address = port.local_addr()?,
        tiers = line("tiers", tiers),
        ops = ops(ops_at)?,
        lanes = lanes(&peer.address, setup.host_lane()),
        name = peer.name,
        id = peer.id.0,
        context = pool.context_tokens(),
        device = setup.device(),
    ))
}

/// Returns what follows the name of a model that no setting names: where it comes from, and how to choose.
fn unnamed(config: &Config, name: &str) -> &'static str {
    match (config.model.path.is_empty(), name == BUNDLED.0) {
        (false, _) => "",
        (true, false) => "\n           fetched earlier; `--model` names another one",
        (true, true) => {
            "\n           bundled, and recites the Rust documentation; `--model` names another one, and\
             \n           `make serve` or scripts/fetch-model fetches a small chat model"
        }
    }
}

/// Returns a line about the forms in which the model writes more than text, where it has such.
fn output(card: &ModelCard) -> String {
    line("output", (card.forms != OutputForms::default()).then(|| card.forms.to_string()))
}

/// Returns a line about where operators reach a process.
fn ops(port: Option<&Port>) -> io::Result<String> {
    let url = port.map(Port::url).transpose()?;
    Ok(line("ops", url.map(|url| format!("{url}/metrics, /ready, /live, and baton admin --server {url}"))))
}

/// Returns a line about where a browser shows a router and its workers.
fn console(port: Option<&Port>) -> io::Result<String> {
    let url = port.map(Port::url).transpose()?;
    Ok(line("console", url.map(|url| format!("{url}/"))))
}

/// A line about something that may not be.
fn line(name: &str, what: Option<String>) -> String {
    what.map_or(String::new(), |what| format!("  {name:<9}{what}\n"))
}

/// Says over which lanes other workers read its KV; `host_lane`: the one of processes of this host.
fn lanes(address: &PeerAddress, host_lane: Option<Lane>) -> String {
    let on_host = host_lane.filter(|_| !address.unix.is_empty());
    let on_host = on_host.map(|lane| format!("over `{}` by workers of this host", lane.name()));
    let beyond = Some(&address.tcp).filter(|tcp| !tcp.is_empty()).map(|tcp| format!("over `tcp` at {tcp}"));
    let ways: Vec<String> = on_host.into_iter().chain(beyond).collect();
    match ways[..] {
        [] => "none: other processes do not reach its KV".to_owned(),
        _ => format!("KV is read {}", ways.join(", ")),
    }
}

/// Returns a line to try. Its temperature is 0: at the API's default of 1, small models say whatever comes to mind.
fn attempt(config: &Config, url: &str, card: &ModelCard) -> String {
    let question = if card.name == BUNDLED.0 { BUNDLED.1 } else { QUESTION };
    let name = &card.name;
    let (path, body) = if card.template.is_some() {
        let message = format!(r#""messages":[{{"role":"user","content":"{question}"}}]"#);
        ("chat/completions", format!(r#"{{"model":"{name}","temperature":0,{message}}}"#))
    } else {
        let prompt = format!(r#""prompt":"{question}","max_tokens":32"#);
        ("completions", format!(r#"{{"model":"{name}","temperature":0,{prompt}}}"#))
    };
    let authority = if url.starts_with("https") { " --cacert AUTHORITY" } else { "" };
    let is_open = config.router.keys_file.is_empty() && config.router.api_keys == Hidden::default();
    let key = if is_open { "" } else { " -H 'Authorization: Bearer KEY'" };
    format!(
        "try      curl{authority} {url}/v1/{path} -H 'content-type: application/json'{key} \\\n             \
         -d '{body}'\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_nobody_named_is_explained() {
        let mut config = Config::default();
        assert!(unnamed(&config, "SmolLM2-135M-Instruct-Q4_1").contains("fetched earlier"));
        let bundled = unnamed(&config, BUNDLED.0);
        assert!(bundled.contains("bundled") && bundled.contains("--model") && bundled.contains("scripts/fetch-model"));
        config.model.path = "models/tiny-rust".to_owned();
        assert_eq!(unnamed(&config, BUNDLED.0), "");
    }
}
