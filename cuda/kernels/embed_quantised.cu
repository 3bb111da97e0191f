// Rows of a quantised embedding for the tokens of a step. The line before these defines WEIGHTS: one of the forms of
// `quantised.cuh`. The table is packed as for products, so that it may be a head's weights as well.
#include "quantised.cuh"

typedef WEIGHTS Weights;

constexpr int THREADS = 128;
// Numbers that a thread makes: those of a lane in a group.
constexpr u32 STEP = GROUP / 4;

// Tokens are as in `embed.cu`.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
    embed(const u8* table, const int* tokens, const u32* sampled, bf16* out, u32* broken, u32 rows, u32 width,
          u32 vocab, float scale) {
    ptx::dependents_wait();
    ptx::dependents_launch();
    u32 steps = width / STEP, item = blockIdx.x * THREADS + threadIdx.x;
    u32 row = item / steps, group = item % steps / 4, t = item % 4;
    if (row >= rows) return;

    int named = tokens[row];
    u32 token = named >= 0 ? (u32)named : sampled[-1 - named];
    u32 pairs[4] = {};
    if (token < vocab) {
        constexpr u32 GROUPS = Weights::GROUPS;
        u32 units = (width / GROUP + GROUPS - 1) / GROUPS, unit = token / FRAGMENT * units + group / GROUPS;
        UnitView<Weights::Unit> view{table + (size_t)unit * Weights::Unit::BYTES, token % TILE * 4 + t};
        bool is_lower = token % FRAGMENT >= TILE;
        Weights::Group own = Weights::group(view, group % GROUPS);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float first = Weights::weight(own, is_lower, 2 * i), second = Weights::weight(own, is_lower, 2 * i + 1);
            pairs[i] = ptx::round_bf16x2(first * scale, second * scale);
        }
    } else if (item % steps == 0) {
        tell_broken(broken, row);
    }
    u8* to = (u8*)(out + (size_t)row * width) + group * GROUP_BYTES;
    Weights::put(to, t, make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
}
