//! What caused an error of a connection.

use std::error::Error;

/// Returns an error with its causes: the outer ones alone say little.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut texts = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Some repeat what they are caused by.
        if texts.last().is_none_or(|last| !last.contains(&text)) {
            texts.push(text);
        }
        cause = error.source();
    }
    texts.join(": ")
}

/// Returns whether the error, or what caused it, is one of TLS.
pub(crate) fn is_of_tls(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<rustls::Error>() {
            return true;
        }
        // An error of the system does not name what it wraps as its cause.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = wrapped.map(|wrapped| wrapped as &(dyn Error + 'static)).or_else(|| error.source());
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn errors_of_tls_are_found_among_causes() {
        let tls = Outer(std::io::Error::new(std::io::ErrorKind::InvalidData, rustls::Error::DecryptError));
        assert!(is_of_tls(&tls));
        assert!(is_of_tls(&std::io::Error::other(tls.0)));
        let refused = Outer(std::io::ErrorKind::ConnectionRefused.into());
        assert!(!is_of_tls(&refused));
        assert_eq!(with_causes(&refused), "outer: connection refused");
    }
}
