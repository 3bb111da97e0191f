//! The driver API, in the few calls that Baton makes, with errors that name the call.

mod context;
mod error;
mod event;
mod graph;
mod identity;
mod launch;
mod library;
mod memory;
mod module;
mod pinned;
mod reservation;
mod stream;

pub use context::{Attribute, Context};
pub use error::DriverError;
pub use event::Event;
pub use graph::{Capture, Graph};
pub use identity::Identity;
pub use launch::{Args, Grid};
pub use library::{Driver, Missing};
pub use memory::DeviceBytes;
pub use module::{Function, Module};
pub use pinned::{Pinned, Registered};
pub use reservation::{Access, Reservation, Shared};
pub use stream::{Stream, StreamPriority};
