//! Users, rights and TLS.

use super::*;
use discovery::etcd::{Credentials, EtcdError};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

fn with_user(server: &EtcdServer, username: &str, password: &str) -> EtcdConfig {
    let credentials = Credentials { username: username.to_owned(), password: password.to_owned() };
    EtcdConfig { credentials: Some(credentials), ..config(&[server.endpoint()]) }
}

/// Makes the users root, baton, who may what Baton does, and guest, who may nothing.
fn with_users(server: &EtcdServer) {
    let ask = |path: &str, question: &str| drop(server.ask("", path, question).expect(path));
    ask("/v3/auth/role/add", r#"{"name":"root"}"#);
    ask("/v3/auth/role/add", r#"{"name":"baton"}"#);
    // Of /baton/ up to /baton0.
    let keys = r#"{"permType":"READWRITE","key":"L2JhdG9uLw==","range_end":"L2JhdG9uMA=="}"#;
    ask("/v3/auth/role/grant", &format!(r#"{{"name":"baton","perm":{keys}}}"#));
    for (user, role) in [("root", "root"), ("baton", "baton"), ("guest", "")] {
        ask("/v3/auth/user/add", &format!(r#"{{"name":"{user}","password":"of {user}"}}"#));
        if !role.is_empty() {
            ask("/v3/auth/user/grant", &format!(r#"{{"user":"{user}","role":"{role}"}}"#));
        }
    }
    ask("/v3/auth/enable", "{}");
}

/// Asks as root, whose token is of the newest state of users.
fn as_root(server: &EtcdServer, path: &str, question: &str) {
    let token = server.ask("", "/v3/auth/authenticate", r#"{"name":"root","password":"of root"}"#).expect("it is root");
    let token = token.split_once(r#""token":""#).and_then(|(_, rest)| rest.split_once('"')).expect("it has one").0;
    server.ask(token, path, question).expect(path);
}

#[tokio::test]
async fn who_may_not_is_told_at_the_start_and_waits_later() {
    let Some(server) = start(&[]) else { return };
    let nobody = Etcd::open(with_user(&server, "baton", "x")).await;
    assert!(nobody.is_ok(), "without users, etcd serves everybody: {nobody:?}");
    with_users(&server);
    let refused = async |config: EtcdConfig| Etcd::open(config).await.expect_err("it is refused");
    assert_eq!(refused(config(&[server.endpoint()])).await, EtcdError::Anonymous);
    for user in ["baton", "somebody"] {
        assert_eq!(refused(with_user(&server, user, "x")).await, EtcdError::Credentials { user: user.to_owned() });
    }
    assert!(matches!(refused(with_user(&server, "guest", "of guest")).await, EtcdError::Denied { .. }));

    let etcd = Etcd::open(with_user(&server, "baton", "of baton")).await.expect("it may");
    let mut reader = Reader::new(&etcd);
    let _worker = etcd.register(entry(1, 10)).await.expect("it may");
    reader.until(&[(1, 10)]).await;
    // Tokens of before are good no more.
    as_root(&server, "/v3/auth/user/add", r#"{"name":"another","password":"x"}"#);
    reader.rests().await;
    let second = etcd.register(entry(2, 20)).await.expect("it may");
    reader.until(&[(1, 10), (2, 20)]).await;
    // The user may nothing for a while, in which the lease lives on or lapses.
    as_root(&server, "/v3/auth/user/revoke", r#"{"name":"baton","role":"baton"}"#);
    let third = etcd.register(entry(3, 30)).await.expect_err("it is refused");
    assert!(matches!(third, EtcdError::Denied { .. }), "{third}");
    tokio::time::sleep(WHILE).await;
    as_root(&server, "/v3/auth/user/grant", r#"{"user":"baton","role":"baton"}"#);
    let _third = etcd.register(entry(3, 30)).await.expect("it may");
    reader.until(&[(1, 10), (2, 20), (3, 30)]).await;
    second.withdraw().await;
    reader.until(&[(1, 10), (3, 30)]).await;
}

/// An authority, and what it issued.
struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("ca.pem"), issuer.pem()).expect("there is room");
        Self { folder, issuer }
    }

    /// Issues a certificate for this name or address: the files of it and of its key.
    fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("it is issued");
        let files = ["pem", "key"].map(|end| self.folder.path().join(format!("{name}.{end}")));
        fs::write(&files[0], certificate.pem()).expect("there is room");
        fs::write(&files[1], key.serialize_pem()).expect("there is room");
        let [certificate, key] = files;
        (certificate, key)
    }

    fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }
}

#[tokio::test]
async fn tls_shows_each_end_who_the_other_is() {
    let (place, authority, other) = (own_place(), Authority::new(), Authority::new());
    let (certificate, key) = authority.issue(&place.ip().to_string());
    let flag = |name: &str, file: PathBuf| format!("--{name}={}", file.display());
    let flags = [
        flag("cert-file", certificate),
        flag("key-file", key),
        flag("trusted-ca-file", authority.ca()),
        "--client-cert-auth".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let Some(server) = EtcdServer::start(place, &flags) else { return };
    let with = |authority: &Authority, identity| {
        let tls = TlsFiles { authorities: Some(authority.ca()), identity };
        Etcd::open(EtcdConfig { tls, ..config(&[server.endpoint()]) })
    };
    let own = Some(authority.issue("worker"));
    let etcd = with(&authority, own.clone()).await.expect("both are who they should be");
    let mut reader = Reader::new(&etcd);
    let worker = etcd.register(entry(1, 10)).await.expect("it may");
    reader.until(&[(1, 10)]).await;
    worker.withdraw().await;
    reader.until(&[]).await;
    for (of, identity) in [(&other, own.clone()), (&authority, None), (&authority, Some(other.issue("worker")))] {
        let error = with(of, identity.clone()).await.err().unwrap_or_else(|| panic!("a stranger: {identity:?}"));
        assert!(matches!(error, EtcdError::Tls { .. }), "{error}");
    }
    let missing = with(&authority, own.map(|(_, key)| ("/nowhere".into(), key))).await.expect_err("there is no file");
    assert!(missing.to_string().starts_with("/nowhere (discovery.etcd.tls.cert): No such file"), "{missing}");
}
