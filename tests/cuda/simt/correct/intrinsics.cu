// Known values of CUDA's intrinsics: out[i] becomes 1 if the i-th group of them is right. One warp of 32 lanes.
#include "ptx.cuh"

// Returns whether a condition holds in all lanes.
__device__ inline int everywhere(bool right) { return __all_sync(0xffffffffu, right); }

// Checks shuffles with a width of 8, at their edges.
__device__ inline bool shuffles(int lane) {
    const int first = lane & ~7;
    bool right = __shfl_sync(0xffffffffu, lane, 9, 8) == first + 1;
    right &= __shfl_up_sync(0xffffffffu, lane, 3, 8) == (lane - first >= 3 ? lane - 3 : lane);
    right &= __shfl_down_sync(0xffffffffu, lane, 3, 8) == (lane - first <= 4 ? lane + 3 : lane);
    right &= __shfl_xor_sync(0xffffffffu, lane, 5, 8) == (lane ^ 5);
    const double wide = __shfl_xor_sync(0xffffffffu, static_cast<double>(lane), 1);
    return right && wide == (lane ^ 1);
}

// Checks votes, matches and reductions.
__device__ inline bool votes(int lane) {
    bool right = __ballot_sync(0xffffffffu, lane % 2) == 0xaaaaaaaau;
    right &= __any_sync(0xffffffffu, lane == 31) && !__any_sync(0xffffffffu, lane == 32);
    right &= !__all_sync(0xffffffffu, lane != 0);
    right &= __match_any_sync(0xffffffffu, lane / 8) == 0xffu << (lane / 8 * 8);
    right &= __reduce_add_sync(0xffffffffu, lane) == 496 && __reduce_max_sync(0xffffffffu, lane) == 31;
    right &= __reduce_min_sync(0xffffffffu, -lane) == -31 && __reduce_or_sync(0xffffffffu, 1u << lane) == 0xffffffffu;
    const unsigned own_half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
    right &= __reduce_add_sync(own_half, 1) == 16;
    return right && __syncthreads_count(lane < 5) == 5 && __syncthreads_or(lane == 3) && !__syncthreads_and(lane != 3);
}

// Checks operations on bits.
__device__ inline bool bits() {
    bool right = __byte_perm(0x33221100u, 0x77665544u, 0x7250u) == 0x77225500u;
    right &= __byte_perm(0x80u, 0u, 0x9888u) == 0x00ffffffu;
    right &= __brev(0x00000001u) == 0x80000000u && __brev(0x12345678u) == 0x1e6a2c48u;
    right &= __popc(0xf0f0u) == 8 && __clz(1) == 31 && __clz(0) == 32 && __ffs(8) == 4 && __ffs(0) == 0;
    right &= __umulhi(0x80000000u, 6u) == 3u && __umul64hi(1ull << 63, 6ull) == 3ull;
    right &= __funnelshift_l(0x80000000u, 1u, 1u) == 3u && __funnelshift_r(1u, 3u, 1u) == 0x80000000u;
    return right && __float_as_uint(1.0f) == 0x3f800000u && __int_as_float(0x40000000) == 2.0f;
}

// Checks conversions and rounding.
__device__ inline bool numbers() {
    const float nan = __uint_as_float(0x7fc00000u);
    bool right = ptx::round_bf16x2(1.00390625f, 1.01171875f) == 0x3f823f80u;  // both are ties
    right &= (ptx::round_bf16x2(nan, 0.0f) & 0xffffu) == 0x7fffu;
    right &= ptx::multiply_add_bf16x2(0x40004040u, 0x40403f80u, 0x3f80bf80u) == 0x40e04000u;
    right &= ptx::widen_half(0x3c01) == 1.0009765625f && __half2float(__float2half(0.5f)) == 0.5f;
    right &= ptx::exp2_approx(3.0f) == 8.0f && ptx::exp2_approx(-127.0f) == 0.0f;
    right &= __float2int_rn(2.5f) == 2 && __float2int_rn(3e9f) == 2147483647 && __float2int_rn(nan) == 0;
    right &= __float2uint_rn(-1.0f) == 0u && max(1, 2u) == 2u && min(1.5f, 1) == 1.0f;
    return right && rsqrtf(4.0f) == 0.5f && __fdiv_rn(1.0f, 3.0f) == 1.0f / 3.0f;
}

// Checks atomics on shared memory. The order of lanes does not matter.
__device__ inline bool atomics(int lane) {
    __shared__ int sum, most, least;
    __shared__ unsigned bits, wrapped;
    __shared__ unsigned long long wide;
    __shared__ float real;
    if (lane == 0) {
        sum = most = least = 0;
        bits = wrapped = 0;
        wide = 0;
        real = 0.0f;
    }
    __syncwarp();
    atomicAdd(&sum, lane);
    atomicMax(&most, lane);
    atomicMin(&least, -lane);
    atomicOr(&bits, 1u << lane);
    atomicInc(&wrapped, 9u);
    atomicAdd(&wide, 1ull << 32);
    atomicAdd(&real, 0.5f);
    __syncwarp();
    bool right = sum == 496 && most == 31 && least == -31 && bits == 0xffffffffu && wrapped == 2u;
    right &= wide == 32ull << 32 && real == 16.0f;
    __syncwarp();
    if (lane == 0) {
        right &= atomicCAS(&bits, 1u, 5u) == 0xffffffffu && atomicCAS(&bits, 0xffffffffu, 5u) == 0xffffffffu;
        right &= atomicExch(&bits, 6u) == 5u && atomicAnd(&bits, 3u) == 6u && atomicXor(&bits, 1u) == 2u && bits == 3u;
    }
    return right;
}

extern "C" __global__ void __launch_bounds__(32) intrinsics(int* out) {
    const int lane = threadIdx.x;
    const int right[] = {everywhere(shuffles(lane)), everywhere(votes(lane)), everywhere(bits()),
                         everywhere(numbers()), everywhere(atomics(lane))};
    if (lane == 0) {
        for (int i = 0; i < 5; i++) out[i] = right[i];
    }
}
