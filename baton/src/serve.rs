//! `baton serve`: router and workers in one process. This file is the order of things; the parts are beside it.

mod fleet;
mod model;
mod shutdown;
mod welcome;

use crate::config::Config;
use domain::session::Role;
use placement::{HandoffPolicy, PlacementConfig, Rates};
use router::RouterConfig;
use std::error::Error;
use std::time::Duration;
use tokio::net::TcpListener;

/// Threads of the HTTP side, at most: it only carries tokens, the cores are the engine's.
const HTTP_THREADS_MAX: usize = 4;

/// Serves until a signal ends it.
pub(crate) fn run(config: &Config) -> Result<(), Box<dyn Error>> {
    let metrics = telemetry::install();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(HTTP_THREADS_MAX);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    // The port first: whoever waits for a model to load learns at once that it is taken.
    let listen = &config.router.listen;
    let listener = runtime.block_on(TcpListener::bind(listen));
    let listener = listener.map_err(|error| format!("cannot listen on {listen} (router.listen): {error}"))?;
    let model = model::Model::load(config)?;
    let fleet = fleet::Fleet::start(config, &model)?;
    welcome::print(&listener.local_addr()?.to_string(), &model, &fleet)?;
    let router = router_config(config, &model);
    let (card, links) = (model.card(fleet.context_tokens, fleet.scope), fleet.links);
    runtime.block_on(router::serve(listener, router, card, links, metrics, shutdown::signal()))?;
    // Nobody asks the workers any more; they end with their threads.
    drop(fleet.workers);
    tracing::info!("ended");
    Ok(())
}

fn router_config(config: &Config, model: &model::Model) -> RouterConfig {
    let (router, placement) = (&config.router, &config.placement);
    let handoff = match placement.handoff {
        crate::config::Handoffs::Auto => HandoffPolicy::Auto,
        crate::config::Handoffs::Always => HandoffPolicy::Always,
        crate::config::Handoffs::Never => HandoffPolicy::Never,
    };
    RouterConfig {
        body_bytes_max: usize::try_from(router.body_bytes_max.0).unwrap_or(usize::MAX),
        body_wait: Duration::from_secs(router.body_wait_s),
        prompt_tokens_max: if router.prompt_tokens_max == 0 { u32::MAX } else { router.prompt_tokens_max },
        prompts_max: router.prompts_max,
        choices_max: router.choices_max,
        connections_max: router.connections_max,
        deadline: Duration::from_secs(router.deadline_s),
        stream_buffer: router.stream_buffer,
        write_wait: Duration::from_secs(router.write_wait_s),
        drain: Duration::from_secs(router.drain_s),
        placement: PlacementConfig {
            block_tokens: model.layout.block_tokens,
            token_bytes: model.layout.token_bytes() as u64,
            attempts_max: placement.attempts_max,
            lease: Duration::from_millis(config.handoff.lease_ms),
            requests_max: router.requests_max,
            index_blocks_max: placement.index_blocks_max,
            handoff,
            heartbeat: Duration::from_millis(config.session.heartbeat_ms),
            silence_max: Duration::from_millis(config.session.silence_ms),
            defaults: Rates::default(),
        },
    }
}

/// The role in words.
fn role_name(role: Role) -> &'static str {
    match role {
        Role::Prefill => "prefill",
        Role::Decode => "decode",
    }
}
