//! A real router before a real worker: what waits when the router takes nothing for a while, waits for its clients
//! alone, and reaches them as a whole.

use super::*;
use admin::{Settings, Status};
use domain::session::{ModelShape, PeerAddress, PeerInfo, Role, Served};
use domain::{Incarnation, SamplingParams};
use engine::text::{Detokenizer, SpecialTokens, Tokenizer};
use futures_util::FutureExt;
use placement::{FetchPolicy, HandoffPolicy, PlacementConfig, PlacementLimits, Rates};
use proto::admin::{Setting, SettingChange};
use proto::queue::{queue, weight};
use router::{Dial, DialError, Dialed, Dialer, Keys, Listeners, ModelCard, RouterConfig, RouterLimits};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;
use tokio::sync::watch;
use tokio::sync::{mpsc::UnboundedSender, oneshot};
use worker::WorkerInput;

/// Bytes that wait in the worker before sequences of the router are held.
const OUTBOX_BYTES: usize = 8 << 10;
/// Bytes of the worker that wait for the router.
const SAID_BYTES: usize = 16 << 10;
/// Bytes of the router that wait for the worker.
const TOLD_BYTES: usize = 1 << 20;
/// Clients of the router.
const CLIENTS: u64 = 4;
/// Tokens that each of them asks for.
const TOKENS: u32 = 600;
/// Rows of a request of another router: its prompt, and all its tokens but the last.
const OTHERS_ROWS: u64 = 12 + 49;
const HOUR: Duration = Duration::from_secs(3600);

/// A worker of this process.
struct Local {
    input: WorkerInput,
    peer: PeerInfo,
    served: Served,
}

impl Dial for Local {
    async fn dial(&self) -> Result<Dialed, DialError> {
        let (heard, receive) = queue(SAID_BYTES);
        let (send, mut told) = queue(TOLD_BYTES);
        let input = self.input.open_session(Box::new(move |bytes| heard.try_send(bytes, 0)));
        let input = input.ok_or_else(|| DialError::Unreachable("it has ended".to_owned()))?;
        let carry = async move {
            while let Some(bytes) = told.recv().await {
                input.send(bytes).await;
            }
            "it is over".to_owned()
        };
        let protocol = domain::session::PROTOCOL.newest;
        Ok(Dialed { peer: self.peer.clone(), served: self.served, protocol, send, receive, until_over: carry.boxed() })
    }

    fn name(&self) -> String {
        self.peer.name.clone()
    }
}

/// A router on a thread of its own, which does nothing else.
struct Router {
    address: SocketAddr,
    /// What the thread is to wait for before it goes on with anything.
    waits: UnboundedSender<mpsc::Receiver<()>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Router {
    fn start(worker: Local) -> Self {
        let (waits, mut waited) = tokio::sync::mpsc::unbounded_channel::<mpsc::Receiver<()>>();
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, address) = mpsc::channel();
        let serve = async move {
            let api = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
            tell.send(api.local_addr().expect("it is bound")).expect("the test listens");
            let (dialer, sessions) = Dialer::new(worker.served.shape);
            let (listeners, card) = (Listeners { api: api.into(), ops: None }, card(worker.served.shape));
            tokio::spawn(async move { dialer.keep(&worker).await });
            tokio::spawn(async move {
                while let Some(wait) = waited.recv().await {
                    // The first word says that it stands still, and the end of the words that it may go on.
                    let _ = wait.recv();
                    let _ = wait.recv();
                }
            });
            let until = async { stopped.await.unwrap_or_default() };
            router::serve(listeners, config(), card, sessions, telemetry::install(), until).await.expect("it serves");
        };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(serve);
        });
        let address = address.recv().expect("the router listens");
        Self { address, waits, stop: Some(stop), thread: Some(thread) }
    }

    /// Stands still from now on, until what this gives is dropped.
    fn stand_still(&self) -> mpsc::SyncSender<()> {
        let (holds, wait) = mpsc::sync_channel(0);
        self.waits.send(wait).expect("the router runs");
        holds.send(()).expect("the router runs");
        holds
    }

    /// A client that asks for a stream, once the router serves any, and has read nothing of it.
    fn ask(&self, request: &Asked) -> TcpStream {
        let body = json!({
            "model": "tiny-rust", "stream": true, "prompt": request.prompt, "max_tokens": request.params.max_tokens,
            "temperature": 0, "seed": request.seed,
        });
        let body = body.to_string();
        let mut client = TcpStream::connect(self.address).expect("the router listens");
        let (kind, length) = ("Content-Type: application/json", body.len());
        // Of an older version, so that the answer comes in one piece and ends with the connection.
        write!(client, "POST /v1/completions HTTP/1.0\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{body}")
            .expect("the router reads");
        client
    }

    fn is_ready(&self) -> bool {
        let mut client = TcpStream::connect(self.address).expect("the router listens");
        client.write_all(b"GET /ready HTTP/1.0\r\n\r\n").expect("the router reads");
        read(client).starts_with("HTTP/1.0 200")
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.stop.take();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|ended| ended.is_ok()));
    }
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

fn config() -> RouterConfig {
    let placement = PlacementLimits {
        attempts_max: 3,
        requests_max: 64,
        index_blocks_max: 1024,
        handoff: HandoffPolicy::Auto,
        fetch: FetchPolicy::Auto,
    };
    let limits = RouterLimits {
        prompt_tokens_max: 1024,
        prompts_max: 1,
        choices_max: 1,
        deadline: HOUR,
        explained_max: 0,
        placement,
    };
    RouterConfig {
        keys: Keys::default(),
        body_bytes_max: 64 << 10,
        body_wait: HOUR,
        body_min_bytes_per_s: 1,
        bodies_bytes_max: 256 << 10,
        limits: watch::channel(limits).1,
        settings: Arc::new(NoSettings),
        connections_max: 64,
        metrics_on_api: false,
        cors_origins: vec!["*".to_owned()],
        vllm_aliases: true,
        responses: None,
        chat_page: true,
        stream_buffer: TOKENS as usize,
        keepalive: None,
        write_wait: HOUR,
        drain: HOUR,
        browsers: router::Browsers::new(router::Reach::Loopback, &[]),
        placement: PlacementConfig {
            block_tokens: 0,
            token_bytes: 0,
            attempts_max: 3,
            lease: HOUR,
            requests_max: 64,
            index_blocks_max: 1024,
            handoff: HandoffPolicy::Auto,
            fetch: FetchPolicy::Auto,
            heartbeat: HOUR,
            silence_max: HOUR * 2,
            defaults: Rates::default(),
        },
    }
}

fn tokenizer() -> Tokenizer {
    let model = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny-rust"));
    Tokenizer::open(model).expect("the bundled tokenizer")
}

fn card(shape: ModelShape) -> ModelCard {
    ModelCard {
        name: "tiny-rust".to_owned(),
        created: 0,
        grammars: Arc::new(engine::grammar::Grammars::new(&tokenizer(), shape.vocab as usize)),
        tokenizer: tokenizer(),
        template: None,
        forms: router::OutputForms::default(),
        specials: engine::text::WrittenSpecials::Text,
        sampling: SamplingParams::default(),
        eos: Vec::new(),
        shape,
    }
}

/// All that comes until the connection ends.
fn read(mut client: TcpStream) -> String {
    let mut text = String::new();
    client.read_to_string(&mut text).expect("the answer is text");
    text
}

/// The text of a stream that came as a whole.
fn text(stream: &str) -> String {
    let events: Vec<&str> = stream.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (last, events) = events.split_last().expect("there are events");
    assert_eq!(*last, "[DONE]", "{stream}");
    let event = |event: &&str| serde_json::from_str::<Value>(event).expect("JSON");
    events.iter().map(event).filter_map(|event| Some(event["choices"][0]["text"].as_str()?.to_owned())).collect()
}

#[test]
fn while_a_router_stands_still_its_clients_alone_wait_and_get_all_of_it_later() {
    let mut cluster = Cluster::new(&Options { blocks: [1024; 2], outbox_bytes: OUTBOX_BYTES, ..options(None) });
    // So slow that nothing ends before the router stands still.
    cluster.decode_knobs.layer_us.store(50_000, Ordering::Relaxed);
    let peer = PeerInfo {
        id: DECODE,
        incarnation: Incarnation(1),
        name: DECODE.to_string(),
        role: Role::Decode,
        address: PeerAddress::default(),
    };
    let served = Served {
        weights: [7; 32],
        shape: ModelShape { vocab: VOCABULARY, layers: 3, hidden: 2 },
        layout: cluster.layout.fingerprint(),
        block_tokens: cluster.layout.block_tokens,
        token_bytes: cluster.layout.token_bytes() as u64,
        context_tokens: 2048,
        batch_invariant: true,
        grammars: true,
    };
    let router = Router::start(Local { input: cluster.input(DECODE), peer, served });
    cluster.until("the router has its worker", |_| router.is_ready());
    let asked: Vec<Asked> = (1..=CLIENTS).map(|id| Asked::new(id, prompt(20, id as u32), TOKENS)).collect();
    // None of them reads.
    let clients: Vec<TcpStream> = asked.iter().map(|asked| router.ask(asked)).collect();
    let rows = |cluster: &Cluster| cluster.decode_knobs.rows.load(Ordering::Relaxed);
    let prompts = asked.iter().map(|asked| asked.prompt.len() as u64).sum::<u64>();
    let knobs = cluster.decode_knobs.clone();
    cluster.until("all decode", |_| knobs.rows.load(Ordering::Relaxed) > prompts + CLIENTS);
    let stands_still = router.stand_still();
    cluster.decode_knobs.layer_us.store(0, Ordering::Relaxed);

    // For another router the worker goes on, and soon for that one alone.
    let mut others = 0;
    loop {
        others += 1;
        let before = rows(&cluster);
        let request = Asked::new(CLIENTS + others, prompt(12, 50 + others as u32), 50);
        cluster.submit(DECODE, &request, Assignment::Whole);
        cluster.wait_end(&request);
        assert_eq!(cluster.text(&request, 0), cluster.expected(&request, 0));
        if rows(&cluster) - before == OTHERS_ROWS {
            break;
        }
    }
    let all = prompts + CLIENTS * u64::from(TOKENS - 1);
    let computed = rows(&cluster) - others * OTHERS_ROWS;
    assert!(computed < all, "everything was computed while nobody read");
    let frames = (computed - prompts) / CLIENTS;
    assert!(frames >= (OUTBOX_BYTES / weight(256)) as u64, "{frames} frames wait: the queues are not full");

    drop(stands_still);
    let tokenizer = tokenizer();
    for (asked, client) in asked.iter().zip(clients) {
        let mut detokenizer = Detokenizer::new(tokenizer.clone(), &asked.prompt, SpecialTokens::Hidden);
        let mut expected: String =
            cluster.expected(asked, 0).into_iter().map(|token| detokenizer.push(token)).collect();
        expected.push_str(&detokenizer.finish());
        assert_eq!(text(&read(client)), expected);
    }
    assert!(cluster.failures.is_empty(), "{:?}", cluster.failures);
    assert_eq!(rows(&cluster), all + others * OTHERS_ROWS, "nothing was computed twice");
}
