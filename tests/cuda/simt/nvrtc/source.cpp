// Finds the kernels of a source, and appends what exports them.
#include <cctype>
#include <cstdint>
#include <cstdio>

#include "program.h"

namespace nvrtc {

namespace {

const std::string KERNEL_WORD = "__global__";

/// Returns the source with its comments and its string literals blanked, except for extern "C".
std::string without_comments(const std::string& source) {
    std::string plain = source;
    for (size_t i = 0; i + 1 < plain.size();) {
        size_t end = i;
        if (plain.compare(i, 2, "//") == 0) {
            end = plain.find('\n', i);
        } else if (plain.compare(i, 2, "/*") == 0) {
            end = plain.find("*/", i + 2);
            if (end != std::string::npos) end += 2;
        } else {
            i++;
            continue;
        }
        if (end == std::string::npos) end = plain.size();
        for (; i < end; i++) {
            if (plain[i] != '\n') plain[i] = ' ';
        }
    }
    return plain;
}

/// Says whether a character can be part of a name.
bool is_word(char c) {
    return isalnum(static_cast<unsigned char>(c)) || c == '_';
}

/// Returns the first place from `at` on that is not white space.
size_t skip_space(const std::string& text, size_t at) {
    while (at < text.size() && isspace(static_cast<unsigned char>(text[at]))) at++;
    return at;
}

/// Returns the place behind the parenthesis that closes the one at `at`.
size_t skip_parentheses(const std::string& text, size_t at) {
    int depth = 0;
    for (; at < text.size(); at++) {
        if (text[at] == '(') depth++;
        if (text[at] == ')' && --depth == 0) return at + 1;
    }
    return at;
}

/// Returns the name of the function that is declared from `at` on: the name in front of its parameters. Attributes
/// with parentheses, as __launch_bounds__(128), are skipped; their names begin with two underscores.
std::string declared_name(const std::string& text, size_t at) {
    for (;;) {
        at = skip_space(text, at);
        size_t end = at;
        while (end < text.size() && is_word(text[end])) end++;
        if (end == at) return "";
        const std::string word = text.substr(at, end - at);
        const size_t next = skip_space(text, end);
        if (next >= text.size() || text[next] != '(') {
            at = end;
        } else if (word.rfind("__", 0) == 0) {
            at = skip_parentheses(text, next);
        } else {
            return word;
        }
    }
}

/// Says whether `extern "C"` stands between the end of the last declaration and `at`.
bool is_extern_c(const std::string& text, size_t at) {
    const size_t before = text.find_last_of(";}", at);
    const size_t start = before == std::string::npos ? 0 : before + 1;
    return text.substr(start, at - start).find("extern \"C\"") != std::string::npos;
}

/// Returns an exported name for a name expression.
std::string name_for(const std::string& expression) {
    uint64_t hash = 1469598103934665603ull;
    for (const unsigned char c : expression) hash = (hash ^ c) * 1099511628211ull;
    char name[32];
    snprintf(name, sizeof name, "expression_%016lx", static_cast<unsigned long>(hash));
    return name;
}

}  // namespace

std::vector<std::string> exported_kernels(const std::string& source) {
    std::vector<std::string> names;
    const std::string text = without_comments(source);
    for (size_t at = text.find(KERNEL_WORD); at != std::string::npos; at = text.find(KERNEL_WORD, at + 1)) {
        if (!is_extern_c(text, at)) continue;
        const std::string name = declared_name(text, at + KERNEL_WORD.size());
        if (!name.empty()) names.push_back(name);
    }
    return names;
}

std::string generated_source(Program& program) {
    std::string text = "#line 1 \"" + program.name + "\"\n" + program.source + "\n#line 1 \"exports\"\n";
    for (const std::string& kernel : exported_kernels(program.source)) {
        text += "SIMT_KERNEL(" + kernel + ", " + kernel + ")\n";
    }
    for (const std::string& expression : program.expressions) {
        const std::string name = name_for(expression);
        program.lowered[expression] = name;
        text += "SIMT_KERNEL(" + name + ", " + expression + ")\n";
    }
    return text;
}

}  // namespace nvrtc
