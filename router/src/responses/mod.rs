//! Responses that are kept, so that clients can read them again and go on from them.
//!
//! What is deliberately absent: how a response is made and written (`dialects`), and the paths (`http`).

mod oldest;
mod record;
mod store;

pub(crate) use record::{Record, new_id, owner};
pub(crate) use store::{Store, StoreError};
