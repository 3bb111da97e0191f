//! libibverbs, by bindings of our own: the library is loaded when devices are first looked for, so that one binary
//! starts with it and without it. Where it is not there, or lacks a function, that is the reason why the lane
//! cannot be taken.
//!
//! What is made by it is ended when its value is dropped, and holds what it was made of. What is deliberately
//! absent: the extended interface, for a read is one request and a chain of them takes one doorbell either way;
//! receives, and every call that writes.

pub(super) mod layout;
#[cfg(test)]
pub(super) mod pretended;
#[cfg(test)]
mod tests;

use layout::{Completion, DeviceAttributes, Gid, PairAttributes, PairInit, PortAttributes, Request};
use rustix::io::Errno;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, OnceLock};

/// The library, by the name of its interface.
const FILE: &CStr = c"libibverbs.so.1";

macro_rules! library {
    (
        needed { $($(#[$need_doc:meta])* $need:ident: $need_symbol:literal = fn($($need_argument:ty),*) $(-> $need_result:ty)?;)* }
        newer { $($(#[$newer_doc:meta])* $newer:ident: $newer_symbol:literal = fn($($newer_argument:ty),*) $(-> $newer_result:ty)?;)* }
    ) => {
        /// The functions of the library that are used. It is never unloaded.
        pub(crate) struct Library {
            $($(#[$need_doc])* pub(crate) $need: unsafe extern "C" fn($($need_argument),*) $(-> $need_result)?,)*
            $($(#[$newer_doc])* pub(crate) $newer: Option<unsafe extern "C" fn($($newer_argument),*) $(-> $newer_result)?>,)*
        }

        impl Library {
            /// Looks for the functions in a library that was loaded. Errors: the first that it lacks.
            fn of(handle: NonNull<c_void>) -> Result<Self, &'static str> {
                Ok(Self {
                    $($need: {
                        let found = symbol(handle, $need_symbol).ok_or($need_symbol)?;
                        // SAFETY: the library declares it so; see `layout`.
                        unsafe { std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($need_argument),*) $(-> $need_result)?>(found) }
                    },)*
                    $($newer: symbol(handle, $newer_symbol).map(|found| {
                        // SAFETY: the library declares it so; see `layout`.
                        unsafe { std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($newer_argument),*) $(-> $newer_result)?>(found) }
                    }),)*
                })
            }

            /// The names of those without which nothing can be read.
            #[cfg(test)]
            const NEEDED: &[&str] = &[$($need_symbol),*];
        }
    };
}

library! {
    needed {
        get_devices: "ibv_get_device_list" = fn(*mut c_int) -> *mut *mut layout::Device;
        free_devices: "ibv_free_device_list" = fn(*mut *mut layout::Device);
        device_name: "ibv_get_device_name" = fn(*mut layout::Device) -> *const c_char;
        open_device: "ibv_open_device" = fn(*mut layout::Device) -> *mut layout::Context;
        close_device: "ibv_close_device" = fn(*mut layout::Context) -> c_int;
        query_device: "ibv_query_device" = fn(*mut layout::Context, *mut DeviceAttributes) -> c_int;
        query_port: "ibv_query_port" = fn(*mut layout::Context, u8, *mut PortAttributes) -> c_int;
        query_gid: "ibv_query_gid" = fn(*mut layout::Context, u8, c_int, *mut Gid) -> c_int;
        make_domain: "ibv_alloc_pd" = fn(*mut layout::Context) -> *mut layout::Domain;
        end_domain: "ibv_dealloc_pd" = fn(*mut layout::Domain) -> c_int;
        register: "ibv_reg_mr" = fn(*mut layout::Domain, *mut c_void, usize, c_int) -> *mut layout::Region;
        deregister: "ibv_dereg_mr" = fn(*mut layout::Region) -> c_int;
        make_channel: "ibv_create_comp_channel" = fn(*mut layout::Context) -> *mut layout::Channel;
        end_channel: "ibv_destroy_comp_channel" = fn(*mut layout::Channel) -> c_int;
        make_queue: "ibv_create_cq" = fn(*mut layout::Context, c_int, *mut c_void, *mut layout::Channel, c_int) -> *mut layout::CompletionQueue;
        end_queue: "ibv_destroy_cq" = fn(*mut layout::CompletionQueue) -> c_int;
        get_event: "ibv_get_cq_event" = fn(*mut layout::Channel, *mut *mut layout::CompletionQueue, *mut *mut c_void) -> c_int;
        acknowledge: "ibv_ack_cq_events" = fn(*mut layout::CompletionQueue, c_uint);
        make_pair: "ibv_create_qp" = fn(*mut layout::Domain, *mut PairInit) -> *mut layout::Pair;
        modify_pair: "ibv_modify_qp" = fn(*mut layout::Pair, *mut PairAttributes, c_int) -> c_int;
        query_pair: "ibv_query_qp" = fn(*mut layout::Pair, *mut PairAttributes, c_int, *mut PairInit) -> c_int;
        end_pair: "ibv_destroy_qp" = fn(*mut layout::Pair) -> c_int;
        status_text: "ibv_wc_status_str" = fn(c_uint) -> *const c_char;
    }
    newer {
        /// Knows of access that a kernel may lack, and leaves it out there.
        register_relaxed: "ibv_reg_mr_iova2" = fn(*mut layout::Domain, *mut c_void, usize, u64, c_uint) -> *mut layout::Region;
        /// Without it, no memory of a device is registered by its dma-buf.
        register_dma_buf: "ibv_reg_dmabuf_mr" = fn(*mut layout::Domain, u64, usize, u64, c_int, c_int) -> *mut layout::Region;
    }
}

/// Returns a function of a library.
fn symbol(handle: NonNull<c_void>, name: &str) -> Option<NonNull<c_void>> {
    let name = CString::new(name).ok()?;
    // SAFETY: the handle is of a library that is never unloaded; the name ends with a nul.
    NonNull::new(unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) })
}

/// Why the library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RdmaLibraryError {
    /// The system does not load it.
    #[error("libibverbs cannot be loaded: {0} (apt install libibverbs1 ibverbs-providers)")]
    NotLoaded(String),
    /// It lacks a function.
    #[error("libibverbs is too old: {file} lacks {function} (rdma-core 15 or newer has it)")]
    TooOld {
        /// Where it was found.
        file: String,
        /// The first function that it lacks.
        function: &'static str,
    },
}

/// A call of the library, or of a device's driver, that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {errno}")]
pub(crate) struct VerbsError {
    /// As libibverbs names it.
    pub(crate) call: &'static str,
    pub(crate) errno: Errno,
}

/// Returns the reason for which the last call failed.
fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Interprets the answer of a call that answers with the number of an error.
fn outcome(code: c_int) -> Result<(), Errno> {
    match code {
        0 => Ok(()),
        // Some drivers answer so and leave the number where C libraries do.
        -1 => Err(last_error()),
        code => Err(Errno::from_raw_os_error(code.saturating_abs())),
    }
}

/// Checks the answer of `call`, which is the number of an error.
fn done(call: &'static str, code: c_int) -> Result<(), VerbsError> {
    outcome(code).map_err(|errno| VerbsError { call, errno })
}

/// Checks the answer of `call`, which is what it made, or null.
fn made<T>(call: &'static str, raw: *mut T) -> Result<NonNull<T>, VerbsError> {
    NonNull::new(raw).ok_or_else(|| VerbsError { call, errno: last_error() })
}

/// Finds a function of a device's driver, which all of them have.
fn of_driver<F>(call: &'static str, function: Option<F>) -> Result<F, VerbsError> {
    function.ok_or(VerbsError { call, errno: Errno::NOTSUP })
}

/// Something was ended. Where it was not, that is told, and it is left to the kernel: of a queue pair libibverbs
/// says EBUSY while it is in a multicast group, which a connected one cannot be, of a completion queue while queue
/// pairs use it, which hold it; and of all EIO once the device was unplugged, reset or its driver unloaded. Then
/// the kernel has taken all of them back, so nothing is read any more.
fn ended(what: &str, code: c_int) {
    if let Err(error) = outcome(code) {
        tracing::error!(
            %error,
            "an RDMA device is gone: its {what} cannot be destroyed; restart this process once it is back"
        );
    }
}

impl Library {
    /// Returns the library of this system, which is loaded the first time.
    pub(crate) fn of_system() -> Result<Arc<Self>, RdmaLibraryError> {
        static LIBRARY: OnceLock<Result<Arc<Library>, RdmaLibraryError>> = OnceLock::new();
        LIBRARY.get_or_init(|| Self::load(FILE).map(Arc::new)).clone()
    }

    /// Loads the library that is in this file.
    fn load(file: &CStr) -> Result<Self, RdmaLibraryError> {
        // SAFETY: the name ends with a nul. What the library does when it is loaded is its own affair.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let Some(handle) = NonNull::new(handle) else {
            // SAFETY: a call of this thread failed, and none came after it.
            let text = unsafe { libc::dlerror() };
            // SAFETY: not null, so a string that stays until the next call of this thread.
            let why = NonNull::new(text).map(|text| unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy());
            let why = why.unwrap_or_else(|| file.to_string_lossy());
            return Err(RdmaLibraryError::NotLoaded(why.into_owned()));
        };
        Self::of(handle)
            .map_err(|function| RdmaLibraryError::TooOld { file: file.to_string_lossy().into_owned(), function })
    }

    /// Returns what the status of a completion is called.
    pub(crate) fn describe(&self, status: u32) -> String {
        // SAFETY: any number may be asked for; the answer is a constant string or null.
        let text = unsafe { (self.status_text)(status) };
        if text.is_null() {
            return format!("status {status}");
        }
        // SAFETY: not null, so a constant string.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// The devices that there are.
pub(crate) struct DeviceList {
    library: Arc<Library>,
    list: NonNull<*mut layout::Device>,
    count: usize,
}

impl DeviceList {
    /// Looks for them.
    pub(crate) fn new(library: &Arc<Library>) -> Result<Self, VerbsError> {
        let mut count = 0;
        // SAFETY: the count is written, and the list is this value's.
        let list = unsafe { (library.get_devices)(&mut count) };
        let list = made("ibv_get_device_list", list)?;
        Ok(Self { library: library.clone(), list, count: usize::try_from(count).unwrap_or(0) })
    }

    /// Returns the name of each, and what opens it.
    pub(crate) fn all(&self) -> impl Iterator<Item = (String, impl Fn() -> Result<Context, VerbsError>)> {
        // SAFETY: the list has so many, and stays as long as this value.
        let devices = unsafe { std::slice::from_raw_parts(self.list.as_ptr(), self.count) };
        devices.iter().map(move |&device| {
            // SAFETY: it is a device of the list.
            let name = unsafe { (self.library.device_name)(device) };
            let name = if name.is_null() {
                String::new()
            } else {
                // SAFETY: not null, so a string that stays as long as the device.
                unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
            };
            let open = move || {
                // SAFETY: it is a device of the list, which this closure borrows.
                let raw = unsafe { (self.library.open_device)(device) };
                let raw = made("ibv_open_device", raw)?;
                Ok(Context { library: self.library.clone(), raw })
            };
            (name, open)
        })
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: it is a list of the library's. Devices that are open stay.
        unsafe { (self.library.free_devices)(self.list.as_ptr()) }
    }
}

/// A device that is open.
pub(crate) struct Context {
    pub(crate) library: Arc<Library>,
    raw: NonNull<layout::Context>,
}

// SAFETY: libibverbs says that its objects may be used by any thread, and its calls by several at once.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Returns what the device can.
    pub(crate) fn attributes(&self) -> Result<DeviceAttributes, VerbsError> {
        let mut attributes = MaybeUninit::zeroed();
        // SAFETY: the device is open, and what is written is as large.
        let code = unsafe { (self.library.query_device)(self.raw.as_ptr(), attributes.as_mut_ptr()) };
        done("ibv_query_device", code)?;
        // SAFETY: it is made of numbers, of which nought is one.
        Ok(unsafe { attributes.assume_init() })
    }

    /// Returns how a port is.
    pub(crate) fn port(&self, number: u8) -> Result<PortAttributes, VerbsError> {
        let mut attributes = MaybeUninit::zeroed();
        // SAFETY: the device is open, and what is written is no larger.
        let code = unsafe { (self.library.query_port)(self.raw.as_ptr(), number, attributes.as_mut_ptr()) };
        done("ibv_query_port", code)?;
        // SAFETY: it is made of numbers, of which nought is one.
        Ok(unsafe { attributes.assume_init() })
    }

    /// Returns an entry of a port's table of GIDs.
    pub(crate) fn gid(&self, port: u8, index: u8) -> Result<[u8; 16], VerbsError> {
        let mut gid = Gid::default();
        // SAFETY: the device is open, and what is written is as large.
        let code = unsafe { (self.library.query_gid)(self.raw.as_ptr(), port, c_int::from(index), &mut gid) };
        done("ibv_query_gid", code)?;
        Ok(gid.0)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: nobody uses it after this: whatever was made on it holds it.
        ended("context", unsafe { (self.library.close_device)(self.raw.as_ptr()) });
    }
}

/// What belongs together on a device: queue pairs, and the memory that they reach.
pub(crate) struct ProtectionDomain {
    pub(crate) context: Arc<Context>,
    raw: NonNull<layout::Domain>,
}

// SAFETY: as for `Context`.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as for `Context`.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, VerbsError> {
        // SAFETY: the device is open.
        let raw = unsafe { (context.library.make_domain)(context.raw.as_ptr()) };
        Ok(Self { context: context.clone(), raw: made("ibv_alloc_pd", raw)? })
    }

    /// Lends the device the memory at `address`, which is pinned as long as the value lives.
    ///
    /// # Safety
    /// So many bytes are mapped there as long as the value lives.
    pub(crate) unsafe fn register(
        self: &Arc<Self>,
        address: usize,
        len: usize,
        access: c_uint,
    ) -> Result<MemoryRegion, VerbsError> {
        let (library, pointer) = (&self.context.library, std::ptr::without_provenance_mut(address));
        let raw = match library.register_relaxed {
            // SAFETY: the caller says so. The address is both where it is and how it is addressed.
            Some(register) => unsafe {
                register(self.raw.as_ptr(), pointer, len, address as u64, access | layout::RELAXED_ORDERING)
            },
            // SAFETY: the caller says so.
            None => unsafe { (library.register)(self.raw.as_ptr(), pointer, len, access as c_int) },
        };
        Ok(MemoryRegion { domain: self.clone(), raw: made("ibv_reg_mr", raw)? })
    }

    /// Lends the device a memory of another device, by its dma-buf, as if it were at `address`. `None`: the
    /// library cannot.
    pub(crate) fn register_dma_buf(
        self: &Arc<Self>,
        (file, offset): (RawFd, u64),
        address: usize,
        len: usize,
        access: c_uint,
    ) -> Option<Result<MemoryRegion, VerbsError>> {
        let register = self.context.library.register_dma_buf?;
        let access = (access | layout::RELAXED_ORDERING) as c_int;
        // SAFETY: the kernel looks at the file, and refuses what is none of a device's.
        let raw = unsafe { register(self.raw.as_ptr(), offset, len, address as u64, file, access) };
        Some(made("ibv_reg_dmabuf_mr", raw).map(|raw| MemoryRegion { domain: self.clone(), raw }))
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: nobody uses it after this: whatever was made in it holds it.
        ended("protection domain", unsafe { (self.context.library.end_domain)(self.raw.as_ptr()) });
    }
}

/// Memory that a device may use.
pub(crate) struct MemoryRegion {
    domain: Arc<ProtectionDomain>,
    raw: NonNull<layout::Region>,
}

// SAFETY: as for `Context`.
unsafe impl Send for MemoryRegion {}
// SAFETY: as for `Context`.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// The key for requests of this end.
    pub(crate) fn local_key(&self) -> u32 {
        // SAFETY: it is registered, and the library does not change it.
        unsafe { self.raw.as_ref() }.local_key
    }

    /// Returns the key for peers.
    pub(crate) fn remote_key(&self) -> u32 {
        // SAFETY: it is registered, and the library does not change it.
        unsafe { self.raw.as_ref() }.remote_key
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: nobody uses it after this.
        ended("registration", unsafe { (self.domain.context.library.deregister)(self.raw.as_ptr()) });
    }
}

/// Where completions are told that are waited for.
pub(crate) struct CompletionChannel {
    context: Arc<Context>,
    raw: NonNull<layout::Channel>,
}

// SAFETY: as for `Context`.
unsafe impl Send for CompletionChannel {}
// SAFETY: as for `Context`.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    /// One that does not block.
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, VerbsError> {
        // SAFETY: the device is open.
        let raw = unsafe { (context.library.make_channel)(context.raw.as_ptr()) };
        let new = Self { context: context.clone(), raw: made("ibv_create_comp_channel", raw)? };
        rustix::io::ioctl_fionbio(new.fd(), true).map_err(|errno| VerbsError { call: "ioctl FIONBIO", errno })?;
        Ok(new)
    }

    /// Becomes readable when there are completions.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }

    /// The number of a queue that has something since it was armed. `None`: there is none now.
    pub(crate) fn take(&self) -> Option<u64> {
        let (mut queue, mut number) = (null_mut(), null_mut());
        // SAFETY: the channel is alive and does not block.
        if unsafe { (self.context.library.get_event)(self.raw.as_ptr(), &mut queue, &mut number) } != 0 {
            return None;
        }
        // SAFETY: the event is of this queue, whose end waits for this call.
        unsafe { (self.context.library.acknowledge)(queue, 1) };
        Some(number.addr() as u64)
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: nobody uses it after this: queues that tell there hold it.
        ended("completion channel", unsafe { (self.context.library.end_channel)(self.raw.as_ptr()) });
    }
}

/// Where a device puts the completions of some queue pairs.
pub(crate) struct CompletionQueue {
    channel: Arc<CompletionChannel>,
    raw: NonNull<layout::CompletionQueue>,
}

// SAFETY: as for `Context`.
unsafe impl Send for CompletionQueue {}
// SAFETY: as for `Context`.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// Room for `entries`; when armed, the channel tells `number` at the next one.
    pub(crate) fn new(channel: &Arc<CompletionChannel>, entries: u32, number: u64) -> Result<Self, VerbsError> {
        let context = &channel.context;
        let (entries, number) = (entries as c_int, std::ptr::without_provenance_mut(number as usize));
        // SAFETY: the device is open, and the channel is one of its own. The number is only handed back.
        let raw =
            unsafe { (context.library.make_queue)(context.raw.as_ptr(), entries, number, channel.raw.as_ptr(), 0) };
        Ok(Self { channel: channel.clone(), raw: made("ibv_create_cq", raw)? })
    }

    fn calls(&self) -> &layout::ContextCalls {
        // SAFETY: the device is open as long as this value, and its calls do not change.
        unsafe { &self.channel.context.raw.as_ref().calls }
    }

    /// Has the next completion announced. A thread must look before it sleeps: what came before is not announced.
    pub(crate) fn arm(&self) -> Result<(), VerbsError> {
        const CALL: &str = "ibv_req_notify_cq";
        let notify = of_driver(CALL, self.calls().notify)?;
        // SAFETY: the queue is alive.
        done(CALL, unsafe { notify(self.raw.as_ptr(), 0) })
    }

    /// Takes completions, as many as there is room for. What the device wrote before one is seen by this thread then.
    pub(crate) fn poll<'a>(&self, room: &'a mut [MaybeUninit<Completion>]) -> Result<&'a [Completion], VerbsError> {
        const CALL: &str = "ibv_poll_cq";
        let poll = of_driver(CALL, self.calls().poll)?;
        // SAFETY: the queue is alive, and there is room for so many.
        let count = unsafe { poll(self.raw.as_ptr(), room.len() as c_int, room.as_mut_ptr().cast()) };
        // It is less than nought where they cannot be taken, and says no more than that.
        let count = usize::try_from(count).map_err(|_| VerbsError { call: CALL, errno: Errno::IO })?;
        // SAFETY: so many were written.
        Ok(unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), count.min(room.len())) })
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: nobody uses it after this: queue pairs that complete there hold it.
        ended("completion queue", unsafe { (self.channel.context.library.end_queue)(self.raw.as_ptr()) });
    }
}

/// A reliably connected queue pair.
pub(crate) struct Pair {
    // Before what it was made of: fields drop in order, and its end is this value's drop, which comes before them all.
    raw: NonNull<layout::Pair>,
    domain: Arc<ProtectionDomain>,
    _completions: Arc<CompletionQueue>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Pair {}
// SAFETY: as for `Context`.
unsafe impl Sync for Pair {}

impl Pair {
    /// One that is not connected yet, with room for so many requests.
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        completions: &Arc<CompletionQueue>,
        requests: u32,
    ) -> Result<Self, VerbsError> {
        let queue = completions.raw.as_ptr();
        let mut init = PairInit {
            context: null_mut(),
            send_completions: queue,
            receive_completions: queue,
            shared_receives: null_mut(),
            capacity: layout::PairCapacity {
                requests,
                receives: 1,
                request_pieces: 1,
                receive_pieces: 1,
                inline_bytes: 0,
            },
            kind: layout::PAIR_CONNECTED,
            all_are_told: 0,
        };
        // SAFETY: domain and queue are alive, and held by the value; the rest is numbers.
        let raw = unsafe { (domain.context.library.make_pair)(domain.raw.as_ptr(), &mut init) };
        let raw = made("ibv_create_qp", raw)?;
        Ok(Self { raw, domain: domain.clone(), _completions: completions.clone() })
    }

    fn library(&self) -> &Library {
        &self.domain.context.library
    }

    /// The number by which its peer knows it.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: it is alive, and the library does not change its number.
        unsafe { (*self.raw.as_ptr()).number }
    }

    /// Sets the attributes that `which` names.
    pub(crate) fn modify(&self, mut attributes: PairAttributes, which: c_int) -> Result<(), VerbsError> {
        // SAFETY: it is alive, and the attributes are whole.
        let code = unsafe { (self.library().modify_pair)(self.raw.as_ptr(), &mut attributes, which) };
        done("ibv_modify_qp", code)
    }

    /// Returns its state.
    pub(crate) fn state(&self) -> Result<c_uint, VerbsError> {
        let mut attributes = PairAttributes::default();
        let mut init = MaybeUninit::zeroed();
        // SAFETY: it is alive, and what is written is as large.
        let code = unsafe {
            (self.library().query_pair)(self.raw.as_ptr(), &mut attributes, layout::OF_STATE, init.as_mut_ptr())
        };
        done("ibv_query_qp", code)?;
        Ok(attributes.state)
    }

    /// Posts a chain of requests. Errors: none, or some, of them were posted.
    ///
    /// # Safety
    /// The chain ends, each of its pieces is there, and their local ranges are registered memory that nobody else
    /// uses until the requests completed or the queue pair is gone.
    pub(crate) unsafe fn post(&self, first: &mut Request) -> Result<(), VerbsError> {
        const CALL: &str = "ibv_post_send";
        // SAFETY: the device is open as long as this value, and its calls do not change.
        let post = of_driver(CALL, unsafe { (*(*self.raw.as_ptr()).context).calls.post })?;
        let mut not_posted = null_mut();
        // SAFETY: it is alive, and the caller says so of the chain.
        done(CALL, unsafe { post(self.raw.as_ptr(), first, &mut not_posted) })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: nobody uses it after this.
        ended("queue pair", unsafe { (self.library().end_pair)(self.raw.as_ptr()) });
    }
}
