// Faults of kernels: SIGSEGV, SIGBUS and SIGFPE while a kernel runs become failures of its launch.
#pragma once

namespace simt {

// Installs the handlers once, and a stack for signals for each thread of the system. Faults outside of kernels go to
// the handlers that were installed before.
void install_fault_handlers();

}  // namespace simt
