// Translates the options of nvrtc to those of g++.
#include "program.h"

namespace nvrtc {

namespace {

/// Says whether an option begins with a prefix; if so, sets `value` to what follows.
bool starts(const std::string& option, const std::string& prefix, std::string& value) {
    if (option.rfind(prefix, 0) != 0) return false;
    value = option.substr(prefix.size());
    return true;
}

/// Says whether a value, as sm_90a or compute_90, names an architecture that nvrtc knows.
bool is_architecture(std::string value) {
    const size_t digits = value.find_first_of("0123456789");
    const std::string kind = value.substr(0, digits);
    if (digits == std::string::npos || (kind != "sm_" && kind != "compute_")) return false;
    for (const int known : ARCHITECTURES) {
        const std::string number = std::to_string(known);
        const std::string rest = value.substr(digits);
        if (rest == number || rest == number + "a" || rest == number + "f") return true;
    }
    return false;
}

/// Says whether an option has no meaning for the emulator, and may be there.
bool is_harmless(const std::string& option) {
    static const char* const PREFIXES[] = {
        "--std",              "-std",      "--use_fast_math",                 "-use_fast_math",
        "--maxrregcount",     "-default-device",            "--device-debug", "-G",  "--generate-line-info",
        "-lineinfo",          "--ptxas-options",            "-Xptxas",        "--extra-device-vectorization",
        "--restrict",         "-restrict", "--device-int128",                 "--diag-suppress", "-diag-suppress",
        "--ftz",              "-ftz",      "--prec-div",    "-prec-div",      "--prec-sqrt",     "-prec-sqrt",
        "--split-compile",    "--minimal", "-minimal",      "--relocatable-device-code=false",
        "--dopt",             "--warning-as-error",         "--no-source-include", "-no-source-include",
    };
    for (const char* prefix : PREFIXES) {
        if (option.rfind(prefix, 0) == 0) return true;
    }
    return false;
}

}  // namespace

Options read_options(int count, const char* const* given) {
    Options options;
    std::string contraction = "-ffp-contract=fast";  // nvrtc fuses by default, too
    for (int i = 0; i < count; i++) {
        std::string option = given[i];
        std::string value;
        // "-D name" and "--define-macro name" may be two options.
        const bool separate = option == "-D" || option == "--define-macro" || option == "-U" || option == "-I" ||
                              option == "--include-path" || option == "-arch" || option == "--gpu-architecture";
        if (separate && i + 1 < count) {
            if (option[1] == '-' || option == "-arch") option += "=";
            option += given[++i];
        }
        if (starts(option, "--define-macro=", value) || starts(option, "-D", value)) {
            options.flags.push_back("-D" + value);
        } else if (starts(option, "--undefine-macro=", value) || starts(option, "-U", value)) {
            options.flags.push_back("-U" + value);
        } else if (starts(option, "--gpu-architecture=", value) || starts(option, "-arch=", value)) {
            if (!is_architecture(value)) options.complaint = "nvrtc: error: no such architecture: " + value + "\n";
        } else if (starts(option, "--fmad=", value) || starts(option, "-fmad=", value)) {
            contraction = value == "true" ? "-ffp-contract=fast" : "-ffp-contract=off";
        } else if (starts(option, "--include-path=", value) || starts(option, "-I", value)) {
            options.notes += "simt: the folder " + value + " is ignored: give headers to nvrtcCreateProgram\n";
        } else if (!is_harmless(option)) {
            options.complaint = "nvrtc: error: unrecognized option: " + option + "\n";
        }
    }
    options.flags.push_back(contraction);
    return options;
}

}  // namespace nvrtc
