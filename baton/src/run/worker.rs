//! `baton prefill-worker` and `baton decode-worker`: one worker, for routers of other processes.

use super::discovery::{Register, entry};
use super::host::host;
use super::model::Model;
use super::model_card::described;
use super::operated::OperatedWorker;
use super::role_name::role_name;
use super::running::Running;
use super::runtime::{END_MAX, listen, runtime};
use super::secret::{is_of_this_host, secrets};
use super::worker_setup::{Pool, Readers, Who, WorkerSetup};
use super::{ops, reload, shutdown, startup_banner, tiers, tls};
use crate::config::Config;
use crate::output::print;
use domain::WorkerId;
use domain::session::Role;
use proto::tls::{Port, PortUse};
use std::cell::Cell;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use threads::Doing;
use tokio::time::{sleep, timeout};
use transport::{Fault, Hub};
use worker::{Identity, LOST_DEVICE, Worker};

/// How often it is looked whether a draining worker is done.
const DRAIN_GLANCE: Duration = Duration::from_millis(20);

/// How often it is looked whether workers live.
const LIFE_GLANCE: Duration = Duration::from_millis(500);

/// Serves routers until a signal ends it.
pub(crate) fn worker(running: &Arc<Running>, role: Role) -> Result<(), Box<dyn Error>> {
    let config = &running.config();
    let metrics = telemetry::install();
    let runtime = runtime()?;
    runtime.spawn(reload::follow(running.clone()));
    let secrets = secrets(&config.cluster, &open_addresses(config))?;
    let listener = listen(&runtime, "worker.listen", &config.worker.listen)?;
    let address = listener.local_addr()?;
    let tls = tls::open(config, &runtime)?;
    let browsers = ops::browsers(config)?;
    let ops = ops::of_worker(&runtime, &config.worker.ops_listen, address, &tls)?;
    let port = tls.port(listener, PortUse::Sessions);
    let register = Register::open(config, &runtime)?;
    if config.worker.name.is_empty() && config.worker.listen.ends_with(":0") && !config.disk.folders.is_empty() {
        return Err("disk.folders: a worker finds its records again by its name, and this one would have another at every start: \
                    set worker.name, or a port in worker.listen"
            .into());
    }
    let only_here = config.transport.listen.split(',').all(|address| is_of_this_host(address.trim()));
    if !address.ip().is_loopback() && only_here {
        tracing::warn!("workers of other hosts cannot read KV here: transport.listen is {}", config.transport.listen);
    }
    let model = Model::load(config, described(config)?)?;
    let pool = Pool::of(config, &model, 1)?;
    let setup =
        WorkerSetup::new(config, &model, &pool, who(config, role, address), &Hub::new(), Readers::Cluster(&secrets))?;
    let ops_at = ops.as_ref().map(Port::local_addr).transpose()?;
    let served = setup.served();
    let peer = setup.peer();
    let banner = startup_banner::worker(&port, &model.name, &pool, &setup, ops.as_ref(), tiers::describe(config))?;
    let entry = entry(config, setup.peer(), setup.served(), &model.name, (address, ops_at))?;
    let limits = setup.limits();
    let worker = setup.start()?;
    running.add_worker(worker.input(), limits);
    let identity = Identity { peer, role: worker.role(), served, secrets };
    let registered = runtime.block_on(register.register(entry))?;
    print(&banner)?;
    let settings = running.clone();
    let operated =
        OperatedWorker { input: worker.input(), address: address.to_string(), model: model.name, served, settings };
    runtime.spawn(ops::keep(metrics, ops, worker.draining(), operated, browsers));

    let drain = Duration::from_secs(config.worker.drain_s);
    let failed = Cell::new(None);
    threads::does(Doing::ServesListeners);
    runtime.block_on(worker::serve(port, worker.input(), identity, async {
        tokio::select! {
            () = shutdown::signal() => {
                worker.input().drain();
                // New routers do not find it any more; those that have a session keep it.
                registered.withdraw().await;
                drained(&worker, drain).await;
            }
            why = failure(std::slice::from_ref(&worker)) => failed.set(Some(why)),
            never = registered.follow(worker.role()) => match never {},
        }
        worker.input().shutdown();
    }));
    threads::does(Doing::EndsProcess);
    drop(worker);
    runtime.shutdown_timeout(END_MAX);
    if let Some(why) = failed.take() {
        return Err(why.into());
    }
    tracing::info!("ended");
    Ok(())
}

/// Lists the addresses at which others reach this worker without knowing more than the secret. Addresses that require
/// a certificate as well do not count.
fn open_addresses(config: &Config) -> Vec<(&'static str, &str)> {
    let transport = &config.transport;
    let agent = transport.listen.split(',').map(str::trim).filter(|address| !address.is_empty());
    let agent = agent.filter(|_| transport.tls_certificate.is_empty()).map(|address| ("transport.listen", address));
    std::iter::once(("worker.listen", config.worker.listen.as_str())).chain(agent).collect()
}

/// Waits until one of these has ended without being asked to, and returns why, with the fix. A process that goes on
/// without it serves no client; one that ends is started again by its supervisor.
pub(super) async fn failure(workers: &[Worker]) -> String {
    while !workers.iter().any(Worker::has_ended) {
        sleep(LIFE_GLANCE).await;
    }
    match workers.iter().find_map(Worker::fault) {
        Some(Fault { thread, cause }) if thread == LOST_DEVICE => format!(
            "a worker has lost its device: {cause}. Nothing in this process can use the device again: restart it; if the \
             device is lost once more, look for its faults in the kernel's log (`dmesg`; Xid, for cards of NVIDIA)"
        ),
        Some(fault) => format!("a worker has ended, which is a bug of baton: {fault}; the log says more"),
        None => "a worker's thread has ended, which is a bug of baton: the log says more".to_owned(),
    }
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

/// Returns its name and id, as configured or derived from its address.
fn who(config: &Config, role: Role, address: SocketAddr) -> Who {
    let name = match config.worker.name.as_str() {
        "" => format!("{}-{}-{}", role_name(role), host(), address.port()),
        name => name.to_owned(),
    };
    let id = if config.worker.id == 0 { WorkerId::of_name(&name) } else { WorkerId(config.worker.id) };
    Who { id, role, name }
}
