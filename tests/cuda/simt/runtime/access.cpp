// Accesses to memory that the device headers make through libsimt: wide loads, copies, release and acquire.
#include <cstring>

#include "state.h"

namespace simt {

// Fails if the address is not aligned. The hooks check this for plain accesses.
static void require_alignment(const void* address, size_t bytes, const char* what, const void* code) {
    if (reinterpret_cast<uintptr_t>(address) % bytes == 0) return;
    fail(Outcome::MisalignedAddress, format("%s at %p: not aligned to %zu bytes", what, address, bytes), code);
}

uint4 load16(const void* from) {
    const void* code = __builtin_return_address(0);
    require_alignment(from, sizeof(uint4), "load", code);
    if (machine->checked) check_access(from, sizeof(uint4), Access::Read, code);
    return *static_cast<const uint4*>(from);
}

void store_release(unsigned long long* to, unsigned long long value) {
    const void* code = __builtin_return_address(0);
    require_alignment(to, sizeof *to, "st.release", code);
    if (machine->checked) {
        clock_fence();
        check_access(to, sizeof *to, Access::Atomic, code);
    }
    __atomic_store_n(to, value, __ATOMIC_RELEASE);
}

unsigned long long load_acquire(const unsigned long long* from) {
    const void* code = __builtin_return_address(0);
    require_alignment(from, sizeof *from, "ld.acquire", code);
    const unsigned long long value = __atomic_load_n(from, __ATOMIC_ACQUIRE);
    if (machine->checked) {
        check_access(from, sizeof *from, Access::AtomicRead, code);
        clock_fence();
    }
    return value;
}

void fence() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (machine->checked) clock_fence();
}

void* copy_bytes(void* to, const void* from, size_t bytes) {
    const void* code = __builtin_return_address(0);
    if (machine->checked && bytes > 0) {
        check_access(from, bytes, Access::Read, code);
        check_access(to, bytes, Access::Write, code);
    }
    return memcpy(to, from, bytes);
}

void* fill_bytes(void* to, int value, size_t bytes) {
    if (machine->checked && bytes > 0) check_access(to, bytes, Access::Write, __builtin_return_address(0));
    return memset(to, value, bytes);
}

}  // namespace simt
