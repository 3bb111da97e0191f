//! Certificates to test with, made anew in each process, and the files that they are in.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Who issues certificates, with a folder for the files of those who have them.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

/// The files of a certificate and its key.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("there are random numbers");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("it is sound");
        let authority = Self { issuer, folder: TempDir::new().expect("a folder can be made") };
        put(&authority.file(), &authority.issuer.pem());
        authority
    }

    /// The file of its own certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// A certificate for these hosts.
    pub(crate) fn issue(&self, name: &str, hosts: &[&str]) -> Pair {
        self.issue_but(name, hosts, |_| ())
    }

    /// The same, but for what `change` changes.
    pub(crate) fn issue_but(&self, name: &str, hosts: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let path = |end: &str| self.folder.path().join(format!("{name}.{end}"));
        let pair = Pair { certificate: path("pem"), key: path("key") };
        self.renew_but(&pair, hosts, change);
        pair
    }

    /// Writes another certificate and key into the files of an earlier one.
    pub(crate) fn renew_but(&self, pair: &Pair, hosts: &[&str], change: impl FnOnce(&mut CertificateParams)) {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(hosts).expect("they are names or addresses");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().expect("there are random numbers");
        let certificate = params.signed_by(&key, &self.issuer).expect("it is sound");
        put(&pair.certificate, &certificate.pem());
        put(&pair.key, &key.serialize_pem());
    }
}

/// Writes a file as those who replace certificates do: it is whole whenever somebody looks.
pub(crate) fn put(path: &Path, text: &str) {
    let partial = path.with_extension("partial");
    fs::write(&partial, text).expect("a file can be written");
    fs::rename(&partial, path).expect("a file can be renamed");
}
