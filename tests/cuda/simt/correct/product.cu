// C = A * B in bf16 with f32 sums: tiles of 64 x 64 x 32, four warps of 32 x 32, double buffers filled by cp.async,
// ldmatrix and mma. The whole path of a real product in small.
#include "ptx.cuh"

typedef unsigned short bf16_bits;
constexpr int TILE_M = 64, TILE_N = 64, TILE_K = 32, THREADS = 128;
constexpr int PITCH_A = TILE_K + 8, PITCH_B = TILE_N + 8;  // padded: no bank conflicts

struct Stage {
    __align__(16) bf16_bits a[TILE_M * PITCH_A];
    __align__(16) bf16_bits b[TILE_K * PITCH_B];
};

// Starts the copies of one stage. Rows beyond the last become zeros.
__device__ inline void load_stage(Stage& stage, const bf16_bits* a, const bf16_bits* b, int m0, int n0, int k0, int m,
                                  int n, int k) {
    for (int chunk = threadIdx.x; chunk < TILE_M * TILE_K / 8; chunk += THREADS) {
        const int row = chunk / (TILE_K / 8), column = chunk % (TILE_K / 8) * 8;
        const bool wanted = m0 + row < m;
        const bf16_bits* from = a + (wanted ? static_cast<size_t>(m0 + row) * k + k0 + column : 0);
        ptx::copy_async16(ptx::shared(&stage.a[row * PITCH_A + column]), from, wanted);
    }
    for (int chunk = threadIdx.x; chunk < TILE_K * TILE_N / 8; chunk += THREADS) {
        const int row = chunk / (TILE_N / 8), column = chunk % (TILE_N / 8) * 8;
        const bf16_bits* from = b + static_cast<size_t>(k0 + row) * n + n0 + column;
        ptx::copy_async16(ptx::shared(&stage.b[row * PITCH_B + column]), from, true);
    }
    ptx::copy_commit();
}

// Multiplies one stage for the warp's 32 x 32 part.
__device__ inline void multiply_stage(float (&sums)[2][4][4], const Stage& stage, int wm, int wn, int lane) {
    for (int kk = 0; kk < TILE_K; kk += 16) {
        unsigned a[2][4], b[4][2];
        for (int i = 0; i < 2; i++) {
            const int row = wm + i * 16 + lane % 16;
            ptx::load_matrix_x4(a[i], ptx::shared(&stage.a[row * PITCH_A + kk + lane / 16 * 8]));
        }
        for (int j = 0; j < 4; j++) {
            ptx::load_matrix_x2_transposed(b[j], ptx::shared(&stage.b[(kk + lane % 16) * PITCH_B + wn + j * 8]));
        }
        for (int i = 0; i < 2; i++) {
            for (int j = 0; j < 4; j++) {
                ptx::multiply_bf16(sums[i][j], a[i][0], a[i][1], a[i][2], a[i][3], b[j][0], b[j][1]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) product(float* c, const bf16_bits* a, const bf16_bits* b, int m,
                                                              int n, int k) {
    __shared__ Stage stages[2];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int wm = warp / 2 * 32, wn = warp % 2 * 32;
    const int m0 = blockIdx.y * TILE_M, n0 = blockIdx.x * TILE_N;
    float sums[2][4][4] = {};
    load_stage(stages[0], a, b, m0, n0, 0, m, n, k);
    int stage = 0;
    for (int k0 = 0; k0 < k; k0 += TILE_K, stage ^= 1) {
        if (k0 + TILE_K < k) {
            load_stage(stages[stage ^ 1], a, b, m0, n0, k0 + TILE_K, m, n, k);
            ptx::copy_wait<1>();
        } else {
            ptx::copy_wait<0>();
        }
        __syncthreads();
        multiply_stage(sums, stages[stage], wm, wn, lane);
        __syncthreads();
    }
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 4; j++) {
            for (int half = 0; half < 2; half++) {
                const int row = m0 + wm + i * 16 + lane / 4 + half * 8;
                const int column = n0 + wn + j * 8 + lane % 4 * 2;
                if (row >= m) continue;
                *reinterpret_cast<float2*>(&c[static_cast<size_t>(row) * n + column]) =
                    make_float2(sums[i][j][half * 2], sums[i][j][half * 2 + 1]);
            }
        }
    }
}
