//! TLS of the API, of operations and of sessions, with files as an operator has them.

use crate::address::own_place;
use crate::asks::{Ask, check_all};
use crate::certificates::{Authority, Pair, put};
use crate::cluster::Cluster;
use crate::http::{Connection, request};
use crate::process::Process;
use crate::server::{Server, baton, drained, ended, until};
use rcgen::date_time_ymd;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;

/// Flags of workers that compute in no time.
const SIM: [&str; 4] = ["--device", "sim", "--set", "sim.speed_percent=0"];
/// What the certificates of all processes are for, beside an address.
const NAME: &str = "baton";

/// A client that knows an authority, and shows nothing.
fn trusting(authority: &Authority) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(authority.file()).expect("it was written");
    roots.add(certificate).expect("it is sound");
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("the provider has them");
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}

/// Flags of a process with a certificate, and with further files of `tls`.
fn flags(pair: &Pair, more: &[(&str, &Authority)]) -> Vec<String> {
    let own = [("cert", pair.certificate.clone()), ("key", pair.key.clone())];
    let more = more.iter().map(|(key, authority)| (*key, authority.file()));
    let set = own.into_iter().chain(more).map(|(key, path)| format!("tls.{key}={}", path.display()));
    set.flat_map(|set| ["--set".to_owned(), set]).collect()
}

fn borrowed(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

/// What a command of the binary says: exit status, standard output, standard error.
fn said(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut child = baton(arguments).spawn().expect("the binary runs");
    let status = ended(&mut child);
    (status.code(), drained(child.stdout.take()), drained(child.stderr.take()))
}

/// Returns a text without its breaks of lines.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Flags of a client that shows this certificate.
fn shown(pair: &Pair) -> [String; 4] {
    let (certificate, key) = (pair.certificate.display().to_string(), pair.key.display().to_string());
    ["--cert".to_owned(), certificate, "--key-file".to_owned(), key]
}

#[test]
fn processes_say_over_tls_what_one_process_says() {
    let ask = |at: u32| {
        let more = json!({ "seed": at, "max_tokens": 10 + at * 5, "ignore_eos": true });
        Ask::completion("tiny-rust", "over TLS ".repeat(at as usize * 9), more)
    };
    let local = Server::start_with(&SIM, &[("BATON_PLACEMENT__HANDOFF", "always")]);
    let told: Vec<_> = (1..5).map(ask).map(|ask| (ask.clone(), ask.whole(&local).0)).collect();
    drop(local);

    let authority = Authority::new("the cluster's");
    let pair = authority.issue("process", &[NAME, "127.0.0.1"]);
    let of_worker = [flags(&pair, &[("client_ca", &authority)]), SIM.map(str::to_owned).to_vec()].concat();
    let ops = own_place();
    let own =
        ["placement.handoff=always".to_owned(), format!("tls.server_name={NAME}"), format!("router.ops_listen={ops}")];
    let own = own.into_iter().flat_map(|set| ["--set".to_owned(), set]).collect::<Vec<_>>();
    let of_router = [flags(&pair, &[("client_ca", &authority), ("ca", &authority)]), own].concat();
    let mut cluster = Cluster::new("hush, says this test");
    let both = [cluster.prefill(&borrowed(&of_worker)), cluster.decode(&borrowed(&of_worker))];
    cluster.route(&borrowed(&of_router));
    cluster.trust(&trusting(&authority));
    cluster.until_ready(1, 1);
    check_all(cluster.router(), &told, 2, true);
    let expiry = cluster.router().metrics().sum("baton_tls_certificate_expiry_seconds", &[]);
    assert!(expiry > 1e9, "{expiry}");

    // A client of the API that is not this test's own.
    let (ca, url) = (authority.file().display().to_string(), format!("https://{}", cluster.router().address));
    let (status, out, error) = said(&["bench", "serve", "--url", &url, "--ca", &ca, "--requests", "3"]);
    assert_eq!(status, Some(0), "{error}");
    assert!(out.contains("3 done, 0 failed"), "{out}");
    match Command::new("curl").args(["-sS", "--cacert", &ca, &format!("{url}/v1/models")]).output() {
        Ok(curl) => assert!(String::from_utf8_lossy(&curl.stdout).contains("tiny-rust"), "{curl:?}"),
        Err(error) => eprintln!("skipped: curl does not run ({error})"),
    }

    // The admin client, with files from flags and from settings.
    let server = format!("https://{ops}");
    let (status, out, error) =
        said(&["admin", "--server", &server, "--ca", &ca, "--tls-name", NAME, "--json", "workers"]);
    assert_eq!(status, Some(0), "{error}");
    let workers: Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!(workers["workers"].as_array().map(Vec::len), Some(2), "{out}");
    let file = authority.file().with_file_name("baton.toml");
    put(&file, &format!("[tls]\nca = {ca:?}\nserver_name = {NAME:?}\n"));
    let (status, _, error) = said(&["admin", "--server", &server, "--config", &file.display().to_string(), "workers"]);
    assert_eq!(status, Some(0), "{error}");

    // `baton topo` has the same flags and settings.
    let urls = both.map(|at| format!("https://{}", cluster.worker(at).operations()));
    let topo = |access: &[&str]| said(&[&["topo", "--json", &urls[0], &urls[1]], access].concat());
    let by_flags = ["--ca", &ca, "--tls-name", NAME];
    let topology = until("both have said which lanes they took", || {
        let (status, out, error) = topo(&by_flags);
        assert_eq!(status, Some(0), "{out}{error}");
        let topology: Value = serde_json::from_str(&out).expect("it is JSON");
        topology["reads"].as_array().is_some_and(|reads| !reads.is_empty()).then_some(topology)
    });
    assert_eq!(topology["workers"].as_array().map(Vec::len), Some(2), "{topology:#}");
    let (status, _, error) = topo(&["--config", &file.display().to_string()]);
    assert_eq!(status, Some(0), "{error}");
    assert_eq!(topo(&["--ca", "/nowhere/ca.pem"]).0, Some(2));

    let strange = Authority::new("another one");
    let (strange, worker) = (strange.file().display().to_string(), format!("https://{}", cluster.addresses()[0]));
    for (server, ca, name, wanted) in [
        (&server, &ca, "other", "not for other: issue one for that name"),
        (&server, &strange, NAME, "unknown issuer: name the authority in tls.ca or --ca"),
        (&format!("http://{ops}"), &ca, NAME, "begin the URL with https://"),
        (&worker, &ca, NAME, "it requires a certificate"),
    ] {
        let (status, _, error) = said(&["admin", "--server", server, "--ca", ca, "--tls-name", name, "workers"]);
        assert!(status != Some(0) && error.contains(wanted), "{server} {name}: {error}");
        let (status, out, _) = said(&["topo", server, "--ca", ca, "--tls-name", name]);
        // Sessions are HTTP/2, which it does not speak.
        let wanted = if *server == worker { "its port is for another protocol" } else { wanted };
        assert!(status == Some(1) && in_one_line(&out).contains(wanted), "{server} {name}: {out}");
    }
    let ends = cluster.end();
    assert!(ends.iter().all(|code| *code == Some(0)), "{ends:?}");
}

#[test]
fn a_router_says_why_it_has_no_session_with_a_worker() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let over = ours.issue_but("expired", &[NAME], |params| params.not_after = date_time_ymd(2001, 1, 1));
    let good = ours.issue("good", &[NAME]);
    let mut cluster = Cluster::new("hush, says this test");
    let [_, expired, ..] = [
        flags(&ours.issue("named", &["elsewhere"]), &[]),
        flags(&over, &[]),
        flags(&theirs.issue("theirs", &[NAME]), &[]),
        Vec::new(),
        flags(&good, &[("client_ca", &theirs)]),
    ]
    .map(|flags| cluster.decode(&[&borrowed(&flags)[..], &SIM].concat()));
    let (name, trusts) = (format!("tls.server_name={NAME}"), flags(&good, &[("ca", &ours)]));
    let more = ["--set", &name, "--set", "router.ops_listen="];
    let strict = cluster.another_router(&[&borrowed(&trusts)[..], &more].concat());
    let plain = cluster.another_router(&["--set", "router.ops_listen="]);
    let log = |router: &Process, at: usize, wanted: &str| {
        let worker = cluster.addresses()[at].to_string();
        let is_told = |line: &str| line.contains(&worker) && line.contains(wanted);
        until(wanted, || router.log().lines().any(is_told).then_some(()));
    };
    log(&strict, 0, "not for baton: issue one for that name");
    log(&strict, 1, "its certificate has expired");
    log(&strict, 2, "its certificate has an unknown issuer: name the authority in tls.ca");
    log(&strict, 3, "it does not speak TLS: set tls.cert and tls.key there");
    log(&strict, 4, "it does not accept the certificate of this process (UnknownCA)");
    log(&plain, 0, "it speaks TLS, and this process does not: set tls.ca");
    let log = cluster.worker(expired).log();
    assert!(log.contains("the certificate has expired, and others refuse it"), "{log}");
}

/// The text of a stream from here to its end.
fn rest(mut stream: Connection) -> String {
    let mut text = String::new();
    loop {
        let event = stream.event().expect("the stream goes on").expect("it ends with [DONE]");
        if event == "[DONE]" {
            return text;
        }
        let event: Value = serde_json::from_str(&event).expect("events are JSON");
        text += event["choices"][0]["text"].as_str().unwrap_or_default();
    }
}

#[test]
fn certificates_are_replaced_while_streams_go_on() {
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    let pair = first.issue("server", &["127.0.0.1"]);
    let set = flags(&pair, &[]);
    let arguments = [&["serve", "--listen", "127.0.0.1:0", "--set", "router.ops_listen="][..], &SIM, &borrowed(&set)];
    let mut server = Process::start(&arguments.concat(), &[]);
    let [knows_first, knows_second] = [&first, &second].map(trusting);
    server.trust(&knows_first);
    until("the service is ready", || (server.get("/ready").head.status == 200).then_some(()));
    let ask = |seed: u32| {
        let more = json!({ "max_tokens": 400, "ignore_eos": true, "seed": seed });
        Ask::completion("tiny-rust", "on and on ", more)
    };
    let told: Vec<String> = (0..4).map(|seed| ask(seed).whole(&server).0.choices[&0].text.clone()).collect();

    let streams: Vec<_> = (0..4).map(|seed| ask(seed).begin_stream(&server)).collect();
    // Half a change is none.
    let key = fs::read_to_string(&pair.key).expect("it is there");
    put(&pair.key, &fs::read_to_string(&first.issue("other", &["h"]).key).expect("it was written"));
    until("the change is judged", || {
        server.log().contains("server.key does not belong to the certificate in").then_some(())
    });
    server.connect();
    put(&pair.key, &key);
    second.renew_but(&pair, &["127.0.0.1"], |_| ());
    until("the new certificate", || Connection::secure(server.address, &knows_second).ok());
    assert!(Connection::secure(server.address, &knows_first).is_err(), "the old one is shown no more");
    let texts: Vec<String> = streams.into_iter().map(rest).collect();
    assert_eq!(texts, told);
    server.trust(&knows_second);
    let metrics = server.metrics();
    let reloads = |result| metrics.sum("baton_tls_reloads_total", &[("result", result)]);
    assert!(reloads("taken") >= 1.0 && reloads("refused") >= 1.0);
}

#[test]
fn plain_http_is_answered_in_words_and_silence_keeps_nobody_out() {
    let authority = Authority::new("ours");
    let set = flags(&authority.issue("server", &["127.0.0.1"]), &[]);
    let few = ["--set", "router.requests_max=4", "--set", "router.connections_max=8", "--set", "router.ops_listen="];
    let arguments = [&["serve", "--listen", "127.0.0.1:0"][..], &few, &SIM, &borrowed(&set)];
    let mut server = Process::start(&arguments.concat(), &[]);
    let answer = server.get("/live");
    assert_eq!((answer.head.status, answer.text()), (400, "this port speaks TLS: begin the URL with https://\n"));
    server.trust(&trusting(&authority));
    let refused = server.metrics().sum("baton_tls_refused_total", &[("reason", "plain")]);
    assert_eq!(refused, 1.0);
    // They begin no handshake, and make room for those that do.
    let silent: Vec<_> = (0..24).map(|_| Connection::open(server.address).expect("it listens")).collect();
    assert_eq!(server.get("/live").head.status, 200);
    until("some made room", || (server.metrics().sum("baton_connections_evicted_total", &[]) >= 17.0).then_some(()));
    drop(silent);
}

/// An address of this host on a network; none where there is only loopback.
fn own_network() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Nothing is sent: the system only says which address it would be sent from.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn a_certificate_makes_an_operator_of_another_host() {
    let Some(host) = own_network() else {
        eprintln!("skipped: this host has no address but loopback");
        return;
    };
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let pair = ours.issue("worker", &[&host.to_string(), "127.0.0.1"]);
    let ops = SocketAddr::new(host, own_place().port());
    let set = format!("worker.ops_listen={ops}");
    let arguments = [&["--set", &set], &SIM[..]].concat();
    let of_tls = flags(&pair, &[("client_ca", &ours)]);
    let mut cluster = Cluster::new("hush, says this test");
    cluster.decode(&[&arguments[..], &borrowed(&of_tls)].concat());
    let client = trusting(&ours);
    let get = |path: &str| {
        let mut connection = Connection::secure(ops, &client).expect("probes need no certificate");
        connection.send(&request("GET", path, "text/plain", b"")).expect("it is read");
        connection.answer().expect("it is answered")
    };
    for (path, wanted) in [("/live", 200), ("/ready", 200), ("/metrics", 403), ("/lanes", 403)] {
        assert_eq!(get(path).head.status, wanted, "{path}");
    }
    let (server, ca) = (format!("https://{ops}"), ours.file().display().to_string());
    let ask = |certificate: &[String]| {
        let asked = ["admin", "--server", &server, "--ca", &ca].into_iter();
        said(&asked.chain(borrowed(certificate)).chain(["workers"]).collect::<Vec<_>>())
    };
    let (status, _, error) = ask(&[]);
    assert_eq!(status, Some(4), "{error}");
    assert!(error.contains("need a certificate of an authority in tls.client_ca"), "{error}");
    let (status, _, error) = ask(&shown(&theirs.issue("operator", &["operator"])));
    assert_eq!(status, Some(1), "{error}");
    assert!(error.contains("it does not accept the certificate of this process (UnknownCA)"), "{error}");
    let (status, out, error) = ask(&shown(&ours.issue("operator", &["operator"])));
    assert_eq!(status, Some(0), "{error}");
    assert!(out.contains("decode"), "{out}");
    let topo = |shown: &[String]| said(&[&["topo", &server, "--ca", &ca][..], &borrowed(shown)].concat());
    let (status, out, _) = topo(&[]);
    assert!(
        status == Some(1) && in_one_line(&out).contains("show a certificate of an authority in tls.client_ca"),
        "{out}"
    );
    assert_eq!(topo(&shown(&ours.issue("reader", &["reader"]))).0, Some(0));

    // The key of an operator does as well, where such keys are taken.
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("keys.json").display().to_string();
    let (_, key, error) = said(&["keys", "add", "--file", &keys, "--tenant", "ops", "--admin"]);
    let taken = ["--set", "admin.beyond_loopback=true", "--set", &format!("admin.keys_file={keys}")];
    let ops = SocketAddr::new(host, own_place().port());
    let at = format!("worker.ops_listen={ops}");
    cluster.decode(&[&["--set", &at], &SIM[..], &taken, &borrowed(&of_tls)].concat());
    let server = format!("https://{ops}");
    let by_key = |key: &str| said(&["topo", &server, "--ca", &ca, "--key", key]);
    let (status, out, _) = by_key(key.trim());
    assert_eq!(status, Some(0), "{out}{error}");
    let (status, out, _) = by_key(&key.trim()[1..]);
    assert!(status == Some(1) && in_one_line(&out).contains("or the key of an operator"), "{out}");
    let (status, _, error) = by_key("line\nbreak");
    assert!(status == Some(2) && error.contains("visible characters"), "{error}");
}

#[test]
fn files_that_are_of_no_use_keep_a_process_from_starting() {
    let authority = Authority::new("ours");
    let [one, other] = ["one", "other"].map(|name| authority.issue(name, &["127.0.0.1"]));
    let set = |key: &str, path: &std::path::Path| format!("tls.{key}={}", path.display());
    let nowhere = std::path::Path::new("/nowhere/cert.pem");
    for (given, wanted) in [
        (vec![set("cert", nowhere), set("key", &one.key)], "/nowhere/cert.pem"),
        (
            vec![set("cert", &one.certificate), set("key", &other.key)],
            "other.key does not belong to the certificate in",
        ),
        (vec![set("cert", &one.certificate)], "tls.key: a certificate needs its key"),
    ] {
        let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--device", "sim"];
        given.iter().for_each(|set| arguments.extend(["--set", set]));
        let (status, _, error) = said(&arguments);
        assert!(status != Some(0) && error.contains(wanted), "{error}");
    }
}
