//! What every serving process has: threads for its sockets, and addresses that it takes before anything that takes
//! time.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::error::Error;
use std::time::Duration;
use threads::Doing;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// Threads for sockets, at most: they only carry tokens, the cores are the engine's.
const THREADS_MAX: usize = 4;
/// What they are called, and those for what may block.
const THREAD: &str = "baton-io";

/// How long what the runtime's threads are amid may take when the process ends. A name that no server resolves
/// takes far longer.
pub(super) const END_MAX: Duration = Duration::from_secs(1);

/// Buffers of so many bytes and more are the system's again when they are freed. Left to itself, the C library
/// raises this to the largest buffer that it saw freed; what is made for the worst case and hardly ever used,
/// queues above all, then gets memory that loading a model left behind, and keeps it resident.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: i32 = 128 << 10;

/// Returns the runtime of the process. Sockets are files: it may open as many as it is allowed to, where the usual
/// limit for old programs is 1,024.
pub(super) fn runtime() -> std::io::Result<Runtime> {
    // SAFETY: the call sets a number of the allocator, which may be done at any time.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
    }
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name(THREAD)
        .on_thread_start(|| threads::register(THREAD, Doing::AwaitsTask))
        .on_thread_park(|| threads::does(Doing::WaitsForTasks))
        .on_thread_unpark(|| threads::does(Doing::RunsTasks))
        .enable_all()
        .build()
}

/// Listens on the address that the setting `key` names. It is called before the model is loaded, so that an address
/// that is taken is reported at once. Errors: it is taken, or belongs to another machine.
pub(super) fn listen(runtime: &Runtime, key: &str, address: &str) -> Result<TcpListener, Box<dyn Error>> {
    let listener = runtime.block_on(TcpListener::bind(address));
    listener.map_err(|error| format!("cannot listen on {address} ({key}): {error}").into())
}
