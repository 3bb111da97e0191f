//! Labels of the nodes on which pods run.

use super::client::Client;
use super::error::KubernetesError;
use super::messages::Labels;
use std::collections::BTreeMap;

/// Nodes that are remembered. When there are more, all are read again.
const NODES_MAX: usize = 4096;

/// What was read of nodes since pods were listed.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    known: BTreeMap<String, Labels>,
    /// This process may not read them.
    denied: bool,
    /// That was logged.
    told: bool,
}

impl Nodes {
    /// Forgets what was read, and whether it could be.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.denied = false;
    }

    /// Returns the labels of a node, and reads those of a new one. None: they may not be read, which is logged once.
    /// Errors: the server does not answer.
    pub(super) async fn labels(&mut self, client: &Client, name: &str) -> Result<Option<&Labels>, KubernetesError> {
        if self.denied {
            return Ok(None);
        }
        if !self.known.contains_key(name) {
            let labels = match client.node(name).await {
                Ok(labels) => labels,
                Err(error @ KubernetesError::Denied { .. }) => {
                    if !std::mem::replace(&mut self.told, true) {
                        tracing::warn!("{error}; workers have no labels of their nodes");
                    }
                    self.denied = true;
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            if self.known.len() >= NODES_MAX {
                self.known.clear();
            }
            self.known.insert(name.to_owned(), labels);
        }
        Ok(self.known.get(name))
    }
}
