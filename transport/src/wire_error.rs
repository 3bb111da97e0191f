//! What can be wrong with a message of another agent. The control protocol, the lanes and exported metadata share it.

use domain::{NO_COMMON_VERSION, Versions};

/// Why a message of another agent is refused: its sender breaks the protocol, or is not an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The message does not begin as those of agents do.
    #[error("not the protocol of an agent")]
    Foreign,
    /// The sender speaks no version of the protocol that this agent speaks.
    #[error("it speaks version {theirs} of the transport's protocol, this worker {ours}; {NO_COMMON_VERSION}")]
    Versions {
        /// Those of the sender.
        theirs: Versions,
        /// Those of this agent.
        ours: Versions,
    },
    /// The message lacks bytes.
    #[error("a message that ends too early")]
    TooShort,
    /// The message has bytes after its end.
    #[error("a message with {0} bytes too many")]
    TooLong(usize),
    /// A frame is longer than any of its kind may be.
    #[error("a frame of {bytes} bytes where {bytes_max} are the most")]
    FrameTooLong {
        /// Bytes that the frame claims to have.
        bytes: usize,
        /// Bytes that it may have.
        bytes_max: usize,
    },
    /// A text is not UTF-8.
    #[error("a text that is not UTF-8")]
    NotUtf8,
    /// A frame comes when no frame of its kind may come.
    #[error("a frame of kind {0} out of place")]
    OutOfPlace(u8),
    /// A connection is opened for a purpose that does not exist.
    #[error("a connection for purpose {0}")]
    Purpose(u8),
    /// An end that has not proven itself sends more than it may.
    #[error("it said {0} bytes and has not proven itself")]
    Unproven(usize),
    /// Bytes arrive that this agent did not ask for.
    #[error("it sent bytes that were not asked for")]
    Unasked,
    /// File descriptors arrive that this agent does not accept.
    #[error("it brings descriptors, which nobody wants")]
    UnwantedDescriptors,
    /// A region in a file is announced without the descriptor of that file.
    #[error("a region came without its descriptor")]
    RegionWithoutFile,
    /// A region is announced that is not inside of what comes along.
    #[error("a region that leaves what its descriptor is of")]
    RegionOutside,
    /// A progress word is announced without the descriptor of its page.
    #[error("its progress word came without a descriptor")]
    ProgressWithoutFile,
    /// A region has more bytes than this machine can address.
    #[error("a region too large for this machine")]
    RegionTooLarge,
    /// A region is announced that is known already.
    #[error("it tells of region {0} a second time")]
    RegionTwice(u32),
    /// More regions are announced than an agent may have.
    #[error("it has more than {0} regions")]
    TooManyRegions(usize),
}
