//! The store of responses, as the settings name it.

use crate::config::Config;
use crate::model_dir::response_folder;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::prefix::PrefixStore;
use router::ResponsesConfig;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use transport::{ObjectConfig, ObjectCredentials, open_store};

/// Begins the name of a bucket.
const BUCKET: &str = "s3://";
/// Requests of a bucket at once of which connections are kept.
const REQUESTS_MAX: usize = 32;
/// How long a bucket may say nothing before a request is repeated.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// How long a request of a bucket may take with its repetitions; the router waits little longer.
const GIVE_UP: Duration = Duration::from_secs(9);
/// Rights of a folder with what clients wrote.
const OWN: u32 = 0o700;

/// Why there is no store.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResponsesError {
    /// The folder cannot be made, or not be used.
    #[error("router.responses.store: {folder}: {reason}. Name a folder that this user may write, or none (\"\")")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// The settings of the bucket cannot be.
    #[error("router.responses.store: {0}")]
    Bucket(io::Error),
}

/// Opens the store that is set; `None`: responses are not kept. Errors: the folder cannot be made or used, or the
/// settings of the bucket cannot be.
pub(super) fn open(config: &Config) -> Result<Option<ResponsesConfig>, ResponsesError> {
    let asked = &config.router_responses;
    let store = match asked.store.as_str() {
        "" => return Ok(None),
        "auto" => match response_folder().map(|folder| open_folder(&folder)) {
            Some(Ok(store)) => store,
            Some(Err(error)) => {
                tracing::warn!(%error, "responses are not kept");
                return Ok(None);
            }
            None => {
                tracing::warn!(
                    "this user has no home: responses are not kept; router.responses.store can name a folder"
                );
                return Ok(None);
            }
        },
        named => match named.strip_prefix(BUCKET) {
            Some(bucket) => open_bucket(bucket, config).map_err(ResponsesError::Bucket)?,
            None => open_folder(Path::new(named))?,
        },
    };
    let place = if asked.store == "auto" { format!("{store}") } else { asked.store.clone() };
    let (bytes_max, age_max) = (asked.bytes_max.0, Duration::from_secs(asked.age_max_s));
    Ok(Some(ResponsesConfig { store, place, bytes_max, age_max }))
}

fn open_folder(folder: &Path) -> Result<Arc<dyn ObjectStore>, ResponsesError> {
    let failed = |reason: String| ResponsesError::Folder { folder: folder.to_owned(), reason };
    DirBuilder::new().recursive(true).mode(OWN).create(folder).map_err(|error| failed(error.to_string()))?;
    let store = LocalFileSystem::new_with_prefix(folder).map_err(|error| failed(error.to_string()))?;
    Ok(Arc::new(store))
}

/// Opens `BUCKET/PREFIX` where the object tier is, too.
fn open_bucket(bucket: &str, config: &Config) -> io::Result<Arc<dyn ObjectStore>> {
    let object = &config.object;
    let (bucket, prefix) = bucket.split_once('/').unwrap_or((bucket, ""));
    let token = Some(object.token.0.clone()).filter(|token| !token.is_empty());
    let store = open_store(&ObjectConfig {
        name: "responses".to_owned(),
        endpoint: object.endpoint.clone(),
        region: object.region.clone(),
        bucket: bucket.to_owned(),
        credentials: ObjectCredentials { key_id: object.key_id.clone(), secret: object.secret.0.clone(), token },
        requests_max: REQUESTS_MAX,
        posted_max: REQUESTS_MAX,
        part_bytes: ObjectConfig::PART_BYTES_MIN,
        silence_max: SILENCE_MAX,
        give_up: GIVE_UP,
    })?;
    Ok(Arc::new(PrefixStore::new(store, prefix)))
}
