//! `baton admin watch`.

use super::{AdminError, Asked, tables};
use crate::error::CommandError;
use crate::output::print;
use proto::admin::{Snapshot, Subject, WatchRequest};
use std::io::{IsTerminal, stdout};

/// Goes to the upper left corner, and clears all below.
const REDRAW: &str = "\x1b[H\x1b[J";

impl Asked {
    /// Prints snapshots until there were `count`, or for ever where that is 0. Errors: the server ends, or the output
    /// does.
    pub(super) async fn watch(&mut self, every_ms: u32, count: u64) -> Result<(), CommandError> {
        let subjects = [Subject::Workers, Subject::Requests, Subject::Tiers].map(i32::from);
        let request = WatchRequest { subjects: subjects.into(), every_ms };
        let failed = |status| AdminError::of_call(&self.server, status);
        let mut snapshots = self.client.watch(request).await.map_err(failed)?.into_inner();
        let in_place = stdout().is_terminal() && !self.json;
        let mut seen = 0;
        while let Some(snapshot) = snapshots.message().await.map_err(failed)? {
            let text = if self.json { format!("{}\n", serde_json::json!(snapshot)) } else { screen(&snapshot) };
            print(&if in_place { format!("{REDRAW}{text}") } else { text })?;
            seen += 1;
            if seen == count {
                return Ok(());
            }
        }
        let ended = tonic::Status::unavailable("it ends");
        Err(AdminError::of_call(&self.server, ended).into())
    }
}

fn screen(snapshot: &Snapshot) -> String {
    let Snapshot { workers, requests, tiers, silent, .. } = snapshot;
    let tiers = proto::admin::ListTiersResponse { tiers: tiers.clone(), silent: silent.clone() };
    format!("{}\n{}\n{}\n", tables::workers(workers), tables::tiers(&tiers), tables::requests(requests))
}
