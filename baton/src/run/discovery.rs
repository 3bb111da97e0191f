//! How this process finds the others of its cluster, as configured. Another kind of directory is another variant of
//! [`Directory`].

use super::host::host;
use super::secret::{etcd_password, is_of_this_host};
use crate::config::{Config, DiscoveryKind, DiscoveryKubernetes};
use discovery::etcd::{Credentials, Etcd, EtcdConfig, EtcdWatcher, Registration, TlsFiles};
use discovery::kubernetes::{Kubernetes, KubernetesConfig, PodWatcher};
use discovery::{Address, AddressError, Change, Discovery, Entry, StaticList, StaticWatcher, Topology};
use domain::session::{PeerInfo, Role, Served};
use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Where Kubernetes puts the token, the authorities and the namespace of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Where the workers of the cluster are listed, for routers.
pub(super) enum Directory {
    /// In the configuration.
    Static(watch::Receiver<StaticList>),
    /// In etcd.
    Etcd(Etcd),
    /// Among the pods of Kubernetes.
    Kubernetes(Kubernetes),
}

/// Changes of a directory.
pub(super) enum Changes {
    Static(StaticWatcher),
    Etcd(EtcdWatcher),
    Kubernetes(PodWatcher),
}

/// Where a worker registers itself.
pub(super) enum Register {
    /// Nowhere: routers have its address, or Kubernetes does.
    Nowhere,
    /// In etcd.
    Etcd(Etcd),
}

/// A worker that is registered.
pub(super) enum Registered {
    /// In nothing.
    Nowhere,
    /// In etcd.
    Etcd(Registration),
}

impl Directory {
    /// Opens the directory. `addresses`: those of the configuration. Errors: the directory refuses this process.
    pub(super) fn open(
        config: &Config,
        addresses: watch::Receiver<StaticList>,
        runtime: &Runtime,
    ) -> Result<Self, Box<dyn Error>> {
        Ok(match config.discovery.kind {
            DiscoveryKind::Static => Self::Static(addresses),
            DiscoveryKind::Etcd => Self::Etcd(runtime.block_on(Etcd::open(etcd_config(config)?))?),
            DiscoveryKind::Kubernetes => {
                let kubernetes = kubernetes_config(&config.discovery_kubernetes)?;
                Self::Kubernetes(runtime.block_on(Kubernetes::open(kubernetes))?)
            }
        })
    }

    /// Returns where the workers are, in words.
    pub(super) fn describe(&self, config: &Config) -> String {
        match self {
            Self::Static(list) => list.borrow().addresses().iter().map(Address::as_str).collect::<Vec<_>>().join(", "),
            Self::Etcd(_) => {
                let etcd = &config.discovery_etcd;
                format!("those that etcd lists at {} under {}", etcd.endpoints, etcd.prefix)
            }
            Self::Kubernetes(_) => format!("the pods with {}", config.discovery_kubernetes.selector),
        }
    }

    /// Follows the directory. It takes a runtime.
    pub(super) fn changes(self) -> Changes {
        match self {
            Self::Static(list) => Changes::Static(StaticWatcher::new(list)),
            Self::Etcd(etcd) => Changes::Etcd(etcd.watch()),
            Self::Kubernetes(kubernetes) => Changes::Kubernetes(kubernetes.watch()),
        }
    }
}

impl Register {
    /// Opens the register. Errors: it refuses this process.
    pub(super) fn open(config: &Config, runtime: &Runtime) -> Result<Self, Box<dyn Error>> {
        Ok(match config.discovery.kind {
            DiscoveryKind::Static | DiscoveryKind::Kubernetes => Self::Nowhere,
            DiscoveryKind::Etcd => Self::Etcd(runtime.block_on(Etcd::open(etcd_config(config)?))?),
        })
    }

    /// Registers a worker. Errors: the register refuses it.
    pub(super) async fn register(&self, entry: Entry) -> Result<Registered, Box<dyn Error>> {
        Ok(match self {
            Self::Nowhere => Registered::Nowhere,
            Self::Etcd(etcd) => Registered::Etcd(etcd.register(entry).await?),
        })
    }
}

impl Discovery for Changes {
    async fn next(&mut self) -> Change {
        match self {
            Self::Static(list) => list.next().await,
            Self::Etcd(watcher) => watcher.next().await,
            Self::Kubernetes(watcher) => watcher.next().await,
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
        DiscoveryKind::Etcd => ("discovery.etcd.endpoints", &config.discovery_etcd.endpoints),
        DiscoveryKind::Kubernetes => match &config.discovery_kubernetes {
            kubernetes if kubernetes.server.is_empty() => {
                ("discovery.kubernetes.service_host", &kubernetes.service_host)
            }
            kubernetes => ("discovery.kubernetes.server", &kubernetes.server),
        },
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
    with_port(advertised, listens.port()).parse()
}

/// Returns `HOST:PORT`.
fn with_port(host: &str, port: u16) -> String {
    let is_bare_ipv6 = host.contains(':') && !host.starts_with('[');
    if is_bare_ipv6 { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
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

fn kubernetes_config(kubernetes: &DiscoveryKubernetes) -> Result<KubernetesConfig, Box<dyn Error>> {
    let DiscoveryKubernetes { server, service_host, service_port, token_file, ca, namespace, .. } = kubernetes;
    let in_pod = server.is_empty();
    let file = |path: &str, name: &str| match path {
        "" => in_pod.then(|| Path::new(SERVICE_ACCOUNT).join(name)),
        path => Some(Path::new(path).to_owned()),
    };
    let namespace = if namespace.is_empty() {
        let path = format!("{SERVICE_ACCOUNT}/namespace");
        let of_pod = std::fs::read_to_string(&path).map_err(|error| {
            format!(
                "{path}: {error}: the pod needs the token of its service account, or discovery.kubernetes.namespace"
            )
        })?;
        of_pod.trim().to_owned()
    } else {
        namespace.clone()
    };
    Ok(KubernetesConfig {
        server: if in_pod { format!("https://{}", with_port(service_host, *service_port)) } else { server.clone() },
        token: file(token_file, "token"),
        authorities: file(ca, "ca.crt"),
        namespace,
        selector: kubernetes.selector.clone(),
        node_rack_label: kubernetes.node_labels.then(|| kubernetes.rack_label.clone()),
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

    #[test]
    fn a_router_in_a_pod_uses_its_service_account() {
        let mut config = Config::default();
        config.discovery.kind = DiscoveryKind::Kubernetes;
        let kubernetes = &mut config.discovery_kubernetes;
        (kubernetes.service_host, kubernetes.namespace) = ("fd00::1".to_owned(), "baton".to_owned());
        let in_pod = kubernetes_config(kubernetes).expect("it has all");
        assert_eq!(in_pod.server, "https://[fd00::1]:443");
        assert_eq!(in_pod.token, Some(Path::new(SERVICE_ACCOUNT).join("token")));
        assert_eq!(in_pod.authorities, Some(Path::new(SERVICE_ACCOUNT).join("ca.crt")));
        assert_eq!(in_pod.node_rack_label, None);
        assert_eq!(asked_by_router(&config), [("discovery.kubernetes.service_host", "fd00::1")]);
        let kubernetes = &mut config.discovery_kubernetes;
        (kubernetes.server, kubernetes.node_labels) = ("http://127.0.0.1:8001".to_owned(), true);
        let outside = kubernetes_config(kubernetes).expect("it has all");
        assert_eq!(
            (outside.server.as_str(), outside.token, outside.authorities),
            ("http://127.0.0.1:8001", None, None)
        );
        assert_eq!(outside.node_rack_label.as_deref(), Some("topology.kubernetes.io/rack"));
        assert_eq!(asked_by_router(&config), [("discovery.kubernetes.server", "127.0.0.1:8001")]);
    }
}
