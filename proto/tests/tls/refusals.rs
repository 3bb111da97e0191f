//! Ends that refuse each other, and what they are told.

use crate::certificates::{Authority, Pair};
use crate::sessions::{PATIENCE, dial, files, listener, load, worker};
use proto::tls::{PortUse, Refused, TlsFiles};
use rcgen::date_time_ymd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

fn expired(authority: &Authority) -> Pair {
    authority.issue_but("expired", &["127.0.0.1"], |params| params.not_after = date_time_ymd(2001, 1, 1))
}

/// Checks what a router is told when it dials a worker.
async fn check(what: &str, at_worker: TlsFiles, at_router: TlsFiles, wanted: &str) {
    let address = worker(&load(at_worker)).await;
    let status = dial(&load(at_router), address).await.err().unwrap_or_else(|| panic!("{what}: they talk"));
    assert!(status.message().contains(wanted), "{what}: {status}");
}

#[tokio::test]
async fn a_router_is_told_what_is_wrong_with_the_worker() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let router = files(None, None, Some(&ours));
    let tell =
        async |what, pair: &Pair, wanted| check(what, files(Some(pair), None, None), router.clone(), wanted).await;
    tell("a name", &ours.issue("named", &["10.0.0.1", "host"]), "not for 127.0.0.1: issue one for that name").await;
    tell("dates", &expired(&ours), "its certificate has expired").await;
    let later = ours.issue_but("later", &["127.0.0.1"], |params| params.not_before = date_time_ymd(2999, 1, 1));
    tell("dates to come", &later, "is not valid yet").await;
    tell("an authority", &theirs.issue("theirs", &["127.0.0.1"]), "unknown issuer: name the authority in tls.ca").await;
    let client = ours.issue_but("client", &["127.0.0.1"], |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    });
    tell("a purpose", &client, "for another purpose").await;
    check("no TLS at the worker", TlsFiles::default(), router.clone(), "it does not speak TLS: set tls.cert").await;
}

#[tokio::test]
async fn a_router_is_told_what_the_worker_wants_of_it() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let pair = ours.issue("worker", &["127.0.0.1"]);
    let at_worker = files(Some(&pair), Some(&ours), None);
    let tell = async |what, own: Option<&Pair>, wanted| {
        check(what, at_worker.clone(), files(own, None, Some(&ours)), wanted).await;
    };
    tell("no certificate", None, "it requires a certificate of this process: set tls.cert and tls.key").await;
    tell("dates", Some(&expired(&ours)), "it does not accept the certificate of this process (CertificateExpired)")
        .await;
    let other = theirs.issue("router", &["router"]);
    tell("an authority", Some(&other), "it does not accept the certificate of this process (UnknownCA)").await;
    check(
        "no TLS at the router",
        at_worker,
        TlsFiles::default(),
        "it speaks TLS, and this process does not: set tls.ca",
    )
    .await;
}

/// What a port with TLS answers to these bytes, and why it refuses them.
async fn answer(at: PortUse, said: &[u8]) -> (Vec<u8>, Refused) {
    let ours = Authority::new("ours");
    let tls = load(files(Some(&ours.issue("own", &["127.0.0.1"])), None, None));
    let (listener, address) = listener().await;
    let acceptor = tls.port(listener, at);
    let client = async {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(said).await.expect("it is taken");
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.expect("it is closed in order");
        heard
    };
    let server = async {
        let (stream, _) = acceptor.listener.accept().await.expect("it connects");
        let acceptor = acceptor.acceptor.as_ref().expect("it has a certificate");
        acceptor.accept(stream, |stream| stream).await.expect_err("it is refused")
    };
    timeout(PATIENCE, async { tokio::join!(client, server) }).await.expect("both end")
}

/// The hello of a client that offers this version and no later one: one cipher, and one kind of signature.
fn hello(version: [u8; 2]) -> Vec<u8> {
    let body = [&version[..], &[7; 32], &[0, 0, 2, 0xc0, 0x2b, 1, 0, 0, 8, 0, 13, 0, 4, 0, 2, 4, 3]].concat();
    let message = [&[1, 0, 0, body.len() as u8][..], &body].concat();
    [&[22, 3, 1, 0, message.len() as u8][..], &message].concat()
}

#[tokio::test]
async fn plain_http_gets_an_answer_and_old_versions_an_alert() {
    for said in [&b"GET /live HTTP/1.1\r\nHost: h\r\n\r\n"[..], b"POST / HTTP/1.1\r\n\r\n"] {
        let (heard, why) = answer(PortUse::Api, said).await;
        let heard = String::from_utf8(heard).expect("it is text");
        assert!(heard.starts_with("HTTP/1.1 400 Bad Request\r\n") && heard.contains("https://"), "{heard}");
        assert_eq!(why.reason(), "plain");
    }
    let (heard, why) = answer(PortUse::Operations, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert!(heard.ends_with(b"this port speaks TLS: begin the URL with https://"), "{heard:?}");
    assert_eq!(why.reason(), "plain");
    // Nobody knows what would be an answer to that.
    let (heard, why) = answer(PortUse::Api, &[0; 9]).await;
    assert_eq!((heard.len(), why.reason()), (0, "plain"));
    // TLS 1.1, and 1.2 for sessions, whose ends are this program.
    for (at, version) in [(PortUse::Api, [3, 2]), (PortUse::Operations, [3, 2]), (PortUse::Sessions, [3, 3])] {
        let (heard, why) = answer(at, &hello(version)).await;
        assert_eq!((heard.first(), &heard[5..]), (Some(&21), &[2, 70][..]), "an alert about the version");
        assert_eq!(why.reason(), "version");
    }
}

#[tokio::test]
async fn a_client_without_a_certificate_may_come_where_probes_do() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let own = ours.issue("own", &["127.0.0.1"]);
    let tls = load(files(Some(&own), Some(&ours), None));
    let (listener, address) = listener().await;
    let port = tls.port(listener, PortUse::Operations);
    let acceptor = port.acceptor.as_ref().expect("it has a certificate");
    assert!(acceptor.asks_for_certificates());
    let of = |own: Option<&Pair>| load(files(own, None, Some(&ours)));
    for (client, wanted) in [
        (of(None), Ok(false)),
        (of(Some(&ours.issue("client", &["client"]))), Ok(true)),
        (of(Some(&theirs.issue("client", &["client"]))), Err("certificate")),
    ] {
        let server = async {
            let (stream, _) = port.listener.accept().await.expect("it connects");
            let accepted = acceptor.accept(stream, |stream| stream).await;
            accepted.map(|accepted| accepted.is_certified).map_err(|why| why.reason())
        };
        // Nothing is served behind the handshake, so that a session does not begin.
        let (_, seen) =
            timeout(PATIENCE, async { tokio::join!(dial(&client, address), server) }).await.expect("both end");
        assert_eq!(seen, wanted);
    }
}
