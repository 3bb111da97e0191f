//! The service `baton.admin.v1.Admin`: its messages, its client and what a server implements. `proto/proto` says what
//! they mean.

pub use calls::JsonAnswer;
pub use generated::admin_client::AdminClient;
pub use generated::admin_server::{Admin, AdminServer, SERVICE_NAME};
pub use generated::*;
pub use json::{candidate_kind_name, request_state_name, role_name, worker_state_name};
pub use prost::{DecodeError, Message};

mod calls;
mod json;
#[rustfmt::skip]
#[path = "generated/baton.admin.v1.rs"]
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated; the .proto files carry the docs")]
mod generated;

/// Describes the service to clients that ask for it (`grpc.reflection.v1`): a `FileDescriptorSet`.
pub const DESCRIPTION: &[u8] = include!("generated/baton.admin.v1.descriptor.rs");
