//! Workers by the names that operators give.

use proto::admin::{Role, Worker, WorkerState};
use tonic::Status;

/// Workers that an error names at most.
const NAMED_MAX: usize = 16;

/// Finds a worker by its name, or by its id, such as `w7` or `7`. Errors: there is none; it names those that there are.
pub(crate) fn find(workers: Vec<Worker>, wanted: &str) -> Result<Worker, Status> {
    if wanted.is_empty() {
        return Err(Status::invalid_argument("no worker is named"));
    }
    let id = wanted.strip_prefix('w').unwrap_or(wanted).parse::<u32>().ok();
    // A name that looks like the id of another worker is a name.
    let at = workers.iter().position(|worker| worker.name == wanted);
    let at = at.or_else(|| workers.iter().position(|worker| Some(worker.id) == id));
    match at {
        Some(at) => Ok(workers.into_iter().nth(at).expect("it is there")),
        None => Err(Status::not_found(format!("no worker {wanted:?} is here: {}", those(&workers)))),
    }
}

/// Names the workers that there are.
fn those(workers: &[Worker]) -> String {
    if workers.is_empty() {
        return "there is none".to_owned();
    }
    let names: Vec<&str> = workers.iter().take(NAMED_MAX).map(|worker| worker.name.as_str()).collect();
    let more = workers.len() - names.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("there are {}{more}", names.join(", "))
}

/// Checks that another worker than this one decodes. Errors: none does, so that requests would be refused.
pub(crate) fn check_another_decodes(workers: &[Worker], but: &Worker) -> Result<(), Status> {
    let decodes = |worker: &&Worker| worker.role() == Role::Decode && worker.state() == WorkerState::Serving;
    if but.role() != Role::Decode || workers.iter().filter(decodes).any(|worker| worker.id != but.id) {
        return Ok(());
    }
    Err(Status::failed_precondition(format!(
        "{} is the last decode worker that takes work: requests would be refused. Start another one first, or ask with force (--force)",
        but.name
    )))
}
