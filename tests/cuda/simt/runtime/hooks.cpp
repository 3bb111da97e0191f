// The hooks that g++ calls in modules built with -fsanitize=thread. libtsan is not linked; these take its place.
#include <cstddef>
#include <cstdint>

#include "state.h"

// The alignment that an access of `bytes` bytes needs at least; g++ calls the hook for 16 bytes also for 8-byte ones.
static constexpr size_t MOST_ALIGNMENT = 8;

// Checks one access of a kernel. Code of a module that does not run as a kernel is not checked.
static inline void on_access(const void* address, size_t bytes, simt::Access access, const void* code) {
    if (simt::current == nullptr || !simt::machine->checked || simt::is_own_memory(address)) return;
    simt::check_access(address, bytes, access, code);
}

// Checks an access of a fixed size, which must be aligned.
static inline void on_aligned(const void* address, size_t bytes, simt::Access access, const void* code) {
    const size_t alignment = bytes < MOST_ALIGNMENT ? bytes : MOST_ALIGNMENT;
    if (simt::current != nullptr && reinterpret_cast<uintptr_t>(address) % alignment != 0) {
        simt::fail(simt::Outcome::MisalignedAddress,
                   simt::format("access to %zu bytes at %p, which is misaligned", bytes, address), code);
    }
    on_access(address, bytes, access, code);
}

#define CALLER __builtin_return_address(0)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define PLAIN_HOOKS(BYTES)                                                                                       \
    void __tsan_read##BYTES(void* p) { on_aligned(p, BYTES, simt::Access::Read, CALLER); }                       \
    void __tsan_write##BYTES(void* p) { on_aligned(p, BYTES, simt::Access::Write, CALLER); }                     \
    void __tsan_volatile_read##BYTES(void* p) { on_aligned(p, BYTES, simt::Access::Read, CALLER); }              \
    void __tsan_volatile_write##BYTES(void* p) { on_aligned(p, BYTES, simt::Access::Write, CALLER); }            \
    void __tsan_unaligned_read##BYTES(void* p) { on_access(p, BYTES, simt::Access::Read, CALLER); }              \
    void __tsan_unaligned_write##BYTES(void* p) { on_access(p, BYTES, simt::Access::Write, CALLER); }

PLAIN_HOOKS(1)
PLAIN_HOOKS(2)
PLAIN_HOOKS(4)
PLAIN_HOOKS(8)
PLAIN_HOOKS(16)

void __tsan_read_range(void* p, size_t bytes) { on_access(p, bytes, simt::Access::Read, CALLER); }
void __tsan_write_range(void* p, size_t bytes) { on_access(p, bytes, simt::Access::Write, CALLER); }

// Atomic operations: the hook performs them, too. The order that the kernel asks for is at most what is done here.
#define ATOMIC_CHANGE(BITS, TYPE, NAME)                                                                          \
    TYPE __tsan_atomic##BITS##_##NAME(volatile TYPE* p, TYPE value, int) {                                       \
        on_aligned(const_cast<TYPE*>(p), sizeof(TYPE), simt::Access::Atomic, CALLER);                            \
        return __atomic_##NAME(p, value, __ATOMIC_SEQ_CST);                                                      \
    }

#define ATOMIC_EXCHANGE(BITS, TYPE, KIND)                                                                        \
    int __tsan_atomic##BITS##_compare_exchange_##KIND(volatile TYPE* p, TYPE* expected, TYPE value, int, int) {  \
        on_aligned(const_cast<TYPE*>(p), sizeof(TYPE), simt::Access::Atomic, CALLER);                            \
        return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);       \
    }

#define ATOMIC_HOOKS(BITS, TYPE)                                                                                 \
    TYPE __tsan_atomic##BITS##_load(const volatile TYPE* p, int) {                                               \
        on_aligned(const_cast<TYPE*>(p), sizeof(TYPE), simt::Access::AtomicRead, CALLER);                        \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                             \
    }                                                                                                            \
    void __tsan_atomic##BITS##_store(volatile TYPE* p, TYPE value, int) {                                        \
        on_aligned(const_cast<TYPE*>(p), sizeof(TYPE), simt::Access::Atomic, CALLER);                            \
        __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                                            \
    }                                                                                                            \
    TYPE __tsan_atomic##BITS##_exchange(volatile TYPE* p, TYPE value, int) {                                     \
        on_aligned(const_cast<TYPE*>(p), sizeof(TYPE), simt::Access::Atomic, CALLER);                            \
        return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                                  \
    }                                                                                                            \
    ATOMIC_CHANGE(BITS, TYPE, fetch_add)                                                                         \
    ATOMIC_CHANGE(BITS, TYPE, fetch_sub)                                                                         \
    ATOMIC_CHANGE(BITS, TYPE, fetch_and)                                                                         \
    ATOMIC_CHANGE(BITS, TYPE, fetch_or)                                                                          \
    ATOMIC_CHANGE(BITS, TYPE, fetch_xor)                                                                         \
    ATOMIC_CHANGE(BITS, TYPE, fetch_nand)                                                                        \
    ATOMIC_EXCHANGE(BITS, TYPE, strong)                                                                          \
    ATOMIC_EXCHANGE(BITS, TYPE, weak)

ATOMIC_HOOKS(8, uint8_t)
ATOMIC_HOOKS(16, uint16_t)
ATOMIC_HOOKS(32, uint32_t)
ATOMIC_HOOKS(64, uint64_t)

void __tsan_atomic_thread_fence(int) { simt::fence(); }
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
