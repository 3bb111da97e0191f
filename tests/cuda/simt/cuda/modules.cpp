// Modules: shared libraries that the look-alike of nvrtc made. An image is the library itself (as CUBIN), or a line
// that names its file (as PTX).
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "call.h"
#include "executor.h"
#include "kernels.h"
#include "device_limits.h"
#include "memory.h"

using namespace driver;

namespace {

constexpr char TEXT_MARK[] = "//SIMT ";
constexpr int REGISTERS = 64;        // an invented number: g++ has no registers of a GPU
constexpr int BINARY_VERSION = 90;

/// A loaded module. Its functions live as long as it does.
struct Module {
    void* library;
    std::map<std::string, std::unique_ptr<Function>> functions;
};

/// Returns the length of a shared library in memory, from its header: the table of sections is its end.
size_t library_bytes(const char* image) {
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    return header.e_shoff + size_t(header.e_shnum) * header.e_shentsize;
}

/// Opens a shared library that lies in memory.
void* open_bytes(const char* image) {
    const int file = memfd_create("simt-module", MFD_CLOEXEC);
    if (file < 0) return nullptr;
    const size_t bytes = library_bytes(image);
    void* library = nullptr;
    if (write(file, image, bytes) == ssize_t(bytes)) {
        library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    // It stays open: the loader knows libraries by their path, which has the descriptor's number, and would take the
    // next module for this one.
    return library;
}

/// Opens the shared library of an image. Returns null, after a message, if that fails.
void* open_image(const char* image) {
    void* library = nullptr;
    if (memcmp(image, ELFMAG, SELFMAG) == 0) {
        library = open_bytes(image);
    } else if (strncmp(image, TEXT_MARK, strlen(TEXT_MARK)) == 0) {
        const char* path = image + strlen(TEXT_MARK);
        library = dlopen(std::string(path, strcspn(path, "\n")).c_str(), RTLD_NOW | RTLD_LOCAL);
    } else {
        complain("a module's image is not from the look-alike of nvrtc");
        return nullptr;
    }
    if (!library) complain("a module cannot be loaded: %s", dlerror());
    return library;
}

/// Finds a kernel in a module. Returns null if there is none of that name.
Function* find_function(Module& module, const std::string& name) {
    auto& slot = module.functions[name];
    if (slot) return slot.get();
    auto thunk = reinterpret_cast<void (*)(void**)>(dlsym(module.library, ("simt_thunk_" + name).c_str()));
    auto sizes_of = reinterpret_cast<unsigned (*)(unsigned*)>(dlsym(module.library, ("simt_args_" + name).c_str()));
    if (!thunk || !sizes_of) {
        module.functions.erase(name);
        return nullptr;
    }
    std::vector<unsigned> sizes(sizes_of(nullptr) + 1);
    sizes.resize(sizes_of(sizes.data()));
    slot = std::make_unique<Function>(Function{name, module.library, thunk, std::move(sizes), int(SHARED_DEFAULT)});
    return slot.get();
}

}  // namespace

/// Loads a module.
API CUresult cuModuleLoadData(void** handle, const void* image) {
    const Call call(NEEDS_DRIVER | REFUSED_IN_CAPTURE);
    if (call.refused()) return call.error();
    void* library = open_image(static_cast<const char*>(image));
    if (!library) return CUDA_ERROR_INVALID_IMAGE;
    *handle = new Module{library, {}};
    return CUDA_SUCCESS;
}

/// Loads a module with options, which have no effect.
API CUresult cuModuleLoadDataEx(void** handle, const void* image, unsigned, int*, void**) {
    return cuModuleLoadData(handle, image);
}

/// Loads a module from a file.
API CUresult cuModuleLoad(void** handle, const char* path) {
    FILE* file = fopen(path, "rb");
    if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
    std::vector<char> image;
    char part[1 << 16];
    while (const size_t got = fread(part, 1, sizeof part, file)) image.insert(image.end(), part, part + got);
    fclose(file);
    image.resize(image.size() + sizeof(Elf64_Ehdr));  // zeros, so that short files can be looked at
    return cuModuleLoadData(handle, image.data());
}

/// Unloads a module after all work. Its library stays, as its code may still be on a fiber's stack.
API CUresult cuModuleUnload(void* handle) {
    Call call;
    if (call.refused()) return call.error();
    drain(call.context(), call.lock());
    delete static_cast<Module*>(handle);
    return CUDA_SUCCESS;
}

/// Finds a kernel by its name.
API CUresult cuModuleGetFunction(void** function, void* handle, const char* name) {
    const Call call;
    if (call.refused()) return call.error();
    *function = find_function(*static_cast<Module*>(handle), name);
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/// Sets an attribute of a kernel; only the limit of its dynamic shared memory has an effect.
API CUresult cuFuncSetAttribute(void* handle, int attribute, int value) {
    const Call call;
    if (call.refused()) return call.error();
    auto* function = static_cast<Function*>(handle);
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            if (value < 0 || value > int(SHARED_OPT_IN)) return CUDA_ERROR_INVALID_VALUE;
            function->dynamic_shared_max = value;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: return CUDA_SUCCESS;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}

/// Returns an attribute of a kernel. The number of registers is invented.
API CUresult cuFuncGetAttribute(int* value, int attribute, void* handle) {
    const Call call;
    if (call.refused()) return call.error();
    const auto* function = static_cast<const Function*>(handle);
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = int(THREADS_PER_BLOCK_MAX); break;
        case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = REGISTERS; break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = BINARY_VERSION; break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = function->dynamic_shared_max; break;
        default: *value = 0;
    }
    return CUDA_SUCCESS;
}

/// Accepts a wish for the caches; it has no effect.
API CUresult cuFuncSetCacheConfig(void*, int) {
    const Call call;
    return call.error();
}

/// Returns the name of a kernel.
API CUresult cuFuncGetName(const char** name, void* handle) {
    const Call call;
    if (call.refused()) return call.error();
    *name = static_cast<const Function*>(handle)->name.c_str();
    return CUDA_SUCCESS;
}

/// Returns how many blocks of a kernel fit on a multiprocessor; registers are not counted.
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int threads, size_t dynamic_shared) {
    const Call call;
    if (call.refused()) return call.error();
    if (threads < 1) return CUDA_ERROR_INVALID_VALUE;
    *blocks = blocks_per_multiprocessor(unsigned(threads), dynamic_shared);
    return CUDA_SUCCESS;
}

/// Returns how many blocks of a kernel fit on a multiprocessor. The flags have no effect.
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, void* function, int threads,
                                                                  size_t dynamic_shared, unsigned) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, dynamic_shared);
}
