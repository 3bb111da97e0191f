//! Calls of the service in JSON: their requests are read, and their answers written, by the names of fields in the
//! `.proto` file. The function that goes from the name of a call to the call is generated.

use futures_util::stream::{BoxStream, Stream, StreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tonic::{Request, Response, Status};

/// What a call is answered with.
pub enum JsonAnswer {
    /// A message.
    One(Vec<u8>),
    /// Messages, until an error or the end.
    Many(BoxStream<'static, Result<Vec<u8>, Status>>),
}

/// Reads what is asked. Errors: it is no message of this kind.
pub(super) fn read<M: DeserializeOwned>(body: &[u8]) -> Result<Request<M>, Status> {
    let wrong = |error| Status::invalid_argument(format!("the body is not what this call takes: {error}"));
    serde_json::from_slice(body).map(Request::new).map_err(wrong)
}

pub(super) fn one(answer: Response<impl Serialize>) -> Result<JsonAnswer, Status> {
    write(answer.get_ref()).map(JsonAnswer::One)
}

pub(super) fn many<M: Serialize>(
    answer: Response<impl Stream<Item = Result<M, Status>> + Send + 'static>,
) -> Result<JsonAnswer, Status> {
    Ok(JsonAnswer::Many(answer.into_inner().map(|message| write(&message?)).boxed()))
}

pub(super) fn unknown(call: &str) -> Status {
    Status::unimplemented(format!("there is no call {call:?}: see baton.admin.v1.Admin"))
}

fn write(message: &impl Serialize) -> Result<Vec<u8>, Status> {
    serde_json::to_vec(message).map_err(|error| Status::internal(format!("the answer is no JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::super::{ChangeRoleRequest, DrainWorkerRequest, Role, Subject, WatchRequest};
    use super::*;

    #[test]
    fn what_is_asked_is_read_by_names_and_nothing_else_is_taken() {
        fn asked<M: DeserializeOwned>(body: &str) -> Result<M, String> {
            read(body.as_bytes()).map(tonic::Request::into_inner).map_err(|status| status.message().to_owned())
        }
        let role = asked::<ChangeRoleRequest>(r#"{"worker":"d","role":"prefill"}"#).expect("it is one");
        assert_eq!((role.worker.as_str(), role.role(), role.force), ("d", Role::Prefill, false));
        let watch = asked::<WatchRequest>(r#"{"subjects":["lanes","tiers"]}"#).expect("it is one");
        assert_eq!(watch.subjects().collect::<Vec<_>>(), [Subject::Lanes, Subject::Tiers]);
        assert_eq!(asked::<DrainWorkerRequest>("{}"), Ok(DrainWorkerRequest::default()));
        let wrong = asked::<ChangeRoleRequest>(r#"{"role":"cook"}"#).expect_err("there is no such role");
        assert!(wrong.contains("\"cook\" is no role"), "{wrong}");
        let wrong = asked::<DrainWorkerRequest>(r#"{"worker":"d","forse":true}"#).expect_err("there is no such field");
        assert!(wrong.contains("unknown field `forse`"), "{wrong}");
        asked::<DrainWorkerRequest>("").expect_err("it is no JSON");
    }
}
