//! The way of a fetch by example; `model` runs it against owners, transports and clocks that do as they like.

mod model;

use super::*;
use domain::handoff::OfferedGroup;
use domain::{BlockId, Epoch, Generation, GroupId, RequestId};
use std::ops::Range;

const SIZE: u32 = 4;
const LAYOUT: u64 = 99;
const LEASE: LeaseId = LeaseId(7);
const MS: Duration = Duration::from_millis(1);

fn config() -> FetchConfig {
    FetchConfig {
        layout: LAYOUT,
        block_tokens: SIZE,
        wait_max: MS * 1000,
        answer_max: MS * 100,
        release_retry: MS * 30,
    }
}

/// Returns an offer of one full group, the owner's blocks counted from 100.
fn offer(tokens: u32, ready: u32) -> Offer {
    let blocks = (0..tokens.div_ceil(SIZE)).map(|block| (BlockId(100 + block), Generation(1))).collect();
    Offer {
        request: RequestId(1),
        epoch: Epoch(1),
        lease: LEASE,
        duration: MS * 300,
        layout: LAYOUT,
        tokens,
        ready,
        groups: vec![OfferedGroup { first: 0, blocks }],
    }
}

/// Room for it, the reader's blocks counted from zero.
fn room(tokens: u32, held_tokens: u32) -> FetchEvent {
    let blocks = (0..tokens.div_ceil(SIZE)).map(BlockId).collect();
    FetchEvent::Room { tables: vec![BlockTable { first: 0, blocks }], held_tokens }
}

fn read(blocks: Range<u32>, step: Option<u64>) -> FetchCommand {
    FetchCommand::Read(pieces(blocks, step))
}

fn pieces(blocks: Range<u32>, step: Option<u64>) -> Vec<Piece> {
    let step = step.map(StepId);
    blocks.map(|n| Piece { group: GroupId(0), from: BlockId(100 + n), to: BlockId(n), step }).collect()
}

fn written(step: u64, tokens: u32) -> FetchEvent {
    FetchEvent::Written { step: StepId(step), tokens }
}

fn complete() -> FetchEvent {
    FetchEvent::Complete { first: first() }
}

fn first() -> Vec<(Choice, Token)> {
    vec![(Choice(0), 42)]
}

fn ended(pieces: u32) -> FetchEvent {
    FetchEvent::ReadsEnded { pieces, ok: true }
}

fn release() -> FetchCommand {
    FetchCommand::Send(PeerBody::Release { lease: LEASE })
}

fn ack() -> FetchCommand {
    FetchCommand::Send(PeerBody::ReleaseAck { lease: LEASE })
}

/// A fetch and the milliseconds that went by.
struct Run {
    fetch: Fetch,
    now: Time,
}

impl Run {
    fn new() -> Self {
        Self { fetch: Fetch::expect(Time::ZERO, config(), Time::ZERO + MS * 5000), now: Time::ZERO }
    }

    /// One that took an offer with nothing ready and has room for it.
    fn reading(tokens: u32) -> Self {
        let mut run = Self::new();
        run.check(FetchEvent::Offer(offer(tokens, 0)), &[FetchCommand::WantRoom { tokens }]);
        run.check(room(tokens, 0), &[]);
        run
    }

    fn check(&mut self, event: FetchEvent, expect: &[FetchCommand]) {
        let mut out = Vec::new();
        self.fetch.handle(self.now, event.clone(), &mut out);
        assert_eq!(out, expect, "after {event:?}");
    }

    /// Lets time go by up to `ms`, with no tick in between.
    fn at(&mut self, ms: u32) -> &mut Self {
        self.now = Time::ZERO + MS * ms;
        self
    }

    fn tick(&mut self, expect: &[FetchCommand]) {
        self.check(FetchEvent::Tick { ticks: 5 }, expect);
    }

    fn due_at(&self, ms: u32) {
        assert_eq!(self.fetch.next_deadline(), Some(Time::ZERO + MS * ms));
    }
}

#[test]
fn blocks_are_read_as_they_are_written_and_start_after_a_valid_answer() {
    let mut run = Run::new();
    run.check(FetchEvent::Offer(offer(18, 8)), &[FetchCommand::WantRoom { tokens: 18 }]);
    run.check(written(3, 12), &[]);
    // Four tokens are held here; four were ready; four are being written by step 3.
    let both = [pieces(1..2, None), pieces(2..3, Some(3))].concat();
    run.check(room(18, 4), &[FetchCommand::Read(both)]);
    run.check(ended(2), &[]);
    // The tail is read with the step that writes the last position.
    run.check(written(4, 18), &[read(3..5, Some(4))]);
    run.check(complete(), &[]);
    run.check(ended(1), &[]);
    assert_eq!(run.fetch.state(), FetchState::Reading);
    run.check(ended(1), &[release()]);
    assert_eq!(run.fetch.state(), FetchState::Answering);
    run.check(
        FetchEvent::Released { valid: true },
        &[ack(), FetchCommand::Start { first: first() }, FetchCommand::Done],
    );
    assert_eq!((run.fetch.state(), run.fetch.next_deadline(), run.fetch.ignored()), (FetchState::Done, None, 0));
}

#[test]
fn complete_stands_in_for_all_that_was_not_said() {
    let mut run = Run::new();
    run.check(FetchEvent::Offer(offer(12, 4)), &[FetchCommand::WantRoom { tokens: 12 }]);
    run.check(complete(), &[]);
    run.check(written(3, 12), &[]);
    run.check(room(12, 0), &[FetchCommand::Read(pieces(0..3, None))]);
    run.check(ended(3), &[release()]);
    assert_eq!(run.fetch.ignored(), 1);
}

#[test]
fn what_is_all_held_is_still_released_and_answered() {
    let mut run = Run::new();
    run.check(FetchEvent::Offer(offer(8, 0)), &[FetchCommand::WantRoom { tokens: 8 }]);
    run.check(room(8, 8), &[]);
    run.check(complete(), &[release()]);
}

#[test]
fn windows_are_matched_by_the_number_of_the_block() {
    let mut run = Run::new();
    let mut windowed = offer(16, 16);
    let blocks = (2..4).map(|n| (BlockId(200 + n), Generation(1))).collect();
    windowed.groups.push(OfferedGroup { first: 2, blocks });
    run.check(FetchEvent::Offer(windowed), &[FetchCommand::WantRoom { tokens: 16 }]);
    let tables = vec![
        BlockTable { first: 0, blocks: (0..4).map(BlockId).collect() },
        BlockTable { first: 3, blocks: vec![BlockId(50)] },
    ];
    let window = Piece { group: GroupId(1), from: BlockId(203), to: BlockId(50), step: None };
    let expected = [pieces(1..4, None), vec![window]].concat();
    run.check(FetchEvent::Room { tables, held_tokens: 4 }, &[FetchCommand::Read(expected)]);
}

#[test]
fn a_destination_that_needs_more_than_is_offered_fails_and_is_freed() {
    let mut run = Run::new();
    let mut short = offer(16, 16);
    short.groups[0].first = 1;
    short.groups[0].blocks.remove(0);
    run.check(FetchEvent::Offer(short), &[FetchCommand::WantRoom { tokens: 16 }]);
    let failed = [FetchCommand::Fail(FetchError::RoomDiffers), release(), FetchCommand::Free, FetchCommand::Done];
    run.check(room(16, 0), &failed);
}

#[test]
fn an_offer_of_another_shape_is_refused_and_released() {
    let shapes: [fn(&mut Offer); 3] =
        [|offer| offer.layout += 1, |offer| offer.tokens += SIZE, |offer| offer.groups[0].blocks.truncate(1)];
    let errors = [FetchError::LayoutDiffers, FetchError::OfferIncomplete, FetchError::OfferIncomplete];
    for (spoil, error) in shapes.into_iter().zip(errors) {
        let mut run = Run::new();
        let mut offer = offer(8, 0);
        spoil(&mut offer);
        let refused = [FetchCommand::Fail(error), release(), FetchCommand::Done];
        run.check(FetchEvent::Offer(offer), &refused);
    }
}

#[test]
fn waits_for_an_offer_and_for_room_are_bounded() {
    let timeout = |waiting_for| FetchCommand::Fail(FetchError::TimedOut { waiting_for });
    let mut run = Run::new();
    run.at(999).tick(&[FetchCommand::Inquire]);
    run.due_at(1000);
    run.at(1000).tick(&[timeout(FetchState::Expecting), FetchCommand::Done]);

    let mut run = Run::new();
    run.at(900).check(FetchEvent::Offer(offer(8, 0)), &[FetchCommand::WantRoom { tokens: 8 }]);
    run.at(1900).tick(&[timeout(FetchState::WaitingRoom), release(), FetchCommand::Done]);
    // Room that crossed the failure goes back.
    run.check(room(8, 0), &[FetchCommand::Free]);
}

#[test]
fn signs_of_life_prolong_reading_up_to_the_requests_deadline() {
    let mut run = Run::reading(16);
    for step in 1..4 {
        run.at(step * 900).check(written(step.into(), step * SIZE), &[read(step - 1..step, Some(step.into()))]);
        run.check(ended(1), &[]);
    }
    run.at(3600).check(written(3, 12), &[]);
    assert_eq!(run.fetch.ignored(), 1);
    let failed = |why| [FetchCommand::Fail(why), release(), FetchCommand::Free, FetchCommand::Done];
    run.at(3700).tick(&failed(FetchError::TimedOut { waiting_for: FetchState::Reading }));

    let mut run = Run::reading(16);
    run.at(4500).check(written(1, 4), &[read(0..1, Some(1))]);
    run.check(ended(1), &[]);
    run.at(5000).tick(&failed(FetchError::Deadline));
}

#[test]
fn a_lease_is_renewed_thrice_in_its_duration_until_it_is_released() {
    let renew = FetchCommand::Send(PeerBody::Renew { lease: LEASE, ticks: 5 });
    let mut run = Run::reading(4);
    run.due_at(100);
    run.at(99).tick(&[]);
    run.at(100).tick(std::slice::from_ref(&renew));
    run.due_at(200);
    run.at(250).tick(std::slice::from_ref(&renew));
    run.due_at(350);
    run.check(complete(), &[read(0..1, None)]);
    run.check(ended(1), &[release()]);
    // From now on it is the release that is repeated.
    run.due_at(280);
    run.at(280).tick(&[release()]);
    run.at(310).tick(&[release()]);
    let error = FetchError::TimedOut { waiting_for: FetchState::Answering };
    let failed = [FetchCommand::Fail(error), FetchCommand::Free, FetchCommand::Done];
    run.at(350).tick(&failed);
}

#[test]
fn an_invalid_answer_starts_nothing() {
    let mut run = Run::reading(4);
    run.check(complete(), &[read(0..1, None)]);
    run.check(ended(1), &[release()]);
    let failed = [ack(), FetchCommand::Fail(FetchError::NotValid), FetchCommand::Free, FetchCommand::Done];
    run.check(FetchEvent::Released { valid: false }, &failed);
    run.check(FetchEvent::Released { valid: true }, &[]);
    assert_eq!(run.fetch.ignored(), 1);
}

#[test]
fn a_lease_that_is_over_ends_it_wherever_it_stands() {
    let (over, failed) = (FetchEvent::Released { valid: false }, FetchCommand::Fail(FetchError::LeaseOver));
    // Before its offer it has no lease that could be over.
    let mut run = Run::new();
    run.check(over.clone(), &[]);
    assert_eq!((run.fetch.state(), run.fetch.ignored()), (FetchState::Expecting, 1));
    // There is nothing left to be released.
    run.check(FetchEvent::Offer(offer(8, 0)), &[FetchCommand::WantRoom { tokens: 8 }]);
    run.check(over.clone(), &[failed.clone(), FetchCommand::Done]);
    // Nobody releases unasked: such an answer is another lease's, or nobody's.
    let mut run = Run::reading(4);
    run.check(FetchEvent::Released { valid: true }, &[]);
    assert_eq!(run.fetch.ignored(), 1);
    run.check(over.clone(), &[failed.clone(), FetchCommand::Free, FetchCommand::Done]);
    // Reported again, while its reads end and afterwards.
    let mut run = Run::reading(4);
    run.check(written(1, 4), &[read(0..1, Some(1))]);
    run.check(over.clone(), &[failed, FetchCommand::CancelReads]);
    run.check(over.clone(), &[]);
    run.check(FetchEvent::Quiesced, &[FetchCommand::Free, FetchCommand::Done]);
    run.check(over, &[]);
    assert_eq!(run.fetch.ignored(), 2);
}

#[test]
fn whatever_ends_it_waits_for_its_reads() {
    let failed = |why| vec![FetchCommand::Fail(why), FetchCommand::CancelReads];
    let ends = [
        (FetchEvent::Withdraw, failed(FetchError::Withdrawn), true),
        (FetchEvent::ReadsEnded { pieces: 1, ok: false }, failed(FetchError::ReadFailed), true),
        (FetchEvent::OwnerLost, failed(FetchError::OwnerLost), false),
        (FetchEvent::Cancel, vec![FetchCommand::CancelReads], true),
        (FetchEvent::Complete { first: vec![] }, vec![FetchCommand::CancelReads], true),
    ];
    for (event, expect, releases) in ends {
        let mut run = Run::reading(16);
        run.check(written(1, 12), &[read(0..3, Some(1))]);
        run.check(event, &expect);
        assert_eq!((run.fetch.state(), run.fetch.next_deadline()), (FetchState::Quiescing, None));
        run.check(written(2, 16), &[]);
        run.check(FetchEvent::Cancel, &[]);
        run.check(ended(1), &[]);
        run.at(9000).tick(&[]);
        let mut end = vec![FetchCommand::Free, FetchCommand::Done];
        if releases {
            end.insert(0, release());
        }
        run.check(FetchEvent::Quiesced, &end);
    }
}

#[test]
fn blocks_that_were_asked_for_are_complete_with_their_offer() {
    let asked = || Run { fetch: Fetch::ask(Time::ZERO, config(), Time::ZERO + MS * 5000), now: Time::ZERO };
    let mut run = asked();
    run.check(FetchEvent::Offer(offer(16, 16)), &[FetchCommand::WantRoom { tokens: 16 }]);
    run.check(room(16, 4), &[read(1..4, None)]);
    // The owner has nothing to say of them, and nothing to take back by saying it.
    run.check(FetchEvent::Complete { first: vec![] }, &[]);
    run.check(ended(3), &[release()]);
    run.check(
        FetchEvent::Released { valid: true },
        &[ack(), FetchCommand::Start { first: vec![] }, FetchCommand::Done],
    );
    // What is here already is released without a read.
    let mut run = asked();
    run.check(FetchEvent::Offer(offer(8, 8)), &[FetchCommand::WantRoom { tokens: 8 }]);
    run.check(room(8, 8), &[release()]);
    // What is still to be written was not asked for.
    let mut run = asked();
    let refused = [FetchCommand::Fail(FetchError::OfferIncomplete), release(), FetchCommand::Done];
    run.check(FetchEvent::Offer(offer(16, 12)), &refused);
}

#[test]
fn a_cancel_before_the_offer_leaves_nothing_to_do() {
    let mut run = Run::new();
    run.check(FetchEvent::Withdraw, &[]);
    run.check(FetchEvent::Cancel, &[FetchCommand::Done]);
    run.check(FetchEvent::Offer(offer(8, 0)), &[]);
    assert_eq!((run.fetch.ignored(), run.fetch.lease()), (2, None));
}

#[test]
fn an_owner_whose_queue_is_long_is_waited_for_as_long_as_it_says_so() {
    let mut run = Run::new();
    // It is asked thrice in the longest wait, and one answer is enough.
    for ms in [334, 668, 1002, 1336, 1670, 2004] {
        run.at(ms).tick(&[FetchCommand::Inquire]);
        run.tick(&[]);
        if ms % 668 == 0 {
            run.check(FetchEvent::Queued, &[]);
            assert_eq!(run.fetch.queued(), Some(run.now));
        }
    }
    // From when it begins, the handoff is waited for as ever.
    run.at(2600).check(FetchEvent::Offer(offer(8, 0)), &[FetchCommand::WantRoom { tokens: 8 }]);
    run.check(FetchEvent::Queued, &[]);
    assert_eq!(run.fetch.ignored(), 1);
    run.at(3599).tick(&[FetchCommand::Send(PeerBody::Renew { lease: LEASE, ticks: 5 })]);
    run.at(3600).tick(&[
        FetchCommand::Fail(FetchError::TimedOut { waiting_for: FetchState::WaitingRoom }),
        release(),
        FetchCommand::Done,
    ]);
}

#[test]
fn an_owner_that_does_not_say_that_it_has_the_prompt_is_waited_for_so_long() {
    let mut run = Run::new();
    run.at(500).check(FetchEvent::Queued, &[]);
    run.at(1499).tick(&[FetchCommand::Inquire]);
    run.at(1500)
        .tick(&[FetchCommand::Fail(FetchError::TimedOut { waiting_for: FetchState::Expecting }), FetchCommand::Done]);
    // The client's deadline bounds it all.
    let mut run = Run::new();
    for ms in (300..5000).step_by(300) {
        run.at(ms).check(FetchEvent::Queued, &[]);
    }
    run.at(5000).tick(&[FetchCommand::Fail(FetchError::Deadline), FetchCommand::Done]);
}
