//! A whole model: what of it is missing is fetched, the small files first.

use crate::cache::{Cache, home};
use crate::client::{Client, SILENT_TRIES_MAX, TRIES_MAX, Trouble};
use crate::download::{Download, partial_path};
use crate::error::HubError;
use crate::listing::{HubFile, Listing};
use crate::name::ModelName;
use crate::notice::Notice;
use crate::select::{Selection, select};
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// The hub that is asked if none is named.
const ENDPOINT: &str = "https://huggingface.co";
/// Wait before a request is tried for the second time.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Bytes of a GGUF file that a preview fetches: more than the metadata of a model with a large vocabulary takes.
const HEAD_BYTES: u64 = 16 << 20;

/// What is here of a model before its weights come.
#[derive(Debug)]
pub struct Preview {
    /// The folder with everything but weights, or a file with the beginning of the GGUF file.
    pub path: PathBuf,
    /// Bytes of the whole GGUF file, the first one where there are several; `None`: it is a folder.
    pub gguf_bytes: Option<u64>,
    /// Files of weights on the hub.
    pub weight_files: usize,
    /// Their bytes.
    pub weight_bytes: u64,
    name: ModelName,
    commit: String,
    selection: Selection,
}

/// A hub, and the cache of what came from it.
pub struct Hub {
    client: Client,
    cache: Cache,
    offline: bool,
}

impl Hub {
    /// Makes a client of the hub and the cache that the environment names.
    ///
    /// # Errors
    ///
    /// `HF_ENDPOINT` is no address, there is no home directory, or TLS cannot be used.
    #[expect(clippy::disallowed_methods, reason = "these variables are those of the hub's own tools, and no settings")]
    pub fn from_env() -> Result<Self, HubError> {
        Self::new(|name| std::env::var(name).ok().filter(|value| !value.is_empty()), FIRST_WAIT)
    }

    /// Makes a client of the hub and the cache that these variables name. `first_wait` is the wait before a second try;
    /// each further wait is twice as long.
    ///
    /// # Errors
    ///
    /// As of [`Hub::from_env`].
    pub fn new(variable: impl Fn(&str) -> Option<String>, first_wait: Duration) -> Result<Self, HubError> {
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        let saved = || {
            let path = variable("HF_TOKEN_PATH").map(PathBuf::from);
            fs::read_to_string(path.or_else(|| Some(home(&variable)?.join("token")))?).ok()
        };
        let token = variable("HF_TOKEN").or_else(saved).map(|token| token.trim().to_owned());
        let offline = variable("HF_HUB_OFFLINE")
            .is_some_and(|value| !["0", "false", "no", "off"].contains(&&*value.to_lowercase()));
        Ok(Self {
            client: Client::new(&endpoint, token.filter(|token| !token.is_empty()), first_wait)?,
            cache: Cache::locate(&variable)?,
            offline,
        })
    }

    /// Returns the cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Returns the path of a model that is complete on the disk, a folder or a GGUF file. The hub is not asked.
    pub fn cached(&self, name: &ModelName) -> Option<PathBuf> {
        self.cache.find(name)
    }

    /// Fetches what is missing of a model, and returns its path, a folder or a GGUF file. A revision that moved on the
    /// hub is followed; files that did not change are not fetched again. `approve` sees the preview; if it refuses,
    /// nothing more is fetched.
    ///
    /// # Errors
    ///
    /// See [`HubError`], and that of `approve`. What arrived stays, and the next call goes on from there.
    pub fn pull<E: From<HubError>>(
        &self,
        name: &ModelName,
        approve: impl FnOnce(&Preview) -> Result<(), E>,
        notify: &mut dyn FnMut(Notice<'_>),
    ) -> Result<PathBuf, E> {
        if let Some(path) = self.cached(name).filter(|_| self.offline) {
            return Ok(path);
        }
        let preview = self.preview(name, notify)?;
        approve(&preview)?;
        Ok(self.complete(&preview, notify)?)
    }

    /// Fetches what says what a model is and how large: all small files of a folder, or the beginning of a GGUF file.
    ///
    /// # Errors
    ///
    /// See [`HubError`]. What arrived stays, and the next call goes on from there.
    pub fn preview(&self, name: &ModelName, notify: &mut dyn FnMut(Notice<'_>)) -> Result<Preview, HubError> {
        if self.offline {
            return Err(HubError::Offline { name: name.to_string(), folder: self.cache.folder().to_owned() });
        }
        let listing = self.listing(name, notify)?;
        let selection = select(&listing, name)?;
        let bytes: u64 = selection.files.iter().map(|file| file.bytes).sum();
        let missing = selection.files.iter().map(|file| self.missing_of(name, file)).sum();
        notify(Notice::Found { files: selection.files.len(), bytes, missing });
        let mut quiet = |notice: Notice<'_>| match notice {
            Notice::Bytes(_) => {}
            other => notify(other),
        };
        let commit = listing.commit;
        let weights: Vec<_> = selection.files.iter().filter(|file| file.is_weights()).collect();
        let (weight_files, weight_bytes) = (weights.len(), weights.iter().map(|file| file.bytes).sum());
        let first = selection.opens.is_some().then(|| &selection.files[0]);
        for file in selection.files.iter().filter(|file| !file.is_weights()).chain(first) {
            self.download(name, &commit, file).run(HEAD_BYTES, &mut quiet)?;
        }
        let path = match first {
            None => self.cache.snapshot(&name.repo, &commit),
            Some(file) => {
                let blob = self.cache.blob(&name.repo, &file.checksum);
                if blob.exists() { blob } else { partial_path(&blob) }
            }
        };
        let gguf_bytes = first.map(|file| file.bytes);
        Ok(Preview { path, gguf_bytes, weight_files, weight_bytes, name: name.clone(), commit, selection })
    }

    /// Fetches what is missing of a model behind its preview, and returns its path.
    fn complete(&self, preview: &Preview, notify: &mut dyn FnMut(Notice<'_>)) -> Result<PathBuf, HubError> {
        let Preview { name, commit, selection, .. } = preview;
        self.has_room(selection.files.iter().map(|file| self.missing_of(name, file)).sum())?;
        let mut done = 0;
        for file in &selection.files {
            self.download(name, commit, file).run(file.bytes, &mut |notice| match notice {
                Notice::Bytes(of_file) => notify(Notice::Bytes(done + of_file)),
                other => notify(other),
            })?;
            done += file.bytes;
            notify(Notice::Bytes(done));
        }
        self.cache.name_commit(name, commit)?;
        let snapshot = self.cache.snapshot(&name.repo, commit);
        Ok(selection.opens.as_ref().map_or(snapshot.clone(), |file| snapshot.join(file)))
    }

    fn download<'a>(&'a self, name: &'a ModelName, commit: &'a str, file: &'a HubFile) -> Download<'a> {
        Download { client: &self.client, cache: &self.cache, repo: &name.repo, commit, file }
    }

    /// Asks for the description of a model until it is there.
    fn listing(&self, name: &ModelName, notify: &mut dyn FnMut(Notice<'_>)) -> Result<Listing, HubError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.client.listing(name) {
                Ok(listing) => return Ok(listing),
                Err(Trouble::Lasting(error)) => return Err(error),
                Err(Trouble::Passing { status: Some(status), .. }) if tries == TRIES_MAX => {
                    return Err(HubError::Status { url: self.client.listing_url(name), status, tries });
                }
                Err(Trouble::Passing { reason, status: None, .. }) if tries >= SILENT_TRIES_MAX => {
                    return Err(HubError::Unreachable { endpoint: self.client.endpoint.clone(), tries, reason });
                }
                Err(Trouble::Passing { reason, after, .. }) => {
                    let wait = self.client.wait_after(tries, after);
                    notify(Notice::Waiting { reason: &reason, wait });
                    thread::sleep(wait);
                }
            }
        }
    }

    /// Returns how many bytes of a file are not here yet.
    fn missing_of(&self, name: &ModelName, file: &HubFile) -> u64 {
        let blob = self.cache.blob(&name.repo, &file.checksum);
        if blob.exists() {
            return 0;
        }
        let here = fs::metadata(partial_path(&blob)).map_or(0, |data| data.len());
        file.bytes.saturating_sub(here)
    }

    /// Checks that the disk has room for so many bytes more.
    fn has_room(&self, needed: u64) -> Result<(), HubError> {
        let folder = self.cache.folder();
        crate::cache::make_folder(folder)?;
        let Ok(disk) = rustix::fs::statvfs(folder) else { return Ok(()) };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < needed { Err(HubError::NoRoom { folder: folder.to_owned(), free, needed }) } else { Ok(()) }
    }
}
