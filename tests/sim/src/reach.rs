//! What is to be reached somewhere in so many seeds, beside faults in steps: pauses beside every limit of time,
//! and every limit of a number.

use crate::limit::{Beside, LIMITS};

/// Something to be reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Reached {
    /// A process stood still for a time beside a limit.
    Pause(Beside),
    /// A whole worker process stood still: what came for it meanwhile lay in sockets.
    WholeProcessPaused,
    /// A prompt that makes every step fail that it is in failed one with others in it.
    PoisonWithOthers,
    /// Messages waited for a session to take them.
    OutboxWaits,
    /// A link to a worker took no attempt more.
    AttemptUnsent,
    /// It took nothing at all, and its session was closed.
    LinkFull,
    /// An inbox took no more, and a message of a peer was dropped.
    InboxDropped,
    /// An inbox took no more, and a session was not read for a while.
    SessionUnread,
    /// A message to a peer was not taken.
    MessageRefused,
    /// A transfer was not posted.
    TransferRefused,
    /// An attempt was refused, since the queue was full.
    QueueFull,
    /// An attempt was refused, since it is more than the worker takes of any.
    TooLarge,
    /// A request was given to a worker, and the context of another one is too short for it.
    TooLongForSome,
    /// A prefix was pinned.
    Pinned,
    /// One was not, since too much was pinned.
    PinRefused,
    /// A worker refused an attempt, since an operator drains it or gave it another role.
    OperatorRefused,
    /// A router got a worker's answer to an operator.
    OperatorAnswered,
    /// A block was parked.
    Parked,
    /// A block was cold.
    Cold,
    /// A step failed with another one in flight behind it.
    FailedWithSuccessor,
    /// A token came with its log probability.
    Logprobs,
    /// A sequence was sampled by its history.
    History,
    /// A request waited in a router.
    RouterWaits,
    /// A token waited at a router for one before it.
    EarlyRow,
    /// So many did that the attempt was given up.
    EarlyRowsMax,
    /// A router was shown something after what came later.
    SightLate,
    /// It was shown the same again.
    SightAgain,
    /// It was shown an earlier life of a worker that is listed, as if that were new.
    EarlierLifeShown,
    /// A request was given to a worker that is not listed any more.
    UnlistedServes,
    /// Another worker was where a router dialed one.
    AnotherFound,
    /// A worker that never was had been dialed, and was forgotten.
    InventedForgotten,
}

impl Reached {
    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = Reached> {
        let beside = |limit| [false, true].map(|over| Reached::Pause(Beside { limit, over }));
        LIMITS.into_iter().flat_map(beside).chain([
            Reached::WholeProcessPaused,
            Reached::PoisonWithOthers,
            Reached::OutboxWaits,
            Reached::AttemptUnsent,
            Reached::LinkFull,
            Reached::InboxDropped,
            Reached::SessionUnread,
            Reached::MessageRefused,
            Reached::TransferRefused,
            Reached::QueueFull,
            Reached::TooLarge,
            Reached::TooLongForSome,
            Reached::Pinned,
            Reached::PinRefused,
            Reached::OperatorRefused,
            Reached::OperatorAnswered,
            Reached::Parked,
            Reached::Cold,
            Reached::FailedWithSuccessor,
            Reached::Logprobs,
            Reached::History,
            Reached::RouterWaits,
            Reached::EarlyRow,
            Reached::EarlyRowsMax,
            Reached::SightLate,
            Reached::SightAgain,
            Reached::EarlierLifeShown,
            Reached::UnlistedServes,
            Reached::AnotherFound,
            Reached::InventedForgotten,
        ])
    }

    /// Its name in a table.
    pub(crate) fn name(self) -> String {
        match self {
            Reached::Pause(Beside { limit, over }) => {
                format!("pause {} {limit:?}", if over { "over" } else { "under" })
            }
            other => format!("{other:?}"),
        }
    }
}
