//! The service `baton.admin.v1.Admin`: its messages, its client and what a server implements. `proto/proto` says what
//! they mean.

pub use calls::JsonAnswer;
pub use generated::admin_client::AdminClient;
pub use generated::admin_server::{Admin, AdminServer, SERVICE_NAME};
pub use generated::*;
pub use json::{
    candidate_kind_name, phase_kind_name, prefix_outcome_name, request_state_name, role_name, worker_state_name,
};
pub use prost::{DecodeError, Message};
use std::time::Duration;

mod calls;
mod json;
#[rustfmt::skip]
#[path = "generated/baton.admin.v1.rs"]
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated; the .proto files carry the docs")]
mod generated;

/// Describes the service to clients that ask for it (`grpc.reflection.v1`): a `FileDescriptorSet`.
pub const DESCRIPTION: &[u8] = include!("generated/baton.admin.v1.descriptor.rs");

/// The longest duration of a pin. A prefix can be pinned again.
pub const PIN_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// The duration of a pin where none is asked for.
pub const PIN_DEFAULT: Duration = Duration::from_secs(24 * 3600);
