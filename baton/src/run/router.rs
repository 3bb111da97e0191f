//! `baton router`: the API, over workers of other processes.

use super::discovery::{Directory, asked_by_router};
use super::model_card::{described, model_card};
use super::running::{NO_WORKERS, Running};
use super::runtime::{END_MAX, listen, runtime};
use super::secret::secrets;
use super::{ops, reload, responses, shutdown, startup_banner, tls};
use crate::config::{self, Config};
use crate::output::print;
use domain::layout::BLOCK_TOKENS_DEFAULT;
use keys::{KeyFileError, Keys};
use placement::{PlacementConfig, PlacementLimits, Rates};
use proto::tls::PortUse;
use router::{Dialer, Listeners, RouterConfig};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use threads::Doing;

/// Serves until a signal ends it.
pub(crate) fn router(running: &Arc<Running>) -> Result<(), Box<dyn Error>> {
    let config = &running.config();
    let metrics = telemetry::install();
    let runtime = runtime()?;
    let asked = asked_by_router(config);
    if asked.is_empty() {
        return Err(NO_WORKERS.into());
    }
    let secrets = secrets(&config.cluster, &asked)?;
    let directory = Directory::open(config, running.addresses(), &runtime)?;
    let router_config = router_config(config, running)?;
    runtime.spawn(reload::follow(running.clone()));
    let api = listen(&runtime, "router.listen", &config.router.listen)?;
    let tls = tls::open(config, &runtime)?;
    let ops = ops::of_router(&runtime, &config.router.ops_listen, &tls)?;
    let listeners = Listeners { api: tls.port(api, PortUse::Api), ops };
    let card = model_card(&described(config)?, &config.router)?;
    print(&startup_banner::router(config, &listeners, &card, &directory.describe(config))?)?;
    let (dialer, sessions) = Dialer::new(card.shape);
    let serve = router::serve(listeners, router_config, card, sessions, metrics, shutdown::signal());
    threads::does(Doing::ServesListeners);
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = serve => ended,
            never = dialer.follow(directory.changes(), secrets, tls.connector()) => match never {},
        }
    });
    threads::does(Doing::EndsProcess);
    runtime.shutdown_timeout(END_MAX);
    ended?;
    tracing::info!("ended");
    Ok(())
}

/// Returns the router's part of the configuration. Errors: the file of keys cannot be read, or the store of responses
/// cannot be opened.
pub(super) fn router_config(config: &Config, running: &Arc<Running>) -> Result<RouterConfig, Box<dyn Error>> {
    let router = &config.router;
    let limits = running.limits();
    let PlacementLimits { attempts_max, requests_max, index_blocks_max, handoff, fetch } = limits.borrow().placement;
    Ok(RouterConfig {
        keys: keys(router)?,
        body_bytes_max: usize::try_from(router.body_bytes_max.0).unwrap_or(usize::MAX),
        body_wait: Duration::from_secs(router.body_wait_s),
        body_min_bytes_per_s: router.body_min_bytes_per_s.0,
        bodies_bytes_max: usize::try_from(router.bodies_bytes_max.0).unwrap_or(usize::MAX),
        limits,
        settings: running.clone(),
        connections_max: router.connections_max,
        cors_origins: config::origins(&router.cors_origins).map(str::to_owned).collect(),
        metrics_on_api: router.metrics_on_api,
        vllm_aliases: config.metrics.vllm_aliases,
        responses: responses::open(config)?,
        chat_page: router.chat_page,
        stream_buffer: router.stream_buffer,
        keepalive: Some(Duration::from_secs(router.keepalive_s)).filter(|keepalive| !keepalive.is_zero()),
        write_wait: Duration::from_secs(router.write_wait_s),
        drain: Duration::from_secs(router.drain_s),
        browsers: ops::browsers(config)?,
        placement: PlacementConfig {
            // These two the workers say.
            block_tokens: BLOCK_TOKENS_DEFAULT,
            token_bytes: 0,
            attempts_max,
            lease: Duration::from_millis(config.handoff.lease_ms),
            requests_max,
            index_blocks_max,
            handoff,
            fetch,
            heartbeat: Duration::from_millis(config.session.heartbeat_ms),
            silence_max: Duration::from_millis(config.session.silence_ms),
            defaults: Rates::default(),
        },
    })
}

/// Returns the keys of a file, if one is named, and those that are set.
fn keys(router: &config::Router) -> Result<Keys, KeyFileError> {
    let file = Some(Path::new(&router.keys_file)).filter(|file| !file.as_os_str().is_empty());
    Keys::new(file, router.api_keys.0.split(',').map(str::trim).filter(|key| !key.is_empty()))
}
