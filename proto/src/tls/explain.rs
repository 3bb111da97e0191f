//! What went wrong between two ends, in words that say what to do.

use super::plain::TEXT;
use rustls::AlertDescription as Alert;
use rustls::{CertificateError, Error, InvalidMessage};
use std::error::Error as StdError;
use std::io;

/// What the other end says when it does not accept a certificate.
const ABOUT_CERTIFICATES: [Alert; 8] = [
    Alert::BadCertificate,
    Alert::UnsupportedCertificate,
    Alert::CertificateRevoked,
    Alert::CertificateExpired,
    Alert::CertificateUnknown,
    Alert::UnknownCA,
    Alert::AccessDenied,
    Alert::DecryptError,
];
/// What it says otherwise.
const OTHERS: [Alert; 3] = [Alert::CertificateRequired, Alert::ProtocolVersion, Alert::NoApplicationProtocol];

/// Returns what TLS says about an error of a connection, in words that follow the name of the other end; `None`: it is
/// not an error of TLS.
pub fn explain(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        // An error of the system that holds another one has the source of that.
        let within = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let within = within.map(|within| within as &(dyn StdError + 'static));
        if let Some(error) = within.unwrap_or(error).downcast_ref::<Error>() {
            return Some(in_words(error));
        }
        // HTTP/2 keeps the text of an error, and not the error.
        let text = error.to_string();
        let is_said = |alert: &Alert| text.contains(&Error::AlertReceived(*alert).to_string());
        if let Some(alert) = ABOUT_CERTIFICATES.into_iter().chain(OTHERS).find(is_said) {
            return Some(in_words(&Error::AlertReceived(alert)));
        }
        if text.contains(TEXT) {
            return Some(
                "it speaks TLS, and this process does not: set tls.ca, or begin the URL with https://".to_owned(),
            );
        }
        next = within.filter(|within| within.is::<io::Error>()).or_else(|| error.source());
    }
    None
}

fn in_words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => certificate(error),
        Error::NoCertificatesPresented => "it shows no certificate, which is required".to_owned(),
        Error::AlertReceived(Alert::CertificateRequired) => {
            "it requires a certificate of this process: set tls.cert and tls.key, or --cert and --key-file".to_owned()
        }
        Error::AlertReceived(alert) if ABOUT_CERTIFICATES.contains(alert) => format!(
            "it does not accept the certificate of this process ({alert:?}): look at its dates, and whether the other \
             end names its authority in tls.client_ca"
        ),
        Error::AlertReceived(Alert::ProtocolVersion) | Error::PeerIncompatible(_) => {
            format!("there is no common version of TLS ({error})")
        }
        Error::AlertReceived(Alert::NoApplicationProtocol) => "its port is for another protocol".to_owned(),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "it does not speak TLS: set tls.cert and tls.key there, or connect without TLS".to_owned()
        }
        error => format!("TLS failed: {error}"),
    }
}

fn certificate(error: &CertificateError) -> String {
    use CertificateError as E;
    match error {
        E::Expired | E::ExpiredContext { .. } => "its certificate has expired".to_owned(),
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "its certificate is not valid yet: compare the clocks".to_owned()
        }
        E::UnknownIssuer => {
            "its certificate has an unknown issuer: name the authority in tls.ca or --ca (for those that \
                             connect to this process, in tls.client_ca)"
                .to_owned()
        }
        E::NotValidForNameContext { expected, presented } => {
            let names = if presented.is_empty() { "no name".to_owned() } else { presented.join(", ") };
            format!(
                "its certificate is for {names}, not for {}: issue one for that name, or expect another name \
                 (tls.server_name or --tls-name)",
                expected.to_str()
            )
        }
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            format!("its certificate is for another purpose: it needs serverAuth and clientAuth ({error})")
        }
        error => format!("its certificate is not valid: {error}"),
    }
}
