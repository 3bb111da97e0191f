//! `baton admin watch`.

use super::{AdminError, Asked, tables};
use crate::cli::Watched;
use crate::error::CommandError;
use crate::output::print;
use proto::admin::{ListLanesResponse, ListTiersResponse, Snapshot, Subject, WatchRequest};
use std::io::{IsTerminal, stdout};

/// Goes to the upper left corner, and clears all below.
const REDRAW: &str = "\x1b[H\x1b[J";

/// How a snapshot is printed.
#[derive(Clone, Copy)]
enum Form {
    /// As JSON, one a line.
    Json,
    /// As tables, below those before.
    Tables,
    /// As tables that replace those before.
    InPlace,
}

impl Asked {
    /// Prints snapshots of what is to be shown until there were `count`, or for ever where that is 0. Errors: the
    /// server ends, or the output does.
    pub(super) async fn watch(&mut self, show: &[Watched], every_ms: u32, count: u64) -> Result<(), CommandError> {
        let subjects = show.iter().map(|&watched| subject(watched).into()).collect();
        let request = WatchRequest { subjects, every_ms };
        let failed = |status| AdminError::of_call(&self.server, status);
        let mut snapshots = self.client.watch(request).await.map_err(failed)?.into_inner();
        let form = match self.json {
            true => Form::Json,
            false if stdout().is_terminal() => Form::InPlace,
            false => Form::Tables,
        };
        let mut seen = 0;
        while let Some(snapshot) = snapshots.message().await.map_err(failed)? {
            print(&text(&snapshot, show, form))?;
            seen += 1;
            if seen == count {
                return Ok(());
            }
        }
        let ended = tonic::Status::unavailable("it ends");
        Err(AdminError::of_call(&self.server, ended).into())
    }
}

/// Returns what the server calls a table.
fn subject(watched: Watched) -> Subject {
    match watched {
        Watched::Workers => Subject::Workers,
        Watched::Tiers => Subject::Tiers,
        Watched::Lanes => Subject::Lanes,
        Watched::Models => Subject::Models,
        Watched::Requests => Subject::Requests,
    }
}

/// Returns a snapshot as it is printed.
fn text(snapshot: &Snapshot, show: &[Watched], form: Form) -> String {
    match form {
        Form::Json => format!("{}\n", serde_json::json!(snapshot)),
        Form::Tables => screen(snapshot, show),
        Form::InPlace => format!("{REDRAW}{}", screen(snapshot, show)),
    }
}

fn screen(snapshot: &Snapshot, show: &[Watched]) -> String {
    let Snapshot { workers, requests, tiers, lanes, models, silent } = snapshot;
    let table = |watched: &Watched| match watched {
        Watched::Workers => tables::workers(workers),
        Watched::Tiers => tables::tiers(&ListTiersResponse { tiers: tiers.clone(), silent: Vec::new() }),
        Watched::Lanes => tables::lanes(&ListLanesResponse { lanes: lanes.clone(), silent: Vec::new() }),
        Watched::Models => tables::models(models),
        Watched::Requests => tables::requests(requests),
    };
    let all: String = show.iter().map(|watched| table(watched) + "\n").collect();
    all + &tables::silent(silent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::admin::{Silence, Worker};

    fn snapshot() -> Snapshot {
        let worker = Worker { name: "decode-1".to_owned(), ..Worker::default() };
        let silent = Silence { worker: "d".to_owned(), why: "it stands still".to_owned() };
        Snapshot { workers: vec![worker], silent: vec![silent], ..Snapshot::default() }
    }

    #[test]
    fn on_a_terminal_each_look_replaces_the_one_before() {
        let show = [Watched::Workers, Watched::Lanes];
        let below = text(&snapshot(), &show, Form::Tables);
        assert!(!below.contains('\x1b'), "{below:?}");
        assert_eq!(text(&snapshot(), &show, Form::InPlace), format!("\x1b[H\x1b[J{below}"));
    }

    #[test]
    fn what_is_asked_for_is_shown_in_that_order() {
        let shown = text(&snapshot(), &[Watched::Models, Watched::Workers], Form::Tables);
        let at = |part: &str| shown.find(part).unwrap_or_else(|| panic!("{part} in {shown}"));
        assert!(at("no model is served") < at("decode-1") && at("decode-1") < at("d did not answer"), "{shown}");
        assert!(!shown.contains("no request is open"), "{shown}");
        assert_eq!(text(&snapshot(), &[], Form::Json).lines().count(), 1);
    }
}
