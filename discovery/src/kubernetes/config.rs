//! How the API server is reached, and which pods are workers.

use std::path::PathBuf;

/// How the API server is reached, and which pods are workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesConfig {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub server: String,
    /// File with the token of this process. It is read at each request, because Kubernetes replaces it. None: requests
    /// have no token.
    pub token: Option<PathBuf>,
    /// File in PEM with the authorities of the server's certificate. It is read at each connection. None: those that
    /// the system trusts.
    pub authorities: Option<PathBuf>,
    /// The namespace of the pods.
    pub namespace: String,
    /// The labels of the pods, as a selector of Kubernetes.
    pub selector: String,
    /// Whether labels of the pods' nodes say where they are, with the label for the rack. None: nodes are not read.
    pub node_rack_label: Option<String>,
}
