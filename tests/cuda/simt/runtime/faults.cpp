// Handlers of faults. They run on a stack of their own, note the address, and jump back to `run_grid`.
#include "faults.h"

#include <signal.h>
#include <ucontext.h>

#include <cstdlib>
#include <mutex>

#include "state.h"

namespace simt {

constexpr size_t SIGNAL_STACK_BYTES = 64 << 10;
constexpr int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE};
constexpr unsigned FAULT_COUNT = 3;

// The handlers that were there before.
static struct sigaction earlier[FAULT_COUNT];

// Returns the instruction that faulted.
static const void* faulting_code(void* context) {
    const mcontext_t& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
    return reinterpret_cast<const void*>(registers.gregs[REG_RIP]);
#else
    return reinterpret_cast<const void*>(registers.pc);
#endif
}

// Passes a fault that is not a kernel's to the handler before this one, or ends the process as if there were none.
static void pass_on(int signal, siginfo_t* info, void* context) {
    for (unsigned i = 0; i < FAULT_COUNT; i++) {
        if (FAULTS[i] != signal) continue;
        if (earlier[i].sa_flags & SA_SIGINFO) {
            earlier[i].sa_sigaction(signal, info, context);
            return;
        }
        if (earlier[i].sa_handler != SIG_DFL && earlier[i].sa_handler != SIG_IGN) {
            earlier[i].sa_handler(signal);
            return;
        }
    }
    // The instruction runs again after the return, and faults again.
    ::signal(signal, SIG_DFL);
}

// Turns a fault of a kernel into a failure. The text is built here although this is a handler: the kernel does not run
// inside the allocator, so its locks are free.
static void handle_fault(int signal, siginfo_t* info, void* context) {
    if (machine == nullptr || current == nullptr) {
        pass_on(signal, info, context);
        return;
    }
    Failure& failure = machine->failure;
    if (failure.outcome == Outcome::Ok) {
        const bool division = signal == SIGFPE;
        failure.outcome = division ? Outcome::LaunchFailed : Outcome::IllegalAddress;
        failure.what = division ? "integer division by zero or overflow" : format("illegal address %p", info->si_addr);
        failure.what += ", in " + describe_thread(*current);
        failure.code = faulting_code(context);
    }
    siglongjmp(machine->fault_return, 1);
}

void install_fault_handlers() {
    static thread_local bool has_signal_stack = false;
    if (!has_signal_stack) {
        has_signal_stack = true;
        stack_t stack = {};
        stack.ss_sp = malloc(SIGNAL_STACK_BYTES);
        stack.ss_size = SIGNAL_STACK_BYTES;
        sigaltstack(&stack, nullptr);
    }
    static std::once_flag once;
    std::call_once(once, [] {
        for (unsigned i = 0; i < FAULT_COUNT; i++) {
            struct sigaction action = {};
            action.sa_sigaction = handle_fault;
            action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
            sigaction(FAULTS[i], &action, &earlier[i]);
        }
    });
}

}  // namespace simt
