// A small frame for tests. Each test runs in a process of its own, as an error of a device stays until its end.
#pragma once
#include <string>
#include <vector>

#include "prototypes.h"

namespace check {

/// A test, and the environment that it needs, as "SIMT_CHECK=1".
struct Test {
    const char* name;
    void (*run)();
    std::vector<const char*> environment;
};

/// Returns all tests, which register themselves.
std::vector<Test>& tests();

/// Registers a test.
struct Register {
    Register(const char* name, void (*run)(), std::vector<const char*> environment);
};

/// Ends the test with a message if a condition does not hold.
void require(bool condition, const char* text, const char* file, int line);

/// Ends the test with a message if a call does not return the wanted code.
void expect(CUresult wanted, CUresult got, const char* text, const char* file, int line);

/// Says whether the look-alikes have printed a text in this test.
bool printed(const std::string& text);

}  // namespace check

#define TEST(name, text, ...)                                                  \
    static void name();                                                        \
    static const check::Register name##_registered(text, name, {__VA_ARGS__}); \
    static void name()

#define REQUIRE(condition) check::require(condition, #condition, __FILE__, __LINE__)
#define EXPECT(code, call) check::expect(code, call, #call, __FILE__, __LINE__)
#define OK(call) EXPECT(CUDA_SUCCESS, call)
