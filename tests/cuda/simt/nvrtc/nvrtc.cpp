// The entry points of the look-alike of nvrtc. A program becomes a shared library: the "CUBIN" is the library itself,
// the "PTX" is a line that names its file.
#include <cstring>
#include <exception>
#include <iterator>

#include "program.h"

#define API extern "C" __attribute__((visibility("default")))

using nvrtc::Program;

namespace {

enum Result : int {
    NVRTC_SUCCESS = 0,
    NVRTC_ERROR_INVALID_INPUT = 3,
    NVRTC_ERROR_INVALID_PROGRAM = 4,
    NVRTC_ERROR_INVALID_OPTION = 5,
    NVRTC_ERROR_COMPILATION = 6,
    NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION = 9,
    NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID = 10,
};

constexpr int VERSION_MAJOR = 13;
constexpr int VERSION_MINOR = 0;

/// Copies a text with its final zero.
void put(const std::string& text, char* to) {
    memcpy(to, text.c_str(), text.size() + 1);
}

/// Returns the line that names a program's library.
std::string ptx_of(const Program& program) {
    return "//SIMT " + program.library + "\n";
}

}  // namespace

/// Returns the version of CUDA.
API Result nvrtcVersion(int* major, int* minor) {
    *major = VERSION_MAJOR;
    *minor = VERSION_MINOR;
    return NVRTC_SUCCESS;
}

/// Returns the number of supported architectures.
API Result nvrtcGetNumSupportedArchs(int* count) {
    *count = int(std::size(nvrtc::ARCHITECTURES));
    return NVRTC_SUCCESS;
}

/// Returns the supported architectures.
API Result nvrtcGetSupportedArchs(int* architectures) {
    memcpy(architectures, nvrtc::ARCHITECTURES, sizeof nvrtc::ARCHITECTURES);
    return NVRTC_SUCCESS;
}

/// Returns the name of a result.
API const char* nvrtcGetErrorString(Result result) {
    switch (result) {
        case NVRTC_SUCCESS: return "NVRTC_SUCCESS";
        case NVRTC_ERROR_INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
        case NVRTC_ERROR_INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
        case NVRTC_ERROR_INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
        case NVRTC_ERROR_COMPILATION: return "NVRTC_ERROR_COMPILATION";
        case NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION: return "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION";
        case NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID: return "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID";
    }
    return "NVRTC_ERROR unknown";
}

/// Makes a program of a source and its headers.
API Result nvrtcCreateProgram(Program** program, const char* source, const char* name, int count,
                              const char* const* headers, const char* const* names) {
    if (!program || !source || count < 0) return NVRTC_ERROR_INVALID_INPUT;
    auto* made = new Program{.name = name ? name : "default_program", .source = source};
    for (int i = 0; i < count; i++) made->headers[names[i]] = headers[i];
    *program = made;
    return NVRTC_SUCCESS;
}

/// Destroys a program.
API Result nvrtcDestroyProgram(Program** program) {
    if (!program || !*program) return NVRTC_ERROR_INVALID_PROGRAM;
    delete *program;
    *program = nullptr;
    return NVRTC_SUCCESS;
}

/// Asks for a kernel by a C++ expression, as `scale<float>`.
API Result nvrtcAddNameExpression(Program* program, const char* expression) {
    if (!program->library.empty()) return NVRTC_ERROR_INVALID_PROGRAM;
    program->expressions.push_back(expression);
    return NVRTC_SUCCESS;
}

/// Compiles a program with g++. Its messages are in the log, also after success.
API Result nvrtcCompileProgram(Program* program, int count, const char* const* options) {
    const nvrtc::Options read = nvrtc::read_options(count, options);
    if (!read.complaint.empty()) {
        program->log = read.complaint;
        return NVRTC_ERROR_INVALID_OPTION;
    }
    try {
        return nvrtc::compile(*program, read) ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
    } catch (const std::exception& error) {  // the cache's folder cannot be written
        program->log += std::string("simt: ") + error.what() + "\n";
        return NVRTC_ERROR_COMPILATION;
    }
}

/// Returns the exported name of a name expression.
API Result nvrtcGetLoweredName(Program* program, const char* expression, const char** name) {
    if (program->library.empty()) return NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION;
    auto found = program->lowered.find(expression);
    if (found == program->lowered.end()) return NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
    *name = found->second.c_str();
    return NVRTC_SUCCESS;
}

/// Returns the bytes of the log, its final zero included.
API Result nvrtcGetProgramLogSize(Program* program, size_t* bytes) {
    *bytes = program->log.size() + 1;
    return NVRTC_SUCCESS;
}

/// Returns the log.
API Result nvrtcGetProgramLog(Program* program, char* log) {
    put(program->log, log);
    return NVRTC_SUCCESS;
}

/// Returns the bytes of the line that stands for PTX.
API Result nvrtcGetPTXSize(Program* program, size_t* bytes) {
    if (program->library.empty()) return NVRTC_ERROR_INVALID_PROGRAM;
    *bytes = ptx_of(*program).size() + 1;
    return NVRTC_SUCCESS;
}

/// Returns the line that stands for PTX.
API Result nvrtcGetPTX(Program* program, char* ptx) {
    if (program->library.empty()) return NVRTC_ERROR_INVALID_PROGRAM;
    put(ptx_of(*program), ptx);
    return NVRTC_SUCCESS;
}

/// Returns the bytes of the shared library that stands for a CUBIN.
API Result nvrtcGetCUBINSize(Program* program, size_t* bytes) {
    if (program->library.empty()) return NVRTC_ERROR_INVALID_PROGRAM;
    *bytes = nvrtc::read_file(program->library).size();
    return NVRTC_SUCCESS;
}

/// Returns the shared library that stands for a CUBIN.
API Result nvrtcGetCUBIN(Program* program, char* cubin) {
    if (program->library.empty()) return NVRTC_ERROR_INVALID_PROGRAM;
    const std::string bytes = nvrtc::read_file(program->library);
    memcpy(cubin, bytes.data(), bytes.size());
    return NVRTC_SUCCESS;
}
