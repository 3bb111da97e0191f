//! Where operators and their tools reach a process: `/live`, `/ready`, `/metrics` and the admin service, on a listener
//! that is not the clients'.

use super::operated::OperatedWorker;
use super::runtime::listen;
use crate::config::{Admin, Config};
use admin::{Browsers, Reach};
use keys::{KeyFileError, Keys};
use proto::tls::{Port, PortUse, Tls};
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use telemetry::MetricsHandle;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// The default of a router.
const ROUTER_DEFAULT: ([u8; 4], u16) = ([127, 0, 0, 1], 8001);
/// What a setting says that leaves the choice to this module.
const AUTO: &str = "auto";

/// Listens where `router.ops_listen` says. Errors: as of [`listen_at`].
pub(super) fn of_router(runtime: &Runtime, setting: &str, tls: &Tls) -> Result<Option<Port>, Box<dyn Error>> {
    let listener = listen_at(runtime, "router.ops_listen", setting, ROUTER_DEFAULT.into())?;
    Ok(listener.map(|listener| tls.port(listener, PortUse::Operations)))
}

/// Listens where `worker.ops_listen` says, for a worker with sessions at `sessions`. Errors: as of [`listen_at`].
pub(super) fn of_worker(
    runtime: &Runtime,
    setting: &str,
    sessions: SocketAddr,
    tls: &Tls,
) -> Result<Option<Port>, Box<dyn Error>> {
    // Port 0 is any free one.
    let next = SocketAddr::new(sessions.ip(), sessions.port().wrapping_add(1));
    let listener = listen_at(runtime, "worker.ops_listen", setting, next)?;
    Ok(listener.map(|listener| tls.port(listener, PortUse::Operations)))
}

/// Listens where the setting `key` says: nowhere, at `default` or at a free port if that is taken, or at an
/// address. Errors: the address is taken, or is none of this machine's.
fn listen_at(
    runtime: &Runtime,
    key: &str,
    setting: &str,
    default: SocketAddr,
) -> Result<Option<TcpListener>, Box<dyn Error>> {
    let listener = match setting {
        "" => return Ok(None),
        AUTO => match listen(runtime, key, &default.to_string()) {
            Ok(listener) => listener,
            Err(error) => {
                let listener = listen(runtime, key, &SocketAddr::new(default.ip(), 0).to_string())?;
                tracing::info!("{error}; it is {} instead", listener.local_addr()?);
                listener
            }
        },
        address => listen(runtime, key, address)?,
    };
    Ok(Some(listener))
}

/// Returns which callers of admin services are answered, and which pages. Errors: the file of operators' keys cannot be
/// read.
pub(super) fn browsers(config: &Config) -> Result<Browsers, KeyFileError> {
    let Admin { beyond_loopback, keys_file, hosts, .. } = &config.admin;
    let reach = if *beyond_loopback { Reach::Beyond(Keys::open(Path::new(keys_file))?) } else { Reach::Loopback };
    let hosts = hosts.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    Ok(Browsers::new(reach, &hosts.collect::<Vec<_>>()))
}

/// Keeps the metrics of a worker's process, and serves them on `port`, if there is one, with its probes and the admin
/// service, which callers and pages may ask that `browsers` lets. Never ends by itself.
pub(super) async fn keep(
    metrics: MetricsHandle,
    port: Option<Port>,
    draining: watch::Receiver<bool>,
    worker: OperatedWorker,
    browsers: Browsers,
) {
    let reach = browsers.reach();
    let serve = async {
        if let Some(port) = port {
            let operators = admin::routes(Arc::new(worker), &browsers);
            match router::serve_ops(port, metrics.clone(), draining, reach.clone(), operators).await {}
        }
    };
    tokio::join!(router::keep_up(&metrics), reach.follow(), serve);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::runtime::runtime;
    use proto::tls::TlsFiles;
    use std::net::Ipv4Addr;

    #[test]
    fn a_default_that_is_taken_gives_way_and_an_address_does_not() {
        let runtime = runtime().expect("a runtime");
        let taken = listen(&runtime, "test", "127.0.0.1:0").expect("a port is free");
        let address = taken.local_addr().expect("it is bound");
        let at = |setting: &str| listen_at(&runtime, "worker.ops_listen", setting, address);
        let other = at(AUTO).expect("another port is free").expect("it listens").local_addr().expect("it is bound");
        assert!(other.ip() == address.ip() && other.port() != address.port(), "{other}");
        assert!(at("").expect("nothing is wrong").is_none());
        let error = at(&address.to_string()).expect_err("it is taken").to_string();
        assert!(error.starts_with(&format!("cannot listen on {address} (worker.ops_listen): ")), "{error}");
    }

    #[test]
    fn the_default_of_a_worker_is_the_next_port() {
        let runtime = runtime().expect("a runtime");
        // An address of this host that nobody else has, with a port that the system does not give out.
        let own = Ipv4Addr::from_bits(Ipv4Addr::new(127, 64, 0, 0).to_bits() | (std::process::id() & 0x003f_ffff));
        let sessions = SocketAddr::from((own, 20_000));
        let tls = Tls::load(TlsFiles::default()).expect("there is nothing to read");
        let listen = || of_worker(&runtime, AUTO, sessions, &tls).expect("a port is free").expect("it listens");
        let listeners = [listen(), listen()];
        let [ops, another] = listeners.each_ref().map(|listener| listener.local_addr().expect("it is bound"));
        assert_eq!(ops, SocketAddr::from((own, 20_001)));
        assert!(another.ip() == ops.ip() && another.port() != ops.port(), "{another}");
    }
}
