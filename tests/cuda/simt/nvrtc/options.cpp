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

/// Says whether an option has no meaning for the emulator, and may be there.
bool is_harmless(const std::string& option) {
    static const char* const PREFIXES[] = {
        "--gpu-architecture", "-arch",     "--std",         "-std",           "--use_fast_math", "-use_fast_math",
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
            option += option[1] == '-' || option == "-arch" ? "=" : "";
            option += given[++i];
        }
        if (starts(option, "--define-macro=", value) || starts(option, "-D", value)) {
            options.flags.push_back("-D" + value);
        } else if (starts(option, "--undefine-macro=", value) || starts(option, "-U", value)) {
            options.flags.push_back("-U" + value);
        } else if (starts(option, "--fmad=", value) || starts(option, "-fmad=", value)) {
            contraction = value == "true" ? "-ffp-contract=fast" : "-ffp-contract=off";
        } else if (starts(option, "--include-path=", value) || starts(option, "-I", value)) {
            options.notes += "simt: the folder " + value + " is ignored: give headers to nvrtcCreateProgram\n";
        } else if (!is_harmless(option)) {
            options.complaint = "nvrtc: error: invalid value for --gpu-architecture or unknown option: " + option + "\n";
        }
    }
    options.flags.push_back(contraction);
    return options;
}

}  // namespace nvrtc
