use crate::browsers::Browsers;
use crate::names::{check_another_decodes, find};
use crate::reach::{Caller, Certified, Reach};
use crate::refusal::refusal;
use crate::routes::routes;
use crate::service::Service;
use crate::{Cluster, Settings, Status};
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, VIA};
use axum::http::{self, HeaderMap, HeaderName, HeaderValue};
use domain::{RequestId, Token, WorkerId};
use futures_util::StreamExt;
use keys::{KeyEntry, KeyFile, KeyHash, Keys};
use proto::admin::worker_answer::Body as Answer;
use proto::admin::worker_ask::Body as Ask;
use proto::admin::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tonic::codegen::Service as _;
use tonic::{Code, Request as Call, Response};

/// Three workers, of which the last one answers nothing.
struct Played(Mutex<Vec<Worker>>);

fn worker(id: u32, name: &str, role: Role) -> Worker {
    let state = WorkerState::Serving.into();
    Worker { id, name: name.to_owned(), role: role.into(), state, ..Worker::default() }
}

fn played() -> Service<Played> {
    let workers = vec![worker(1, "p", Role::Prefill), worker(2, "d", Role::Decode), worker(3, "w1", Role::Decode)];
    Service::new(Arc::new(Played(Mutex::new(workers))))
}

impl Cluster for Played {
    const SEES_ALL: bool = true;

    async fn workers(&self) -> Result<Vec<Worker>, Status> {
        Ok(self.0.lock().expect("nobody panics with it").clone())
    }

    async fn requests(&self) -> Result<Vec<Request>, Status> {
        Ok(vec![Request { id: "a".to_owned(), ..Request::default() }])
    }

    fn open(&self) -> Vec<Request> {
        // The first one is listed already.
        ["a", "b"].map(|id| Request { id: id.to_owned(), ..Request::default() }).into()
    }

    async fn ended(&self, most: usize) -> Result<Vec<Request>, Status> {
        let request = |id: usize| Request { id: format!("ended {id}"), ..Request::default() };
        Ok((0..most.min(3)).map(request).collect())
    }

    async fn models(&self) -> Result<Vec<Model>, Status> {
        Ok(vec![Model::default()])
    }

    async fn explain(&self, request: RequestId) -> Result<Option<Explanation>, Status> {
        Ok((request == RequestId(0xff)).then(Explanation::default))
    }

    fn settings(&self) -> &dyn Settings {
        &PlayedSettings
    }

    async fn tokens(&self, request: String) -> Result<Vec<Token>, Status> {
        // A token for each letter.
        Ok(request.bytes().map(Token::from).collect())
    }

    async fn ask(&self, worker: WorkerId, ask: WorkerAsk) -> Result<WorkerAnswer, Status> {
        if worker == WorkerId(3) {
            return Err(Status::deadline_exceeded("it stands still"));
        }
        let mut workers = self.0.lock().expect("nobody panics with it");
        let worker = workers.iter_mut().find(|it| it.id == worker.0).expect("it is there");
        let body = match ask.body.expect("something is asked") {
            Ask::Drain(drain) => {
                worker.set_state(if drain { WorkerState::Draining } else { WorkerState::Serving });
                Answer::State(worker.clone())
            }
            Ask::Role(role) => {
                worker.role = role;
                Answer::State(worker.clone())
            }
            Ask::Tiers(_) => {
                let tier = Tier { worker: worker.id, tier: "device".to_owned(), ..Tier::default() };
                Answer::Tiers(ListTiersResponse { tiers: vec![tier], silent: Vec::new() })
            }
            // The first one knows nothing of prefixes.
            Ask::Flush(_) | Ask::Prefix(_) if worker.id == 1 => Answer::Refused("not now".to_owned()),
            Ask::Prefix(PrefixAsk { tokens, body, .. }) => Answer::Prefix(WorkerPrefix {
                worker_name: worker.name.clone(),
                outcome: PrefixOutcome::Done.into(),
                tokens: tokens.len() as u32,
                pinned: matches!(body, Some(prefix_ask::Body::Pin(_))),
                ..WorkerPrefix::default()
            }),
            _ => Answer::Lanes(ListLanesResponse::default()),
        };
        Ok(WorkerAnswer { body: Some(body) })
    }
}

/// One setting, which takes every value but `no`.
#[derive(Debug)]
struct PlayedSettings;

impl Settings for PlayedSettings {
    fn list(&self) -> Vec<Setting> {
        vec![Setting { name: "router.deadline_s".to_owned(), value: "600".to_owned(), ..Setting::default() }]
    }

    fn change(&self, values: &BTreeMap<String, String>) -> Result<Vec<SettingChange>, Status> {
        let change = |(name, after): (&String, &String)| match after.as_str() {
            "no" => Err(Status::invalid_argument(format!("{name}: no"))),
            _ => Ok(SettingChange { name: name.clone(), before: "600".to_owned(), after: after.clone() }),
        };
        values.iter().map(change).collect()
    }

    fn reload(&self) -> Result<Vec<SettingChange>, Status> {
        Err(Status::failed_precondition("engine.threads (0 -> 3)"))
    }
}

#[tokio::test]
async fn settings_are_listed_changed_and_read_again() {
    let service = played();
    let listed = service.list_settings(Call::new(ListSettingsRequest {})).await.expect("it lists").into_inner();
    assert_eq!(listed.settings[0].value, "600");
    let change = async |values: &[(&str, &str)]| {
        let values = values.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let answer = service.change_settings(Call::new(ChangeSettingsRequest { values })).await;
        answer.map(|answer| answer.into_inner().changes).map_err(|status| (status.code(), status.message().to_owned()))
    };
    let changes = change(&[("b", "2"), ("a", "1")]).await.expect("it is done");
    assert_eq!(
        changes.iter().map(|it| (&*it.name, &*it.before, &*it.after)).collect::<Vec<_>>(),
        [("a", "600", "1"), ("b", "600", "2")]
    );
    assert_eq!(change(&[("a", "1"), ("b", "no")]).await, Err((Code::InvalidArgument, "b: no".to_owned())));
    assert_eq!(change(&[]).await.expect_err("nothing is named").0, Code::InvalidArgument);
    let refused = service.reload(Call::new(ReloadRequest {})).await.expect_err("it needs a restart");
    assert_eq!((refused.code(), refused.message()), (Code::FailedPrecondition, "engine.threads (0 -> 3)"));
    // This process keeps no log.
    let set = service.set_log_filter(Call::new(SetLogFilterRequest { filter: "info".to_owned() })).await;
    assert_eq!(set.expect_err("there is none").code(), Code::FailedPrecondition);
    // Pages name the values, too.
    let asked = call_in_json(&service, "ChangeSettings", br#"{"values":{"router.deadline_s":"5"}}"#).await;
    let Ok(JsonAnswer::One(answer)) = asked else { panic!("it is answered once") };
    let answer: serde_json::Value = serde_json::from_slice(&answer).expect("it is JSON");
    assert_eq!(answer["changes"][0], serde_json::json!({ "name": "router.deadline_s", "before": "600", "after": "5" }));
}

#[test]
fn callers_of_other_hosts_are_refused_with_the_fix() {
    let none = HeaderMap::new();
    let of = |address: &str| Caller(address.parse().expect("an address"));
    let check = |reach: Reach, address: &str| reach.check(Some(&of(address)), Some(&Certified::No), &none);
    for here in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        check(Reach::Loopback, here).expect("it is of this host");
        check(Reach::Beyond(Keys::default()), here).expect("it is of this host");
    }
    for elsewhere in ["10.0.0.1:1", "[2001:db8::1]:1", "[::ffff:10.0.0.1]:1", "0.0.0.0:1"] {
        let status = check(Reach::Loopback, elsewhere).expect_err("it is of another host");
        assert_eq!(status.code(), Code::PermissionDenied);
        assert!(status.message().contains("admin.beyond_loopback"), "{status}");
        let status = check(Reach::Beyond(Keys::default()), elsewhere).expect_err("nobody has the right");
        assert_eq!(status.code(), Code::PermissionDenied);
    }
    assert!(Reach::Loopback.check(None, None, &none).is_err(), "nobody knows where it is");
    let elsewhere = of("10.0.0.1:1");
    for reach in [Reach::Loopback, Reach::Beyond(Keys::default())] {
        let check = |certified, headers| reach.check(Some(&elsewhere), Some(&certified), headers);
        check(Certified::Yes, &none).expect("its certificate makes it an operator");
        check(Certified::Unasked, &none).expect_err("it showed nothing");
        let through = HeaderMap::from_iter([(VIA, HeaderValue::from_static("1.1 proxy"))]);
        check(Certified::Yes, &through).expect_err("the certificate is the proxy's");
    }
}

#[test]
fn what_a_process_tells_is_read_by_a_certificate_or_a_key_where_the_port_asks_who_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    let entry = KeyEntry { admin: true, ..KeyEntry::new(KeyHash::of("operator"), "acme".to_owned()) };
    KeyFile::change(&path, |file| file.keys.push(entry)).expect("it is written");
    let none = HeaderMap::new();
    let shown = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer operator"))]);
    let reads = |reach: &Reach, address: &str, certified: Certified, headers| {
        let mut caller = http::Extensions::new();
        caller.insert(Caller(address.parse().expect("an address")));
        caller.insert(certified);
        reach.may_read(&caller, headers)
    };
    let elsewhere = "10.0.0.1:1";
    let beyond = Reach::Beyond(Keys::open(&path).expect("it is read"));
    for reach in [&Reach::Loopback, &beyond] {
        assert!(reads(reach, elsewhere, Certified::Unasked, &none), "the port asks nothing");
        assert!(reads(reach, elsewhere, Certified::Yes, &none));
        assert!(reads(reach, HERE, Certified::No, &none));
        assert!(!reads(reach, elsewhere, Certified::No, &none));
    }
    assert!(!reads(&Reach::Loopback, elsewhere, Certified::No, &shown), "no key has a right here");
    assert!(reads(&beyond, elsewhere, Certified::No, &shown));
}

/// Asks the routes for the list of workers, or for `path`, from `address`, with these headers beside those of gRPC.
/// Returns the status of HTTP and, where the call is refused, that of gRPC.
async fn answered(reach: Reach, address: &str, path: &str, headers: &[(&str, &str)]) -> (u16, Option<Code>) {
    let mut call = http::Request::post(path).body(Body::from(&[0; 5][..])).expect("it is a request");
    call.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        call.headers_mut().insert(name, HeaderValue::from_str(value).expect("a value"));
    }
    call.extensions_mut().insert(Caller(address.parse().expect("an address")));
    let workers = vec![worker(1, "d", Role::Decode)];
    let (mut routes, _health) = routes(Arc::new(Played(Mutex::new(workers))), &Browsers::new(reach, &[]));
    let Ok(answer) = routes.call(call).await;
    let status = answer.headers().get("grpc-status").map(|status| Code::from_bytes(status.as_bytes()));
    (answer.status().as_u16(), status)
}

const HERE: &str = "127.0.0.1:1";
const LIST: &str = "/baton.admin.v1.Admin/ListWorkers";

#[tokio::test]
async fn web_pages_are_no_operators() {
    for path in [LIST, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"] {
        for (header, value) in [("origin", "null"), ("origin", "http://127.0.0.1:8001"), ("sec-fetch-site", "none")] {
            assert_eq!(answered(Reach::Loopback, HERE, path, &[(header, value)]).await, (403, None), "{header}");
        }
        for content in ["", "text/plain", "application/json", "application/x-www-form-urlencoded"] {
            let content = [("content-type", content)];
            assert_eq!(answered(Reach::Loopback, HERE, path, &content).await, (415, None), "{content:?}");
        }
    }
    for content in ["application/grpc", "application/grpc+proto"] {
        assert_eq!(answered(Reach::Loopback, HERE, LIST, &[("content-type", content)]).await, (200, None));
    }
}

#[tokio::test]
async fn a_proxy_of_this_host_asks_for_others() {
    for header in ["forwarded", "via", "x-forwarded-for", "x-real-ip"] {
        let answer = answered(Reach::Loopback, HERE, LIST, &[(header, "10.0.0.1")]).await;
        assert_eq!(answer, (200, Some(Code::PermissionDenied)), "{header}");
        let answer = answered(Reach::Loopback, HERE, "/grpc.health.v1.Health/Check", &[(header, "10.0.0.1")]).await;
        assert_eq!(answer, (200, None), "health is for all");
    }
}

#[tokio::test]
async fn operators_elsewhere_show_a_key_with_that_right() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    let key = |name: &str, admin| KeyEntry { admin, ..KeyEntry::new(KeyHash::of(name), "acme".to_owned()) };
    KeyFile::change(&path, |file| file.keys = vec![key("operator", true), key("client", false)])
        .expect("it is written");
    let reach = Reach::Beyond(Keys::open(&path).expect("it is read"));
    let elsewhere = "10.0.0.1:1";
    let (denied, unknown) = (Some(Code::PermissionDenied), Some(Code::Unauthenticated));
    for (shown, wanted) in [("operator", None), ("client", denied), ("stranger", unknown), ("", unknown)] {
        let shown = [("authorization", format!("Bearer {shown}"))];
        let shown = shown.each_ref().map(|(name, value)| (*name, value.as_str()));
        assert_eq!(answered(reach.clone(), elsewhere, LIST, &shown).await, (200, wanted), "{shown:?}");
        // Who is behind a proxy of this host is of another one.
        let through = [shown[0], ("x-forwarded-for", "10.0.0.1")];
        assert_eq!(answered(reach.clone(), HERE, LIST, &through).await, (200, wanted), "{through:?}");
        let page = [shown[0], ("origin", "http://10.0.0.1")];
        assert_eq!(answered(reach.clone(), elsewhere, LIST, &page).await, (403, None), "it is a web page");
    }
    assert_eq!(answered(reach.clone(), elsewhere, LIST, &[]).await, (200, unknown));
    assert_eq!(answered(reach, HERE, LIST, &[]).await, (200, None), "processes of this host need none");
}

#[tokio::test]
async fn what_is_watched_ends_with_its_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    let entry = KeyEntry { admin: true, ..KeyEntry::new(KeyHash::of("operator"), "acme".to_owned()) };
    KeyFile::change(&path, |file| file.keys.push(entry)).expect("it is written");
    let reach = Reach::Beyond(Keys::open(&path).expect("it is read"));
    let shown = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer operator"))]);
    let key = reach.check(None, None, &shown).expect("it is an operator's").expect("it is shown");
    let mut call = Call::new(WatchRequest::default());
    call.extensions_mut().insert(key);
    let mut watch = played().watch(call).await.expect("it begins").into_inner();
    watch.next().await.expect("it goes on").expect("it looks");
    KeyFile::change(&path, |file| file.keys.clear()).expect("it is written");
    let last = async {
        loop {
            if let Err(status) = watch.next().await.expect("it says why it ends") {
                return status.code();
            }
        }
    };
    let last = tokio::select! {
        last = tokio::time::timeout(Duration::from_secs(30), last) => last.expect("it ends"),
        never = reach.follow() => match never {},
    };
    assert_eq!(last, Code::Unauthenticated);
}

#[tokio::test]
async fn paths_that_nobody_has_are_not_guarded() {
    let nowhere = [("content-type", "text/plain"), ("origin", "null")];
    assert_eq!(answered(Reach::Loopback, "10.0.0.1:1", "/v1/models", &nowhere).await, (404, None));
}

/// Whether a page may ask, and why not.
fn page(browsers: &Browsers, method: &str, caller: &str, headers: &[(&str, &str)]) -> Result<(), String> {
    let mut request = axum::http::Request::builder().method(method);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let caller = Caller(caller.parse().expect("an address"));
    let request = request.extension(caller).body(()).expect("it is a request");
    browsers.check(&request).map(drop).map_err(|status| status.message().to_owned())
}

#[test]
fn pages_of_others_are_refused_and_so_are_names_that_others_could_have() {
    let browsers = Browsers::new(Reach::Loopback, &["Baton.example".to_owned()]);
    let here = "127.0.0.1:1";
    let get = |headers: &[(&str, &str)]| page(&browsers, "GET", here, headers);
    for host in [
        "localhost",
        "LOCALHOST:8001",
        "a.localhost:1",
        "127.0.0.1:8001",
        "[::1]:8001",
        "[::1]",
        "10.0.0.1",
        "baton.EXAMPLE:80",
    ] {
        assert_eq!(get(&[("host", host)]), Ok(()), "{host}");
    }
    for host in [
        "evil.example",
        "evil.example:8001",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "baton.example.evil",
        "",
    ] {
        let refused = get(&[("host", host)]).expect_err(host);
        assert!(refused.contains("admin.hosts"), "{refused}");
    }
    get(&[]).expect_err("it says no name");
    let host = ("host", "127.0.0.1:8001");
    for own in [
        [host, ("origin", "http://127.0.0.1:8001")],
        [host, ("sec-fetch-site", "same-origin")],
        [host, ("sec-fetch-site", "none")],
    ] {
        assert_eq!(get(&own), Ok(()), "{own:?}");
    }
    for other in [
        [host, ("origin", "http://evil.example")],
        [host, ("origin", "http://127.0.0.1:8000")],
        [host, ("origin", "null")],
        [host, ("sec-fetch-site", "cross-site")],
        [host, ("sec-fetch-site", "same-site")],
    ] {
        assert_eq!(get(&other), Err("pages of other origins are not answered".to_owned()), "{other:?}");
    }
}

#[test]
fn only_json_changes_something_and_only_from_here() {
    let browsers = Browsers::new(Reach::Loopback, &[]);
    let post = |kind: &str| page(&browsers, "POST", "127.0.0.1:1", &[("host", "localhost"), ("content-type", kind)]);
    assert_eq!((post("application/json"), post("Application/JSON; charset=utf-8")), (Ok(()), Ok(())));
    // These need no leave of the server to be sent by a page of others.
    for kind in
        ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain; application/json"]
    {
        post(kind).expect_err(kind);
    }
    let elsewhere = |reach| page(&Browsers::new(reach, &[]), "GET", "10.0.0.2:1", &[("host", "10.0.0.1:8001")]);
    assert!(elsewhere(Reach::Loopback).expect_err("it is of another host").contains("admin.beyond_loopback"));
    assert!(elsewhere(Reach::Beyond(Keys::default())).expect_err("it shows no key").contains("baton keys add"));
    let statuses = [Status::not_found(""), Status::unauthenticated(""), Status::failed_precondition("")];
    assert_eq!(statuses.map(|status| refusal(&status).status().as_u16()), [404, 401, 409]);
}

#[tokio::test]
async fn every_call_is_answered_in_json() {
    let service = played();
    let call = async |name: &str, body: &str| match call_in_json(&service, name, body.as_bytes()).await {
        Ok(JsonAnswer::One(message)) => Ok(serde_json::from_slice::<serde_json::Value>(&message).expect("it is JSON")),
        Ok(JsonAnswer::Many(_)) => panic!("{name} streams"),
        Err(status) => Err((status.code(), status.message().to_owned())),
    };
    let drained = call("DrainWorker", r#"{"worker":"d"}"#).await.expect("another one decodes");
    assert_eq!((&drained["name"], &drained["state"]), (&"d".into(), &"draining".into()));
    let role = call("ChangeRole", r#"{"worker":"p","role":"decode"}"#).await.expect("it is done");
    assert_eq!(role["role"], "decode");
    let requests = call("ListRequests", r#"{"ended":2}"#).await.expect("it lists");
    let ids: Vec<_> = requests["requests"].as_array().expect("a list").iter().map(|it| it["id"].clone()).collect();
    assert_eq!(ids, ["a", "ended 0", "ended 1"]);
    assert_eq!(call("Cook", "{}").await.expect_err("there is no such call").0, Code::Unimplemented);
    assert_eq!(call("ListWorkers", "[1]").await.expect_err("it is no request").0, Code::InvalidArgument);
    let watch = call_in_json(&service, "Watch", br#"{"subjects":["workers"],"every_ms":100}"#).await;
    let Ok(JsonAnswer::Many(snapshots)) = watch else { panic!("a watch streams") };
    let seen: Vec<_> = snapshots.take(2).map(|snapshot| snapshot.expect("it looks")).collect().await;
    assert!(seen.iter().all(|seen| seen.starts_with(br#"{"workers":[{"id":1,"name":"p","#)), "{seen:?}");
    // What the service has, a page can ask, and the other way round.
    let methods =
        ["ListWorkers", "ListLanes", "ListTiers", "ListModels", "ListRequests", "GetLogFilter", "Dump", "ListSettings"];
    let pinned = call("PinPrefix", r#"{"prefix":{"request":"abc"},"worker":"d"}"#).await.expect("it is done");
    assert_eq!((&pinned["workers"][0]["outcome"], &pinned["workers"][0]["tokens"]), (&"done".into(), &3.into()));
    for name in methods {
        let answer = call(name, "{}").await;
        assert!(!matches!(answer, Err((Code::Unimplemented, _))), "{name}: {answer:?}");
    }
}

#[test]
fn a_name_goes_before_an_id_and_who_is_unknown_learns_who_is_there() {
    let workers = || vec![worker(1, "p", Role::Prefill), worker(7, "w1", Role::Decode)];
    let id = |name: &str| find(workers(), name).map(|worker| worker.id).map_err(|status| status.message().to_owned());
    assert_eq!((id("p"), id("w7"), id("7"), id("1"), id("w1")), (Ok(1), Ok(7), Ok(7), Ok(1), Ok(7)));
    assert_eq!(id("x"), Err("no worker \"x\" is here: there are p, w1".to_owned()));
    assert_eq!(find(Vec::new(), "x").expect_err("there is none").message(), "no worker \"x\" is here: there is none");
    let many = (0..40).map(|id| worker(id, &format!("n{id}"), Role::Decode)).collect();
    assert!(find(many, "x").expect_err("none of them").message().ends_with("n15 and 24 more"));
    assert_eq!(find(workers(), "").expect_err("no name").code(), Code::InvalidArgument);
}

#[test]
fn the_last_decode_worker_that_takes_work_is_kept() {
    let [p, d, e] = [worker(1, "p", Role::Prefill), worker(2, "d", Role::Decode), worker(3, "e", Role::Decode)];
    check_another_decodes(&[p.clone(), d.clone(), e.clone()], &d).expect("there is another one");
    let error = check_another_decodes(&[p.clone(), d.clone()], &d).expect_err("there is none");
    assert_eq!(error.code(), Code::FailedPrecondition);
    let drained = Worker { state: WorkerState::Drained.into(), ..e };
    assert!(check_another_decodes(&[p.clone(), d.clone(), drained], &d).is_err());
    check_another_decodes(&[p.clone(), d], &p).expect("prefill workers may all go");
}

#[tokio::test]
async fn a_worker_that_does_not_answer_is_named_beside_the_answers_of_others() {
    let service = played();
    let tiers = service.list_tiers(Call::new(ListTiersRequest::default())).await.expect("two answer").into_inner();
    assert_eq!(tiers.tiers.iter().map(|tier| tier.worker).collect::<Vec<_>>(), [1, 2]);
    let silent = Silence { worker: "w1".to_owned(), why: "it stands still".to_owned() };
    assert_eq!(tiers.silent, std::slice::from_ref(&silent));
    let workers = service.list_workers(Call::new(ListWorkersRequest {})).await.expect("it lists").into_inner().workers;
    let tiers: Vec<_> = workers.iter().map(|worker| worker.tiers.len()).collect();
    assert_eq!(tiers, [1, 1, 0]);
    let only = ListTiersRequest { worker: "w2".to_owned() };
    let tiers = service.list_tiers(Call::new(only)).await.expect("it answers").into_inner();
    assert_eq!((tiers.tiers.len(), tiers.silent.len()), (1, 0));
    let subjects = [Subject::Tiers, Subject::Lanes].map(i32::from).into();
    let watch = service.watch(Call::new(WatchRequest { subjects, every_ms: 100 })).await.expect("it begins");
    let seen: Vec<_> = watch.into_inner().take(2).map(|snapshot| snapshot.expect("it looks")).collect().await;
    assert!(
        seen.iter().all(|seen| seen.silent == std::slice::from_ref(&silent) && seen.workers.is_empty()),
        "{seen:?}"
    );
    assert!(seen.iter().all(|seen| seen.tiers.len() == 2), "{seen:?}");
    let error = service.watch(Call::new(WatchRequest { every_ms: 1, ..WatchRequest::default() })).await;
    assert_eq!(error.err().map(|status| status.code()), Some(Code::InvalidArgument));
}

#[tokio::test]
async fn changes_reach_the_worker_and_the_last_decode_worker_takes_force() {
    let service = played();
    let drain = |worker: &str, force| Call::new(DrainWorkerRequest { worker: worker.to_owned(), force });
    let state = |answer: Result<tonic::Response<Worker>, Status>| {
        answer.map(|answer| answer.into_inner().state()).map_err(|status| status.code())
    };
    assert_eq!(state(service.drain_worker(drain("d", false)).await), Ok(WorkerState::Draining));
    let last = service.drain_worker(drain("w1", false)).await;
    assert_eq!(state(last), Err(Code::FailedPrecondition));
    assert_eq!(state(service.drain_worker(drain("w1", true)).await), Err(Code::DeadlineExceeded), "it was asked");
    let undrain = UndrainWorkerRequest { worker: "d".to_owned() };
    assert_eq!(state(service.undrain_worker(Call::new(undrain)).await), Ok(WorkerState::Serving));
    let role = |role: Role| Call::new(ChangeRoleRequest { worker: "d".to_owned(), role: role.into(), force: false });
    let now = service.change_role(role(Role::Prefill)).await.expect("another one decodes").into_inner();
    assert_eq!(now.role(), Role::Prefill);
    assert_eq!(state(service.change_role(role(Role::Unspecified)).await), Err(Code::InvalidArgument));
    assert_eq!(state(service.drain_worker(drain("nobody", false)).await), Err(Code::NotFound));
    let flush = FlushWorkerRequest { worker: "p".to_owned() };
    let refused = service.flush_worker(Call::new(flush)).await.expect_err("it refuses");
    assert_eq!((refused.code(), refused.message()), (Code::FailedPrecondition, "p: not now"));
}

#[tokio::test]
async fn each_worker_says_what_became_of_a_prefix() {
    let service = played();
    let prefix = || Some(Prefix { request: "abc".to_owned(), tenant: String::new() });
    let pin =
        |seconds, worker: &str| Call::new(PinPrefixRequest { prefix: prefix(), worker: worker.to_owned(), seconds });
    let all = service.pin_prefix(pin(0, "")).await.expect("one does it").into_inner();
    assert_eq!((all.prompt_tokens, all.silent.len(), all.silent[0].worker.as_str()), (3, 1, "w1"));
    let outcomes: Vec<_> = all.workers.iter().map(|it| (it.worker_name.as_str(), it.outcome(), it.tokens)).collect();
    assert_eq!(outcomes, [("p", PrefixOutcome::Refused, 0), ("d", PrefixOutcome::Done, 3)]);
    assert!(all.workers[0].why.contains("not now") && all.workers[1].pinned, "{all:?}");
    let one = |worker: &str| worker.to_owned();
    let unpin = Call::new(UnpinPrefixRequest { prefix: prefix(), worker: one("d") });
    let park = Call::new(ParkPrefixRequest { prefix: prefix(), worker: one("d") });
    let unpark = Call::new(UnparkPrefixRequest { prefix: prefix(), worker: one("d") });
    for answer in
        [service.unpin_prefix(unpin).await, service.park_prefix(park).await, service.unpark_prefix(unpark).await]
    {
        let answer = answer.expect("it is done").into_inner();
        assert_eq!((answer.workers.len(), answer.workers[0].pinned), (1, false));
    }
    let error = async |call| service.pin_prefix(call).await.expect_err("it cannot be").code();
    assert_eq!(error(pin(PIN_MAX.as_secs(), "nobody")).await, Code::NotFound);
    assert_eq!(error(pin(PIN_MAX.as_secs() + 1, "d")).await, Code::InvalidArgument);
    assert_eq!(error(Call::new(PinPrefixRequest::default())).await, Code::InvalidArgument);
    let none = Service::new(Arc::new(Played(Mutex::default())));
    let error = none.pin_prefix(pin(0, "")).await.expect_err("there is no worker");
    assert_eq!((error.code(), error.message()), (Code::Unavailable, "no worker is up"));
}

#[tokio::test]
async fn a_request_is_known_by_its_digits() {
    let service = played();
    let explain = async |id: &str| {
        let call = Call::new(ExplainRequestRequest { id: id.to_owned() });
        service.explain_request(call).await.map(drop).map_err(|status| status.code())
    };
    assert_eq!(explain("req_00000000000000ff").await, Ok(()));
    assert_eq!(explain("1").await, Err(Code::NotFound));
    assert_eq!(explain("ff").await, Ok(()));
    for wrong in ["", "xyz", "fffffffffffffffff"] {
        assert_eq!(explain(wrong).await, Err(Code::InvalidArgument), "{wrong}");
    }
}

/// One that answers nothing, as where a step loop or a brain stands still. It may know its workers.
struct StandsStill<const SEES_ALL: bool>;

impl<const ALL: bool> Cluster for StandsStill<ALL> {
    const SEES_ALL: bool = ALL;

    async fn workers(&self) -> Result<Vec<Worker>, Status> {
        if ALL { Ok(vec![worker(1, "d", Role::Decode)]) } else { std::future::pending().await }
    }

    async fn requests(&self) -> Result<Vec<Request>, Status> {
        if ALL { Err(Status::unavailable("the router ends")) } else { std::future::pending().await }
    }

    fn open(&self) -> Vec<Request> {
        if ALL { vec![Request { id: "b".to_owned(), ..Request::default() }] } else { Vec::new() }
    }

    async fn ended(&self, _: usize) -> Result<Vec<Request>, Status> {
        std::future::pending().await
    }

    async fn models(&self) -> Result<Vec<Model>, Status> {
        std::future::pending().await
    }

    async fn explain(&self, _: RequestId) -> Result<Option<Explanation>, Status> {
        std::future::pending().await
    }

    fn settings(&self) -> &dyn Settings {
        &PlayedSettings
    }

    async fn tokens(&self, _: String) -> Result<Vec<Token>, Status> {
        std::future::pending().await
    }

    async fn ask(&self, _: WorkerId, _: WorkerAsk) -> Result<WorkerAnswer, Status> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_dump_names_what_does_not_answer_and_has_the_threads_all_the_same() {
    threads::register("asks", threads::Doing::RunsTasks);
    async fn dump<C: Cluster>(cluster: C, worker: &str) -> Result<DumpResponse, Status> {
        let call = Call::new(DumpRequest { worker: worker.to_owned() });
        Service::new(Arc::new(cluster)).dump(call).await.map(Response::into_inner)
    }
    let begin = tokio::time::Instant::now();
    let worker = dump(StandsStill::<false>, "").await.expect("a dump always comes");
    assert_eq!(worker.unanswered, ["the step loop did not answer for 2000 ms"]);
    assert_eq!(begin.elapsed().as_secs(), 2, "both parts are asked at once");
    let router = dump(StandsStill::<true>, "d").await.expect("a dump always comes");
    let expect = ["the router did not answer: the router ends", "the step loop of d did not answer for 2000 ms"];
    assert_eq!(router.unanswered, expect);
    let whole = dump(StandsStill::<true>, "").await.expect("a dump always comes");
    assert_eq!(whole.unanswered, expect[..1]);
    for dump in [worker, router, whole] {
        let ids: Vec<&str> = dump.requests.iter().map(|request| request.id.as_str()).collect();
        let expect: &[&str] = if dump.unanswered[0].starts_with("the router") { &["b"] } else { &[] };
        assert!(dump.worker.is_none() && ids == expect, "what is known without an answer is there: {dump:?}");
        let own = dump.threads.iter().find(|thread| thread.name == "asks").expect("it is registered");
        assert_eq!((own.doing.as_str(), dump.threads_left_out), ("runs tasks", 0));
        assert_eq!(dump.process, std::process::id());
    }
    let workers = Played(Mutex::new(Vec::new()));
    let answers = dump(workers, "").await.expect("it answers");
    let ids: Vec<_> = answers.requests.iter().map(|request| request.id.as_str()).collect();
    assert_eq!((ids, answers.unanswered.len()), (vec!["a", "b"], 0), "none is listed twice");
    let error = dump(StandsStill::<true>, "e").await.expect_err("there is no such worker");
    assert_eq!(error.code(), Code::NotFound);
}
