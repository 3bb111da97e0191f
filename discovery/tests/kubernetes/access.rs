//! Tokens, rights and certificates.

use super::*;
use discovery::kubernetes::KubernetesError;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::fs;
use std::net::TcpStream;
use std::sync::{Arc, OnceLock};

async fn refused(config: KubernetesConfig) -> KubernetesError {
    Kubernetes::open(config).await.expect_err("it is refused")
}

#[tokio::test]
async fn a_right_that_is_missing_is_named() {
    let server = ApiServer::start(own_place());
    server.put(worker("a", 1));
    server.state().refused.push(("/pods", 403));
    let error = refused(config(server.address())).await.to_string();
    for part in ["system:serviceaccount:baton:router", "bind a Role that allows `list` and `watch` of `pods`"] {
        assert!(error.contains(part), "{error}");
    }
    // The same later is as if the server were away, and so is the right to watch alone.
    server.state().refused.clear();
    let mut reader = Reader::open(config(server.address())).await;
    reader.until(&[("a", 1)]).await;
    for part in ["/pods", "watch=true"] {
        let asked = server.count("/pods");
        server.state().refused.push((part, 403));
        server.end_watches("", true);
        until("it to ask again", || server.count("/pods") > asked + 2).await;
        server.state().refused.clear();
    }
    server.put(worker("b", 2));
    reader.until(&[("a", 1), ("b", 2)]).await;
    assert_eq!(reader.counts, [2, 0, 0]);
}

#[tokio::test]
async fn a_selector_or_server_that_is_wrong_is_refused() {
    let server = ApiServer::start(own_place());
    for (status, setting) in [(400, "discovery.kubernetes.selector"), (404, "discovery.kubernetes.server")] {
        server.state().refused = vec![("/pods", status)];
        let error = refused(config(server.address())).await.to_string();
        assert!(error.contains(setting), "{error}");
    }
}

#[tokio::test]
async fn a_token_is_read_when_it_is_needed() {
    let server = ApiServer::start(own_place());
    server.put(worker("a", 1));
    server.state().token = Some("first".to_owned());
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    let config = KubernetesConfig { token: Some(token.clone()), ..config(server.address()) };
    let wrong = |error: KubernetesError| {
        let error = error.to_string();
        assert!(error.contains("discovery.kubernetes.token_file"), "{error}");
    };
    wrong(refused(config.clone()).await);
    for text in ["", "of\ntwo lines", "other"] {
        fs::write(&token, text).expect("there is room");
        wrong(refused(config.clone()).await);
    }
    fs::write(&token, "first\n").expect("there is room");
    let mut reader = Reader::open(config).await;
    reader.until(&[("a", 1)]).await;
    // It has expired, and what is listed stays until the next one is there.
    server.state().token = Some("second".to_owned());
    let asked = server.count("/pods");
    server.end_watches("", true);
    until("it to be refused", || server.count("/pods") > asked + 2).await;
    server.put(worker("b", 2));
    fs::write(&token, "second").expect("there is room");
    reader.until(&[("a", 1), ("b", 2)]).await;
    assert_eq!(reader.counts, [2, 0, 0]);
}

/// What an authority signs servers with.
type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("a certificate")
}

fn identity(authority: &Authority, name: &str) -> Arc<ServerConfig> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
    let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, authority).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key);
    Arc::new(config.expect("they fit"))
}

#[tokio::test]
async fn a_server_is_known_by_its_certificate() {
    static IDENTITY: OnceLock<Arc<ServerConfig>> = OnceLock::new();
    let (right, wrong) = (authority(), authority());
    let place = own_place();
    IDENTITY.get_or_init(|| identity(&right, &place.ip().to_string()));
    let server = ApiServer::start_with(place, |stream: TcpStream| {
        let connection = ServerConnection::new(IDENTITY.get()?.clone()).ok()?;
        Some(Box::new(StreamOwned::new(connection, stream)))
    });
    server.put(worker("a", 1));
    let folder = tempfile::tempdir().expect("a folder");
    let ca = folder.path().join("ca.crt");
    let write = |text: String| fs::write(&ca, text).expect("there is room");
    let base = KubernetesConfig { server: format!("https://{place}"), ..config(place) };
    let config = KubernetesConfig { authorities: Some(ca.clone()), ..base.clone() };
    // None of those that the system trusts has signed it.
    assert!(matches!(refused(base.clone()).await, KubernetesError::Tls { .. }));
    assert!(matches!(refused(config.clone()).await, KubernetesError::File { .. }));
    write("no PEM".to_owned());
    let error = refused(config.clone()).await.to_string();
    assert!(error.contains("discovery.kubernetes.ca") && error.contains("no certificate"), "{error}");
    write(wrong.pem());
    let error = refused(config.clone()).await.to_string();
    assert!(error.contains("TLS fails") && error.contains("discovery.kubernetes.ca"), "{error}");
    write(right.pem());
    let mut reader = Reader::open(config).await;
    reader.until(&[("a", 1)]).await;
    // Authorities are read at each connection: while they are wrong, what is listed stays.
    write(wrong.pem());
    server.go_away();
    server.put(worker("b", 2));
    server.return_again();
    write([wrong.pem(), right.pem()].concat());
    reader.until(&[("a", 1), ("b", 2)]).await;
    assert_eq!(reader.counts, [2, 0, 0]);
}
