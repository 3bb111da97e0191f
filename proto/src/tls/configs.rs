//! From files to what rustls is told.

use super::TlsFiles;
use super::validity::expiry_s;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What gRPC clients speak.
pub(super) const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// What a port is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortUse {
    /// Clients of the API, over HTTP/1.1. Certificates are optional.
    Api,
    /// Operators and their tools, over HTTP/2 or HTTP/1.1. Certificates are optional: probes have none.
    Operations,
    /// Routers. If there are authorities for those that connect, they must show a certificate.
    Sessions,
}

/// Why files are of no use.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or has not what it should have.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: pem::Error,
    },
    /// A file has no certificate.
    #[error("{path} has no certificate")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A certificate or key is none that can be used.
    #[error("{path}: {source}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: rustls::Error,
    },
    /// Certificate and key do not belong together.
    #[error("the key in {key} does not belong to the certificate in {certificate}")]
    Mismatch {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// Nothing can be checked against the authorities.
    #[error("{path}: {source}")]
    Authorities {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: VerifierBuilderError,
    },
    /// No file names authorities, and the system trusts none.
    #[error("this system trusts no authority: name one by --ca, or in tls.ca")]
    NoAuthorities,
}

/// What connections begin with. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Configs {
    accepts: Option<[Arc<ServerConfig>; 3]>,
    pub(super) connects: Option<Arc<ClientConfig>>,
    /// When the certificate expires, in seconds since the Unix epoch.
    pub(super) expiry_s: Option<u64>,
}

impl Configs {
    /// Reads the files. Errors: [`TlsError`].
    pub(super) fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let mut configs = Self::default();
        let mut shown = None;
        if let Some((certificate, key)) = &files.identity {
            let own = identity(certificate, key, &provider)?;
            configs.expiry_s = own.cert.first().and_then(|certificate| expiry_s(certificate));
            let own = Arc::new(SingleCertAndKey::from(own));
            let authorities = files.client_authorities.as_deref();
            let authorities = authorities.map(|path| Ok((path, roots(path)?))).transpose()?;
            let accepts = |at| accepting(at, own.clone(), authorities.as_ref(), &provider);
            configs.accepts =
                Some([accepts(PortUse::Api)?, accepts(PortUse::Operations)?, accepts(PortUse::Sessions)?]);
            shown = Some(own);
        }
        if let Some(path) = &files.authorities {
            let mut config = connecting(&[&TLS13], roots(path)?, shown, provider);
            config.alpn_protocols = vec![HTTP2.to_owned()];
            configs.connects = Some(Arc::new(config));
        }
        Ok(configs)
    }

    /// Returns what a port of this use is told; `None`: there is no certificate.
    pub(super) fn accepts(&self, at: PortUse) -> Option<Arc<ServerConfig>> {
        self.accepts.as_ref().map(|configs| configs[at as usize].clone())
    }
}

/// Makes what the client of a port for operators is told that speaks HTTP/1.1. Without authorities, it trusts those of
/// the system. Errors: [`TlsError`].
pub(super) fn operator(files: &TlsFiles) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let roots = files.authorities.as_deref().map_or_else(system_roots, roots)?;
    let shown = files.identity.as_ref().map(|(certificate, key)| identity(certificate, key, &provider)).transpose()?;
    let shown = shown.map(|own| Arc::new(SingleCertAndKey::from(own)));
    let mut config = connecting(&[&TLS13, &TLS12], roots, shown, provider);
    config.alpn_protocols = vec![HTTP1.to_owned()];
    Ok(config)
}

/// Makes what an end that dials is told, with the certificate that it shows, if it has one.
fn connecting(
    versions: &[&'static SupportedProtocolVersion],
    roots: Arc<RootCertStore>,
    shown: Option<Arc<SingleCertAndKey>>,
    provider: Arc<CryptoProvider>,
) -> ClientConfig {
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions);
    let config = config.expect("the provider has these versions").with_root_certificates(roots);
    let mut config = match shown {
        Some(own) => config.with_client_cert_resolver(own),
        None => config.with_no_client_auth(),
    };
    // Each connection proves anew who is at its ends.
    config.resumption = Resumption::disabled();
    config
}

/// Makes what a port of this use is told, with its authorities of clients, if it has some, and their file.
fn accepting(
    at: PortUse,
    own: Arc<SingleCertAndKey>,
    authorities: Option<&(&Path, Arc<RootCertStore>)>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let (versions, protocols): (&[&SupportedProtocolVersion], &[&[u8]]) = match at {
        PortUse::Api => (&[&TLS13, &TLS12], &[HTTP1]),
        PortUse::Operations => (&[&TLS13, &TLS12], &[HTTP2, HTTP1]),
        // All ends are this program.
        PortUse::Sessions => (&[&TLS13], &[HTTP2]),
    };
    let config = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions);
    let config = config.expect("the provider has these versions");
    let config = match authorities {
        None => config.with_no_client_auth(),
        Some((path, roots)) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
            let verifier = if at == PortUse::Sessions { verifier } else { verifier.allow_unauthenticated() }.build();
            let explain = |source| TlsError::Authorities { path: (*path).to_owned(), source };
            config.with_client_cert_verifier(verifier.map_err(explain)?)
        }
    };
    let mut config = config.with_cert_resolver(own);
    config.alpn_protocols = protocols.iter().map(|&name| name.to_owned()).collect();
    if authorities.is_some() {
        // A certificate is checked at each connection.
        (config.session_storage, config.send_tls13_tickets) = (Arc::new(NoServerSessionStorage {}), 0);
    }
    Ok(Arc::new(config))
}

fn identity(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(certificate)?;
    let private =
        PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::File { path: key.to_owned(), source })?;
    // Certificate and key are judged one by one, so that an error names the file.
    rustls::server::ParsedCertificate::try_from(&chain[0]).map_err(unusable(certificate))?;
    CertifiedKey::from_der(chain, private, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::Mismatch { certificate: certificate.to_owned(), key: key.to_owned() }
        }
        error => unusable(key)(error),
    })
}

fn roots(path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots.add(authority).map_err(unusable(path))?;
    }
    Ok(Arc::new(roots))
}

/// Returns the authorities that the system trusts.
fn system_roots() -> Result<Arc<RootCertStore>, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() { Err(TlsError::NoAuthorities) } else { Ok(Arc::new(roots)) }
}

/// Returns the certificates of a file, one at least.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let explain = |source| TlsError::File { path: path.to_owned(), source };
    let all = CertificateDer::pem_file_iter(path).map_err(explain)?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(explain)?;
    if all.is_empty() { Err(TlsError::Empty { path: path.to_owned() }) } else { Ok(all) }
}

fn unusable(path: &Path) -> impl Fn(rustls::Error) -> TlsError {
    move |source| TlsError::Unusable { path: path.to_owned(), source }
}
