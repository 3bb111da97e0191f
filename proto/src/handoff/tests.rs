use super::*;
use domain::{BlockHash, Choice, Tenant, Token};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

prop_compose! {
    fn offer()(
        ids in any::<(u64, u32, u64, u64, u64)>(),
        tokens in any::<(u32, u32)>(),
        groups in vec((any::<u32>(), vec(any::<(u32, u64)>(), 0..5)), 1..4),
    ) -> PeerBody {
        let group = |(first, blocks): (u32, Vec<(u32, u64)>)| OfferedGroup {
            first,
            blocks: blocks.into_iter().map(|(block, generation)| (BlockId(block), Generation(generation))).collect(),
        };
        PeerBody::Offer(Offer {
            request: RequestId(ids.0),
            epoch: Epoch(ids.1),
            lease: LeaseId(ids.2),
            duration: Duration::from_nanos(ids.3),
            layout: ids.4,
            tokens: tokens.0.max(tokens.1),
            ready: tokens.0.min(tokens.1),
            groups: groups.into_iter().map(group).collect(),
        })
    }
}

fn body() -> impl Strategy<Value = PeerBody> {
    let lease = || any::<u64>().prop_map(LeaseId);
    prop_oneof![
        offer(),
        (any::<(u64, u32, u64, u64, u32)>(), vec(any::<[u8; 16]>(), 1..4)).prop_map(|(fields, chain)| {
            let (request, epoch, lease, wait, tenant) = fields;
            PeerBody::Ask(Ask {
                request: RequestId(request),
                epoch: Epoch(epoch),
                lease: Duration::from_nanos(lease),
                wait: Duration::from_nanos(wait),
                tenant: Tenant(tenant),
                chain: chain.into_iter().map(BlockHash).collect(),
            })
        }),
        any::<(u64, u32)>()
            .prop_map(|(request, epoch)| PeerBody::Decline { request: RequestId(request), epoch: Epoch(epoch) }),
        any::<(u64, u32)>()
            .prop_map(|(request, epoch)| PeerBody::Expect { request: RequestId(request), epoch: Epoch(epoch) }),
        any::<(u64, u32)>()
            .prop_map(|(request, epoch)| PeerBody::Queued { request: RequestId(request), epoch: Epoch(epoch) }),
        (lease(), any::<u64>(), any::<u32>()).prop_map(|(lease, step, tokens)| PeerBody::Written {
            lease,
            step: StepId(step),
            tokens
        }),
        (lease(), vec(any::<Token>(), 0..4), vec((any::<u16>().prop_map(Choice), any::<Token>()), 0..4))
            .prop_map(|(lease, missing, first)| PeerBody::Complete { lease, missing, first }),
        lease().prop_map(|lease| PeerBody::Withdraw { lease }),
        (lease(), any::<u64>()).prop_map(|(lease, ticks)| PeerBody::Renew { lease, ticks }),
        lease().prop_map(|lease| PeerBody::Release { lease }),
        (lease(), any::<bool>()).prop_map(|(lease, valid)| PeerBody::Released { lease, valid }),
        lease().prop_map(|lease| PeerBody::ReleaseAck { lease }),
    ]
}

fn message() -> impl Strategy<Value = PeerMessage> {
    (any::<u32>(), any::<u64>(), option::of(any::<u64>()), body()).prop_map(|(from, mine, yours, body)| PeerMessage {
        from: WorkerId(from),
        from_incarnation: Incarnation(mine),
        to_incarnation: yours.map(Incarnation),
        body,
    })
}

proptest! {
    #[test]
    fn every_message_comes_back(message in message()) {
        prop_assert_eq!(decode(&encode(&message)), Ok(message));
    }

    /// What decodes at all is in canonical form after one more round.
    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in vec(any::<u8>(), 0..64)) {
        if let Ok(message) = decode(&bytes) {
            prop_assert_eq!(decode(&encode(&message)), Ok(message));
        }
    }

    /// Nearly right bytes reach deeper than random ones.
    #[test]
    fn a_damaged_message_never_panics(message in message(), at: prop::sample::Index, flip in 1u8.., cut: bool) {
        let mut bytes = encode(&message);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if cut {
            bytes.truncate(at);
        }
        drop(decode(&bytes));
    }
}

#[test]
fn golden_offer() {
    let offer = PeerMessage {
        from: WorkerId(1),
        from_incarnation: Incarnation(2),
        to_incarnation: Some(Incarnation(0)),
        body: PeerBody::Offer(Offer {
            request: RequestId(3),
            epoch: Epoch(4),
            lease: LeaseId(5),
            duration: Duration::from_nanos(300),
            layout: 6,
            tokens: 20,
            ready: 16,
            groups: vec![OfferedGroup {
                first: 0,
                blocks: vec![(BlockId(7), Generation(8)), (BlockId(9), Generation(0))],
            }],
        }),
    };
    let hex: String = encode(&offer).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "080111020000000000000019000000000000000022270903000000000000001004180520ac02290600000000000000301438104208120207091a020800"
    );
}

#[track_caller]
fn check_refused(body: Option<Body>, expect: &str) {
    let message = wire::PeerMessage { from: 1, from_incarnation: 1, to_incarnation: None, body };
    assert_eq!(decode(&message.encode_to_vec()).expect_err("it is refused").to_string(), expect);
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    check_refused(None, "PeerMessage.body is missing");
    check_refused(Some(Body::Offer(wire::Offer::default())), "Offer.groups is invalid: it is empty");
    check_refused(Some(Body::Ask(wire::Ask::default())), "Ask.chain is invalid: it is empty");
    check_refused(
        Some(Body::Ask(wire::Ask { chain: vec![0; 17], ..Default::default() })),
        "Ask.chain is invalid: 17 bytes do not divide by 16",
    );
    let groups = vec![wire::OfferedGroup { first: 0, block: vec![1, 2], generation: vec![1] }];
    check_refused(
        Some(Body::Offer(wire::Offer { groups: groups.clone(), ..Default::default() })),
        "OfferedGroup.generation is invalid: 1 entries in a table of 2 rows",
    );
    check_refused(
        Some(Body::Offer(wire::Offer { groups, ready: 2, tokens: 1, ..Default::default() })),
        "Offer.ready is invalid: 2 of 1 tokens",
    );
    check_refused(
        Some(Body::Complete(wire::Complete { lease: 1, choice: vec![65_536], token: vec![1], missing: vec![] })),
        "Complete.choice is invalid: 65536 is over 65535",
    );
}
