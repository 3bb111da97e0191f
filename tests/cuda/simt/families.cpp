// Inputs, launches and references of the families.
#include "families.h"

#include <cmath>
#include <cstring>
#include <random>

#include "device_memory.h"

namespace check {

constexpr float TOLERANCE = 1e-5f;

// Launches a kernel with pointers to its arguments.
template <class... Arguments>
static simt::Result launch(const Kernel& kernel, simt::Extent grid, simt::Extent block, size_t dynamic_shared_bytes,
                           Arguments... arguments) {
    void* pointers[] = {&arguments...};
    simt::Launch launch;
    launch.name = kernel.name.c_str();
    launch.thunk = kernel.thunk;
    launch.module = kernel.module;
    launch.arguments = pointers;
    launch.grid = grid;
    launch.block = block;
    launch.dynamic_shared_bytes = dynamic_shared_bytes;
    return simt::run_grid(launch);
}

// Returns numbers between -1 and 1, the same ones each time.
static std::vector<float> random_numbers(size_t count, unsigned seed) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<float> distribution(-1.0f, 1.0f);
    std::vector<float> numbers(count);
    for (float& number : numbers) number = distribution(generator);
    return numbers;
}

// Cuts a number to bf16, and widens one.
static unsigned short to_bf16(float number) {
    unsigned bits;
    memcpy(&bits, &number, sizeof bits);
    return static_cast<unsigned short>(bits >> 16);
}
static float from_bf16(unsigned short number) {
    const unsigned bits = static_cast<unsigned>(number) << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

static std::vector<unsigned short> random_bf16(size_t count, unsigned seed) {
    std::vector<unsigned short> numbers;
    for (const float number : random_numbers(count, seed)) numbers.push_back(to_bf16(number));
    return numbers;
}

// Says whether two numbers are close. NaN is close to nothing.
static bool close(double a, double b) { return std::fabs(a - b) <= TOLERANCE * (1.0 + std::fabs(b)); }

static Verdict run_norm(const Kernel& kernel) {
    const int rows = 5, width = 200;
    Array<float> in(random_numbers(rows * width, 1)), out(rows * width);
    Verdict verdict{launch(kernel, {rows}, {128}, 0, out.data(), in.data(), width), true};
    for (int row = 0; row < rows; row++) {
        double sum = 0.0;
        for (int i = 0; i < width; i++) sum += double{in[row * width + i]} * in[row * width + i];
        const double scale = 1.0 / std::sqrt(sum / width + 1e-5);
        for (int i = 0; i < width; i++) {
            verdict.numbers_right &= close(out[row * width + i], in[row * width + i] * scale);
        }
    }
    return verdict;
}

static Verdict run_pipeline(const Kernel& kernel) {
    const int threads = 64, tile = threads * 4, tiles = 5;
    // Room for copies that are off by one, so that only their alignment is wrong.
    Array<float> in(random_numbers(tile * tiles + 4, 2)), out(threads);
    Verdict verdict{launch(kernel, {1}, {threads}, 0, out.data(), in.data(), tiles), true};
    for (int thread = 0; thread < threads; thread++) {
        double sum = 0.0;
        for (int t = 0; t < tiles; t++) {
            for (int i = 0; i < 4; i++) sum += in[t * tile + (thread ^ 33) * 4 + i];
        }
        verdict.numbers_right &= close(out[thread], sum);
    }
    return verdict;
}

// Checks C = A * B.
static bool check_product(const Array<float>& c, const Array<unsigned short>& a, const Array<unsigned short>& b, int m,
                          int n, int k) {
    for (int row = 0; row < m; row++) {
        for (int column = 0; column < n; column++) {
            double sum = 0.0;
            for (int i = 0; i < k; i++) sum += double{from_bf16(a[row * k + i])} * from_bf16(b[i * n + column]);
            if (!close(c[row * n + column], sum)) return false;
        }
    }
    return true;
}

static Verdict run_tile(const Kernel& kernel) {
    Array<unsigned short> a(random_bf16(16 * 16, 3)), b(random_bf16(16 * 8, 4));
    Array<float> c(16 * 8);
    Verdict verdict{launch(kernel, {1}, {32}, 0, c.data(), a.data(), b.data()), false};
    verdict.numbers_right = check_product(c, a, b, 16, 8, 16);
    return verdict;
}

static Verdict run_product(const Kernel& kernel) {
    const int m = 70, n = 128, k = 96;
    Array<unsigned short> a(random_bf16(m * k, 5)), b(random_bf16(k * n, 6));
    Array<float> c(m * n);
    const simt::Extent grid = {n / 64, (m + 63) / 64};
    Verdict verdict{launch(kernel, grid, {128}, 0, c.data(), a.data(), b.data(), m, n, k), false};
    verdict.numbers_right = check_product(c, a, b, m, n, k);
    return verdict;
}

static Verdict run_attention(const Kernel& kernel) {
    const int sequences = 4, head = 64, page = 16, pages = 6;
    const std::vector<int> lengths = {1, 16, 50, 96};
    Array<float> query(random_numbers(sequences * head, 7)), out(sequences * head);
    Array<float> keys(random_numbers(sequences * pages * page * head, 8));
    Array<float> values(random_numbers(sequences * pages * page * head, 9));
    std::vector<int> table(sequences * pages);
    for (int i = 0; i < sequences * pages; i++) table[i] = sequences * pages - 1 - i;
    Array<int> table_array(table), lengths_array(lengths);
    Verdict verdict{launch(kernel, {sequences}, {128}, 4 * 2 * page * head * sizeof(float), out.data(), query.data(),
                           keys.data(), values.data(), table_array.data(), lengths_array.data(), pages),
                    true};
    for (int s = 0; s < sequences; s++) {
        std::vector<double> weights(lengths[s]), result(head, 0.0);
        double total = 0.0;
        for (int t = 0; t < lengths[s]; t++) {
            const size_t base = (static_cast<size_t>(table[s * pages + t / page]) * page + t % page) * head;
            double score = 0.0;
            for (int d = 0; d < head; d++) score += double{query[s * head + d]} * keys[base + d];
            const double weight = std::exp(score);
            total += weight;
            for (int d = 0; d < head; d++) result[d] += weight * values[base + d];
        }
        for (int d = 0; d < head; d++) verdict.numbers_right &= close(out[s * head + d], result[d] / total);
    }
    return verdict;
}

// Launches twice, so that a ticket that is not reset shows.
static Verdict run_total(const Kernel& kernel) {
    const int blocks = 7;
    Array<float> in(random_numbers(blocks * 64, 10)), partial(blocks * 2), out(1);
    Array<unsigned> ticket(std::vector<unsigned>{0});
    double sum = 0.0;
    for (size_t i = 0; i < in.size(); i++) sum += in[i];
    Verdict verdict{{}, true};
    for (int repeat = 0; repeat < 2 && verdict.result.ok(); repeat++) {
        out[0] = NAN;
        verdict.result = launch(kernel, {blocks}, {64}, 0, out.data(), partial.data(), ticket.data(), in.data());
        verdict.numbers_right &= close(out[0], sum);
    }
    return verdict;
}

static Verdict run_reverse(const Kernel& kernel) {
    const int blocks = 3;
    Array<float> in(random_numbers(blocks * 64, 11)), out(blocks * 64);
    Verdict verdict{launch(kernel, {blocks}, {64}, 64 * sizeof(float), out.data(), in.data()), true};
    for (size_t i = 0; i < in.size(); i++) verdict.numbers_right &= out[i] == in[i / 32 * 32 + 31 - i % 32];
    return verdict;
}

static Verdict run_histogram(const Kernel& kernel) {
    const unsigned blocks = 4;
    std::vector<unsigned> expected(16, 0), numbers;
    for (unsigned i = 0; i < blocks * 64; i++) {
        numbers.push_back(i * i);
        expected[i * i % 16]++;
    }
    Array<unsigned> in(numbers), counts(std::vector<unsigned>(16, 0));
    Verdict verdict{launch(kernel, {blocks}, {64}, 0, counts.data(), in.data()), true};
    for (size_t i = 0; i < 16; i++) verdict.numbers_right &= counts[i] == expected[i];
    return verdict;
}

static Verdict run_exchange(const Kernel& kernel) {
    Array<float> in(random_numbers(64, 12)), out(64);
    Verdict verdict{launch(kernel, {1}, {64}, 0, out.data(), in.data()), true};
    for (size_t i = 0; i < 64; i++) {
        const size_t lane = i % 32;
        const float expected = lane < 16 ? in[i - lane + (lane + 1) % 16] : in[i];
        verdict.numbers_right &= out[i] == expected;
    }
    return verdict;
}

static Verdict run_neighbours(const Kernel& kernel) {
    const int count = 150;
    Array<float> in(random_numbers(count, 13)), out(count);
    Verdict verdict{launch(kernel, {3}, {64}, 0, out.data(), in.data(), count), true};
    for (int i = 0; i < count; i++) {
        verdict.numbers_right &= out[i] == in[i] + (i + 1 < count ? in[i + 1] : 0.0f);
    }
    return verdict;
}

static Verdict run_wide(const Kernel& kernel) {
    const int blocks = 2;
    // Room for loads that are off by one, so that only their alignment is wrong.
    Array<float> in(random_numbers(blocks * 64 * 4 + 4, 14)), out(blocks * 64 * 4);
    Verdict verdict{launch(kernel, {blocks}, {64}, 0, out.data(), in.data()), true};
    for (size_t i = 0; i < out.size(); i++) verdict.numbers_right &= out[i] == 2 * in[i];
    return verdict;
}

static Verdict run_dependent(const Kernel& kernel) {
    const int blocks = 3, count = blocks * 64;
    Array<float> earlier(random_numbers(count, 15)), weights(random_numbers(count, 16)), out(count);
    float *out_data = out.data(), *earlier_data = earlier.data(), *weights_data = weights.data();
    void* pointers[] = {&out_data, &earlier_data, &weights_data};
    simt::Launch launch;
    launch.name = kernel.name.c_str();
    launch.thunk = kernel.thunk;
    launch.module = kernel.module;
    launch.arguments = pointers;
    launch.grid = {blocks};
    launch.block = {64};
    launch.dependent = true;
    launch.pending = {earlier.interval()};
    Verdict verdict{simt::run_grid(launch), true};
    for (int i = 0; i < count; i++) verdict.numbers_right &= out[i] == earlier[i] * weights[i];
    return verdict;
}

static Verdict run_intrinsics(const Kernel& kernel) {
    const size_t groups = 5;
    Array<int> out(groups);
    Verdict verdict{launch(kernel, {1}, {32}, 0, out.data()), true};
    for (size_t i = 0; i < groups; i++) verdict.numbers_right &= out[i] == 1;
    return verdict;
}

static Verdict run_padding(const Kernel& kernel) {
    Array<unsigned long long> out(32);
    Verdict verdict{launch(kernel, {1}, {32}, 0, out.data()), true};
    for (size_t i = 0; i < out.size(); i++) verdict.numbers_right &= out[i] == 12;
    return verdict;
}

Family find_family(const std::string& name) {
    static const struct {
        const char* name;
        Family family;
    } families[] = {
        {"norm", run_norm},           {"pipeline", run_pipeline},   {"tile", run_tile},
        {"product", run_product},     {"attention", run_attention}, {"total", run_total},
        {"reverse", run_reverse},     {"histogram", run_histogram}, {"exchange", run_exchange},
        {"neighbours", run_neighbours}, {"wide", run_wide},         {"dependent", run_dependent},
        {"intrinsics", run_intrinsics}, {"padding", run_padding},
    };
    for (const auto& entry : families) {
        if (name == entry.name) return entry.family;
    }
    return nullptr;
}

}  // namespace check
