//! How this process finds the others of its cluster, as configured. Another kind of directory is another variant of
//! [`Directory`].

use super::host::host;
use super::secret::{etcd_password, is_of_this_host};
use crate::config::{Config, DiscoveryKind};
use discovery::etcd::{Credentials, Etcd, EtcdConfig, EtcdWatcher, Registration, TlsFiles};
use discovery::{Address, AddressError, Change, Discovery, Entry, StaticList, Topology};
use domain::session::{PeerInfo, Role, Served};
use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Where the workers of the cluster are listed.
pub(super) enum Directory {
    /// In the configuration.
    Static(StaticList),
    /// In etcd.
    Etcd(Etcd),
}

/// Changes of a directory.
pub(super) enum Changes {
    Static(StaticList),
    Etcd(EtcdWatcher),
}

/// A worker that is registered.
pub(super) enum Registered {
    /// In nothing: routers have its address.
    Nowhere,
    /// In etcd.
    Etcd(Registration),
}

impl Directory {
    /// Opens the directory. Errors: the directory refuses this process.
    pub(super) fn open(config: &Config, runtime: &Runtime) -> Result<Self, Box<dyn Error>> {
        Ok(match config.discovery.kind {
            DiscoveryKind::Static => Self::Static(StaticList::parse(&config.cluster.workers)?),
            DiscoveryKind::Etcd => Self::Etcd(runtime.block_on(Etcd::open(etcd_config(config)?))?),
            DiscoveryKind::Kubernetes => unreachable!("the check of the configuration refuses it"),
        })
    }

    /// Returns where the workers are, in words.
    pub(super) fn describe(&self, config: &Config) -> String {
        match self {
            Self::Static(list) => list.addresses().iter().map(Address::as_str).collect::<Vec<_>>().join(", "),
            Self::Etcd(_) => {
                let etcd = &config.discovery_etcd;
                format!("those that etcd lists at {} under {}", etcd.endpoints, etcd.prefix)
            }
        }
    }

    /// Follows the directory. It takes a runtime.
    pub(super) fn changes(self) -> Changes {
        match self {
            Self::Static(list) => Changes::Static(list),
            Self::Etcd(etcd) => Changes::Etcd(etcd.watch()),
        }
    }

    /// Registers a worker. Errors: the directory refuses it.
    pub(super) async fn register(&self, entry: Entry) -> Result<Registered, Box<dyn Error>> {
        Ok(match self {
            Self::Static(_) => Registered::Nowhere,
            Self::Etcd(etcd) => Registered::Etcd(etcd.register(entry).await?),
        })
    }
}

impl Discovery for Changes {
    async fn next(&mut self) -> Change {
        match self {
            Self::Static(list) => list.next().await,
            Self::Etcd(watcher) => watcher.next().await,
        }
    }
}

impl Registered {
    /// Keeps what the directory says of the worker's role up to date.
    pub(super) async fn follow(&self, mut roles: watch::Receiver<Role>) -> Infallible {
        while roles.changed().await.is_ok() {
            match self {
                Self::Nowhere => {}
                Self::Etcd(registration) => registration.take_role(*roles.borrow_and_update()),
            }
        }
        // The worker has ended.
        std::future::pending().await
    }

    /// Ends the registration.
    pub(super) async fn withdraw(self) {
        match self {
            Self::Nowhere => {}
            Self::Etcd(registration) => registration.withdraw().await,
        }
    }
}

/// Lists what a router dials or asks, each with its setting: the workers, or where they are listed.
pub(super) fn asked_by_router(config: &Config) -> Vec<(&'static str, &str)> {
    let (key, list) = match config.discovery.kind {
        DiscoveryKind::Static => ("cluster.workers", &config.cluster.workers),
        DiscoveryKind::Etcd | DiscoveryKind::Kubernetes => {
            ("discovery.etcd.endpoints", &config.discovery_etcd.endpoints)
        }
    };
    let addresses = list.split(',').map(str::trim).filter(|address| !address.is_empty());
    addresses.map(|address| (key, address.split_once("://").map_or(address, |(_, address)| address))).collect()
}

/// Returns what a worker says of itself that listens for `sessions` and for its operators. Errors: it has no address
/// that others can dial.
pub(super) fn entry(
    config: &Config,
    peer: PeerInfo,
    served: Served,
    model: &str,
    (sessions, ops): (SocketAddr, Option<SocketAddr>),
) -> Result<Entry, AddressError> {
    let PeerInfo { id, incarnation, name, role, .. } = peer;
    let advertised = config.worker.advertise.as_str();
    let address = advertise(advertised, sessions)?;
    // One that only this host reaches is no news to others.
    let ops = ops.filter(|ops| !ops.ip().is_loopback() || is_of_this_host(address.as_str()));
    let ops = ops.map(|ops| advertise(without_port(advertised), ops)).transpose()?;
    let (model, layout, topology) = (model.to_owned(), served.layout, topology(config));
    Ok(Entry { id, incarnation, name, role, address, ops, model, layout, topology })
}

/// Returns the address under which others reach `listens`: `advertised` is `HOST`, `HOST:PORT` or empty.
fn advertise(advertised: &str, listens: SocketAddr) -> Result<Address, AddressError> {
    if advertised.is_empty() {
        return listens.to_string().parse();
    }
    if without_port(advertised) != advertised {
        return advertised.parse();
    }
    let is_bare_ipv6 = advertised.contains(':') && !advertised.starts_with('[');
    let host = if is_bare_ipv6 { format!("[{advertised}]") } else { advertised.to_owned() };
    format!("{host}:{}", listens.port()).parse()
}

/// Returns the host of `HOST` or `HOST:PORT`.
fn without_port(advertised: &str) -> &str {
    match advertised.rsplit_once(':') {
        // The colons of an IPv6 address without brackets lead no port.
        Some((host, port)) if port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')) => host,
        _ => advertised,
    }
}

fn topology(config: &Config) -> Topology {
    let labels = &config.topology;
    Topology {
        host: if labels.host.is_empty() { host() } else { labels.host.clone() },
        numa: engine::cpu::own_node().and_then(|node| u32::try_from(node).ok()),
        rack: labels.rack.clone(),
        nvlink_domain: labels.nvlink_domain.clone(),
        zone: labels.zone.clone(),
    }
}

fn etcd_config(config: &Config) -> Result<EtcdConfig, Box<dyn Error>> {
    let (etcd, tls) = (&config.discovery_etcd, &config.discovery_etcd_tls);
    let file = |path: &str| Some(path).filter(|path| !path.is_empty()).map(|path| Path::new(path).to_owned());
    let password = etcd_password(etcd)?;
    let identity: Option<(PathBuf, PathBuf)> = file(&tls.cert).zip(file(&tls.key));
    Ok(EtcdConfig {
        endpoints: etcd.endpoints.split(',').map(|endpoint| endpoint.trim().to_owned()).collect(),
        prefix: etcd.prefix.clone(),
        lease: Duration::from_secs(etcd.lease_s),
        credentials: Some(etcd.username.clone())
            .filter(|username| !username.is_empty())
            .map(|username| Credentials { username, password }),
        tls: TlsFiles { authorities: file(&tls.ca), identity },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_advertised_as_others_reach_it() {
        let listens: SocketAddr = "0.0.0.0:9001".parse().expect("an address");
        for (advertised, wanted) in [
            ("", "0.0.0.0:9001"),
            ("10.0.0.1", "10.0.0.1:9001"),
            ("10.0.0.1:7", "10.0.0.1:7"),
            ("decode-a", "decode-a:9001"),
            ("decode-a:7", "decode-a:7"),
            ("fd00::1", "[fd00::1]:9001"),
            ("[fd00::1]", "[fd00::1]:9001"),
            ("[fd00::1]:7", "[fd00::1]:7"),
        ] {
            assert_eq!(advertise(advertised, listens).expect(advertised).as_str(), wanted);
        }
        let ops: SocketAddr = "0.0.0.0:9002".parse().expect("an address");
        assert_eq!(advertise(without_port("decode-a:7"), ops).expect("an address").as_str(), "decode-a:9002");
    }

    #[test]
    fn a_router_asks_workers_or_where_they_are_listed() {
        let mut config = Config::default();
        config.cluster.workers = "10.0.0.1:1, b:2".to_owned();
        assert_eq!(asked_by_router(&config), [("cluster.workers", "10.0.0.1:1"), ("cluster.workers", "b:2")]);
        config.discovery.kind = DiscoveryKind::Etcd;
        config.discovery_etcd.endpoints = "https://a:2379,http://127.0.0.1:1".to_owned();
        let key = "discovery.etcd.endpoints";
        assert_eq!(asked_by_router(&config), [(key, "a:2379"), (key, "127.0.0.1:1")]);
    }
}
