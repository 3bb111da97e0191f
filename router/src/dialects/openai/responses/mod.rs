//! `POST /v1/responses`.

mod input;
mod made;
mod options;
mod response;
mod tools;
mod turn;
mod writer;

pub(crate) use options::check_include;
pub(crate) use turn::{Responses, Turn};
