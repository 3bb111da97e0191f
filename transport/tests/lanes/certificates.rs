//! Certificates to test with, made anew in each process.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use tempfile::TempDir;
use transport::{TLS_NAME, Tls, TlsError};

/// Who issues certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate as its owner has it.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("there are random numbers");
        Self(CertifiedIssuer::self_signed(params, key).expect("it is sound"))
    }

    /// A certificate for an agent, but for what `change` changes.
    pub(crate) fn issue(&self, change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let mut params = CertificateParams::new([TLS_NAME.to_owned()]).expect("it is a name");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().expect("there are random numbers");
        let certificate = params.signed_by(&key, &self.0).expect("it is sound");
        Issued { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }
}

/// The settings of an agent that has a certificate and takes those of some authorities.
pub(crate) fn load(issued: &Issued, authorities: &str) -> Result<Tls, TlsError> {
    let folder = TempDir::new().expect("a folder can be made");
    let file = |name: &str, text: &str| -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file can be written");
        path
    };
    let [certificate, key] =
        [("certificate.pem", &issued.certificate), ("key.pem", &issued.key)].map(|(n, t)| file(n, t));
    Tls::load(&certificate, &key, &file("authorities.pem", authorities))
}

/// The authority of [`good`].
pub(crate) fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(|| Authority::new("the cluster's"))
}

/// What every agent of a sound cluster has.
pub(crate) fn good() -> Tls {
    static GOOD: OnceLock<Tls> = OnceLock::new();
    let make = || load(&authority().issue(|_| ()), &authority().pem()).expect("they are sound");
    GOOD.get_or_init(make).clone()
}
