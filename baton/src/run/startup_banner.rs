//! What a person sees when a process is up: where it is, what it is, and what to do next. Its first line ends with the
//! address.

use super::role_name::role_name;
use super::tiers;
use super::worker_setup::{Pool, WorkerSetup};
use crate::config::Config;
use domain::session::{PeerAddress, Role};
use router::{Listeners, ModelCard};
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use transport::LaneStatus;

/// A question that any chat model answers.
const QUESTION: &str = "What is the capital of France?";
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
    let address = listeners.api.local_addr()?.to_string();
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
        "baton {VERSION}: listening on http://{address}\n  \
         model    {name} ({context} tokens of context){unnamed}\n  \
         workers  {prefill}, {decode}; {lane}\n  \
         engine   {device}\n\
         {tiers}{ops}{console}  \
         {attempt}  \
         end      Ctrl-C\n",
        tiers = line("tiers", tiers::describe(config)),
        ops = ops(ops_at(listeners)?),
        console = console(ops_at(listeners)?),
        name = card.name,
        unnamed = unnamed(config, &card.name),
        context = pool.context_tokens,
        prefill = workers[0],
        decode = workers[1],
        device = setups[0].device(),
        attempt = attempt(config, &address, card),
    ))
}

/// Of `baton router`. `workers`: where they are, in words.
pub(super) fn router(config: &Config, listeners: &Listeners, card: &ModelCard, workers: &str) -> io::Result<String> {
    let address = listeners.api.local_addr()?.to_string();
    Ok(format!(
        "baton {VERSION} router: listening on http://{address}\n  \
         model    {name}{unnamed}\n  \
         workers  {workers}; they may come and go\n\
         {ops}{console}  \
         {attempt}  \
         end      Ctrl-C\n\
         ready, as soon as a decode worker is\n",
        name = card.name,
        unnamed = unnamed(config, &card.name),
        ops = ops(ops_at(listeners)?),
        console = console(ops_at(listeners)?),
        attempt = attempt(config, &address, card),
    ))
}

/// Of `baton prefill-worker` and `baton decode-worker`.
pub(super) fn worker(
    address: &str,
    model: &str,
    pool: &Pool,
    setup: &WorkerSetup,
    ops_at: Option<SocketAddr>,
    tiers: Option<String>,
) -> String {
    let peer = setup.peer();
    format!(
        "baton {VERSION} {role} worker: listening for routers on {address}\n  \
         name     {name}, id {id}\n  \
         model    {model} ({context} tokens of context)\n  \
         engine   {device}\n  \
         lanes    {lanes}\n\
         {tiers}{ops}  \
         end      Ctrl-C\n\
         ready\n",
        role = role_name(peer.role),
        tiers = line("tiers", tiers),
        ops = ops(ops_at),
        lanes = lanes(&peer.address),
        name = peer.name,
        id = peer.id.0,
        context = pool.context_tokens,
        device = setup.device(),
    )
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

/// Returns where a router's operators reach it.
fn ops_at(listeners: &Listeners) -> io::Result<Option<SocketAddr>> {
    listeners.ops.as_ref().map(TcpListener::local_addr).transpose()
}

/// Returns a line about where operators reach a process.
fn ops(address: Option<SocketAddr>) -> String {
    let served =
        |address| format!("http://{address}/metrics, /ready, /live, and baton admin --server http://{address}");
    line("ops", address.map(served))
}

/// Returns a line about where a browser shows a router and its workers.
fn console(address: Option<SocketAddr>) -> String {
    line("console", address.map(|address| format!("http://{address}/")))
}

/// A line about something that may not be.
fn line(name: &str, what: Option<String>) -> String {
    what.map_or(String::new(), |what| format!("  {name:<9}{what}\n"))
}

/// Over which lanes other workers read its KV.
fn lanes(address: &PeerAddress) -> String {
    match (address.unix.as_str(), address.tcp.as_str()) {
        ("", "") => "none: other processes do not reach its KV".to_owned(),
        (_, "") => "KV is read over `shm` by workers of this host".to_owned(),
        ("", tcp) => format!("KV is read over `tcp` at {tcp}"),
        (_, tcp) => format!("KV is read over `shm` by workers of this host, over `tcp` at {tcp}"),
    }
}

/// Returns a line to try. Its temperature is 0: at the API's default of 1, small models say whatever comes to mind.
fn attempt(config: &Config, address: &str, card: &ModelCard) -> String {
    let question = if card.name == BUNDLED.0 { BUNDLED.1 } else { QUESTION };
    let name = &card.name;
    let (path, body) = if card.template.is_some() {
        let message = format!(r#""messages":[{{"role":"user","content":"{question}"}}]"#);
        ("chat/completions", format!(r#"{{"model":"{name}","temperature":0,{message}}}"#))
    } else {
        let prompt = format!(r#""prompt":"{question}","max_tokens":32"#);
        ("completions", format!(r#"{{"model":"{name}","temperature":0,{prompt}}}"#))
    };
    let key = if config.router.keys_file.is_empty() { "" } else { " -H 'Authorization: Bearer KEY'" };
    format!(
        "try      curl http://{address}/v1/{path} -H 'content-type: application/json'{key} \\\n             \
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
