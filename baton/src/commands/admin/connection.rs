//! The connection of `baton admin`, plain or over TLS.

use super::error::{AdminError, root};
use crate::cli::AdminArgs;
use crate::error::CommandError;
use proto::admin::AdminClient;
use proto::tls::{TlsFiles, explain};
use std::path::Path;
use std::time::Duration;
use tonic::Status;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// Time for a connection to be made.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Time for an answer: longer than the server gives its workers.
const ANSWER_WAIT: Duration = Duration::from_secs(15);
/// Bytes of an answer: as many as thousands of workers need.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Connects to the server that was named. Errors: its address is none, no process answers there, or TLS fails.
/// The key is that of the flag or of the environment, and is shown with each call.
pub(super) async fn connect(args: &AdminArgs) -> Result<Client, CommandError> {
    let server = &args.server;
    let key =
        args.access.authorization().map_err(AdminError::Key)?.map(|key| key.parse().expect("it is visible ASCII"));
    let key = ShowKey(key);
    let wrong = || AdminError::Url(server.clone());
    if !server.starts_with("http://") && !server.starts_with("https://") {
        return Err(wrong().into());
    }
    let mut endpoint = Endpoint::from_shared(server.clone()).map_err(|_| wrong())?;
    if server.starts_with("https://") {
        let unusable = |error| AdminError::Tls { server: server.clone(), why: root(&error).to_string() };
        endpoint = endpoint.tls_config(tls(&args.access.tls_files()?)?).map_err(unusable)?;
    }
    let channel = endpoint.connect_timeout(CONNECT_WAIT).timeout(ANSWER_WAIT).connect().await;
    let channel = channel.map_err(|error| match explain(&error) {
        Some(why) => AdminError::Tls { server: server.clone(), why },
        None => AdminError::Unreached { server: server.clone(), why: root(&error).to_string() },
    })?;
    Ok(AdminClient::with_interceptor(channel, key).max_decoding_message_size(ANSWER_BYTES_MAX))
}

/// Shows a key with each call, if there is one.
#[derive(Clone)]
pub(super) struct ShowKey(Option<MetadataValue<Ascii>>);

impl Interceptor for ShowKey {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, Status> {
        if let Some(key) = &self.0 {
            request.metadata_mut().insert("authorization", key.clone());
        }
        Ok(request)
    }
}

/// A client that shows a key with each call, if there is one.
pub(super) type Client = AdminClient<InterceptedService<Channel, ShowKey>>;

/// Reads the files. Errors: one cannot be read.
fn tls(files: &TlsFiles) -> Result<ClientTlsConfig, AdminError> {
    let read = |path: &Path| std::fs::read(path).map_err(|source| AdminError::File { path: path.to_owned(), source });
    let mut tls = match &files.authorities {
        Some(authorities) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(authorities)?)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    if let Some((certificate, key)) = &files.identity {
        tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    Ok(files.server_name.iter().fold(tls, |tls, name| tls.domain_name(name)))
}
