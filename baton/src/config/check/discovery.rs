//! How workers are found.

use super::{Check, is_address};
use crate::config::tree::{Config, DiscoveryEtcd, DiscoveryEtcdTls, DiscoveryKind, DiscoveryKubernetes};
use std::net::{IpAddr, SocketAddr};

pub(super) fn check(check: &mut Check<'_>) {
    let Config { discovery, cluster, worker, .. } = check.config;
    let advertised = worker.advertise.as_str();
    // With a port or without.
    let told = is_address(advertised) && !advertised.ends_with(":0") || is_host(advertised);
    check.expect(told || advertised.is_empty(), "worker.advertise", || {
        format!("{advertised:?} is not HOST or HOST:PORT, such as 10.0.0.1 or decode-a:9001")
    });
    match discovery.kind {
        DiscoveryKind::Static => return,
        DiscoveryKind::Kubernetes => kubernetes(check),
        DiscoveryKind::Etcd => etcd(check),
    }
    check.expect(cluster.workers.is_empty(), "cluster.workers", || {
        "discovery.kind says that workers are found otherwise: set one of the two".to_owned()
    });
    if discovery.kind == DiscoveryKind::Kubernetes {
        // A pod has an address of its own.
        return;
    }
    let is_wildcard = worker.listen.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_unspecified());
    check.expect(!is_wildcard || !advertised.is_empty(), "worker.listen", || {
        format!("routers cannot dial {}: set worker.advertise to what they can", worker.listen)
    });
}

fn etcd(check: &mut Check<'_>) {
    let Config { discovery_etcd: etcd, discovery_etcd_tls: tls, .. } = check.config;
    let DiscoveryEtcd { endpoints, prefix, username, password, password_file, .. } = etcd;
    check.expect(!endpoints.is_empty(), "discovery.etcd.endpoints", || {
        "discovery.kind = \"etcd\" wants it, such as http://127.0.0.1:2379".to_owned()
    });
    for endpoint in endpoints.split(',').map(str::trim).filter(|_| !endpoints.is_empty()) {
        let address = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
        // It may hold a secret, and this is read by many.
        check.expect(!endpoint.contains('@'), "discovery.etcd.endpoints", || {
            "one names a user; discovery.etcd.username and discovery.etcd.password say who asks".to_owned()
        });
        check.expect(address.is_some_and(is_address) || endpoint.contains('@'), "discovery.etcd.endpoints", || {
            format!("{endpoint:?} is not http://HOST:PORT or https://HOST:PORT")
        });
    }
    let names = prefix.strip_prefix('/').is_some_and(|names| names.split('/').all(|name| !name.is_empty()));
    check.expect(names && !prefix.contains(char::is_control), "discovery.etcd.prefix", || {
        format!("{prefix:?} is not a slash and names with slashes between them, such as /baton or /baton/blue")
    });
    let has_password = !password.0.is_empty() || !password_file.is_empty();
    check.expect(password.0.is_empty() || password_file.is_empty(), "discovery.etcd.password_file", || {
        "discovery.etcd.password is set as well: set one of the two".to_owned()
    });
    check.expect(username.is_empty() || has_password, "discovery.etcd.password", || {
        "discovery.etcd.username wants it, or discovery.etcd.password_file, too".to_owned()
    });
    check.expect(!username.is_empty() || !has_password, "discovery.etcd.username", || {
        "the password is of nobody: discovery.etcd.password wants it too".to_owned()
    });
    let DiscoveryEtcdTls { ca, cert, key } = tls;
    for (setting, file, other) in [("discovery.etcd.tls.cert", cert, key), ("discovery.etcd.tls.key", key, cert)] {
        check.expect(!file.is_empty() || other.is_empty(), setting, || {
            "a certificate needs its key, and a key its certificate".to_owned()
        });
    }
    let uses_tls = endpoints.contains("https://");
    for (setting, file) in [("discovery.etcd.tls.ca", ca), ("discovery.etcd.tls.cert", cert)] {
        check.expect(file.is_empty() || uses_tls, setting, || {
            "no endpoint of discovery.etcd.endpoints begins with https://".to_owned()
        });
    }
}

fn kubernetes(check: &mut Check<'_>) {
    let DiscoveryKubernetes { server, service_host, namespace, selector, node_labels, rack_label, .. } =
        &check.config.discovery_kubernetes;
    check.expect(!server.is_empty() || !service_host.is_empty(), "discovery.kubernetes.server", || {
        "discovery.kind = \"kubernetes\" wants it, since this process is not in a pod (KUBERNETES_SERVICE_HOST is not set)"
            .to_owned()
    });
    let address = server.strip_prefix("http://").or_else(|| server.strip_prefix("https://"));
    let is_url = address.is_some_and(|address| is_address(address) && !address.contains(['/', '@']));
    check.expect(server.is_empty() || is_url, "discovery.kubernetes.server", || {
        format!("{server:?} is not http://HOST:PORT or https://HOST:PORT")
    });
    check.expect(server.is_empty() || !namespace.is_empty(), "discovery.kubernetes.namespace", || {
        "discovery.kubernetes.server wants it, because this process is in no pod".to_owned()
    });
    check.expect(!selector.is_empty(), "discovery.kubernetes.selector", || {
        "without one, all pods of the namespace would be workers".to_owned()
    });
    check.expect(!node_labels || !rack_label.is_empty(), "discovery.kubernetes.rack_label", || {
        "discovery.kubernetes.node_labels wants the name of a label, which nodes need not have".to_owned()
    });
}

/// Returns whether it is a host without a port.
fn is_host(text: &str) -> bool {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_ok() || (!text.is_empty() && !text.contains([':', '/', ' ']))
}
