//! `baton prefill-worker` and `baton decode-worker`: one worker, for routers of other processes.

use super::metrics;
use super::model::{Model, Source};
use super::runtime::{listen, runtime};
use super::seat::{Pool, Reach, Seat, Who};
use super::{role_name, shutdown, welcome};
use crate::config::Config;
use domain::session::Role;
use domain::{Secret, WorkerId};
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use transport::Hub;
use worker::{Identity, Worker};

/// How often it is looked whether a draining worker is done.
const DRAIN_GLANCE: Duration = Duration::from_millis(20);

/// Serves routers until a signal ends it.
pub(crate) fn worker(config: &Config, role: Role) -> Result<(), Box<dyn Error>> {
    let metrics = telemetry::install();
    let runtime = runtime()?;
    let listener = listen(&runtime, "worker.listen", &config.worker.listen)?;
    let shown = match config.worker.metrics.as_str() {
        "" => None,
        address => Some(listen(&runtime, "worker.metrics", address)?),
    };
    let address = listener.local_addr()?;
    let secret = Secret::new(config.cluster.secret.0.as_str());
    if secret.is_empty() && !address.ip().is_loopback() {
        tracing::warn!("whoever reaches {address} may use this worker: cluster.secret is empty");
    }
    let model = Model::load(config, &Source::open(config)?)?;
    let pool = Pool::of(config, &model)?;
    let seat = Seat::new(config, &model, &pool, who(config, role, address), &Hub::new(), Reach::Cluster)?;
    let shown_at = shown.as_ref().map(TcpListener::local_addr).transpose()?;
    welcome::worker(&address.to_string(), &model.name, &pool, &seat, shown_at)?;
    runtime.spawn(metrics::keep(metrics, shown));

    let identity = Identity { peer: seat.peer(), served: seat.served(), secret };
    let worker = seat.start()?;
    let input = worker.input();
    let drain = Duration::from_secs(config.worker.drain_s);
    runtime.block_on(worker::serve(listener, input, identity, async {
        shutdown::signal().await;
        drained(&worker, drain).await;
        worker.input().shutdown();
    }));
    drop(worker);
    tracing::info!("ended");
    Ok(())
}

/// Lets what runs end or move elsewhere, until no router needs this worker, for as long as `wait` allows.
async fn drained(worker: &Worker, wait: Duration) {
    worker.input().drain();
    let done = async {
        while !worker.is_drained() && !worker.has_ended() {
            sleep(DRAIN_GLANCE).await;
        }
    };
    if timeout(wait, done).await.is_err() {
        tracing::warn!("the time for draining is over; what runs is given up");
    }
}

/// Who it is, as configured or by where it is.
fn who(config: &Config, role: Role, address: SocketAddr) -> Who {
    let name = match config.worker.name.as_str() {
        "" => format!("{}-{}-{}", role_name(role), host(), address.port()),
        name => name.to_owned(),
    };
    let id = if config.worker.id == 0 { WorkerId::of_name(&name) } else { WorkerId(config.worker.id) };
    Who { id, role, name }
}

/// The name of this machine.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "host".to_owned() } else { name.trim().to_owned() }
}
