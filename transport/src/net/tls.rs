//! TLS between agents: the certificate by which this one is known, and those whom it takes.
//!
//! Both ends of a connection show a certificate, and each wants the other's to come from one of its authorities,
//! so these are best the cluster's own. What TLS says to the wire is in `socket`. What is deliberately absent:
//! names of hosts in certificates, since workers come and go with their addresses, and earlier versions than 1.3,
//! since all ends are this program.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::{Resumption, verify_server_name};
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name that the certificate of every agent is for: a DNS name among the alternative names of its subject.
pub const TLS_NAME: &str = "baton";

/// By what an agent is known to its peers, and by what it knows them.
#[derive(Clone, Debug)]
pub struct Tls {
    connects: Arc<ClientConfig>,
    accepts: Arc<ServerConfig>,
}

/// Why an agent has no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is no PEM file.
    #[error("{path} cannot be read")]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: pem::Error,
    },
    /// A file has no certificate.
    #[error("{path} has no certificate")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The certificate, the key or an authority is unusable, or the first two do not belong together.
    #[error("certificate, key and authorities are of no use")]
    Unusable(#[from] rustls::Error),
    /// The authorities cannot be checked against.
    #[error("the authorities are of no use")]
    Authorities(#[from] VerifierBuilderError),
}

impl Tls {
    /// Reads PEM files, once: the agent's certificate, followed by those that link it to an authority, if there
    /// are such; its private key; and the certificates of the authorities.
    pub fn load(certificate: &Path, key: &Path, authorities: &Path) -> Result<Self, TlsError> {
        let chain = certificates(certificate)?;
        let private =
            PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::File { path: key.to_owned(), source })?;
        let mut roots = RootCertStore::empty();
        for authority in certificates(authorities)? {
            roots.add(authority)?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(ring::default_provider()));

        let connects = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&TLS13])?;
        let connects = connects.with_root_certificates(roots.clone());
        let mut connects = connects.with_client_auth_cert(chain.clone(), private.clone_key())?;
        // Each connection proves anew who is at its ends, and lasts.
        connects.resumption = Resumption::disabled();

        let peers = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build()?;
        let peers = Arc::new(Readers { issued: peers, name: name()? });
        let accepts = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
        let mut accepts = accepts.with_client_cert_verifier(peers).with_single_cert(chain, private)?;
        (accepts.session_storage, accepts.send_tls13_tickets) = (Arc::new(NoServerSessionStorage {}), 0);
        Ok(Self { connects: Arc::new(connects), accepts: Arc::new(accepts) })
    }

    /// The end that connects.
    pub(crate) fn connecting(&self) -> Result<Connection, rustls::Error> {
        Ok(ClientConnection::new(self.connects.clone(), name()?)?.into())
    }

    /// The end that is connected to.
    pub(crate) fn accepting(&self) -> Result<Connection, rustls::Error> {
        Ok(ServerConnection::new(self.accepts.clone())?.into())
    }
}

fn name() -> Result<ServerName<'static>, rustls::Error> {
    ServerName::try_from(TLS_NAME).map_err(|_| rustls::Error::General("a name that is none".to_owned()))
}

/// Those who may connect: of an authority, as rustls checks it, and for [`TLS_NAME`], which it checks of the other
/// end alone.
#[derive(Debug)]
struct Readers {
    issued: Arc<dyn ClientCertVerifier>,
    name: ServerName<'static>,
}

impl ClientCertVerifier for Readers {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.issued.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.issued.verify_client_cert(certificate, intermediates, now)?;
        verify_server_name(&ParsedCertificate::try_from(certificate)?, &self.name)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.issued.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.issued.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.issued.supported_verify_schemes()
    }
}

/// Returns the certificates of a file, one at least.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let explain = |source| TlsError::File { path: path.to_owned(), source };
    let all = CertificateDer::pem_file_iter(path).map_err(explain)?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(explain)?;
    if all.is_empty() { Err(TlsError::Empty { path: path.to_owned() }) } else { Ok(all) }
}
