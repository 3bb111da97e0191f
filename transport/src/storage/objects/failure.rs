//! What a request's failure says: an ordinary outcome, or which trouble.

use super::ObjectTrouble;
use super::client::Met;
use object_store::Error;
use std::time::Duration;

/// Why a request did not do what it was to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// There is no such object.
    Missing,
    /// The key is taken.
    Existed,
    /// Somebody else is about to write or to delete the key, by what was said.
    Conflict(String),
    /// And what was said.
    Trouble(ObjectTrouble, String),
}

impl Failure {
    /// That of a request whose last try met this.
    pub(super) fn of(error: &Error, met: Met) -> Self {
        let said = error.to_string();
        if is_not_found(error) {
            let no_bucket = said.contains("NoSuchBucket");
            return if no_bucket { Self::Trouble(ObjectTrouble::NoBucket, said) } else { Self::Missing };
        }
        match error {
            // That is no answer about the key.
            Error::AlreadyExists { .. } if met == Met::Status(409) => Self::Conflict(said),
            Error::AlreadyExists { .. } => Self::Existed,
            _ => Self::Trouble(trouble(met).unwrap_or(ObjectTrouble::Store), said),
        }
    }

    /// That of a request, with its repetitions, that took too long.
    pub(super) fn late(waited: Duration, met: Met) -> Self {
        let said = format!("nothing came of it for {} ms", waited.as_millis());
        // An answer that is good as far as it goes is slow.
        let trouble = trouble(met).filter(|trouble| *trouble != ObjectTrouble::Mismatch);
        Self::Trouble(trouble.unwrap_or(ObjectTrouble::Slow), said)
    }
}

/// Returns whether the object is not there: or is no more, since it was deleted amid being read, and what broke of that
/// was asked for again.
fn is_not_found(error: &Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(Error::NotFound { .. }) = error.downcast_ref() {
            return true;
        }
        cause = error.source();
    }
    false
}

fn trouble(met: Met) -> Option<ObjectTrouble> {
    Some(match met {
        Met::Nothing => return None,
        Met::NoConnection => ObjectTrouble::Unreachable,
        Met::Break => ObjectTrouble::Broken,
        Met::Silence => ObjectTrouble::Slow,
        Met::Status(401 | 403) => ObjectTrouble::Refused,
        Met::Status(409 | 429 | 503) => ObjectTrouble::Busy,
        Met::Status(200..=299 | 416) => ObjectTrouble::Mismatch,
        Met::Status(_) => ObjectTrouble::Store,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: impl Fn(String, Box<dyn std::error::Error + Send + Sync>) -> Error, said: &str) -> Error {
        kind("a".to_owned(), said.into())
    }

    #[test]
    fn failures_are_told_apart() {
        let not_found = |path, source| Error::NotFound { path, source };
        let exists = |path, source| Error::AlreadyExists { path, source };
        let other = |_, source| Error::Generic { store: "S3", source };
        let of = |error, met| match Failure::of(&error, met) {
            Failure::Trouble(trouble, said) => {
                assert!(!said.is_empty());
                Err(trouble)
            }
            ordinary => Ok(ordinary),
        };
        assert_eq!(of(error(not_found, "<Code>NoSuchKey</Code>"), Met::Status(404)), Ok(Failure::Missing));
        let deleted = Error::Generic { store: "S3", source: Box::new(error(not_found, "<Code>NoSuchKey</Code>")) };
        assert_eq!(of(deleted, Met::Status(404)), Ok(Failure::Missing), "amid being read");
        let no_bucket = of(error(not_found, "<Code>NoSuchBucket</Code>"), Met::Status(404));
        assert_eq!(no_bucket, Err(ObjectTrouble::NoBucket));
        assert_eq!(of(error(exists, "412"), Met::Status(412)), Ok(Failure::Existed));
        for (met, trouble) in [
            (Met::NoConnection, ObjectTrouble::Unreachable),
            (Met::Break, ObjectTrouble::Broken),
            (Met::Silence, ObjectTrouble::Slow),
            (Met::Status(403), ObjectTrouble::Refused),
            (Met::Status(409), ObjectTrouble::Busy),
            (Met::Status(503), ObjectTrouble::Busy),
            (Met::Status(206), ObjectTrouble::Mismatch),
            (Met::Status(416), ObjectTrouble::Mismatch),
            (Met::Status(500), ObjectTrouble::Store),
            (Met::Nothing, ObjectTrouble::Store),
        ] {
            assert_eq!(of(error(other, "it"), met), Err(trouble), "{met:?}");
        }
        let conflict = Failure::of(&error(exists, "409"), Met::Status(409));
        assert!(matches!(&conflict, Failure::Conflict(said) if said.contains("409")), "{conflict:?}");
        let late = |met| match Failure::late(Duration::from_secs(1), met) {
            Failure::Trouble(trouble, _) => trouble,
            ordinary => unreachable!("{ordinary:?}"),
        };
        assert_eq!(late(Met::Status(206)), ObjectTrouble::Slow);
        assert_eq!(late(Met::NoConnection), ObjectTrouble::Unreachable);
    }
}
