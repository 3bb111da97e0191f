//! The calls of etcd that discovery makes, each with a bound.

use super::config::Credentials;
use super::error::{Asked, EtcdError};
use crate::generated::{
    AuthenticateRequest, AuthenticateResponse, Compare, Event, KeyValue, LeaseGrantRequest, LeaseGrantResponse,
    LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest, LeaseRevokeResponse, PutRequest, RangeRequest,
    RangeResponse, RequestOp, TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest, WatchResponse, compare,
    request_op, watch_request,
};
use http::uri::PathAndQuery;
use prost::Message;
use std::time::Duration;
use tokio::time::timeout;
use tokio_stream::{Stream, StreamExt};
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Streaming};
use tonic_prost::ProstCodec;

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Keys that one answer holds at most, so that it stays far below the 4 MiB that a message may have.
const PAGE_KEYS: i64 = 256;

/// One lease of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EtcdLease {
    pub(super) id: i64,
    /// How long it lives without a sign of life.
    pub(super) lives: Duration,
}

/// A connection with a member.
#[derive(Clone, Debug)]
pub(super) struct Client {
    channel: Channel,
    asked: Asked,
    token: Option<MetadataValue<Ascii>>,
}

/// A watch on the workers' keys. Dropping it ends the watch.
pub(super) struct Watch {
    answers: Streaming<WatchResponse>,
    asked: Asked,
}

/// What a watch has shown.
pub(super) enum Watched {
    /// What happened next, in order.
    Events(Vec<Event>),
    /// What happened is not kept any more.
    Compacted,
}

impl Client {
    pub(super) fn new(channel: Channel, asked: Asked) -> Self {
        Self { channel, asked, token: None }
    }

    /// Returns what the keys of workers begin with.
    pub(super) fn keys(&self) -> &str {
        &self.asked.keys
    }

    /// Authenticates this process. An etcd without users accepts any.
    pub(super) async fn authenticate(&mut self, credentials: &Credentials) -> Result<(), EtcdError> {
        let Credentials { username: name, password } = credentials.clone();
        let call = self.call("/etcdserverpb.Auth/Authenticate", AuthenticateRequest { name, password });
        let AuthenticateResponse { token, .. } = match timeout(ANSWER_MAX, call).await {
            Err(_) => return Err(self.asked.silent(ANSWER_MAX)),
            Ok(Err(status)) if status.code() == Code::FailedPrecondition => return Ok(()),
            Ok(answer) => answer.map_err(|status| self.asked.refused(&status))?,
        };
        self.token = token.parse().ok();
        Ok(())
    }

    /// Returns the keys of all workers, and the revision at which they are all.
    pub(super) async fn workers(&self) -> Result<(i64, Vec<KeyValue>), EtcdError> {
        let (mut key, mut revision, mut all) = (self.keys().as_bytes().to_vec(), 0, Vec::new());
        loop {
            let range = RangeRequest { key, range_end: end_of(self.keys()), limit: PAGE_KEYS, revision };
            let RangeResponse { header, kvs, more } = self.answer("/etcdserverpb.KV/Range", range).await?;
            if revision == 0 {
                revision = header.unwrap_or_default().revision;
            }
            let next = kvs.last().map(|last| [&last.key[..], &[0]].concat());
            all.extend(kvs);
            key = match next {
                Some(next) if more => next,
                _ => return Ok((revision, all)),
            };
        }
    }

    /// Returns one key.
    pub(super) async fn get(&self, key: &str) -> Result<Option<KeyValue>, EtcdError> {
        let range = RangeRequest { key: key.into(), ..RangeRequest::default() };
        let RangeResponse { kvs, .. } = self.answer("/etcdserverpb.KV/Range", range).await?;
        Ok(kvs.into_iter().next())
    }

    /// Writes a key under a lease if it was last written at `seen`; 0: if it is not there. Returns whether it did.
    pub(super) async fn put_if(&self, key: &str, seen: i64, value: &[u8], lease: i64) -> Result<bool, EtcdError> {
        let is_as_seen = Compare {
            result: compare::CompareResult::Equal.into(),
            target: compare::CompareTarget::Mod.into(),
            key: key.into(),
            target_union: Some(compare::TargetUnion::ModRevision(seen)),
        };
        let put = PutRequest { key: key.into(), value: value.to_vec(), lease };
        let put = RequestOp { request: Some(request_op::Request::RequestPut(put)) };
        let txn = TxnRequest { compare: vec![is_as_seen], success: vec![put] };
        let TxnResponse { succeeded, .. } = self.answer("/etcdserverpb.KV/Txn", txn).await?;
        Ok(succeeded)
    }

    /// Makes a lease.
    pub(super) async fn grant(&self, lives: Duration) -> Result<EtcdLease, EtcdError> {
        let ttl = i64::try_from(lives.as_secs()).unwrap_or(i64::MAX).max(1);
        let granted = self.answer("/etcdserverpb.Lease/LeaseGrant", LeaseGrantRequest { ttl }).await?;
        let LeaseGrantResponse { id, ttl, .. } = granted;
        Ok(EtcdLease { id, lives: Duration::from_secs(u64::try_from(ttl).unwrap_or(1).max(1)) })
    }

    /// Keeps a lease alive. Returns whether it lived.
    pub(super) async fn keep_alive(&self, lease: EtcdLease) -> Result<bool, EtcdError> {
        let beat = async {
            let once = tokio_stream::once(LeaseKeepAliveRequest { id: lease.id });
            let mut answers = self.stream("/etcdserverpb.Lease/LeaseKeepAlive", once).await?;
            let answer: Option<LeaseKeepAliveResponse> =
                answers.message().await.map_err(|status| self.asked.refused(&status))?;
            Ok(answer.is_some_and(|answer| answer.ttl > 0))
        };
        timeout(ANSWER_MAX, beat).await.unwrap_or_else(|_| Err(self.asked.silent(ANSWER_MAX)))
    }

    /// Ends a lease, and with it its keys.
    pub(super) async fn revoke(&self, lease: EtcdLease) -> Result<(), EtcdError> {
        let revoke = LeaseRevokeRequest { id: lease.id };
        let _: LeaseRevokeResponse = self.answer("/etcdserverpb.Lease/LeaseRevoke", revoke).await?;
        Ok(())
    }

    /// Watches the workers' keys from a revision on.
    pub(super) async fn watch(&self, start_revision: i64) -> Result<Watch, EtcdError> {
        let create = WatchCreateRequest { key: self.keys().into(), range_end: end_of(self.keys()), start_revision };
        let create = WatchRequest { request_union: Some(watch_request::RequestUnion::CreateRequest(create)) };
        // The watch lasts as long as what is asked does not end.
        let asks = tokio_stream::once(create).chain(tokio_stream::pending());
        let begun = timeout(ANSWER_MAX, self.stream("/etcdserverpb.Watch/Watch", asks)).await;
        let answers = begun.unwrap_or_else(|_| Err(self.asked.silent(ANSWER_MAX)))?;
        Ok(Watch { answers, asked: self.asked.clone() })
    }

    /// Returns the answer to a call, in time.
    async fn answer<Q, A>(&self, path: &'static str, question: Q) -> Result<A, EtcdError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let answer = timeout(ANSWER_MAX, self.call(path, question)).await;
        answer.map_err(|_| self.asked.silent(ANSWER_MAX))?.map_err(|status| self.asked.refused(&status))
    }

    async fn call<Q, A>(&self, path: &'static str, question: Q) -> Result<A, tonic::Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|error| tonic::Status::from_error(error.into()))?;
        let path = PathAndQuery::from_static(path);
        let answer = grpc.unary(self.request(question), path, ProstCodec::<Q, A>::default()).await?;
        Ok(answer.into_inner())
    }

    /// Begins a call with several questions and answers. A member without a leader ends it.
    async fn stream<Q, A>(
        &self,
        path: &'static str,
        questions: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, EtcdError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|error| self.asked.not_reached(&error))?;
        let mut request = self.request(questions);
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let path = PathAndQuery::from_static(path);
        let answer = grpc.streaming(request, path, ProstCodec::<Q, A>::default()).await;
        Ok(answer.map_err(|status| self.asked.refused(&status))?.into_inner())
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }
}

impl Watch {
    /// Waits for what happens next. Errors: the watch is over.
    pub(super) async fn next(&mut self) -> Result<Watched, EtcdError> {
        loop {
            let answer = self.answers.message().await.map_err(|status| self.asked.refused(&status))?;
            let Some(answer) = answer else { return Err(over(&self.asked, "it ended the watch".to_owned())) };
            if let Some(watched) = Watched::read(&self.asked, answer)? {
                return Ok(watched);
            }
        }
    }
}

impl Watched {
    /// Reads an answer of a watch. None: nothing has happened yet. Errors: the watch is over.
    pub(super) fn read(asked: &Asked, answer: WatchResponse) -> Result<Option<Self>, EtcdError> {
        match answer {
            WatchResponse { compact_revision, .. } if compact_revision > 0 => Ok(Some(Self::Compacted)),
            // A watch has no status: its reason holds the text of one.
            WatchResponse { canceled: true, cancel_reason, .. } => Err(match &cancel_reason {
                reason if reason.contains("permission denied") => {
                    asked.refused(&tonic::Status::permission_denied(reason))
                }
                reason if reason.contains("auth") => EtcdError::Token,
                _ => over(asked, format!("it ended the watch: {cancel_reason}")),
            }),
            WatchResponse { events, .. } if !events.is_empty() => Ok(Some(Self::Events(events))),
            // The watch was created.
            _ => Ok(None),
        }
    }
}

fn over(asked: &Asked, reason: String) -> EtcdError {
    EtcdError::Away { endpoint: asked.endpoint.clone(), reason }
}

/// Returns the end of the range of all keys that begin with `keys`, which ends with a slash.
fn end_of(keys: &str) -> Vec<u8> {
    let mut end = keys.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}
