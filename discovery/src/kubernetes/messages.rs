//! What the API server says, as far as it is read. Fields that are not declared here are skipped.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// Labels of an object.
pub(super) type Labels = BTreeMap<String, String>;

/// A page of a list of pods.
#[derive(Debug, Deserialize)]
pub(super) struct Page {
    pub(super) metadata: PageMeta,
    #[serde(default, deserialize_with = "or_empty")]
    pub(super) items: Vec<Pod>,
}

/// What is said of a page.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMeta {
    /// The version at which all pages of the list were read.
    pub(super) resource_version: String,
    /// By what the next page is asked for. Empty: this is the last one.
    #[serde(default, rename = "continue")]
    pub(super) rest: String,
}

/// A line of a watch.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
pub(super) enum Line {
    /// A pod came into the selection.
    Added(Pod),
    /// A pod changed.
    Modified(Pod),
    /// A pod is gone, or is not of the selection any more.
    Deleted(Pod),
    /// All up to this version has been said.
    Bookmark(Named),
    /// The watch is over.
    Error(Status),
}

/// Any object, of which the metadata are read.
#[derive(Debug, Deserialize)]
pub(super) struct Named {
    pub(super) metadata: Meta,
}

/// What is said of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Meta {
    pub(super) name: String,
    pub(super) resource_version: String,
    /// Since when it is about to end.
    pub(super) deletion_timestamp: Option<IgnoredAny>,
    #[serde(deserialize_with = "or_empty")]
    pub(super) labels: Labels,
}

/// A pod.
#[derive(Debug, Deserialize)]
pub(super) struct Pod {
    pub(super) metadata: Meta,
    #[serde(default)]
    pub(super) spec: PodSpec,
    #[serde(default)]
    pub(super) status: PodStatus,
}

/// What a pod is to be.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub(super) node_name: String,
    #[serde(deserialize_with = "or_empty")]
    pub(super) containers: Vec<Container>,
}

/// A container of a pod.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Container {
    pub(super) name: String,
    #[serde(deserialize_with = "or_empty")]
    pub(super) ports: Vec<Port>,
}

/// A port of a container.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) container_port: u16,
}

/// What a pod is.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    #[serde(rename = "podIP")]
    pub(super) pod_ip: String,
    #[serde(deserialize_with = "or_empty")]
    pub(super) container_statuses: Vec<ContainerStatus>,
}

/// What a container is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerStatus {
    pub(super) name: String,
    /// Whether it runs and its startup probe has succeeded, since its last restart.
    pub(super) started: Option<bool>,
}

/// Why something was refused.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) code: u16,
    pub(super) message: String,
}

/// Reads a list or a map that may be `null`, as Go writes empty ones.
fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}
