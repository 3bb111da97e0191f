// A program of the look-alike of nvrtc: what the caller gave, and what the compilation made of it.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace nvrtc {

struct Program {
    std::string name;
    std::string source;
    std::map<std::string, std::string> headers;    // by the name that #include uses
    std::vector<std::string> expressions;          // that nvrtcAddNameExpression gave
    std::map<std::string, std::string> lowered;    // the exported name of each expression
    std::string log;
    std::string library;                           // the path of the shared library; empty before compilation
};

/// The architectures that nvrtc 13.0 knows, of those that the product may ask for.
constexpr int ARCHITECTURES[] = {80, 86, 89, 90, 100, 120};

/// What the options of a compilation ask for.
struct Options {
    std::vector<std::string> flags;  // for g++
    std::string complaint;           // of an option that is not known; empty if all are
    std::string notes;               // for the log
};

/// Translates the options of nvrtc.
Options read_options(int count, const char* const* options);

/// Returns the names of the kernels that a source declares as extern "C" __global__.
std::vector<std::string> exported_kernels(const std::string& source);

/// Returns the source for g++: the program's, and a line for each kernel that exports it.
std::string generated_source(Program& program);

/// Compiles a program, or finds it in the cache. Returns false if g++ refuses it; its errors are in the log.
bool compile(Program& program, const Options& options);

/// Returns the whole contents of a file; empty if there is none.
std::string read_file(const std::string& path);

}  // namespace nvrtc
