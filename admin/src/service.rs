//! The calls.

use crate::cluster::Cluster;
use crate::fan_out::{self, ask, unexpected};
use crate::names::{check_another_decodes, find};
use crate::{dump, prefixes, settings, snapshots};
use domain::RequestId;
use futures_util::stream::BoxStream;
use keys::Key;
use proto::admin::prefix_ask::Body as PrefixBody;
use proto::admin::worker_answer::Body as Answer;
use proto::admin::worker_ask::Body as Ask;
use proto::admin::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use tonic::{Request as Call, Response, Status};

/// The service over a router or a worker.
pub(crate) struct Service<C>(Arc<C>);

type Answered<T> = Result<Response<T>, Status>;

impl<C: Cluster> Service<C> {
    pub(crate) fn new(cluster: Arc<C>) -> Self {
        Self(cluster)
    }

    /// Finds a worker. At a worker's own port that one needs no name.
    async fn worker(&self, name: &str) -> Result<Worker, Status> {
        let mut workers = self.0.workers().await?;
        if !C::SEES_ALL && name.is_empty() && workers.len() == 1 {
            return Ok(workers.remove(0));
        }
        find(workers, name)
    }

    /// Returns the worker of that name, or all where there is none.
    async fn workers(&self, name: &str) -> Result<Vec<Worker>, Status> {
        if name.is_empty() { self.0.workers().await } else { Ok(vec![self.worker(name).await?]) }
    }

    /// Asks a worker to change, and returns it as the process sees it then.
    async fn change(&self, worker: Worker, what: Ask) -> Answered<Worker> {
        match ask(&*self.0, &worker, what).await? {
            Answer::State(state) => {
                let now = self.0.workers().await?.into_iter().find(|now| now.id == worker.id);
                Ok(Response::new(Worker { tiers: state.tiers.clone(), ..now.unwrap_or(state) }))
            }
            _ => Err(unexpected(&worker)),
        }
    }

    /// Does this with a prefix at the worker of that name, or at all where there is none.
    async fn prefix(&self, prefix: Option<Prefix>, worker: &str, what: PrefixBody) -> Answered<PrefixResponse> {
        let workers = self.workers(worker).await?;
        prefixes::on_workers(&self.0, &workers, prefix, what).await.map(Response::new)
    }

    /// Checks that requests can still be served without this decode worker.
    async fn check_spare(&self, worker: &Worker, force: bool) -> Result<(), Status> {
        if force || !C::SEES_ALL {
            return Ok(());
        }
        check_another_decodes(&self.0.workers().await?, worker)
    }
}

#[tonic::async_trait]
impl<C: Cluster> Admin for Service<C> {
    type WatchStream = BoxStream<'static, Result<Snapshot, Status>>;

    async fn list_workers(&self, _: Call<ListWorkersRequest>) -> Answered<ListWorkersResponse> {
        let mut workers = self.0.workers().await?;
        let mut tiers = BTreeMap::<u32, Vec<String>>::new();
        for Tier { worker, tier, .. } in fan_out::tiers(&self.0, &workers).await.tiers {
            tiers.entry(worker).or_default().push(tier);
        }
        for worker in &mut workers {
            worker.tiers = tiers.remove(&worker.id).unwrap_or_default();
        }
        Ok(Response::new(ListWorkersResponse { workers }))
    }

    async fn list_lanes(&self, call: Call<ListLanesRequest>) -> Answered<ListLanesResponse> {
        let workers = self.workers(&call.get_ref().worker).await?;
        Ok(Response::new(fan_out::lanes(&self.0, &workers).await))
    }

    async fn list_tiers(&self, call: Call<ListTiersRequest>) -> Answered<ListTiersResponse> {
        let workers = self.workers(&call.get_ref().worker).await?;
        Ok(Response::new(fan_out::tiers(&self.0, &workers).await))
    }

    async fn list_models(&self, _: Call<ListModelsRequest>) -> Answered<ListModelsResponse> {
        Ok(Response::new(ListModelsResponse { models: self.0.models().await? }))
    }

    async fn list_requests(&self, call: Call<ListRequestsRequest>) -> Answered<ListRequestsResponse> {
        let mut requests = self.0.requests().await?;
        if call.get_ref().ended > 0 {
            requests.extend(self.0.ended(call.get_ref().ended as usize).await?);
        }
        Ok(Response::new(ListRequestsResponse { requests }))
    }

    async fn watch(&self, call: Call<WatchRequest>) -> Answered<Self::WatchStream> {
        let snapshots = snapshots::watch(self.0.clone(), call.get_ref())?;
        Ok(Response::new(match call.extensions().get::<Key>() {
            Some(key) => snapshots::until_revoked(snapshots, key.clone()),
            None => snapshots,
        }))
    }

    async fn drain_worker(&self, call: Call<DrainWorkerRequest>) -> Answered<Worker> {
        let DrainWorkerRequest { worker, force } = call.into_inner();
        let worker = self.worker(&worker).await?;
        self.check_spare(&worker, force).await?;
        self.change(worker, Ask::Drain(true)).await
    }

    async fn undrain_worker(&self, call: Call<UndrainWorkerRequest>) -> Answered<Worker> {
        let worker = self.worker(&call.get_ref().worker).await?;
        self.change(worker, Ask::Drain(false)).await
    }

    async fn change_role(&self, call: Call<ChangeRoleRequest>) -> Answered<Worker> {
        let request = call.get_ref();
        let worker = self.worker(&request.worker).await?;
        match request.role() {
            Role::Prefill => self.check_spare(&worker, request.force).await?,
            Role::Decode => {}
            Role::Unspecified => return Err(Status::invalid_argument("no role is named: prefill or decode")),
        }
        self.change(worker, Ask::Role(request.role)).await
    }

    async fn flush_worker(&self, call: Call<FlushWorkerRequest>) -> Answered<FlushWorkerResponse> {
        let worker = self.worker(&call.get_ref().worker).await?;
        match ask(&*self.0, &worker, Ask::Flush(Nothing {})).await? {
            Answer::Flushed(flushed) => Ok(Response::new(flushed)),
            _ => Err(unexpected(&worker)),
        }
    }

    async fn pin_prefix(&self, call: Call<PinPrefixRequest>) -> Answered<PrefixResponse> {
        let PinPrefixRequest { prefix, worker, seconds } = call.into_inner();
        self.prefix(prefix, &worker, prefixes::pin(seconds)?).await
    }

    async fn unpin_prefix(&self, call: Call<UnpinPrefixRequest>) -> Answered<PrefixResponse> {
        let UnpinPrefixRequest { prefix, worker } = call.into_inner();
        self.prefix(prefix, &worker, PrefixBody::Unpin(Nothing {})).await
    }

    async fn park_prefix(&self, call: Call<ParkPrefixRequest>) -> Answered<PrefixResponse> {
        let ParkPrefixRequest { prefix, worker } = call.into_inner();
        self.prefix(prefix, &worker, PrefixBody::Park(Nothing {})).await
    }

    async fn unpark_prefix(&self, call: Call<UnparkPrefixRequest>) -> Answered<PrefixResponse> {
        let UnparkPrefixRequest { prefix, worker } = call.into_inner();
        self.prefix(prefix, &worker, PrefixBody::Unpark(Nothing {})).await
    }

    async fn get_log_filter(&self, _: Call<GetLogFilterRequest>) -> Answered<LogFilter> {
        Ok(Response::new(LogFilter { filter: settings::log_filter()?, before: String::new() }))
    }

    async fn set_log_filter(&self, call: Call<SetLogFilterRequest>) -> Answered<LogFilter> {
        settings::set_log_filter(self.0.settings(), call.into_inner().filter).map(Response::new)
    }

    async fn list_settings(&self, _: Call<ListSettingsRequest>) -> Answered<ListSettingsResponse> {
        Ok(Response::new(settings::list(self.0.settings())))
    }

    async fn change_settings(&self, call: Call<ChangeSettingsRequest>) -> Answered<ChangeSettingsResponse> {
        settings::change(self.0.settings(), call.into_inner()).map(Response::new)
    }

    async fn reload(&self, _: Call<ReloadRequest>) -> Answered<ReloadResponse> {
        settings::reload(self.0.settings()).map(Response::new)
    }

    async fn explain_request(&self, call: Call<ExplainRequestRequest>) -> Answered<Explanation> {
        let id = &call.get_ref().id;
        let wrong = || {
            Status::invalid_argument(format!(
                "{id:?} is no id of a request, such as req_00c0ffee00c0ffee in x-request-id"
            ))
        };
        let digits = id.strip_prefix("req_").unwrap_or(id);
        let request = u64::from_str_radix(digits, 16).map(RequestId).map_err(|_| wrong())?;
        let unknown = || {
            Status::not_found(format!(
                "no request {id} is known: it never came to this router, or ended too long ago (admin.explained_max)"
            ))
        };
        self.0.explain(request).await?.map(Response::new).ok_or_else(unknown)
    }

    async fn dump(&self, call: Call<DumpRequest>) -> Answered<DumpResponse> {
        let name = &call.get_ref().worker;
        dump::dump(&*self.0, name, self.worker(name)).await.map(Response::new)
    }
}
