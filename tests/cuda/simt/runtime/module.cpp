// Finds the segments of a module: its thread-local memory, which is the static shared memory of its kernels, and the
// memory of its code and variables.
#include "module.h"

#include <dlfcn.h>
#include <link.h>

namespace simt {

struct Search {
    uintptr_t base;
    Module* module;
};

// Takes over the segments of one loaded object, if it is the one searched for. Returns 1 to end the search.
static int visit_object(dl_phdr_info* info, size_t, void* data) {
    const Search& search = *static_cast<Search*>(data);
    if (info->dlpi_addr != search.base) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr)& header = info->dlpi_phdr[i];
        if (header.p_type == PT_TLS) {
            search.module->shared = static_cast<unsigned char*>(info->dlpi_tls_data);
            search.module->shared_bytes = header.p_memsz;
        }
        if (header.p_type == PT_LOAD) {
            const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
            search.module->segments.push_back({begin, begin + header.p_memsz});
        }
    }
    return 1;
}

Module find_module(void* handle) {
    Module module;
    if (handle == nullptr) return module;
    module.checked = dlsym(handle, "simt_checked") != nullptr;
    // The look-up of a thread-local symbol makes the loader set up the module's memory for this thread. Without it,
    // `dlpi_tls_data` is null where the code reaches the memory by a fixed offset.
    (void)dlsym(handle, "simt_shared_anchor");
    Search search = {static_cast<link_map*>(handle)->l_addr, &module};
    dl_iterate_phdr(visit_object, &search);
    return module;
}

}  // namespace simt
