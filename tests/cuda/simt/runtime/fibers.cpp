// Fibers: the switch in assembly for x86-64 and ARM64, and the stacks.
#include "fibers.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace simt {

// Stacks do not lie a multiple of 4096 bytes apart: else all their tops would share the same sets of the first cache.
constexpr size_t STACK_BYTES = (128 << 10) + 320;
constexpr size_t STACK_ALIGNMENT = 16;

// A word at the end of each stack, which only an overflow changes.
constexpr uint64_t STACK_GUARD = 0x5afe57ac45afe57aull;

#if defined(__x86_64__)
asm(R"(
.text
.globl simt_switch
.type simt_switch,@function
simt_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmp *%rcx
.size simt_switch,.-simt_switch
)");

// The switch pops six registers and the address to continue at. A second word stands for the caller of `entry`.
constexpr size_t SAVED_WORDS = 8;
constexpr size_t ENTRY_WORD = 6;

#elif defined(__aarch64__)
asm(R"(
.text
.globl simt_switch
.type simt_switch,%function
simt_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size simt_switch,.-simt_switch
)");

constexpr size_t SAVED_WORDS = 20;
constexpr size_t ENTRY_WORD = 11;

#else
#error "the emulator switches fibers on x86-64 and ARM64 only"
#endif

size_t stacks_bytes(unsigned count) { return STACK_BYTES * count; }

unsigned char* allocate_memory(size_t bytes) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) {
        perror("simt: no memory for fibers");
        abort();
    }
    return static_cast<unsigned char*>(memory);
}

void* prepare_stack(unsigned char* stacks, unsigned number, void (*entry)()) {
    unsigned char* bottom = stacks + STACK_BYTES * number;
    memcpy(bottom, &STACK_GUARD, sizeof STACK_GUARD);
    const uintptr_t top = reinterpret_cast<uintptr_t>(bottom + STACK_BYTES) & ~(STACK_ALIGNMENT - 1);
    void** saved = reinterpret_cast<void**>(top) - SAVED_WORDS;
    memset(saved, 0, SAVED_WORDS * sizeof(void*));
    saved[ENTRY_WORD] = reinterpret_cast<void*>(entry);
    return saved;
}

bool stack_overflowed(const unsigned char* stacks, unsigned number) {
    return memcmp(stacks + STACK_BYTES * number, &STACK_GUARD, sizeof STACK_GUARD) != 0;
}

}  // namespace simt
