//! Workers of other processes.

use super::dial::{Dial, DialError, Dialed};
use super::link::{FROM_WORKER_BYTES_MAX, TO_WORKER_BYTES_MAX};
use discovery::Member;
use domain::session::{FromWorker, Hello, Opening, PROTOCOL, RouterHello, ToWorker};
use domain::{NO_COMMON_VERSION, Secrets};
use futures_util::FutureExt;
use proto::queue::{Sender, queue};
use proto::rpc::{BEGIN_WAIT, Code, Incoming, Status};
use proto::tls::Connector;
use tokio::time::timeout;

/// A worker of a directory.
#[derive(Debug)]
pub(super) struct Remote {
    member: Member,
    secrets: Secrets,
    tls: Option<Connector>,
    /// This life of the router.
    router: u64,
}

impl Remote {
    /// Makes a worker of the cluster with these secrets, which is dialed over TLS if that is there.
    pub(super) fn new(member: Member, secrets: Secrets, tls: Option<Connector>, router: u64) -> Self {
        Self { member, secrets, tls, router }
    }

    async fn begin(&self) -> Result<Dialed, DialError> {
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce).map_err(|error| DialError::Unreachable(format!("no random numbers: {error}")))?;
        let router = RouterHello { versions: PROTOCOL, router: self.router, nonce };
        let (sender, outgoing) = queue(TO_WORKER_BYTES_MAX);
        let say = |message| {
            let bytes = proto::session::encode_to_worker(&message);
            sender.try_send(bytes, 0).map_err(|_| DialError::Unreachable("the session ended at once".to_owned()))
        };
        say(ToWorker::Hello(router))?;
        let opened = proto::rpc::open(self.member.address.as_str(), self.tls.as_ref(), outgoing).await;
        let (mut incoming, gate) = opened.map_err(|status| failed(&status))?;
        let FromWorker::Challenge(worker) = hear(&mut incoming).await? else {
            return Err(DialError::Refused("the worker does not begin with a challenge".to_owned()));
        };
        let opening = Opening { router, worker };
        let Some(protocol) = opening.protocol() else {
            let theirs = worker.versions;
            let why = format!("the router speaks protocol {PROTOCOL}, the worker {theirs}; {NO_COMMON_VERSION}");
            return Err(DialError::Refused(why));
        };
        say(ToWorker::Proof(opening.router_proof(self.secrets.own())))?;
        let hello = match hear(&mut incoming).await? {
            FromWorker::Hello(hello) if opening.proves_worker(self.secrets.own(), &hello) => *hello,
            _ => {
                let why =
                    "the worker does not know the secret of the router's cluster: set the same cluster.secret on both";
                return Err(DialError::Refused(why.to_owned()));
            }
        };
        // An address may be another worker's by now.
        if let Some(entry) = self.member.entry().filter(|entry| entry.id != hello.peer.id) {
            let why = format!(
                "the worker there has the id {}; discovery lists {} with the id {}",
                hello.peer.id, entry.name, entry.id
            );
            return Err(DialError::Refused(why));
        }
        gate.open();
        // The hello is the process's. What follows comes from the step loop: a worker that is stuck has no session.
        let report = incoming.message().await.map_err(|status| failed(&status))?;
        let report = report.ok_or_else(|| DialError::Unreachable("the worker ended the session".to_owned()))?;
        let (heard, receive) = queue(FROM_WORKER_BYTES_MAX);
        heard.try_send(report, 0).map_err(|_| DialError::Unreachable("an empty queue is full".to_owned()))?;
        let Hello { peer, served, proof: _ } = hello;
        Ok(Dialed { peer, served, protocol, send: sender, receive, until_over: carry(incoming, heard).boxed() })
    }
}

impl Dial for Remote {
    async fn dial(&self) -> Result<Dialed, DialError> {
        let in_time = timeout(BEGIN_WAIT, self.begin()).await;
        in_time.unwrap_or_else(|_| Err(DialError::Unreachable(format!("no answer within {BEGIN_WAIT:?}"))))
    }

    fn name(&self) -> String {
        self.member.address.to_string()
    }
}

/// Takes messages over to the brain until either end drops the session.
async fn carry(mut incoming: Incoming, heard: Sender<Vec<u8>>) -> String {
    let messages = async {
        loop {
            match incoming.message().await {
                Ok(Some(bytes)) => {
                    // `closed` says that nobody hears it.
                    let _ = heard.send(bytes).await;
                }
                Ok(None) => return "the worker ended it".to_owned(),
                Err(status) => return status.message().to_owned(),
            }
        }
    };
    tokio::select! {
        why = messages => why,
        () = heard.closed() => "the router closed it".to_owned(),
    }
}

/// Hears the next message of a worker that is about to begin.
async fn hear(incoming: &mut Incoming) -> Result<FromWorker, DialError> {
    let bytes = incoming.message().await.map_err(|status| failed(&status))?;
    let bytes = bytes.ok_or_else(|| DialError::Unreachable("the worker ended the session".to_owned()))?;
    let message = proto::session::decode_from_worker(&bytes);
    message.map_err(|error| DialError::Refused(format!("what the worker says cannot be read: {error}")))
}

fn failed(status: &Status) -> DialError {
    let why = status.message().to_owned();
    match status.code() {
        Code::FailedPrecondition | Code::Unauthenticated | Code::InvalidArgument | Code::Unimplemented => {
            DialError::Refused(why)
        }
        _ => DialError::Unreachable(why),
    }
}
