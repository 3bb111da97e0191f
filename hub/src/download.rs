//! One file of a model: from the hub to its place in the cache.

use crate::cache::{Cache, make_folder};
use crate::checksum::Hasher;
use crate::client::{Client, TRIES_MAX, Trouble};
use crate::error::HubError;
use crate::listing::HubFile;
use crate::notice::Notice;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use ureq::Body;
use ureq::http::{Response, StatusCode};

/// Bytes that are read, summed and written at once.
const PIECE_BYTES: usize = 1 << 20;
/// How often another process's lock is tried.
const LOCK_RETRY: Duration = Duration::from_millis(250);
/// How often a file is fetched whose checksum is wrong.
const CHECKSUM_TRIES_MAX: u32 = 2;

/// A file to fetch: where it comes from, and where it goes.
pub(crate) struct Download<'a> {
    pub(crate) client: &'a Client,
    pub(crate) cache: &'a Cache,
    pub(crate) repo: &'a str,
    pub(crate) commit: &'a str,
    pub(crate) file: &'a HubFile,
}

/// A file that is not complete yet, with the checksum of what is there.
struct Partial {
    file: File,
    path: PathBuf,
    hasher: Hasher,
    bytes: u64,
}

impl Download<'_> {
    /// Fetches the file if it is not there, and gives it its name. `notify` hears how many of its bytes are there. Of a
    /// file that is longer, only the first `until` bytes come, and it gets no name.
    ///
    /// # Errors
    ///
    /// The hub refuses it, the transfer makes no progress for [`TRIES_MAX`] tries, the checksum is wrong twice, or the
    /// disk fails. What arrived stays for the next run.
    pub(crate) fn run(&self, until: u64, notify: &mut dyn FnMut(Notice<'_>)) -> Result<(), HubError> {
        let blob = self.cache.blob(self.repo, &self.file.checksum);
        if !blob.exists() {
            make_folder(blob.parent().expect("it is in the folder of blobs"))?;
            let lock = self.cache.lock(self.repo, &self.file.checksum)?;
            if !lock.try_take()? {
                notify(Notice::Locked { file: &self.file.path });
                while !lock.try_take()? {
                    thread::sleep(LOCK_RETRY);
                }
            }
            // Another process may have fetched it meanwhile.
            if !blob.exists() {
                self.fetch(&blob, until, notify)?;
            }
        }
        if until < self.file.bytes && !blob.exists() {
            return Ok(());
        }
        self.cache.link(self.repo, self.commit, &self.file.path, &self.file.checksum)
    }

    /// Fetches the bytes and, if `until` is not before their end, names them once their checksum is right.
    fn fetch(&self, blob: &Path, until: u64, notify: &mut dyn FnMut(Notice<'_>)) -> Result<(), HubError> {
        let path = partial_path(blob);
        // What an earlier run left may be enough, and is summed only to go on with it.
        if until < self.file.bytes
            && fs::metadata(&path).is_ok_and(|left| (until..=self.file.bytes).contains(&left.len()))
        {
            return Ok(());
        }
        for _ in 0..CHECKSUM_TRIES_MAX {
            let mut partial = Partial::open(&path, self.file).map_err(|source| HubError::io(&path, source))?;
            self.advance(&mut partial, until.min(self.file.bytes), notify)?;
            if partial.bytes < self.file.bytes {
                return Ok(());
            }
            let Partial { file, hasher, .. } = partial;
            if hasher.is(&self.file.checksum) {
                let named = file.sync_all().and_then(|()| fs::rename(&path, blob));
                return named.map_err(|source| HubError::io(blob, source));
            }
            fs::remove_file(&path).map_err(|source| HubError::io(&path, source))?;
        }
        Err(HubError::Checksum { file: self.file.path.clone() })
    }

    /// Transfers until so many bytes are there.
    fn advance(&self, partial: &mut Partial, until: u64, notify: &mut dyn FnMut(Notice<'_>)) -> Result<(), HubError> {
        let url = self.client.file_url(self.repo, self.commit, &self.file.path);
        let mut tries = 0;
        notify(Notice::Bytes(partial.bytes));
        while partial.bytes < until {
            let before = partial.bytes;
            let response = self.client.get(&url, before, self.repo);
            let ended = response.and_then(|response| self.take(partial, response, until, notify));
            let (reason, status, after) = match ended {
                Ok(()) => ("the connection was closed".to_owned(), None, None),
                Err(Trouble::Passing { reason, status, after }) => (reason, status, after),
                Err(Trouble::Lasting(error)) => return Err(error),
            };
            if partial.bytes == until {
                break;
            }
            tries = if partial.bytes > before { 1 } else { tries + 1 };
            if tries >= TRIES_MAX {
                return Err(match status {
                    Some(status) => HubError::Status { url, status, tries },
                    None => HubError::Broken {
                        file: self.file.path.clone(),
                        at: partial.bytes,
                        bytes: self.file.bytes,
                        tries,
                        reason,
                    },
                });
            }
            let wait = self.client.wait_after(tries, after);
            notify(Notice::Waiting { reason: &reason, wait });
            thread::sleep(wait);
        }
        Ok(())
    }

    /// Takes the bytes of an answer until it ends, or until so many bytes are there.
    fn take(
        &self,
        partial: &mut Partial,
        mut response: Response<Body>,
        until: u64,
        notify: &mut dyn FnMut(Notice<'_>),
    ) -> Result<(), Trouble> {
        let disk = |path: &Path, source| Trouble::Lasting(HubError::io(path, source));
        let continues = response.status() == StatusCode::PARTIAL_CONTENT
            && starts_at(&response).is_some_and(|start| start == partial.bytes);
        if !continues && partial.bytes > 0 {
            // The hub sends the file from its beginning, or knows it as shorter than what is here.
            partial.restart(self.file).map_err(|source| disk(&partial.path, source))?;
            notify(Notice::Bytes(0));
        }
        if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            return Ok(());
        }
        let mut body = response.body_mut().as_reader();
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let left = until - partial.bytes;
            let most = usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
            if most == 0 {
                return Ok(());
            }
            match body.read(&mut piece[..most]) {
                Ok(0) => return Ok(()),
                Ok(count) => partial.append(&piece[..count]).map_err(|source| disk(&partial.path, source))?,
                Err(error) => return Err(Trouble::passing(&error)),
            }
            notify(Notice::Bytes(partial.bytes));
        }
    }
}

impl Partial {
    /// Opens what an earlier run left, and sums it.
    fn open(path: &Path, file: &HubFile) -> io::Result<Self> {
        let mut opened = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
        let mut hasher = Hasher::new(&file.checksum, file.bytes);
        let mut bytes = 0;
        if opened.metadata()?.len() > file.bytes {
            opened.set_len(0)?;
        }
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = opened.read(&mut piece)?;
            if count == 0 {
                break;
            }
            hasher.update(&piece[..count]);
            bytes += count as u64;
        }
        Ok(Self { file: opened, path: path.to_owned(), hasher, bytes })
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Forgets all bytes.
    fn restart(&mut self, file: &HubFile) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.hasher = Hasher::new(&file.checksum, file.bytes);
        self.bytes = 0;
        Ok(())
    }
}

/// Returns where the bytes of a blob lie before it is complete.
pub(crate) fn partial_path(blob: &Path) -> PathBuf {
    blob.with_extension("incomplete")
}

/// Returns the first byte that an answer says it sends.
fn starts_at(response: &Response<Body>) -> Option<u64> {
    let range = response.headers().get("content-range")?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()
}
