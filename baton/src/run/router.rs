//! `baton router`: the API, over workers of other processes.

use super::discovery::{Directory, asked_by_router};
use super::model_card::{described, model_card};
use super::reload::Running;
use super::runtime::{END_MAX, listen, runtime};
use super::secret::secrets;
use super::{ops, shutdown, startup_banner, tls};
use crate::config::{Config, Wanted};
use crate::output::print;
use domain::layout::BLOCK_TOKENS_DEFAULT;
use keys::{KeyFileError, Keys};
use placement::{FetchPolicy, HandoffPolicy, PlacementConfig, Rates};
use proto::tls::PortUse;
use router::{Dialer, Listeners, RequestLimits, RouterConfig};
use std::error::Error;
use std::path::Path;
use std::time::Duration;
use tokio::sync::watch;

/// Serves until a signal ends it.
pub(crate) fn router(running: Running) -> Result<(), Box<dyn Error>> {
    let config = &running.config().clone();
    let metrics = telemetry::install();
    let runtime = runtime()?;
    let asked = asked_by_router(config);
    if asked.is_empty() {
        return Err("cluster.workers is empty: name the session addresses of workers (--workers ADDR,ADDR), or set discovery.kind".into());
    }
    let secrets = secrets(&config.cluster, &asked)?;
    let directory = Directory::open(config, &runtime)?;
    let router_config = router_config(config, running.limits())?;
    runtime.spawn(running.follow());
    let api = listen(&runtime, "router.listen", &config.router.listen)?;
    let tls = tls::open(config, &runtime)?;
    let ops = ops::of_router(&runtime, &config.router.ops_listen, &tls)?;
    let listeners = Listeners { api: tls.port(api, PortUse::Api), ops };
    let card = model_card(&described(config)?)?;
    print(&startup_banner::router(config, &listeners, &card, &directory.describe(config))?)?;
    let (dialer, sessions) = Dialer::new(card.shape);
    let serve = router::serve(listeners, router_config, card, sessions, metrics, shutdown::signal());
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = serve => ended,
            never = dialer.follow(directory.changes(), secrets, tls.connector()) => match never {},
        }
    });
    runtime.shutdown_timeout(END_MAX);
    ended?;
    tracing::info!("ended");
    Ok(())
}

/// Returns the router's part of the configuration. Errors: the file of keys cannot be read.
pub(super) fn router_config(
    config: &Config,
    limits: watch::Receiver<RequestLimits>,
) -> Result<RouterConfig, KeyFileError> {
    let (router, placement) = (&config.router, &config.placement);
    let handoff = match placement.handoff {
        Wanted::Auto => HandoffPolicy::Auto,
        Wanted::Always => HandoffPolicy::Always,
        Wanted::Never => HandoffPolicy::Never,
    };
    let fetch = match placement.fetch {
        Wanted::Auto => FetchPolicy::Auto,
        Wanted::Always => FetchPolicy::Always,
        Wanted::Never => FetchPolicy::Never,
    };
    Ok(RouterConfig {
        keys: keys(&router.keys_file)?,
        body_bytes_max: usize::try_from(router.body_bytes_max.0).unwrap_or(usize::MAX),
        body_wait: Duration::from_secs(router.body_wait_s),
        body_min_bytes_per_s: router.body_min_bytes_per_s.0,
        bodies_bytes_max: usize::try_from(router.bodies_bytes_max.0).unwrap_or(usize::MAX),
        limits,
        connections_max: router.connections_max,
        metrics_on_api: router.metrics_on_api,
        vllm_aliases: config.metrics.vllm_aliases,
        chat_page: router.chat_page,
        stream_buffer: router.stream_buffer,
        keepalive: Some(Duration::from_secs(router.keepalive_s)).filter(|keepalive| !keepalive.is_zero()),
        write_wait: Duration::from_secs(router.write_wait_s),
        drain: Duration::from_secs(router.drain_s),
        browsers: ops::browsers(config)?,
        explained_max: config.admin.explained_max,
        placement: PlacementConfig {
            // These two the workers say.
            block_tokens: BLOCK_TOKENS_DEFAULT,
            token_bytes: 0,
            attempts_max: placement.attempts_max,
            lease: Duration::from_millis(config.handoff.lease_ms),
            requests_max: router.requests_max,
            index_blocks_max: placement.index_blocks_max,
            handoff,
            fetch,
            heartbeat: Duration::from_millis(config.session.heartbeat_ms),
            silence_max: Duration::from_millis(config.session.silence_ms),
            defaults: Rates::default(),
        },
    })
}

fn keys(file: &str) -> Result<Keys, KeyFileError> {
    if file.is_empty() { Ok(Keys::default()) } else { Keys::open(Path::new(file)) }
}
