//! The keys that are known now, and what requests take by them.

use super::file::{KeyEntry, KeyFile, KeyFileError, KeyHash};
use super::meter::{Limit, Meter, Rate, Reached};
use domain::Time;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::fs;
use std::future::pending;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Shows a key in place of `Authorization`, as Anthropic's clients do.
static API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// How often the file is looked at.
const RELOAD_EVERY: Duration = Duration::from_secs(1);

/// Headers by which clients learn what is left of requests and of tokens, as OpenAI's clients know them: the limit,
/// what remains, and when it is full again.
pub static RATE_HEADERS: [[HeaderName; 3]; 2] = [
    [
        HeaderName::from_static("x-ratelimit-limit-requests"),
        HeaderName::from_static("x-ratelimit-remaining-requests"),
        HeaderName::from_static("x-ratelimit-reset-requests"),
    ],
    [
        HeaderName::from_static("x-ratelimit-limit-tokens"),
        HeaderName::from_static("x-ratelimit-remaining-tokens"),
        HeaderName::from_static("x-ratelimit-reset-tokens"),
    ],
];

/// The keys of an API. By default there are none, and everybody may ask.
#[derive(Clone, Debug, Default)]
pub struct Keys(Option<Arc<Ring>>);

#[derive(Debug)]
struct Ring {
    /// The file, if there is one.
    path: Option<PathBuf>,
    /// Keys that are known whatever the file says.
    fixed: Vec<KeyEntry>,
    known: RwLock<HashMap<KeyHash, Key>>,
    /// The beginning of the time that meters count.
    began: Instant,
}

/// A key that a caller showed.
#[derive(Clone, Debug)]
pub struct Key {
    entry: Arc<KeyEntry>,
    life: Arc<Life>,
}

/// What stays of a key when its file changes.
#[derive(Debug)]
struct Life {
    meter: Mutex<Meter>,
    revoked: watch::Sender<bool>,
    began: Instant,
}

/// A request that is taken; it ends when this is dropped. Without keys there is nothing to take.
#[derive(Debug)]
pub struct Admission(Option<Key>);

/// Why a caller is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// It shows no key.
    #[error("no key is shown: send the header 'Authorization: Bearer KEY' or 'x-api-key: KEY'")]
    Missing,
    /// It shows one that is not known, or not any more.
    #[error("the key is not known here, or was revoked")]
    Unknown,
}

/// A limit that a key has reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitReached {
    /// The key's name.
    pub key: String,
    /// The size of the limit.
    pub most: u32,
    /// What is limited, such as `requests a minute`.
    pub unit: &'static str,
    /// The time until a request may be taken again.
    pub wait: Duration,
}

/// What tells versions of a file apart: when it or its rights were changed, a time that programs cannot set, and which
/// file it is, since a new one replaces it.
pub(super) type Version = (i64, i64, u64, u64);

impl Keys {
    /// Reads the keys in a file, which are read again when it changes. Errors: [`KeyFileError`].
    pub fn open(path: &Path) -> Result<Self, KeyFileError> {
        Self::new(Some(path), [])
    }

    /// Reads the keys in a file, if there is one, and adds `fixed` ones: they may ask all models, have no limits, and
    /// are of the tenant of clients without keys. Without any of both, everybody may ask. Errors: [`KeyFileError`].
    pub fn new<'a>(path: Option<&Path>, fixed: impl IntoIterator<Item = &'a str>) -> Result<Self, KeyFileError> {
        let fixed: Vec<KeyEntry> =
            fixed.into_iter().map(|key| KeyEntry::new(KeyHash::of(key), String::new())).collect();
        if path.is_none() && fixed.is_empty() {
            return Ok(Self::default());
        }
        let file = path.map(KeyFile::read).transpose()?.unwrap_or_default();
        let ring = Ring { path: path.map(Path::to_owned), fixed, known: RwLock::default(), began: Instant::now() };
        ring.take(file);
        Ok(Self(Some(Arc::new(ring))))
    }

    /// Finds the key that a request shows in `Authorization` or in `x-api-key`; `None`: none is needed. Errors: it
    /// shows none, or none that is known.
    pub fn find(&self, headers: &HeaderMap) -> Result<Option<Key>, KeyError> {
        let Some(ring) = &self.0 else { return Ok(None) };
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let plain = text(&API_KEY).map(str::trim).filter(|key| !key.is_empty());
        let mut shown = text(&AUTHORIZATION).and_then(bearer).into_iter().chain(plain).peekable();
        shown.peek().ok_or(KeyError::Missing)?;
        let known = ring.known.read().unwrap_or_else(PoisonError::into_inner);
        shown.find_map(|key| known.get(&KeyHash::of(key)).cloned()).map(Some).ok_or(KeyError::Unknown)
    }

    /// Reads the file whenever it changes, until dropped. A file that cannot be read changes nothing, and is told once.
    pub async fn follow(&self) -> Infallible {
        let Some((ring, path)) = self.0.as_ref().and_then(|ring| Some((ring, ring.path.as_ref()?))) else {
            return pending().await;
        };
        let mut ticks = interval(RELOAD_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // What was read at the start may be older than what is there now.
        let mut seen = None;
        loop {
            ticks.tick().await;
            let look = tokio::task::spawn_blocking({
                let path = path.clone();
                move || read_if_new(&path, seen)
            });
            // A panic is told by itself, and the next look is the next chance.
            let Ok(Some((version, read))) = look.await else { continue };
            seen = Some(version);
            match read {
                Ok(file) => ring.take(file),
                Err(error) => tracing::error!(%error, "the keys stay as they were"),
            }
        }
    }
}

impl Ring {
    /// Replaces the keys: one that is still there keeps its meter, one that is gone is revoked.
    fn take(&self, file: KeyFile) {
        let now = since(self.began);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *known);
        let mut gone = before.clone();
        let mut added = 0;
        // What the file says of a fixed key, its limits for example, counts more.
        let in_file: HashSet<KeyHash> = file.keys.iter().map(|entry| entry.hash).collect();
        let fixed = self.fixed.iter().filter(|entry| !in_file.contains(&entry.hash)).cloned();
        for entry in file.keys.into_iter().chain(fixed) {
            gone.remove(&entry.hash);
            let life = match before.get(&entry.hash) {
                Some(key) => {
                    key.life.meter().limit(&entry, now);
                    key.life.clone()
                }
                None => {
                    added += 1;
                    let meter = Mutex::new(Meter::new(&entry, now));
                    Arc::new(Life { meter, revoked: watch::Sender::new(false), began: self.began })
                }
            };
            known.insert(entry.hash, Key { entry: Arc::new(entry), life });
        }
        for key in gone.values() {
            key.life.revoked.send_replace(true);
        }
        if added > 0 || !gone.is_empty() {
            tracing::info!(known = known.len(), added, revoked = gone.len(), "keys");
        }
    }
}

impl Key {
    /// Returns the key's name, which tells nothing about the key.
    pub fn id(&self) -> String {
        self.entry.hash.id()
    }

    /// Returns whether it may make admin calls.
    pub fn is_operator(&self) -> bool {
        self.entry.admin
    }

    /// Returns whose key it is.
    pub fn tenant(&self) -> &str {
        &self.entry.tenant
    }

    /// Returns whether it may ask this model.
    pub fn may_ask(&self, model: &str) -> bool {
        self.entry.models.is_empty() || self.entry.models.iter().any(|allowed| allowed == model)
    }

    /// Waits until it is revoked.
    pub async fn revoked(&self) {
        // The sender lives as long as the key.
        let _ = self.life.revoked.subscribe().wait_for(|revoked| *revoked).await;
    }

    /// Takes a request. Errors: a limit of the key is reached.
    pub fn admit(&self) -> Result<Admission, LimitReached> {
        let begun = self.life.meter().begin(self.life.now());
        begun.map(|()| Admission(Some(self.clone()))).map_err(|Reached { limit, most, wait }| {
            let unit = match limit {
                Limit::Requests => "requests a minute",
                Limit::Tokens => "tokens a minute",
                Limit::Concurrent => "requests at once",
            };
            LimitReached { key: self.id(), most, unit, wait }
        })
    }

    /// Adds the headers that say what is left to the key.
    pub fn tell(&self, headers: &mut HeaderMap) {
        let rates = self.life.meter().rates(self.life.now());
        for (names, rate) in RATE_HEADERS.iter().zip(rates) {
            let Some(Rate { most, left, full_in }) = rate else { continue };
            let reset = HeaderValue::from_str(&format!("{}ms", full_in.as_millis())).expect("digits are ASCII");
            for (name, value) in names.iter().zip([most.into(), left.into(), reset]) {
                headers.insert(name, value);
            }
        }
    }
}

impl Life {
    fn now(&self) -> Time {
        since(self.began)
    }

    fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admission {
    /// Returns the admission of a request that needs no key.
    pub fn free() -> Self {
        Self(None)
    }

    /// Returns whose request it is; empty: everybody's.
    pub fn tenant(&self) -> &str {
        self.0.as_ref().map_or("", Key::tenant)
    }

    /// Takes tokens of a prompt or of an answer.
    pub fn take(&self, tokens: usize) {
        if let Some(key) = self.0.as_ref().filter(|_| tokens > 0) {
            key.life.meter().take(tokens);
        }
    }

    /// Waits until the key is revoked.
    pub async fn revoked(&self) {
        match &self.0 {
            Some(key) => key.revoked().await,
            None => pending().await,
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some(key) = &self.0 {
            key.life.meter().end();
        }
    }
}

/// Returns the time since `began`.
fn since(began: Instant) -> Time {
    Time::ZERO + began.elapsed()
}

/// Returns what a header `Authorization` shows as a bearer's token.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

/// Reads the file unless it is the version that was seen, and returns which one it is now; `None`: nothing is new.
pub(super) fn read_if_new(
    path: &Path,
    seen: Option<Option<Version>>,
) -> Option<(Option<Version>, Result<KeyFile, KeyFileError>)> {
    let version = fs::metadata(path).ok().map(|about| (about.ctime(), about.ctime_nsec(), about.ino(), about.len()));
    (seen != Some(version)).then(|| (version, KeyFile::read(path)))
}
