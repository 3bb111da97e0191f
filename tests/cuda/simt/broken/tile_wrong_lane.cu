// BROKEN: a lane gives the wrong row to ldmatrix. Found in every module, by wrong numbers.
#include "ptx.cuh"

extern "C" __global__ void __launch_bounds__(32) tile(float* c, const unsigned short* a, const unsigned short* b) {
    __shared__ __align__(16) unsigned short sa[16][24];  // rows of 48 bytes: no bank conflicts
    __shared__ __align__(16) unsigned short sb[16][8];
    const int lane = threadIdx.x;
    ptx::copy_async16(ptx::shared(&sa[lane / 2][lane % 2 * 8]), a + lane * 8, true);
    if (lane < 16) ptx::copy_async16(ptx::shared(&sb[lane][0]), b + lane * 8, true);
    ptx::copy_commit();
    ptx::copy_wait<0>();
    __syncwarp();
    unsigned fa[4], fb[2];
    ptx::load_matrix_x4(fa, ptx::shared(&sa[lane % 15][lane / 16 * 8]));
    ptx::load_matrix_x2_transposed(fb, ptx::shared(&sb[lane % 16][0]));
    float sums[4] = {};
    ptx::multiply_bf16(sums, fa[0], fa[1], fa[2], fa[3], fb[0], fb[1]);
    const int row = lane / 4, column = lane % 4 * 2;
    c[row * 8 + column] = sums[0];
    c[row * 8 + column + 1] = sums[1];
    c[(row + 8) * 8 + column] = sums[2];
    c[(row + 8) * 8 + column + 1] = sums[3];
}
