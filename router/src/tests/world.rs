//! A router with workers that the test plays.

use super::http::{Http, PATIENCE};
use crate::output::OutputForms;
use crate::sessions::{Service, Shown, WorkerLink};
use crate::{Listeners, ModelCard, RouterConfig, RouterLimits, Sessions, serve};
use admin::{Settings, Status};
use domain::session::{
    Assignment, FromWorker, ModelShape, PROTOCOL, PeerAddress, PeerInfo, Report, Role, Served, Submit, ToWorker,
    TokenRow,
};
use domain::{Choice, End, Incarnation, SeqKey, Token, WorkerId};
use engine::grammar::Grammars;
use engine::text::{ChatTemplate, Tokenizer, WrittenSpecials};
use keys::Keys;
use placement::{FetchPolicy, HandoffPolicy, PlacementConfig, PlacementLimits, Rates};
use proto::admin::{Setting, SettingChange};
use proto::queue::{Receiver, Sender, queue};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Shape of the test's model.
const SHAPE: ModelShape = ModelShape { vocab: 4096, layers: 2, hidden: 64 };
/// Context of the test's model.
pub(crate) const CONTEXT: u32 = 512;
/// What its workers serve.
const SERVED: Served = Served {
    weights: [0; 32],
    shape: SHAPE,
    layout: 1,
    block_tokens: 16,
    token_bytes: 64,
    context_tokens: CONTEXT,
    batch_invariant: true,
    grammars: true,
};
/// The same, with no worker that is smaller than others.
pub(crate) const SERVICE: Service = Service { served: SERVED, common_context: CONTEXT };
/// Its end-of-sequence token.
pub(crate) const EOS: Token = 3;
/// Bytes that wait for a played worker at most; an eighth of them are not for attempts.
const LINK_BYTES: usize = 32 << 10;
/// Bytes of a played worker that wait for the router.
const SAID_BYTES: usize = 1 << 20;
/// Workers at most.
const LINKS_MAX: usize = 64;

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::open(model()).expect("the bundled tokenizer"));

static GRAMMARS: LazyLock<Arc<Grammars>> = LazyLock::new(|| Arc::new(Grammars::new(&TOKENIZER, SHAPE.vocab as usize)));

fn model() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny-rust"))
}

/// Returns the tokens of a text.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    TOKENIZER.encode(text, false).expect("text")
}

pub(crate) fn tokenizer() -> Tokenizer {
    TOKENIZER.clone()
}

pub(crate) fn card() -> ModelCard {
    ModelCard {
        name: "tiny-rust".into(),
        created: 1_700_000_000,
        tokenizer: tokenizer(),
        template: ChatTemplate::open(model()).expect("the bundled template"),
        forms: OutputForms::default(),
        specials: WrittenSpecials::Text,
        sampling: domain::SamplingParams::default(),
        eos: vec![EOS],
        shape: SHAPE,
        grammars: GRAMMARS.clone(),
    }
}

pub(crate) const LIMITS: RouterLimits = RouterLimits {
    prompt_tokens_max: CONTEXT,
    prompts_max: 4,
    choices_max: 8,
    deadline: Duration::from_secs(60),
    explained_max: 4,
    placement: PlacementLimits {
        attempts_max: 3,
        requests_max: 16,
        index_blocks_max: 1024,
        handoff: HandoffPolicy::Auto,
        fetch: FetchPolicy::Auto,
    },
};

/// The same with so many prompts open at once.
pub(crate) fn limited(requests_max: usize) -> watch::Receiver<RouterLimits> {
    watch::channel(RouterLimits { placement: PlacementLimits { requests_max, ..LIMITS.placement }, ..LIMITS }).1
}

/// Settings of a process that has none.
#[derive(Debug)]
struct NoSettings;

impl Settings for NoSettings {
    fn list(&self) -> Vec<Setting> {
        Vec::new()
    }

    fn change(&self, _: &BTreeMap<String, String>) -> Result<Vec<SettingChange>, Status> {
        Ok(Vec::new())
    }

    fn reload(&self) -> Result<Vec<SettingChange>, Status> {
        Ok(Vec::new())
    }
}

pub(crate) fn config() -> RouterConfig {
    RouterConfig {
        keys: Keys::default(),
        body_bytes_max: 64 << 10,
        body_wait: Duration::from_secs(5),
        body_min_bytes_per_s: 1,
        bodies_bytes_max: 256 << 10,
        limits: watch::channel(LIMITS).1,
        settings: Arc::new(NoSettings),
        connections_max: 256,
        metrics_on_api: true,
        cors_origins: vec!["*".to_owned()],
        vllm_aliases: true,
        responses: None,
        chat_page: true,
        stream_buffer: 64,
        keepalive: None,
        write_wait: Duration::from_secs(30),
        drain: Duration::from_secs(10),
        browsers: admin::Browsers::new(admin::Reach::Loopback, &[]),
        placement: PlacementConfig {
            block_tokens: SERVED.block_tokens,
            token_bytes: SERVED.token_bytes,
            attempts_max: 3,
            lease: Duration::from_secs(5),
            requests_max: 16,
            index_blocks_max: 1024,
            handoff: HandoffPolicy::Auto,
            fetch: FetchPolicy::Auto,
            heartbeat: Duration::from_secs(3600),
            silence_max: Duration::from_secs(7200),
            defaults: Rates::default(),
        },
    }
}

pub(super) struct World {
    pub(super) address: SocketAddr,
    pub(super) ops: SocketAddr,
    pub(super) workers: Vec<Played>,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<io::Result<()>>,
}

impl World {
    /// One decode worker.
    pub(super) async fn new() -> Self {
        Self::with(1, |_| {}).await
    }

    pub(super) async fn with(decode: u32, change: impl FnOnce(&mut RouterConfig)) -> Self {
        Self::of_protocol(PROTOCOL.newest, decode, change).await
    }

    /// Begins with workers whose sessions have this version of the protocol.
    pub(super) async fn of_protocol(protocol: u32, decode: u32, change: impl FnOnce(&mut RouterConfig)) -> Self {
        Self::begin((protocol, decode), card(), change).await
    }

    /// One decode worker of another model.
    pub(super) async fn of_model(card: ModelCard) -> Self {
        Self::begin((PROTOCOL.newest, 1), card, |config| config.stream_buffer = 1024).await
    }

    pub(super) async fn begin(
        (protocol, decode): (u32, u32),
        card: ModelCard,
        change: impl FnOnce(&mut RouterConfig),
    ) -> Self {
        let (workers, links): (Vec<_>, Vec<_>) = (0..decode).map(|id| Played::new(WorkerId(id), protocol)).unzip();
        let (sender, receiver) = mpsc::channel(LINKS_MAX);
        for link in links {
            sender.send(link).await.expect("the channel is open");
        }
        let listen = async || TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let (api, ops) = (listen().await, listen().await);
        let [address, ops_address] = [&api, &ops].map(|listener| listener.local_addr().expect("it is bound"));
        let listeners = Listeners { api: api.into(), ops: Some(ops.into()) };
        let mut config = config();
        change(&mut config);
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            let _ = stopped.await;
        };
        let (_, known) = watch::channel((decode > 0).then_some(SERVICE));
        let sessions = Sessions { links: receiver, service: known };
        let served = tokio::spawn(serve(listeners, config, card, sessions, telemetry::install(), shutdown));
        let world = Self { address, ops: ops_address, workers, stop: Some(stop), served };
        world.until("the workers are up", "/ready", |status, _| decode == 0 || status == 200).await;
        world
    }

    pub(super) async fn client(&self) -> Http {
        Http::connect(self.address).await
    }

    pub(super) async fn get(&self, path: &str) -> (u16, String) {
        Self::get_at(self.address, path).await
    }

    /// Returns what a listener answers, on a connection of its own.
    pub(super) async fn get_at(address: SocketAddr, path: &str) -> (u16, String) {
        let mut http = Http::connect(address).await;
        http.send("GET", path, "text/plain", b"").await;
        let (head, body) = http.answer().await;
        (head.status, String::from_utf8(body).expect("text"))
    }

    /// A POST whose answer comes without a worker's doing.
    pub(super) async fn refused(&self, path: &str, body: &Value) -> (u16, Value) {
        let mut http = self.client().await;
        http.post(path, body).await;
        let (head, body) = http.json().await;
        (head.status, body)
    }

    /// Asks `path` until the answer is as `wanted`.
    pub(super) async fn until(&self, what: &str, path: &str, wanted: impl Fn(u16, &str) -> bool) {
        let ask = async {
            loop {
                let (status, body) = self.get(path).await;
                if wanted(status, &body) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, ask).await.unwrap_or_else(|_| panic!("not in time: {what}"));
    }

    /// Waits until no request is open.
    pub(super) async fn idle(&self) {
        self.until("no request is open", "/metrics", |_, text| text.lines().any(|it| it == "baton_requests_open 0"))
            .await;
    }

    /// Returns how many requests ended so. Those of the tests beside this one are among them.
    pub(super) async fn ended(&self, outcome: &str) -> u64 {
        ended(&self.get("/metrics").await.1, outcome)
    }

    /// Waits until so many have.
    pub(super) async fn until_ended(&self, outcome: &str, count: u64) {
        self.until("requests are counted", "/metrics", |_, text| ended(text, outcome) >= count).await;
    }

    pub(super) fn shut_down(&mut self) {
        let _ = self.stop.take().expect("it is shut down once").send(());
    }

    pub(super) async fn over(self) {
        timeout(PATIENCE, self.served).await.expect("the router ends").expect("no panic").expect("the brain lives");
    }
}

fn ended(metrics: &str, outcome: &str) -> u64 {
    let name = format!("baton_requests_total{{outcome=\"{outcome}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0)
}

/// A worker that the test plays.
pub(super) struct Played {
    id: WorkerId,
    inbox: Receiver<Vec<u8>>,
    outbox: Sender<Vec<u8>>,
}

impl Played {
    fn new(id: WorkerId, protocol: u32) -> (Self, WorkerLink) {
        let (send, inbox) = queue(LINK_BYTES);
        let (outbox, receive) = queue(SAID_BYTES);
        let (name, address) = (id.to_string(), PeerAddress::default());
        let peer = PeerInfo { id, incarnation: Incarnation(1), name, role: Role::Decode, address };
        let (shown, _) = watch::channel(Shown::new(peer.role));
        let address = format!("played:{id}");
        let link = WorkerLink { peer, address, context_tokens: CONTEXT, protocol, send, receive, shown };
        (Self { id, inbox, outbox }, link)
    }

    /// Its first report, by which it takes whatever comes.
    pub(super) async fn report(&self) {
        self.say(&FromWorker::Report(Report { incarnation: Incarnation(1), number: 1, ..Report::default() })).await;
    }

    /// Returns the next message; `None`: the router closed the session.
    async fn next_or_end(&mut self) -> Option<ToWorker> {
        let next = timeout(PATIENCE, self.inbox.recv()).await.expect("the router says something");
        next.map(|bytes| proto::session::decode_to_worker(&bytes).expect("the router writes what can be read"))
    }

    pub(super) async fn next(&mut self) -> ToWorker {
        self.next_or_end().await.expect("the session is open")
    }

    /// Returns the next attempt; the router may first say that earlier ones are over.
    pub(super) async fn submit(&mut self) -> Submit {
        self.submit_or_end().await.expect("the session is open")
    }

    /// Returns the same; `None`: the router closed the session.
    pub(super) async fn submit_or_end(&mut self) -> Option<Submit> {
        loop {
            match self.next_or_end().await? {
                ToWorker::Submit(submit) => {
                    assert_eq!(submit.assignment, Assignment::Whole);
                    return Some(submit);
                }
                ToWorker::Cancel { .. } | ToWorker::Heartbeat | ToWorker::Peer(_) => {}
                other => panic!("{} is told {other:?}", self.id),
            }
        }
    }

    /// Waits for the cancellation of an attempt.
    pub(super) async fn cancelled(&mut self, submit: &Submit) {
        let wanted = ToWorker::Cancel { request: submit.request, epoch: submit.epoch, choice: None };
        while self.next().await != wanted {}
    }

    /// Whether the router closed the session.
    pub(super) async fn closed(&mut self) {
        let closed = async { while self.inbox.recv().await.is_some() {} };
        timeout(PATIENCE, closed).await.expect("the session is closed");
    }

    pub(super) async fn say(&self, message: &FromWorker) {
        self.outbox.send(proto::session::encode_from_worker(message)).await.expect("the router listens");
    }

    pub(super) async fn row(&self, row: TokenRow) {
        self.say(&FromWorker::Tokens(vec![row])).await;
    }

    /// Tokens `first..` of a sequence, a frame each.
    pub(super) async fn write(&self, submit: &Submit, choice: u16, first: u32, tokens: &[Token]) {
        for (at, &token) in tokens.iter().enumerate() {
            self.row(row(submit, choice, first + at as u32, token)).await;
        }
    }

    pub(super) async fn end(&self, submit: &Submit, choice: u16, tokens: u32, end: End) {
        self.say(&FromWorker::Ended { key: key(submit, choice), tokens, end }).await;
    }

    /// The whole of a sequence.
    pub(super) async fn make(&self, submit: &Submit, choice: u16, tokens: &[Token], end: End) {
        self.write(submit, choice, 0, tokens).await;
        self.end(submit, choice, tokens.len() as u32, end).await;
    }

    /// Bytes that are no message.
    pub(super) async fn nonsense(&self) {
        self.outbox.send(vec![0xff; 8]).await.expect("the router listens");
    }

    /// Ends the session from the worker's side.
    pub(super) fn die(self) {}
}

pub(super) fn key(submit: &Submit, choice: u16) -> SeqKey {
    SeqKey { request: submit.request, epoch: submit.epoch, choice: Choice(choice) }
}

pub(super) fn row(submit: &Submit, choice: u16, index: u32, token: Token) -> TokenRow {
    TokenRow { key: key(submit, choice), index, token, logprobs: None, cached_tokens: 0 }
}
