// What a launch on an H100 may ask for.
#pragma once

namespace driver {

constexpr unsigned WARP = 32;
constexpr unsigned MULTIPROCESSORS = 132;
constexpr unsigned THREADS_PER_BLOCK_MAX = 1024;
constexpr unsigned THREADS_PER_MULTIPROCESSOR = 2048;
constexpr unsigned BLOCKS_PER_MULTIPROCESSOR = 32;
constexpr unsigned BLOCK_X_MAX = 1024;
constexpr unsigned BLOCK_Y_MAX = 1024;
constexpr unsigned BLOCK_Z_MAX = 64;
constexpr unsigned GRID_X_MAX = 2147483647;
constexpr unsigned GRID_Y_MAX = 65535;
constexpr unsigned GRID_Z_MAX = 65535;
constexpr unsigned SHARED_DEFAULT = 48 << 10;   // per block, without the function's attribute
constexpr unsigned SHARED_OPT_IN = 227 << 10;   // per block, with it
constexpr unsigned SHARED_PER_MULTIPROCESSOR = 228 << 10;
constexpr unsigned SHARED_RESERVED = 1 << 10;   // per block, by the system

}  // namespace driver
