//! What is watched, again and again.

use crate::cluster::Cluster;
use crate::fan_out;
use futures_util::stream::{self, BoxStream, StreamExt};
use keys::Key;
use proto::admin::{Snapshot, Subject, WatchRequest};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tonic::Status;

/// Time between snapshots, where nothing is said.
const EVERY: Duration = Duration::from_secs(1);
/// The shortest time between snapshots.
const EVERY_MIN: Duration = Duration::from_millis(100);
/// The longest time between snapshots.
const EVERY_MAX: Duration = Duration::from_secs(60);

/// Sends snapshots until the client has seen enough, the first one now. Errors: what is asked is out of bounds, or, on
/// the way, the process ends.
pub(crate) fn watch(
    cluster: Arc<impl Cluster>,
    request: &WatchRequest,
) -> Result<BoxStream<'static, Result<Snapshot, Status>>, Status> {
    let every = match request.every_ms {
        0 => EVERY,
        every => Duration::from_millis(every.into()),
    };
    if !(EVERY_MIN..=EVERY_MAX).contains(&every) {
        return Err(Status::invalid_argument(format!(
            "every_ms is {}: it is from {} to {}, or 0",
            request.every_ms,
            EVERY_MIN.as_millis(),
            EVERY_MAX.as_millis()
        )));
    }
    let mut subjects: Vec<Subject> = request.subjects().collect();
    if subjects.is_empty() {
        subjects = vec![Subject::Workers, Subject::Requests];
    }
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Ok(stream::unfold(Watch { cluster, subjects, ticks }, Watch::next).boxed())
}

/// Ends snapshots with an error once the key of the client that watches them is revoked.
pub(crate) fn until_revoked<S: Send + 'static>(
    snapshots: BoxStream<'static, Result<S, Status>>,
    key: Key,
) -> BoxStream<'static, Result<S, Status>> {
    let revoked = async move { key.revoked().await };
    let end = async { Err(Status::unauthenticated("the key was revoked")) };
    snapshots.take_until(Box::pin(revoked)).chain(stream::once(end)).boxed()
}

/// What one client watches.
struct Watch<C> {
    cluster: Arc<C>,
    subjects: Vec<Subject>,
    ticks: Interval,
}

impl<C: Cluster> Watch<C> {
    /// Takes the next snapshot when it is due.
    async fn next(mut self) -> Option<(Result<Snapshot, Status>, Self)> {
        self.ticks.tick().await;
        Some((take(self.cluster.clone(), self.subjects.clone()).await, self))
    }
}

/// Looks at these subjects. Errors: the process ends.
async fn take(cluster: Arc<impl Cluster>, subjects: Vec<Subject>) -> Result<Snapshot, Status> {
    let wants = |subject| subjects.contains(&subject);
    let mut snapshot = Snapshot { workers: cluster.workers().await?, ..Snapshot::default() };
    if wants(Subject::Requests) {
        snapshot.requests = cluster.requests().await?;
    }
    if wants(Subject::Models) {
        snapshot.models = cluster.models().await?;
    }
    if wants(Subject::Lanes) {
        let lanes = fan_out::lanes(&cluster, &snapshot.workers).await;
        (snapshot.lanes, snapshot.silent) = (lanes.lanes, lanes.silent);
    }
    if wants(Subject::Tiers) {
        let tiers = fan_out::tiers(&cluster, &snapshot.workers).await;
        // A worker that answers neither is named once.
        let news = tiers.silent.into_iter().filter(|it| !snapshot.silent.contains(it)).collect::<Vec<_>>();
        snapshot.silent.extend(news);
        snapshot.tiers = tiers.tiers;
    }
    if !wants(Subject::Workers) {
        snapshot.workers.clear();
    }
    Ok(snapshot)
}
