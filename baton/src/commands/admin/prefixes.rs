//! `baton admin pin`, `unpin`, `park` and `unpark`.

use super::{AdminError, Asked, tables};
use crate::cli::PrefixArgs;
use crate::error::CommandError;
use crate::output::{grouped, print};
use proto::admin::*;
use std::fs::File;
use std::io::{Read, stdin};
use std::path::Path;
use std::time::Duration;
use tonic::Response;

/// What is to be done with a prefix.
pub(super) enum Do {
    Pin(Duration),
    Unpin,
    Park,
    Unpark,
}

impl Asked {
    /// Has workers do something with a prefix, and prints what each did. Errors: also where one of them did not.
    pub(super) async fn prefix(&mut self, what: Do, args: PrefixArgs) -> Result<(), CommandError> {
        let PrefixArgs { file, tenant, worker } = args;
        let prefix = Some(Prefix { request: read(&file)?, tenant: tenant.unwrap_or_default() });
        let (client, worker) = (&mut self.client, worker.unwrap_or_default());
        let answer = match what {
            Do::Pin(time) => client.pin_prefix(PinPrefixRequest { prefix, worker, seconds: time.as_secs() }).await,
            Do::Unpin => client.unpin_prefix(UnpinPrefixRequest { prefix, worker }).await,
            Do::Park => client.park_prefix(ParkPrefixRequest { prefix, worker }).await,
            Do::Unpark => client.unpark_prefix(UnparkPrefixRequest { prefix, worker }).await,
        };
        let answer = answer.map_err(|status| AdminError::of_call(&self.server, status))?.into_inner();
        let refused = answer.workers.iter().filter(|worker| worker.outcome() == PrefixOutcome::Refused).count();
        let silent = answer.silent.len();
        let all = answer.workers.len() + silent;
        print(&self.show(Ok(Response::new(answer)), table)?)?;
        if refused + silent == 0 {
            return Ok(());
        }
        Err(AdminError::Partly { server: self.server.clone(), refused, silent, all }.into())
    }
}

/// Reads a request. Errors: the file cannot be read, or is longer than a call may be.
fn read(path: &Path) -> Result<String, AdminError> {
    let most = admin::CALL_BYTES_MAX as u64;
    let mut text = String::new();
    let read = if path == Path::new("-") {
        stdin().take(most + 1).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(most + 1).read_to_string(&mut text))
    };
    match read {
        Err(source) => Err(AdminError::File { path: path.to_owned(), source }),
        Ok(bytes) if bytes as u64 > most => Err(AdminError::TooLong { path: path.to_owned(), most }),
        Ok(_) => Ok(text),
    }
}

/// Lists what each worker did, and what it has.
fn table(answer: &PrefixResponse) -> String {
    let row = |worker: &WorkerPrefix| {
        [
            worker.worker_name.clone(),
            prefix_outcome_name(worker.outcome),
            grouped(worker.tokens.into()),
            grouped(worker.device_tokens.into()),
            grouped(worker.blocks.into()),
            if worker.pinned { "yes" } else { "no" }.to_owned(),
            worker.why.clone(),
        ]
    };
    let head = ["WORKER", "RESULT", "TOKENS", "ON DEVICE", "BLOCKS MOVED", "PINNED", ""];
    let rows: Vec<_> = answer.workers.iter().map(row).collect();
    tables::with_head(head, rows, "no worker answered") + &tables::silent(&answer.silent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_says_what_it_did_and_what_it_has() {
        let worker = |name: &str, outcome: PrefixOutcome| WorkerPrefix {
            worker_name: name.to_owned(),
            outcome: outcome.into(),
            tokens: 1008,
            ..WorkerPrefix::default()
        };
        let done = WorkerPrefix { device_tokens: 992, blocks: 62, pinned: true, ..worker("p", PrefixOutcome::Done) };
        let refused = WorkerPrefix { why: "it has no tier".to_owned(), ..worker("d", PrefixOutcome::Refused) };
        let silent = vec![Silence { worker: "e".to_owned(), why: "it stands still".to_owned() }];
        let expect = "\
WORKER  RESULT   TOKENS  ON DEVICE  BLOCKS MOVED  PINNED
p       done     1,008   992        62            yes
d       refused  1,008   0          0             no      it has no tier
e did not answer: it stands still
";
        assert_eq!(table(&PrefixResponse { prompt_tokens: 1010, workers: vec![done, refused], silent }), expect);
    }

    #[test]
    fn a_file_is_read_up_to_what_a_call_takes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("request.json");
        let error = read(&path).expect_err("there is none");
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("request.json"), "{error}");
        std::fs::write(&path, "{}").expect("it is written");
        assert_eq!(read(&path).expect("it is there"), "{}");
        std::fs::write(&path, vec![b' '; admin::CALL_BYTES_MAX + 1]).expect("it is written");
        let error = read(&path).expect_err("it is too long");
        assert!(error.exit_code() == 2 && error.to_string().contains("8 MiB"), "{error}");
    }
}
