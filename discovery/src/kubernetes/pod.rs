//! What a pod says of its worker.

use super::messages::{Labels, Pod};
use crate::{About, Address, Key, Member, Topology};
use domain::session::Role;
use std::net::{IpAddr, SocketAddr};

/// Name of the port of a container where its worker takes sessions.
const PORT: &str = "sessions";
/// Label of pods with the role that their pool is for.
const ROLE: &str = "llm-d.ai/role";
/// Label of nodes with their zone. Newer versions of Kubernetes copy it to pods.
const ZONE: &str = "topology.kubernetes.io/zone";
/// Label of nodes with the domain in which their GPUs reach each other over NVLink, as NVIDIA's device plugin sets it.
const NVLINK_DOMAIN: &str = "nvidia.com/gpu.clique";

/// What a pod is to a router.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A worker that takes sessions.
    Worker(Box<Member>),
    /// Not started yet, or about to end.
    Absent,
    /// No worker.
    Strange(String),
}

/// Returns what a pod is.
///
/// A worker is dialed from when its container has started, which is when its startup probe has succeeded, until the pod
/// is to be deleted. Whether the pod is ready says less: a worker that an operator drains is not ready and keeps its
/// sessions, and a node that does not reach the API server makes its pods unready while they serve.
pub(super) fn seen(pod: &Pod) -> Seen {
    let container = pod.spec.containers.iter().find_map(|container| {
        let port = container.ports.iter().find(|port| port.name == PORT)?;
        Some((container.name.as_str(), port.container_port))
    });
    let Some((name, port)) = container else {
        return Seen::Strange(format!("no container has a port with the name {PORT}"));
    };
    let has_started =
        pod.status.container_statuses.iter().any(|status| status.name == name && status.started == Some(true));
    if !has_started || pod.metadata.deletion_timestamp.is_some() {
        return Seen::Absent;
    }
    let ip = pod.status.pod_ip.parse::<IpAddr>();
    let address = ip.ok().and_then(|ip| SocketAddr::from((ip, port)).to_string().parse::<Address>().ok());
    let Some(address) = address else {
        return Seen::Strange(format!("{}:{port} is no address", pod.status.pod_ip));
    };
    let labels = &pod.metadata.labels;
    let role = match labels.get(ROLE).map(String::as_str) {
        Some("prefill") => Some(Role::Prefill),
        Some("decode") => Some(Role::Decode),
        _ => None,
    };
    let mut topology = Topology { host: pod.spec.node_name.clone(), ..Topology::default() };
    topology.zone = labels.get(ZONE).cloned().unwrap_or_default();
    let key = Key(pod.metadata.name.clone());
    Seen::Worker(Box::new(Member { key, address, about: About::Pod { role, topology } }))
}

/// Adds what the labels of its node say to where a worker is. `rack` is the label for the rack.
pub(super) fn place(topology: &mut Topology, node: &Labels, rack: &str) {
    let fields = [(&mut topology.zone, ZONE), (&mut topology.rack, rack), (&mut topology.nvlink_domain, NVLINK_DOMAIN)];
    for (field, label) in fields {
        if let Some(value) = node.get(label) {
            field.clone_from(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod() -> Value {
        json!({
            "metadata": { "name": "baton-decode-0", "resourceVersion": "7", "labels": { ROLE: "decode", ZONE: "z1" } },
            "spec": {
                "nodeName": "node-a",
                "containers": [
                    { "name": "proxy" },
                    { "name": "worker", "ports": [
                        { "name": "ops", "containerPort": 9002 }, { "name": "sessions", "containerPort": 9001 },
                    ] },
                ],
            },
            "status": { "podIP": "10.0.0.7", "containerStatuses": [
                { "name": "proxy", "started": false }, { "name": "worker", "started": true, "ready": false },
            ] },
        })
    }

    /// Returns what a pod is in which `path` has another value.
    fn with(path: &str, value: Value) -> Seen {
        let mut pod = pod();
        match path.rsplit_once('/') {
            Some((parent, field)) => pod.pointer_mut(parent).expect(path)[field] = value,
            None => assert_eq!(path, ""),
        }
        seen(&serde_json::from_value(pod).expect("a pod"))
    }

    fn address(seen: Seen) -> String {
        let Seen::Worker(member) = seen else { panic!("{seen:?}") };
        member.address.to_string()
    }

    #[test]
    fn a_pod_whose_container_has_started_is_a_worker() {
        let Seen::Worker(member) = with("", Value::Null) else { panic!("it is one") };
        let topology = Topology { host: "node-a".to_owned(), zone: "z1".to_owned(), ..Topology::default() };
        let about = About::Pod { role: Some(Role::Decode), topology };
        let address = "10.0.0.7:9001".parse().expect("an address");
        assert_eq!(*member, Member { key: Key("baton-decode-0".to_owned()), address, about });
        let Seen::Worker(member) = with("/metadata/labels", Value::Null) else { panic!("it is one") };
        assert!(matches!(member.about, About::Pod { role: None, .. }));
    }

    #[test]
    fn a_pod_that_does_not_serve_yet_or_ends_is_absent() {
        for (path, value) in [
            ("/status/containerStatuses/1/started", json!(false)),
            ("/status/containerStatuses/1/started", Value::Null),
            ("/status/containerStatuses", Value::Null),
            ("/status", json!({})),
            ("/metadata/deletionTimestamp", json!("2026-11-26T10:00:00Z")),
        ] {
            assert_eq!(with(path, value), Seen::Absent, "{path}");
        }
    }

    #[test]
    fn a_pod_that_is_no_worker_is_said_to_be_none() {
        for (path, value) in
            [("/spec/containers/1/ports", Value::Null), ("/spec/containers", json!([])), ("/spec", json!({}))]
        {
            assert_eq!(with(path, value), Seen::Strange("no container has a port with the name sessions".to_owned()));
        }
        assert_eq!(with("/status/podIP", json!("")), Seen::Strange(":9001 is no address".to_owned()));
        let none = with("/spec/containers/1/ports/1/containerPort", json!(0));
        assert_eq!(none, Seen::Strange("10.0.0.7:0 is no address".to_owned()));
        assert_eq!(address(with("/status/podIP", json!("fd00::1"))), "[fd00::1]:9001");
    }

    #[test]
    fn labels_of_the_node_say_where_a_worker_is() {
        let mut topology = Topology { host: "a".to_owned(), zone: "z1".to_owned(), ..Topology::default() };
        place(&mut topology, &Labels::new(), "rack");
        assert_eq!(topology.to_string(), "host=a zone=z1");
        let labels = [(ZONE, "z2"), ("rack", "r7"), (NVLINK_DOMAIN, "c.1"), ("other", "x")];
        let labels = labels.map(|(label, value)| (label.to_owned(), value.to_owned()));
        place(&mut topology, &labels.into(), "rack");
        assert_eq!(topology.to_string(), "host=a rack=r7 nvlink_domain=c.1 zone=z2");
    }
}
