// Compiles programs with g++, and keeps the shared libraries in a folder: the cache. A library's name is the hash of
// all that went into it. It appears under its name by one rename, so that processes can compile at the same time.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "program.h"

extern char** environ;

namespace nvrtc {

namespace {

namespace fs = std::filesystem;

// The header that holds the product's inline PTX. The emulator's own version takes its place.
const std::string PTX_HEADER = "ptx.cuh";

// -O1: a kernel of 200 lines compiles in 1.1 s, against 1.5 s with -O2, and does not run slower in the emulator.
const std::vector<std::string> FLAGS = {
    "-std=c++20", "-O1", "-g", "-gdwarf-4", "-fPIC", "-fvisibility=hidden",
    // Fibers have stacks of their own, which the checks of returns that some distributions switch on do not expect.
    "-fcf-protection=none", "-fno-stack-protector",
    // Shared memory is thread-local, and must be the module's own.
    "-fno-gnu-unique", "-fno-strict-aliasing",
    // Kernels have attributes and pragmas that g++ does not know.
    "-Wno-unknown-pragmas", "-Wno-attributes", "-Wno-pointer-arith",
#ifdef __x86_64__
    "-march=x86-64-v3", "-mtls-dialect=gnu2",
#endif
};

// With hooks, for the checks of libsimt. Accesses must stay as the source has them, so that each has its hook.
const std::vector<std::string> CHECKED_FLAGS = {
    "-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0", "-fno-tree-vectorize", "-fno-tree-slp-vectorize",
    "-fno-tree-loop-distribute-patterns", "-fno-tree-sra", "-fno-ipa-sra",
};

// FNV-1a, 64 bits.
constexpr uint64_t HASH_START = 1469598103934665603ull;
constexpr uint64_t HASH_FACTOR = 1099511628211ull;

/// All that goes into a shared library.
struct Build {
    std::string compiler;
    std::string base;  // the folder with include and lib
    std::vector<std::string> flags;
    std::string source;
    std::map<std::string, std::string> headers;   // the program's
    std::map<std::string, std::string> emulator;  // the emulator's
};

/// Adds bytes to a hash.
void add_hash(uint64_t& hash, const std::string& bytes) {
    for (const unsigned char c : bytes) hash = (hash ^ c) * HASH_FACTOR;
    hash = (hash ^ 0xff) * HASH_FACTOR;  // so that "ab","c" and "a","bc" differ
}

/// Returns a setting of the environment, or its default.
std::string setting(const char* name, const std::string& otherwise) {
    const char* value = getenv(name);
    return value && *value ? value : otherwise;
}

/// Returns the folder above the one that this library lies in.
std::string home() {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&add_hash), &info);
    const fs::path own = fs::absolute(info.dli_fname ? info.dli_fname : ".");
    return setting("SIMT_HOME", own.parent_path().parent_path().string());
}

/// Returns the headers of the emulator by name, in the order of their names.
std::map<std::string, std::string> emulator_headers(const std::string& include) {
    std::map<std::string, std::string> headers;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(include, ignored)) {
        if (entry.is_regular_file()) headers[entry.path().filename()] = read_file(entry.path());
    }
    return headers;
}

/// Puts the emulator's version of the header with the inline PTX in the place of the program's.
void replace_ptx(Build& build) {
    for (auto& [name, text] : build.headers) {
        if (fs::path(name).filename() == PTX_HEADER) text = build.emulator[PTX_HEADER];
    }
}

/// Returns the name of a library: the hash of all that goes into it.
std::string hash_of(const Build& build) {
    uint64_t hash = HASH_START;
    add_hash(hash, build.compiler);
    for (const std::string& flag : build.flags) add_hash(hash, flag);
    add_hash(hash, build.source);
    for (const auto* headers : {&build.headers, &build.emulator}) {
        for (const auto& [name, text] : *headers) {
            add_hash(hash, name);
            add_hash(hash, text);
        }
    }
    char text[32];
    snprintf(text, sizeof text, "%016lx", static_cast<unsigned long>(hash));
    return text;
}

/// Runs a program and writes what it prints to a file. Returns whether it succeeded.
bool run(const std::vector<std::string>& command, const std::string& output) {
    std::vector<char*> arguments;
    for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    pid_t child = 0;
    const int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        std::ofstream(output) << "simt: " << command[0] << " cannot be started\n";
        return false;
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// Compiles and links in a folder. The messages are in its file `log`, the result in `program.so`.
bool build_library(const Build& build, const fs::path& folder) {
    for (const auto& [name, text] : build.headers) {
        fs::create_directories((folder / name).parent_path());
        std::ofstream(folder / name) << text;
    }
    std::ofstream(folder / "program.cpp") << build.source;
    std::vector<std::string> compile = {build.compiler};
    compile.insert(compile.end(), build.flags.begin(), build.flags.end());
    for (const std::string& more : std::initializer_list<std::string>{
             "-I", folder, "-I", build.base + "/include", "-include", "simt.h", "-c", folder / "program.cpp", "-o",
             folder / "program.o"}) {
        compile.push_back(more);
    }
    if (!run(compile, folder / "log")) return false;
    // Linked without -fsanitize=thread: the hooks are in libsimt, and libtsan must stay out.
    const std::vector<std::string> link = {
        build.compiler, "-shared", "-Wl,-z,defs", folder / "program.o", "-o", folder / "program.so",
        "-L", build.base + "/lib", "-lsimt",
    };
    return run(link, folder / "log");
}

/// A folder of one compilation; deleted at its end.
class Workshop {
public:
    explicit Workshop(const fs::path& cache) {
        static std::atomic<unsigned> next{0};
        path_ = cache / ("work." + std::to_string(getpid()) + "." + std::to_string(next++));
        fs::create_directories(path_);
    }
    ~Workshop() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    Workshop(const Workshop&) = delete;
    Workshop& operator=(const Workshop&) = delete;
    const fs::path& path() const { return path_; }

private:
    fs::path path_;
};

}  // namespace

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

bool compile(Program& program, const Options& options) {
    const std::string base = home();
    const fs::path cache = setting("SIMT_CACHE", base + "/cache");
    std::error_code ignored;
    fs::create_directories(cache, ignored);

    Build build{.compiler = setting("SIMT_CXX", "g++"), .base = base, .flags = FLAGS};
    build.flags.insert(build.flags.end(), options.flags.begin(), options.flags.end());
    const bool checked = setting("SIMT_CHECK", "0") != "0";
    if (checked) build.flags.insert(build.flags.end(), CHECKED_FLAGS.begin(), CHECKED_FLAGS.end());
    build.source = generated_source(program);
    build.headers = program.headers;
    build.emulator = emulator_headers(base + "/include");
    replace_ptx(build);

    program.log = options.notes;
    const fs::path library = cache / (hash_of(build) + ".so");
    if (!fs::exists(library)) {
        const Workshop workshop(cache);
        const bool done = build_library(build, workshop.path());
        program.log += read_file(workshop.path() / "log");
        if (!done) return false;
        fs::rename(workshop.path() / "program.so", library);
    }
    program.library = fs::absolute(library);
    return true;
}

}  // namespace nvrtc
