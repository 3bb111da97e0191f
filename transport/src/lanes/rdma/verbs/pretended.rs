//! A library whose devices are not there. What they are like, and what they were told, is the thread's own.

use super::Library;
use super::layout::*;
use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::fd::IntoRawFd;
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::Arc;

/// A device with ports that are up or down.
#[derive(Clone, Copy)]
pub(crate) struct PretendedDevice {
    pub(crate) name: &'static std::ffi::CStr,
    pub(crate) ports_up: &'static [bool],
}

thread_local! {
    static DEVICES: RefCell<Vec<PretendedDevice>> = const { RefCell::new(Vec::new()) };
    /// What a call fails with.
    pub(crate) static OPEN_ERROR: Cell<c_int> = const { Cell::new(0) };
    pub(crate) static REGISTER_ERROR: Cell<c_int> = const { Cell::new(0) };
    pub(crate) static END_ERROR: Cell<c_int> = const { Cell::new(0) };
    /// Memories that are registered, and queue pairs that there are.
    pub(crate) static REGISTERED: Cell<usize> = const { Cell::new(0) };
    pub(crate) static PAIRS: Cell<u32> = const { Cell::new(0) };
    /// The access that the last one was registered with.
    pub(crate) static ACCESS: Cell<c_uint> = const { Cell::new(0) };
    /// What queue pairs were told.
    pub(crate) static TOLD: RefCell<Vec<(PairAttributes, c_int)>> = const { RefCell::new(Vec::new()) };
    /// What was posted to them: the flags of each, and its bytes.
    pub(crate) static POSTED: RefCell<Vec<(u64, c_uint, u32)>> = const { RefCell::new(Vec::new()) };
}

/// Returns a library with these devices.
pub(crate) fn library(devices: &[PretendedDevice]) -> Arc<Library> {
    DEVICES.with_borrow_mut(|all| *all = devices.to_vec());
    Arc::new(Library {
        get_devices,
        free_devices,
        device_name,
        open_device,
        close_device,
        query_device,
        query_port,
        query_gid,
        make_domain,
        end_domain,
        register,
        deregister,
        make_channel,
        end_channel,
        make_queue,
        end_queue,
        get_event,
        acknowledge,
        make_pair,
        modify_pair,
        query_pair,
        end_pair,
        status_text,
        register_relaxed: Some(register_relaxed),
        register_dma_buf: None,
    })
}

fn fails(code: c_int) -> bool {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = code };
    code != 0
}

fn device(place: usize) -> PretendedDevice {
    DEVICES.with_borrow(|all| all[place - 1])
}

unsafe extern "C" fn get_devices(count: *mut c_int) -> *mut *mut Device {
    let all = DEVICES.with_borrow(Vec::len);
    // SAFETY: the caller says so.
    unsafe { *count = all as c_int };
    // Devices are their places, from 1 on.
    let list: Vec<*mut Device> = (1..=all + 1).map(without_provenance_mut).collect();
    Box::leak(list.into_boxed_slice()).as_mut_ptr()
}

unsafe extern "C" fn free_devices(_: *mut *mut Device) {}

unsafe extern "C" fn device_name(place: *mut Device) -> *const c_char {
    device(place.addr()).name.as_ptr()
}

unsafe extern "C" fn open_device(place: *mut Device) -> *mut Context {
    if fails(OPEN_ERROR.get()) {
        return null_mut();
    }
    let calls = ContextCalls {
        before_poll: [null(); 11],
        poll: Some(poll),
        notify: Some(notify),
        before_post: [null(); 12],
        post: Some(post),
    };
    Box::into_raw(Box::new(Context { device: place, calls }))
}

unsafe extern "C" fn close_device(context: *mut Context) -> c_int {
    // SAFETY: it was made above.
    drop(unsafe { Box::from_raw(context) });
    0
}

unsafe extern "C" fn query_device(context: *mut Context, attributes: *mut DeviceAttributes) -> c_int {
    // SAFETY: the caller says so.
    let (context, attributes) = unsafe { (&*context, &mut *attributes) };
    attributes.ports = device(context.device.addr()).ports_up.len() as u8;
    (attributes.reads_max, attributes.reads_of_peers_max) = (128, 4);
    attributes.queue_entries_max = 256;
    0
}

unsafe extern "C" fn query_port(context: *mut Context, port: u8, attributes: *mut PortAttributes) -> c_int {
    // SAFETY: the caller says so.
    let (context, attributes) = unsafe { (&*context, &mut *attributes) };
    let is_up = device(context.device.addr()).ports_up[usize::from(port) - 1];
    attributes.state = if is_up { PORT_ACTIVE } else { 1 };
    (attributes.mtu, attributes.gids, attributes.link_layer) = (5, 3, LINK_ETHERNET);
    0
}

unsafe extern "C" fn query_gid(context: *mut Context, port: u8, index: c_int, gid: *mut Gid) -> c_int {
    // SAFETY: the caller says so.
    let (context, gid) = unsafe { (&*context, &mut *gid) };
    // The entry between is not set.
    if index != 1 {
        gid.0[13..].copy_from_slice(&[context.device.addr() as u8, port, index as u8 + 1]);
    }
    0
}

unsafe extern "C" fn make_domain(_: *mut Context) -> *mut Domain {
    without_provenance_mut(1)
}

unsafe extern "C" fn end_domain(_: *mut Domain) -> c_int {
    0
}

unsafe extern "C" fn register(_: *mut Domain, _: *mut c_void, _: usize, access: c_int) -> *mut Region {
    if fails(REGISTER_ERROR.get()) {
        return null_mut();
    }
    REGISTERED.set(REGISTERED.get() + 1);
    ACCESS.set(access as c_uint);
    let region = Region { before_handle: [null(); 4], handle: 0, local_key: 1, remote_key: 2 };
    Box::into_raw(Box::new(region))
}

unsafe extern "C" fn register_relaxed(
    domain: *mut Domain,
    address: *mut c_void,
    len: usize,
    _: u64,
    access: c_uint,
) -> *mut Region {
    // SAFETY: the caller says so.
    unsafe { register(domain, address, len, access as c_int) }
}

unsafe extern "C" fn deregister(region: *mut Region) -> c_int {
    REGISTERED.set(REGISTERED.get() - 1);
    // SAFETY: it was made above.
    drop(unsafe { Box::from_raw(region) });
    0
}

unsafe extern "C" fn make_channel(context: *mut Context) -> *mut Channel {
    let fd = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).expect("there are descriptors");
    Box::into_raw(Box::new(Channel { context, fd: fd.into_raw_fd() }))
}

unsafe extern "C" fn end_channel(channel: *mut Channel) -> c_int {
    // SAFETY: it was made above.
    let channel = unsafe { Box::from_raw(channel) };
    // SAFETY: the descriptor is the channel's.
    unsafe { libc::close(channel.fd) }
}

unsafe extern "C" fn make_queue(
    context: *mut Context,
    _: c_int,
    _: *mut c_void,
    _: *mut Channel,
    _: c_int,
) -> *mut CompletionQueue {
    Box::into_raw(Box::new(CompletionQueue { context }))
}

unsafe extern "C" fn end_queue(queue: *mut CompletionQueue) -> c_int {
    // SAFETY: it was made above.
    drop(unsafe { Box::from_raw(queue) });
    0
}

unsafe extern "C" fn get_event(_: *mut Channel, _: *mut *mut CompletionQueue, _: *mut *mut c_void) -> c_int {
    -1
}

unsafe extern "C" fn acknowledge(_: *mut CompletionQueue, _: c_uint) {}

unsafe extern "C" fn make_pair(_: *mut Domain, init: *mut PairInit) -> *mut Pair {
    PAIRS.set(PAIRS.get() + 1);
    // SAFETY: the caller says so.
    let context = unsafe { (*(*init).send_completions).context };
    Box::into_raw(Box::new(Pair { context, before_handle: [null(); 5], handle: 0, number: PAIRS.get() }))
}

unsafe extern "C" fn modify_pair(_: *mut Pair, attributes: *mut PairAttributes, which: c_int) -> c_int {
    // SAFETY: the caller says so.
    TOLD.with_borrow_mut(|told| told.push((unsafe { *attributes }, which)));
    0
}

unsafe extern "C" fn query_pair(_: *mut Pair, attributes: *mut PairAttributes, _: c_int, _: *mut PairInit) -> c_int {
    // SAFETY: the caller says so.
    unsafe { (*attributes).state = STATE_SENDING };
    0
}

unsafe extern "C" fn end_pair(pair: *mut Pair) -> c_int {
    PAIRS.set(PAIRS.get() - 1);
    // SAFETY: it was made above.
    drop(unsafe { Box::from_raw(pair) });
    END_ERROR.get()
}

unsafe extern "C" fn status_text(_: c_uint) -> *const c_char {
    null()
}

unsafe extern "C" fn poll(_: *mut CompletionQueue, _: c_int, _: *mut Completion) -> c_int {
    0
}

unsafe extern "C" fn notify(_: *mut CompletionQueue, _: c_int) -> c_int {
    0
}

unsafe extern "C" fn post(_: *mut Pair, mut request: *mut Request, _: *mut *mut Request) -> c_int {
    // SAFETY: the caller says that the chain ends and that its pieces are there.
    while let Some(one) = unsafe { request.as_ref() } {
        // SAFETY: as above.
        let piece = unsafe { *one.pieces };
        assert_eq!((one.piece_count, one.operation), (1, READ));
        POSTED.with_borrow_mut(|posted| posted.push((one.id, one.flags, piece.len)));
        request = one.next;
    }
    0
}
