// Texts about failures.
#pragma once

#include <string>

#include "state.h"

namespace simt {

// Builds the sentence about a failed launch, with the kernel's name and the line of the source if it can be found.
std::string describe_failure(const Launch& launch, const Failure& failure);

// Returns "file:line" of an address of code, or an empty text. Starts addr2line, so only failures may use it.
std::string source_line(const void* code);

}  // namespace simt
