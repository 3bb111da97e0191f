//! Files that are of no use.

use crate::certificates::{Authority, put};
use crate::sessions::files;
use proto::tls::{Tls, TlsFiles};

#[test]
fn an_error_names_the_file_and_what_is_wrong() {
    let authority = Authority::new("ours");
    let own = authority.issue("own", &["127.0.0.1"]);
    let other = authority.issue("other", &["127.0.0.1"]);
    let good = files(Some(&own), Some(&authority), Some(&authority));
    Tls::load(good.clone()).expect("they are sound");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        put(&path, text);
        path
    };
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let [empty, garbage, gone] =
        [file("empty.pem", "\n"), file("garbage.pem", garbage), folder.path().join("gone.pem")];
    let certificate = |path| TlsFiles { identity: Some((path, own.key.clone())), ..good.clone() };
    let key = |path| TlsFiles { identity: Some((own.certificate.clone(), path)), ..good.clone() };
    for (what, files, wanted) in [
        ("no file", certificate(gone.clone()), "gone.pem: "),
        ("an empty file", certificate(empty.clone()), "empty.pem has no certificate"),
        ("garbage", certificate(garbage.clone()), "garbage.pem: "),
        ("another key", key(other.key.clone()), "other.key does not belong to the certificate in "),
        ("no key", key(own.certificate.clone()), "own.pem: "),
        ("no authority", TlsFiles { authorities: Some(empty), ..good.clone() }, "empty.pem has no certificate"),
        ("a bad one", TlsFiles { client_authorities: Some(garbage), ..good.clone() }, "garbage.pem: "),
        ("none of clients", TlsFiles { client_authorities: Some(gone), ..good.clone() }, "gone.pem: "),
    ] {
        let error = Tls::load(files).map(drop).expect_err(what).to_string();
        assert!(error.contains(wanted), "{what}: {error}");
    }
}
