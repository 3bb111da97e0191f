//! What threads do, in words.

use std::fmt;

macro_rules! doings {
    ($($(#[$doc:meta])* $name:ident: $words:literal,)*) => {
        /// What a thread does or waits for. None of it names a request, a prompt or a key.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Doing {
            $($(#[$doc])* $name,)*
        }

        impl Doing {
            const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns it in words, to be read after the name of a thread.
            pub fn words(self) -> &'static str {
                match self {
                    $(Self::$name => $words,)*
                }
            }
        }
    };
}

doings! {
    /// It does what it was started or woken for.
    Works: "works",

    /// The step loop.
    WaitsForEvents: "waits for an event: a message, the end of a step or of a move",
    /// The step loop.
    HandlesEvents: "handles events",
    /// The step loop.
    TakesTurn: "applies what the device computed, and submits the next step",
    /// The step loop.
    EndsWorker: "ends the worker",

    /// The thread of a device.
    WaitsForStep: "waits for a step to be submitted",
    /// The thread of a device.
    Computes: "computes a step",
    /// The thread of a device.
    WaitsForHelpers: "waits for its helpers to end their parts of a step",
    /// The poller of a device that stores its progress itself.
    WaitsForReader: "waits for a step to run whose layers a reader waits for",
    /// The poller of a device that stores its progress itself.
    LooksForProgress: "looks for layers that the device has written",
    /// A helper of a device's thread.
    WaitsForPart: "waits for a part of a step",
    /// A helper of a device's thread.
    LooksForPart: "computes parts of a step, or looks for one",

    /// The control thread of an agent.
    WaitsForPeers: "waits for messages of peers",
    /// A lane's thread.
    WaitsForReads: "waits for bytes from peers, or for a read to begin",
    /// A thread that copies.
    WaitsForCopies: "waits for memory to be written that it is to copy, or for a read to begin",
    /// A thread of a copier.
    WaitsForOrders: "waits for an order to copy to or from the memory of a device",
    /// A thread that closes connections.
    WaitsForClosed: "waits for connections to close",
    /// A thread that connects.
    Dials: "connects with a peer",
    /// A thread that asks for an address.
    LooksUpName: "waits for a name server",

    /// A tier's thread.
    WaitsForMoves: "waits for records to move, or for the end of a move",
    /// A mover of files.
    WaitsForFiles: "waits for the disk, or for a move to begin",
    /// A thread that reads and writes files.
    WaitsForFileWork: "waits for something to read or write",
    /// A thread that reads and writes files.
    UsesFile: "reads or writes a file",

    /// A thread of an asynchronous runtime that runs what may block.
    AwaitsTask: "waits for a task that may block, or runs it",
    /// A thread of an asynchronous runtime.
    WaitsForTasks: "waits for sockets, timers and tasks",
    /// A thread of an asynchronous runtime.
    RunsTasks: "runs tasks",
    /// A thread of an asynchronous runtime that runs what may block.
    ReadsPrompt: "makes tokens of a prompt",

    /// The main thread.
    Starts: "reads the model, and starts the other threads",
    /// The main thread.
    ServesListeners: "takes connections, and waits for what ends the process",
    /// The main thread.
    EndsProcess: "ends the process, and waits for the other threads",

    /// The thread of the traces.
    WaitsForSpans: "waits for spans to send",
    /// The thread of the traces.
    SendsSpans: "sends spans",
    /// The thread that watches the input.
    WaitsForInput: "waits for the end of its input",
}

impl Doing {
    /// Returns the one with this number.
    pub(crate) fn of_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Works)
    }
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}
