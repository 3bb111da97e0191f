//! What our own side writes, for targets whose format has an encoder here: so it never lags behind the format, as
//! files would. And what was recorded for other tests.

use domain::handoff::{Ask, Offer, OfferedGroup, PeerBody, PeerMessage};
use domain::session::{Assignment, FromWorker, Holder, RouterHello, Submit, ToWorker};
use domain::{
    Adapter, BlockHash, BlockId, Choice, Epoch, Generation, GroupId, Incarnation, LeaseId, RequestId, SamplingParams,
    StepId, Tenant, Versions, WorkerId,
};
use kv_manager::tiers::header::RecordHeader;
use kv_manager::tiers::{Slot, TierRecord, log};
use std::sync::Arc;
use std::time::Duration;

/// What Kubernetes wrote in the tests of `discovery`: pages of a list, and a watch.
const KUBERNETES: [&[u8]; 3] = [
    include_bytes!("../../discovery/tests/kubernetes/recorded/page-1.json"),
    include_bytes!("../../discovery/tests/kubernetes/recorded/page-2.json"),
    include_bytes!("../../discovery/tests/kubernetes/recorded/watch.jsonl"),
];

/// Inputs of the target `name`.
pub fn seeds(name: &str) -> Vec<Vec<u8>> {
    match name {
        "session" => session(),
        "handoff" => handoff(),
        "disk_log" => vec![disk_log()],
        "record_header" => vec![record_header()],
        "etcd" => discovery::fuzzing::etcd_seeds(),
        "kubernetes" => KUBERNETES.map(<[u8]>::to_vec).to_vec(),
        "slab" => vec![tiers::fuzzing::slab_seed()],
        _ => transport::fuzzing::seeds().into_iter().filter(|(of, _)| *of == name).map(|(_, bytes)| bytes).collect(),
    }
}

fn disk_log() -> Vec<u8> {
    let record = |n: u32| {
        let slot = Slot { group: GroupId((n % 2) as u16), slot: n / 2 };
        log::entry(&TierRecord { slot, hash: BlockHash([n as u8; 16]), tenant: Tenant(n) })
    };
    log::head(7).into_iter().chain((0..6).flat_map(record)).collect()
}

fn record_header() -> Vec<u8> {
    let hash = BlockHash([2; 16]);
    RecordHeader { group: GroupId(1), hash, fingerprint: 3, len: 4, checksum: 5 }.encode().to_vec()
}

fn session() -> Vec<Vec<u8>> {
    let submit = Submit {
        request: RequestId(1),
        epoch: Epoch(2),
        assignment: Assignment::Prefill { decode: WorkerId(3) },
        choices: vec![(Choice(0), vec![4, 5].into()), (Choice(1), vec![].into())],
        prompt: vec![6, 7, 8].into(),
        params: Arc::new(SamplingParams { max_tokens: 9, logit_bias: vec![(10, 0.5)], ..SamplingParams::default() }),
        seed: 11,
        deadline: Duration::from_secs(12),
        lease: Duration::from_secs(13),
        tenant: "tenant".to_owned(),
        adapter: Adapter::named("chess"),
        holder: Some(Holder { worker: WorkerId(14), incarnation: Incarnation(15), tokens: 16 }),
        trace: Some(domain::TraceContext { trace: 17, span: 18 }),
        timed: true,
    };
    let to_worker = [
        ToWorker::Hello(RouterHello { versions: Versions { oldest: 1, newest: 4 }, router: 2, nonce: [3; 32] }),
        ToWorker::Submit(submit),
        ToWorker::Cancel { request: RequestId(1), epoch: Epoch(2), choice: Some(Choice(3)) },
        ToWorker::Refused { why: "why".to_owned() },
        ToWorker::Heartbeat,
    ];
    let from_worker = [FromWorker::Heartbeat];
    let to_worker = to_worker.iter().map(proto::session::encode_to_worker);
    to_worker.chain(from_worker.iter().map(proto::session::encode_from_worker)).collect()
}

fn handoff() -> Vec<Vec<u8>> {
    let blocks = vec![(BlockId(1), Generation(2)), (BlockId(3), Generation(4))];
    let offer = Offer {
        request: RequestId(1),
        epoch: Epoch(2),
        lease: LeaseId(3),
        duration: Duration::from_secs(4),
        layout: 5,
        tokens: 40,
        ready: 16,
        groups: vec![OfferedGroup { first: 0, blocks }],
    };
    let ask = Ask {
        request: RequestId(1),
        epoch: Epoch(2),
        lease: Duration::from_secs(3),
        wait: Duration::from_secs(1),
        tenant: Tenant(6),
        chain: vec![BlockHash([4; 16]), BlockHash([5; 16])],
    };
    let bodies = [
        PeerBody::Ask(ask),
        PeerBody::Decline { request: RequestId(1), epoch: Epoch(2) },
        PeerBody::Expect { request: RequestId(1), epoch: Epoch(2) },
        PeerBody::Queued { request: RequestId(1), epoch: Epoch(2) },
        PeerBody::Offer(offer),
        PeerBody::Written { lease: LeaseId(3), step: StepId(6), tokens: 32 },
        PeerBody::Complete { lease: LeaseId(3), missing: vec![7], first: vec![(Choice(0), 8)] },
        PeerBody::Released { lease: LeaseId(3), valid: true },
    ];
    let message = |body| PeerMessage {
        from: WorkerId(1),
        from_incarnation: Incarnation(2),
        to_incarnation: Some(Incarnation(3)),
        body,
    };
    bodies.map(|body| proto::handoff::encode(&message(body))).to_vec()
}
