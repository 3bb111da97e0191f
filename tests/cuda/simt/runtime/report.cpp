// Texts about failures. Lines of the source come from addr2line, which is part of the tools that g++ needs anyway.
#include "report.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace simt {

constexpr size_t TEXT_BYTES = 1024;

std::string format(const char* pattern, ...) {
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, pattern);
    vsnprintf(text, sizeof text, pattern, arguments);
    va_end(arguments);
    return text;
}

const char* outcome_name(Outcome outcome) {
    switch (outcome) {
        case Outcome::Ok: return "ok";
        case Outcome::InvalidConfiguration: return "invalid configuration";
        case Outcome::IllegalAddress: return "illegal address";
        case Outcome::MisalignedAddress: return "misaligned address";
        case Outcome::LaunchFailed: return "launch failed";
        case Outcome::Race: return "race";
        case Outcome::Unwritten: return "read of unwritten shared memory";
    }
    return "unknown";
}

std::string describe_thread(const Thread& thread) {
    const uint3 block = machine->grid_block;
    return format("thread (%u,%u,%u) of block (%u,%u,%u)", thread.index.x, thread.index.y, thread.index.z, block.x,
                  block.y, block.z);
}

// Says whether "file:line" lies in the emulator, which is never the place of a mistake.
static bool in_emulator(const char* line) {
    for (const char* file : {"ptx.cuh:", "atomics.h:", "arithmetic.h:", "warp.h:", "access.cpp:", "copies.cpp:"}) {
        if (strncmp(line, file, strlen(file)) == 0) return true;
    }
    return false;
}

// Returns a path under which another process finds the same file. A module may be loaded from an open file.
static std::string path_for_others(const char* path) {
    static const std::string own = "/proc/self/";
    if (strncmp(path, own.c_str(), own.size()) != 0) return path;
    return format("/proc/%d/", static_cast<int>(getpid())) + (path + own.size());
}

std::string source_line(const void* code) {
    Dl_info info;
    if (code == nullptr || dladdr(code, &info) == 0 || info.dli_fname == nullptr) return "";
    // A return address belongs to the call before it.
    const size_t offset = static_cast<const char*>(code) - static_cast<const char*>(info.dli_fbase) - 1;
    const std::string command =
        format("addr2line -i -e '%s' 0x%zx 2>/dev/null", path_for_others(info.dli_fname).c_str(), offset);
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return "";
    // One line for each function that was inlined, the innermost first.
    std::string found;
    char line[TEXT_BYTES];
    while (found.empty() && fgets(line, sizeof line, pipe) != nullptr) {
        line[strcspn(line, "\n ")] = 0;
        const char* slash = strrchr(line, '/');
        const char* name = slash != nullptr ? slash + 1 : line;
        if (name[0] != '?' && !in_emulator(name)) found = name;
    }
    pclose(pipe);
    return found;
}

std::string describe_failure(const Launch& launch, const Failure& failure) {
    std::string text = std::string(launch.name) + ": " + failure.what;
    const std::string line = source_line(failure.code);
    if (!line.empty()) text += ", at " + line;
    return text;
}

}  // namespace simt
