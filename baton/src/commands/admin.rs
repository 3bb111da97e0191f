//! `baton admin`: asks the admin service of a router or a worker, and shows the answer: a table for people, JSON for
//! scripts.

mod connection;
mod error;
mod explanation;
mod prefixes;
mod settings;
mod tables;
mod watch;
mod waterfall;

pub(crate) use error::AdminError;

use crate::cli::{AdminArgs, AdminCommand, WorkerRole};
use crate::error::CommandError;
use crate::output::print;
use prefixes::Do;
use proto::admin::*;
use serde::Serialize;
use tonic::{Response, Status};

/// Asks a server and prints what it answers. Errors: [`AdminError`], and an answer that cannot be printed.
pub(crate) fn admin(args: AdminArgs) -> Result<(), CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = connection::connect(&args).await?;
        let mut asked = Asked { client, server: args.server, json: args.json };
        match args.command {
            AdminCommand::Watch { show, every_ms, count } => asked.watch(&show, every_ms, count).await,
            AdminCommand::Pin { prefix, duration } => asked.prefix(Do::Pin(duration), prefix).await,
            AdminCommand::Unpin { prefix } => asked.prefix(Do::Unpin, prefix).await,
            AdminCommand::Park { prefix } => asked.prefix(Do::Park, prefix).await,
            AdminCommand::Unpark { prefix } => asked.prefix(Do::Unpark, prefix).await,
            command => Ok(print(&asked.answer(command).await?)?),
        }
    })
}

/// A server that is asked.
struct Asked {
    client: connection::Client,
    server: String,
    json: bool,
}

impl Asked {
    /// Asks what a command says, and returns the answer as it is printed.
    async fn answer(&mut self, command: AdminCommand) -> Result<String, AdminError> {
        let client = &mut self.client;
        Ok(match command {
            AdminCommand::Workers => {
                let answer = client.list_workers(ListWorkersRequest {}).await;
                self.show(answer, |answer| tables::workers(&answer.workers))?
            }
            AdminCommand::Lanes { worker } => {
                let answer = client.list_lanes(ListLanesRequest { worker: worker.unwrap_or_default() }).await;
                self.show(answer, tables::lanes)?
            }
            AdminCommand::Tiers { worker } => {
                let answer = client.list_tiers(ListTiersRequest { worker: worker.unwrap_or_default() }).await;
                self.show(answer, tables::tiers)?
            }
            AdminCommand::Models => {
                let answer = client.list_models(ListModelsRequest {}).await;
                self.show(answer, |answer| tables::models(&answer.models))?
            }
            AdminCommand::Requests { ended } => {
                let answer = client.list_requests(ListRequestsRequest { ended }).await;
                self.show(answer, |answer| tables::requests(&answer.requests))?
            }
            AdminCommand::Explain { id } => {
                let answer = client.explain_request(ExplainRequestRequest { id }).await;
                self.show(answer, explanation::text)?
            }
            AdminCommand::Dump { worker } => {
                let answer = client.dump(DumpRequest { worker: worker.unwrap_or_default() }).await;
                self.show(answer, tables::dump)?
            }
            AdminCommand::Log { filter } => self.log(filter).await?,
            AdminCommand::Limits { changes } => self.limits(changes).await?,
            AdminCommand::Reload => {
                let answer = client.reload(ReloadRequest {}).await;
                self.show(answer, |answer| settings::changes(&answer.changes))?
            }
            AdminCommand::Flush { worker } => {
                let answer = client.flush_worker(FlushWorkerRequest { worker }).await;
                self.show(answer, |answer| format!("{} blocks were dropped\n", answer.blocks))?
            }
            AdminCommand::Drain { worker, force } => {
                let answer = client.drain_worker(DrainWorkerRequest { worker, force }).await;
                self.show(answer, |worker| tables::workers(std::slice::from_ref(worker)))?
            }
            AdminCommand::Undrain { worker } => {
                let answer = client.undrain_worker(UndrainWorkerRequest { worker }).await;
                self.show(answer, |worker| tables::workers(std::slice::from_ref(worker)))?
            }
            AdminCommand::Role { worker, role, force } => {
                let role = match role {
                    WorkerRole::Prefill => Role::Prefill,
                    WorkerRole::Decode => Role::Decode,
                };
                let answer = client.change_role(ChangeRoleRequest { worker, role: role.into(), force }).await;
                self.show(answer, |worker| tables::workers(std::slice::from_ref(worker)))?
            }
            AdminCommand::Pin { .. }
            | AdminCommand::Unpin { .. }
            | AdminCommand::Park { .. }
            | AdminCommand::Unpark { .. }
            | AdminCommand::Watch { .. } => unreachable!("they print by themselves"),
        })
    }

    /// Asks what is logged, or changes it.
    async fn log(&mut self, filter: Option<String>) -> Result<String, AdminError> {
        let Some(filter) = filter else {
            let answer = self.client.get_log_filter(GetLogFilterRequest {}).await;
            return self.show(answer, |answer| format!("{}\n", answer.filter));
        };
        let answer = self.client.set_log_filter(SetLogFilterRequest { filter }).await;
        self.show(answer, |answer| format!("{} (before: {})\n", answer.filter, answer.before))
    }

    /// Lists what can change at run time, or changes some of it.
    async fn limits(&mut self, changes: Vec<(String, String)>) -> Result<String, AdminError> {
        if changes.is_empty() {
            let answer = self.client.list_settings(ListSettingsRequest {}).await;
            return self.show(answer, settings::limits);
        }
        let values = changes.into_iter().collect();
        let answer = self.client.change_settings(ChangeSettingsRequest { values }).await;
        self.show(answer, |answer| settings::changes_and_undo(&answer.changes))
    }

    /// Returns an answer as it is printed. Errors: the call came to nothing.
    fn show<T: Serialize>(
        &self,
        answer: Result<Response<T>, Status>,
        text: impl FnOnce(&T) -> String,
    ) -> Result<String, AdminError> {
        let answer = answer.map_err(|status| AdminError::of_call(&self.server, status))?.into_inner();
        Ok(if self.json { format!("{:#}\n", serde_json::json!(answer)) } else { text(&answer) })
    }
}
