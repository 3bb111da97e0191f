//! The admin service of a router, over a real connection, with workers that the test plays.

use super::http::Http;
use super::world::{EOS, LIMITS, Played, World};
use crate::RouterLimits;
use domain::End;
use domain::session::{FromWorker, PROTOCOL_OF_ASKS, Report, Role, ToWorker};
use placement::{HandoffPolicy, PlacementLimits};
use proto::admin::worker_answer::Body as Answer;
use proto::admin::worker_ask::Body as Ask;
use proto::admin::*;
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::watch;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

async fn client(world: &World) -> AdminClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", world.ops)).expect("an address");
    AdminClient::new(endpoint.connect().await.expect("it listens"))
}

/// Waits for what an operator asks, and answers with `answer`, after it `says` so in a report.
async fn answers(worker: &mut Played, says: Option<Report>, answer: Answer) -> Ask {
    let (number, ask) = loop {
        match worker.next().await {
            ToWorker::OperatorAsk { number, ask } => break (number, ask),
            ToWorker::Peer(_) | ToWorker::Heartbeat | ToWorker::Cancel { .. } => {}
            other => panic!("told {other:?}"),
        }
    };
    if let Some(report) = says {
        worker.say(&FromWorker::Report(report)).await;
    }
    let answer = WorkerAnswer { body: Some(answer) }.encode_to_vec();
    worker.say(&FromWorker::OperatorAnswer { number, answer }).await;
    WorkerAsk::decode(ask.as_slice()).expect("it can be read").body.expect("something is asked")
}

fn report(number: u64, draining: bool, role: Role) -> Report {
    let incarnation = domain::Incarnation(1);
    Report { incarnation, number, draining, role: Some(role), running_max: 8, ..Report::default() }
}

#[tokio::test]
async fn a_drain_counts_once_it_is_answered_and_so_does_its_undo() {
    let mut world = World::with(2, |_| {}).await;
    let mut client = client(&world).await;
    for draining in [true, false] {
        let asked = async {
            let worker = "w0".to_owned();
            let answer = if draining {
                client.drain_worker(DrainWorkerRequest { worker, force: false }).await
            } else {
                client.undrain_worker(UndrainWorkerRequest { worker }).await
            };
            answer.expect("it is done").into_inner()
        };
        let says = report(if draining { 1 } else { 2 }, draining, Role::Decode);
        let answered = answers(&mut world.workers[0], Some(says), Answer::State(Worker::default()));
        let (worker, ask) = tokio::join!(asked, answered);
        assert_eq!(ask, Ask::Drain(draining));
        let wanted = if draining { WorkerState::Drained } else { WorkerState::Serving };
        assert_eq!((worker.state(), worker.name.as_str(), worker.address.as_str()), (wanted, "w0", "played:w0"));
        let ready = format!("\"decode\":{}", if draining { 1 } else { 2 });
        assert!(world.get("/ready").await.1.contains(&ready));
    }
    // A worker that goes in the middle of it leaves no operator waiting.
    let drain = DrainWorkerRequest { worker: "w1".to_owned(), force: false };
    let worker = world.workers.remove(1);
    let (gone, ()) = tokio::join!(client.drain_worker(drain), async {
        let mut worker = worker;
        while !matches!(worker.next().await, ToWorker::OperatorAsk { .. }) {}
        worker.die();
    });
    assert_eq!(gone.expect_err("nobody answers").code(), Code::Unavailable);
}

#[tokio::test]
async fn a_worker_of_the_release_before_serves_and_is_not_asked() {
    let mut world = World::of_protocol(PROTOCOL_OF_ASKS - 1, 1, |_| {}).await;
    world.workers[0].report().await;
    let mut operator = client(&world).await;
    let workers = operator.list_workers(ListWorkersRequest {}).await.expect("it lists").into_inner().workers;
    assert_eq!(workers[0].protocol, PROTOCOL_OF_ASKS - 1);
    let drain = DrainWorkerRequest { worker: "w0".to_owned(), force: true };
    let refused = operator.drain_worker(drain).await.expect_err("it cannot answer");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("upgrade it first"), "{refused}");
    // What it is told next is its work, and no ask, which it could not read.
    let mut http = world.client().await;
    http.post("/v1/completions", &json!({ "model": "tiny-rust", "prompt": "fn main", "max_tokens": 4 })).await;
    world.workers[0].submit().await;
}

#[tokio::test]
async fn a_role_that_changed_is_placed_by() {
    let placement = PlacementLimits { handoff: HandoffPolicy::Always, ..LIMITS.placement };
    let limits = watch::channel(RouterLimits { placement, ..LIMITS }).1;
    let mut world = World::with(2, |config| config.limits = limits).await;
    let mut client = client(&world).await;
    let change = ChangeRoleRequest { worker: "w1".to_owned(), role: proto::admin::Role::Prefill.into(), force: false };
    let says = report(1, false, Role::Prefill);
    let (worker, ask) = tokio::join!(
        client.change_role(change.clone()),
        answers(&mut world.workers[1], Some(says), Answer::State(Worker::default()))
    );
    assert_eq!(ask, Ask::Role(proto::admin::Role::Prefill.into()));
    assert_eq!(worker.expect("it is done").into_inner().role(), proto::admin::Role::Prefill);
    let ready: serde_json::Value = serde_json::from_str(&world.get("/ready").await.1).expect("it is JSON");
    assert_eq!(ready["workers"], json!({ "prefill": 1, "decode": 1 }));
    let up = "baton_worker_up{worker=\"w1\",role=\"prefill\"} 1";
    assert!(world.get("/metrics").await.1.contains(up));
    // The other one is the last that decodes.
    let last = client.change_role(ChangeRoleRequest { worker: "w0".to_owned(), ..change }).await;
    assert_eq!(last.expect_err("nobody would decode").code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn a_prefix_reaches_all_workers_as_tokens_and_each_says_what_it_did() {
    let mut world = World::with(2, |_| {}).await;
    let mut client = client(&world).await;
    let prefix = |request: &str| Some(Prefix { request: request.to_owned(), tenant: "acme".to_owned() });
    let pin = PinPrefixRequest { prefix: prefix(r#"{"prompt":[5,6,7]}"#), ..PinPrefixRequest::default() };
    let done = WorkerPrefix { outcome: PrefixOutcome::Done.into(), pinned: true, ..WorkerPrefix::default() };
    let (new, old) = world.workers.split_at_mut(1);
    // What a worker of an older version says to an ask that it does not know.
    let older = Answer::Refused("it is of an older version".to_owned());
    let (answer, ask, _) = tokio::join!(
        client.pin_prefix(pin.clone()),
        answers(&mut new[0], None, Answer::Prefix(done.clone())),
        answers(&mut old[0], None, older),
    );
    let day = prefix_ask::Body::Pin(24 * 3600 * 1000);
    let wanted = PrefixAsk { tenant: "acme".to_owned(), tokens: vec![5, 6, 7], body: Some(day) };
    assert_eq!(ask, Ask::Prefix(wanted));
    let answer = answer.expect("one does it").into_inner();
    assert_eq!((answer.prompt_tokens, answer.silent), (3, Vec::new()));
    let [one, other] = &answer.workers[..] else { panic!("{:?}", answer.workers) };
    assert_eq!((one, other.outcome(), other.worker_name.as_str()), (&done, PrefixOutcome::Refused, "w1"));
    assert!(other.why.contains("older version"), "{other:?}");

    // One worker alone, for as long as was asked.
    let alone = PinPrefixRequest { worker: "w1".to_owned(), seconds: 7, ..pin.clone() };
    let (answer, ask) =
        tokio::join!(client.pin_prefix(alone), answers(&mut world.workers[1], None, Answer::Prefix(done.clone())),);
    assert_eq!(answer.expect("it does it").into_inner().workers, [done]);
    assert!(matches!(ask, Ask::Prefix(PrefixAsk { body: Some(prefix_ask::Body::Pin(7000)), .. })), "{ask:?}");

    // What no worker has to hear.
    let mut refused = async |request: PinPrefixRequest| {
        let status = client.pin_prefix(request).await.expect_err("it cannot be");
        (status.code(), status.message().to_owned())
    };
    let (code, why) = refused(PinPrefixRequest { worker: "nobody".to_owned(), ..pin.clone() }).await;
    assert_eq!(code, Code::NotFound, "{why}");
    let (code, why) = refused(PinPrefixRequest { seconds: 31 * 24 * 3600, ..pin.clone() }).await;
    assert!(code == Code::InvalidArgument && why.contains("30 days"), "{why}");
    for (request, wanted) in [(prefix("You are helpful."), "JSON"), (prefix("{}"), "messages"), (None, "no prefix")] {
        let (code, why) = refused(PinPrefixRequest { prefix: request, ..PinPrefixRequest::default() }).await;
        assert!(code == Code::InvalidArgument && why.contains(wanted), "{why}");
    }
    let long = "x".repeat(admin::CALL_BYTES_MAX);
    assert_eq!(refused(PinPrefixRequest { prefix: prefix(&long), ..pin }).await.0, Code::OutOfRange);
}

#[tokio::test]
async fn a_long_prefix_comes_in_json_too() {
    let mut world =
        World::with(1, |config| config.browsers = admin::Browsers::new(admin::Reach::Loopback, &["test".to_owned()]))
            .await;
    // As long as a context of many tokens: what JSON puts around it counts.
    let request = format!("{{\"prompt\":{}[5,6]}}", " ".repeat(1 << 20));
    let call = json!({ "prefix": { "request": request } });
    let mut http = Http::connect(world.ops).await;
    let (head, ask) = tokio::join!(
        async {
            http.post("/admin/v1/ParkPrefix", &call).await;
            http.head().await
        },
        answers(&mut world.workers[0], None, Answer::Prefix(WorkerPrefix::default())),
    );
    assert_eq!(head.status, 200);
    let park = Some(prefix_ask::Body::Park(Nothing {}));
    assert_eq!(ask, Ask::Prefix(PrefixAsk { tenant: String::new(), tokens: vec![5, 6], body: park }));
}

#[tokio::test]
async fn open_requests_are_listed_and_those_that_ended_explained() {
    let mut world = World::new().await;
    world.workers[0].report().await;
    let mut operator = client(&world).await;
    let mut http = world.client().await;
    http.post("/v1/completions", &json!({ "model": "tiny-rust", "prompt": "fn main", "max_tokens": 4 })).await;
    let submit = world.workers[0].submit().await;
    let requests =
        operator.list_requests(ListRequestsRequest::default()).await.expect("it lists").into_inner().requests;
    let [request] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!((request.id.as_str(), request.state()), (submit.request.to_string().as_str(), RequestState::Prefilling));
    assert_eq!((request.waits_for.as_str(), request.decode), ("w0, which computes its prompt", Some(0)));
    assert!(submit.timed, "what its worker measures is wanted");
    world.workers[0].write(&submit, 0, 0, &[7]).await;
    let chunk = domain::Phase {
        tokens: 3,
        ..domain::Phase::new(domain::PhaseKind::Chunk, Duration::ZERO, Duration::from_millis(2))
    };
    let (of, epoch, phases) = (submit.request, submit.epoch, vec![chunk]);
    world.workers[0].say(&FromWorker::Phases { request: of, epoch, phases, left_out: 1 }).await;
    world.workers[0].make(&submit, 0, &[7, EOS], End::stop()).await;
    let (head, _) = http.answer().await;
    assert_eq!(head.status, 200);
    let explain = ExplainRequestRequest { id: submit.request.to_string() };
    let explained = operator.explain_request(explain).await.expect("it is kept").into_inner();
    let request = explained.request.as_ref().expect("it is there");
    assert_eq!((request.state(), explained.end.as_str(), request.output_tokens), (RequestState::Ended, "stop", 2));
    assert!(explained.queue_ms.is_some() && explained.prefill_ms.is_some() && explained.decode_ms.is_some());
    let phases: Vec<_> = explained.phases.iter().map(|phase| (phase.kind(), phase.worker_name.as_str())).collect();
    for phase in [(PhaseKind::Tokenize, ""), (PhaseKind::Queue, ""), (PhaseKind::FirstToken, ""), (PhaseKind::End, "")]
    {
        assert!(phases.contains(&phase), "{phase:?} of {phases:?}");
    }
    let chunk = explained.phases.iter().find(|phase| phase.kind() == PhaseKind::Chunk).expect("the worker's");
    assert_eq!((chunk.worker_name.as_str(), chunk.tokens, chunk.ms, explained.phases_left_out), ("w0", 3, 2.0, 1));
    assert_eq!((chunk.begin_ms, explained.tokenize_ms.is_some()), (explained.placements[0].at_ms, true));
    assert!(explained.handoff_ms.is_none() && explained.total_ms >= explained.first_token_ms, "{explained:?}");
    let [placement] = explained.placements.as_slice() else { panic!("{explained:?}") };
    let chosen: Vec<_> = placement.candidates.iter().filter(|candidate| candidate.chosen).collect();
    let [chosen] = chosen.as_slice() else { panic!("{placement:?}") };
    assert_eq!((chosen.kind(), chosen.worker, chosen.worker_name.as_str()), (CandidateKind::Alone, 0, "w0"));
    assert!((placement.cost_s - chosen.total_s).abs() < 1e-9);
    let unknown = operator.explain_request(ExplainRequestRequest { id: "1".to_owned() }).await;
    assert_eq!(unknown.expect_err("nobody knows it").code(), Code::NotFound);
    let models = operator.list_models(ListModelsRequest {}).await.expect("it lists").into_inner().models;
    assert_eq!(models.iter().map(|model| model.name.as_str()).collect::<Vec<_>>(), ["tiny-rust"]);
}

/// Sends a request as a browser does, and returns the status, the body and a header of the answer.
async fn browse(address: SocketAddr, head: &str, body: &str, wanted: &str) -> (u16, String, Option<String>) {
    let mut http = Http::connect(address).await;
    let (line, headers) = head.split_once(" | ").expect("a line, and headers");
    let (headers, length) = (headers.replace(" | ", "\r\n"), body.len());
    http.write(format!("{line} HTTP/1.1\r\n{headers}\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes()).await;
    let (head, body) = http.answer().await;
    (head.status, String::from_utf8(body).expect("text"), head.header(wanted).map(str::to_owned))
}

#[tokio::test]
async fn the_console_and_its_calls_are_for_pages_of_this_port_alone() {
    let mut world = World::new().await;
    let policy = "content-security-policy";
    let (status, page, said) = browse(world.ops, "GET / | Host: localhost", "", policy).await;
    assert!(status == 200 && page.contains("console/console.js") && said.is_some_and(|said| said.contains("'none'")));
    // A link on another page may lead to it, but not under a name of others.
    let linked = "GET / | Host: 127.0.0.1:1 | Sec-Fetch-Site: cross-site";
    assert_eq!(browse(world.ops, linked, "", policy).await.0, 200);
    assert_eq!(browse(world.ops, "GET / | Host: evil.example", "", policy).await.0, 403);
    let (status, page, _) = browse(world.address, "GET / | Host: any.example", "", policy).await;
    assert!(status == 200 && page.contains("console/chat-page.js"));
    // Clients of the API get no console.
    assert_eq!(browse(world.address, "GET /console/console.js | Host: localhost", "", policy).await.0, 404);
    let json = "Content-Type: application/json";
    let list = format!("POST /admin/v1/ListModels | Host: localhost | {json}");
    let (status, models, said) = browse(world.ops, &list, "{}", "access-control-allow-origin").await;
    assert!(status == 200 && models.contains("\"name\":\"tiny-rust\"") && said.is_none(), "{models}");
    assert_eq!(browse(world.address, &list, "{}", policy).await.0, 404);
    for (head, wanted) in [
        (format!("POST /admin/v1/ListModels | Host: evil.example | {json}"), 403),
        (format!("POST /admin/v1/ListModels | Host: localhost | Origin: http://evil.example | {json}"), 403),
        ("POST /admin/v1/DrainWorker | Host: localhost | Content-Type: text/plain".to_owned(), 400),
        (format!("POST /admin/v1/Cook | Host: localhost | {json}"), 404),
        ("GET /admin/v1/ListModels | Host: localhost".to_owned(), 405),
        (format!("POST /v1/chat/completions | Host: localhost | Origin: http://localhost:1 | {json}"), 403),
    ] {
        let (status, answer, _) = browse(world.ops, &head, "{}", policy).await;
        assert_eq!(status, wanted, "{head}: {answer}");
    }
    // The console chats at its own port.
    world.workers[0].report().await;
    let body = json!({ "model": "tiny-rust", "max_tokens": 2, "messages": [{ "role": "user", "content": "hi" }] });
    let head = format!("POST /v1/chat/completions | Host: localhost | Origin: http://localhost | {json}");
    let body = body.to_string();
    let ((status, answer, id), ()) = tokio::join!(browse(world.ops, &head, &body, "x-request-id"), async {
        let submit = world.workers[0].submit().await;
        world.workers[0].make(&submit, 0, &[7, EOS], End::stop()).await;
    });
    assert!(status == 200 && id.is_some(), "{answer}");
    let list = format!("POST /admin/v1/ListRequests | Host: localhost | {json}");
    let (_, ended, _) = browse(world.ops, &list, r#"{"ended":8}"#, policy).await;
    assert!(ended.contains(&id.expect("it is there")) && ended.contains("\"state\":\"ended\""), "{ended}");
    assert!(!browse(world.ops, &list, "{}", policy).await.1.contains("ended"));
}

#[tokio::test]
async fn a_port_without_a_page_to_chat_has_none() {
    let world = World::with(0, |config| config.chat_page = false).await;
    assert_eq!((world.get("/").await.0, world.get("/console/chat.js").await.0), (404, 404));
}

#[tokio::test]
async fn a_router_without_workers_answers_at_once() {
    let world = World::with(0, |_| {}).await;
    let mut client = client(&world).await;
    let workers = client.list_workers(ListWorkersRequest {}).await.expect("it lists").into_inner().workers;
    assert_eq!(workers, []);
    let requests = client.list_requests(ListRequestsRequest::default()).await.expect("it lists").into_inner().requests;
    assert_eq!(requests, []);
    let unknown = client.flush_worker(FlushWorkerRequest { worker: "w0".to_owned() }).await.expect_err("there is none");
    assert_eq!((unknown.code(), unknown.message()), (Code::NotFound, "no worker \"w0\" is here: there is none"));
    // Nothing is answered at the clients' port.
    let endpoint = Endpoint::from_shared(format!("http://{}", world.address)).expect("an address");
    if let Ok(channel) = endpoint.connect().await {
        AdminClient::new(channel).list_workers(ListWorkersRequest {}).await.expect_err("clients are no operators");
    }
    // What speaks HTTP/1.1 is served as before, on the same port.
    assert_eq!(World::get_at(world.ops, "/live").await, (200, "live\n".to_owned()));
    assert_eq!(World::get_at(world.ops, "/baton.admin.v1.Nothing/Call").await.0, 404);
}

#[tokio::test]
async fn whoever_watches_keeps_nobody_out() {
    let world = World::with(0, |_| {}).await;
    let mut watches = Vec::new();
    for _ in 0..=crate::http::OPS_CONNECTIONS_MAX {
        let mut client = client(&world).await;
        let watch = client.watch(WatchRequest { subjects: Vec::new(), every_ms: 60_000 }).await.expect("it begins");
        watches.push((client, watch.into_inner()));
    }
    assert_eq!(World::get_at(world.ops, "/live").await.0, 200);
    let (_, last) = watches.last_mut().expect("there are some");
    assert!(last.message().await.expect("it goes on").is_some());
    let (_, first) = &mut watches[0];
    while let Ok(Some(_)) = first.message().await {}
}
