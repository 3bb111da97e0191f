//! A router's life: serving, draining, over.

use crate::brain::{Brain, Fleet, NOTES_MAX, Note, Phase};
use crate::clock::{Clock, Draw};
use crate::config::{ModelCard, RouterConfig};
use crate::http::{App, Bodies, OPS_CONNECTIONS_MAX, OPS_WRITE_WAIT, Places, Server, ops_routes, routes};
use crate::open_requests::OpenRequests;
use crate::operated::Operated;
use crate::responses::Store;
use crate::sessions::{Sessions, WorkerLink};
use admin::Health;
use proto::tls::Port;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use telemetry::MetricsHandle;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// How often samples of histograms are folded.
const UPKEEP: Duration = Duration::from_secs(5);
/// Time for requests to end after they were told to.
const ENDING_WAIT: Duration = Duration::from_secs(1);

/// Where a router listens.
#[derive(Debug)]
pub struct Listeners {
    /// For clients of the API.
    pub api: Port,
    /// For operators and their tools, if they have one of their own.
    pub ops: Option<Port>,
}

/// Serves the API on `listeners`, over `sessions` as they begin, until `shutdown` is ready; then refuses new
/// requests with 503, lets open ones end within [`RouterConfig::drain`], ends the rest, and closes the sessions
/// with the workers. Returns when all of it is over. Errors: the brain failed, which it never should; nothing is
/// served then.
pub async fn serve(
    listeners: Listeners,
    config: RouterConfig,
    card: ModelCard,
    sessions: Sessions,
    metrics: MetricsHandle,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let clock = Clock::new();
    let (notes, notes_receiver) = mpsc::channel(NOTES_MAX);
    let (phase, phase_receiver) = watch::channel(Phase::Serving);
    let (fleet, fleet_receiver) = watch::channel(Fleet::default());
    let places = Places::new(config.limits.clone());
    let Sessions { links, service } = sessions;
    let decides = (config.placement.clone(), config.limits.clone());
    let brain = Brain::begin(clock, decides, fleet, service.clone(), phase_receiver.clone());
    let mut brain = tokio::spawn(run(brain, links, notes_receiver, phase_receiver.clone()));
    let (connections_max, write_wait, drain_wait) = (config.connections_max, config.write_wait, config.drain);
    let bodies = Bodies::new(config.bodies_bytes_max);
    let (keys, reach) = (config.keys.clone(), config.browsers.reach().clone());
    // Half for the conversation, which has the bound of a body, and half for the answer.
    let response_bytes_max = 2 * config.body_bytes_max as u64;
    let responses = config.responses.clone().map(|kept| Store::new(kept, response_bytes_max));
    let app = Arc::new(App {
        config,
        card,
        clock,
        draw: Draw::new(),
        places: places.clone(),
        bodies,
        responses,
        open_requests: OpenRequests::default(),
        notes,
        phase: phase_receiver,
        fleet: fleet_receiver,
        service,
        metrics: metrics.clone(),
    });
    let server = Server::new(listeners.api, routes(app.clone()), connections_max, write_wait);
    let (ops, tell_health) = operations(listeners.ops, app.clone());
    let life = async {
        shutdown.await;
        drain(&phase, &places, drain_wait).await;
    };
    let failed = tokio::select! {
        never = server.accept() => match never {},
        never = accept(ops.as_ref()) => match never {},
        never = tell_health => match never {},
        never = keep_up(&metrics) => match never {},
        never = keys.follow() => match never {},
        never = reach.follow() => match never {},
        never = sweep(&app) => match never {},
        () = life => false,
        _ = &mut brain => true,
    };
    server.close().await;
    drop(ops);
    phase.send_replace(Phase::Over);
    if failed || brain.await.is_err() {
        return Err(io::Error::other("the router's brain failed"));
    }
    Ok(())
}

/// Runs the brain once there is one.
async fn run(
    brain: impl Future<Output = Option<Brain>>,
    links: mpsc::Receiver<WorkerLink>,
    notes: mpsc::Receiver<Note>,
    phase: watch::Receiver<Phase>,
) {
    if let Some(brain) = brain.await {
        brain.run(links, notes, phase).await;
    }
}

/// Makes the server of operators and their tools, if they have a listener, and what tells the health of the router.
fn operations(port: Option<Port>, app: Arc<App>) -> (Option<Server>, impl Future<Output = Infallible> + use<>) {
    let operated = Arc::new(Operated::new(app.clone()));
    let (operators, health) = admin::routes(operated, &app.config.browsers);
    let tell_health = tell_health(app.clone(), health);
    let routes = ops_routes(app, operators);
    let server = |port| Server::new(port, routes, OPS_CONNECTIONS_MAX, OPS_WRITE_WAIT);
    (port.map(server), tell_health)
}

/// Deletes old responses now and then, if responses are kept.
async fn sweep(app: &App) -> Infallible {
    match &app.responses {
        Some(store) => store.follow().await,
        None => pending().await,
    }
}

/// Accepts connections of a server, if there is one.
async fn accept(server: Option<&Server>) -> Infallible {
    match server {
        Some(server) => server.accept().await,
        None => pending().await,
    }
}

/// Tells `grpc.health.v1` whether requests can be served, as it changes.
async fn tell_health(app: Arc<App>, health: Health) -> Infallible {
    let (mut fleet, mut phase) = (app.fleet.clone(), app.phase.clone());
    loop {
        let serves = fleet.borrow_and_update().decode > 0 && *phase.borrow_and_update() == Phase::Serving;
        health.set(serves).await;
        let changed = tokio::select! {
            changed = fleet.changed() => changed,
            changed = phase.changed() => changed,
        };
        if changed.is_err() {
            // The brain is over, and the router soon is.
            health.set(false).await;
            return pending().await;
        }
    }
}

/// Refuses new requests, lets open ones end within `wait`, and ends the rest. No request is open when all places are
/// free.
async fn drain(phase: &watch::Sender<Phase>, places: &Places, wait: Duration) {
    tracing::info!("draining: new requests are refused, open ones may end");
    phase.send_replace(Phase::Draining);
    if timeout(wait, places.until_free()).await.is_err() {
        tracing::warn!("the time for draining is over; open requests are ended");
        phase.send_replace(Phase::Ending);
        let _ = timeout(ENDING_WAIT, places.until_free()).await;
    }
}

/// Folds the samples of histograms every few seconds, until dropped.
pub async fn keep_up(metrics: &MetricsHandle) -> Infallible {
    let mut ticks = interval(UPKEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        metrics.upkeep();
    }
}
