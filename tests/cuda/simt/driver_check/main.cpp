// Runs the tests of the look-alikes: one line for each, and the sum as the last. An argument selects tests by a part of
// their names.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "check.h"

namespace check {

namespace {

constexpr unsigned SECONDS_MAX = 120;  // for one test

int captured = -1;  // the file that takes what the look-alikes print

/// Runs a test in this process, which ends with it.
[[noreturn]] void run_here(const Test& test) {
    alarm(SECONDS_MAX);
    for (const char* setting : test.environment) putenv(const_cast<char*>(setting));
    dup2(captured, STDERR_FILENO);
    test.run();
    _exit(EXIT_SUCCESS);
}

/// Returns what a file holds.
std::string contents(int file) {
    std::string text(size_t(lseek(file, 0, SEEK_END)), '\0');
    const ssize_t got = pread(file, text.data(), text.size(), 0);
    text.resize(got < 0 ? 0 : size_t(got));
    return text;
}

/// Runs a test in a new process. Returns whether it passed.
bool run(const Test& test) {
    captured = memfd_create("messages", MFD_CLOEXEC);
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) run_here(test);
    int status = 0;
    waitpid(child, &status, 0);
    const bool passed = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS;
    printf("%s %s\n", passed ? "ok    " : "FAILED", test.name);
    if (!passed) {
        if (WIFSIGNALED(status)) printf("    ended by signal %d\n", WTERMSIG(status));
        printf("%s", contents(captured).c_str());
    }
    close(captured);
    return passed;
}

}  // namespace

std::vector<Test>& tests() {
    static std::vector<Test> all;
    return all;
}

Register::Register(const char* name, void (*run)(), std::vector<const char*> environment) {
    tests().push_back({name, run, std::move(environment)});
}

void require(bool condition, const char* text, const char* file, int line) {
    if (condition) return;
    fprintf(stderr, "    %s:%d: not true: %s\n", file, line, text);
    _exit(EXIT_FAILURE);
}

void expect(CUresult wanted, CUresult got, const char* text, const char* file, int line) {
    if (wanted == got) return;
    const char* name = "an unknown code";
    cuGetErrorName(got, &name);
    fprintf(stderr, "    %s:%d: %s (%d) instead of %d from %s\n", file, line, name, got, wanted, text);
    _exit(EXIT_FAILURE);
}

bool printed(const std::string& text) {
    return contents(captured).find(text) != std::string::npos;
}

}  // namespace check

/// Runs the tests, and returns whether all have passed.
int main(int count, char** arguments) {
    int passed = 0;
    int failed = 0;
    for (const check::Test& test : check::tests()) {
        if (count > 1 && !strstr(test.name, arguments[1])) continue;
        (check::run(test) ? passed : failed)++;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
