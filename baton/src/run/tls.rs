//! The certificates of this process, from the files in `tls`.

use crate::config::{Config, TlsSettings};
use proto::tls::{Tls, TlsError, TlsFiles};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use telemetry::metrics;
use tokio::runtime::Runtime;

const DAY_S: u64 = 24 * 3600;
/// A certificate that expires sooner is warned of whenever it is read.
const SOON_S: u64 = 7 * DAY_S;

/// Reads the files, and reads them again when they change, for as long as the runtime lives. Errors: [`TlsError`].
pub(super) fn open(config: &Config, runtime: &Runtime) -> Result<Tls, TlsError> {
    let files = files(&config.tls);
    let is_used = files != TlsFiles::default();
    let tls = Tls::load(files)?;
    if is_used {
        tell_expiry(&tls);
        let followed = tls.clone();
        runtime.spawn(async move {
            let told = |result| match result {
                Ok(()) => {
                    metrics::tls_reloads("taken").increment(1);
                    tracing::info!("tls: new connections use the changed files");
                    tell_expiry(&followed);
                }
                Err(error) => {
                    metrics::tls_reloads("refused").increment(1);
                    tracing::warn!(%error, "tls: the files changed and are of no use; what was read before stays in use");
                }
            };
            match followed.follow(told).await {}
        });
    }
    Ok(tls)
}

/// Says when the certificate of this process expires, if it has one.
fn tell_expiry(tls: &Tls) {
    let Some(expiry_s) = tls.expiry_s() else { return };
    metrics::tls_certificate_expiry().set(expiry_s as f64);
    #[expect(clippy::disallowed_methods, reason = "certificates are valid by the calendar")]
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    match expiry_s.saturating_sub(now_s) {
        0 => tracing::warn!("tls.cert: the certificate has expired, and others refuse it"),
        left_s if left_s < SOON_S => {
            tracing::warn!(days = left_s / DAY_S, "tls.cert: the certificate expires soon: replace the files");
        }
        left_s => tracing::info!(days = left_s / DAY_S, "tls.cert: the certificate is valid"),
    }
}

fn files(tls: &TlsSettings) -> TlsFiles {
    let file = |path: &str| Some(path).filter(|path| !path.is_empty()).map(PathBuf::from);
    TlsFiles {
        identity: file(&tls.cert).zip(file(&tls.key)),
        client_authorities: file(&tls.client_ca),
        authorities: file(&tls.ca),
        server_name: Some(tls.server_name.clone()).filter(|name| !name.is_empty()),
    }
}
