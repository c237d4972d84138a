// Grouped dynamic depthwise convolution over draft blocks (semantics B.3), one row's neighbouring channels a thread.
//
// Element types HIDDEN, COEFFICIENT, BASE, OUTPUT and, where a residual is added, RESIDUAL; sizes WIDTH, TAPS,
// GROUP_SIZE; SIDE 0 or 1; and the tiling that launch.py chooses: VECTOR channels a thread, LANES x ROW_THREADS threads
// a thread block, so that the rows which several taps need come from the cache of the multiprocessor.
#include "numbers.cuh"

constexpr int GROUPS = WIDTH / GROUP_SIZE;
constexpr int CHANNEL_TILES = (WIDTH / VECTOR + LANES - 1) / LANES;
// Coefficients of a thread and tap: one where its channels share a group.
constexpr int COEFFICIENTS = GROUP_SIZE % VECTOR == 0 ? 1 : VECTOR;

extern "C" __global__ void __launch_bounds__(LANES* ROW_THREADS) dfc_grouped_conv(
    const HIDDEN* __restrict__ hidden,
    const COEFFICIENT* __restrict__ coefficients,
    const BASE* __restrict__ base,
#ifdef RESIDUAL
    const RESIDUAL* __restrict__ residual,
#endif
    int rows, int block, OUTPUT* __restrict__ output) {
    const int channel = (int(blockIdx.x % CHANNEL_TILES) * LANES + int(threadIdx.x % LANES)) * VECTOR;
    const int row = int(blockIdx.x / CHANNEL_TILES) * ROW_THREADS + int(threadIdx.x / LANES);
    if (channel >= WIDTH || row >= rows) return;

    // Every load is issued before the first is used: one trip to memory. A row above that turns out to be another
    // block's is loaded all the same, which is cheaper than to wait for the division that tells.
    const size_t index = size_t(row) * WIDTH + channel;
    const COEFFICIENT* dynamic = coefficients + (size_t(row) * 2 + SIDE) * TAPS * GROUPS;
    Vector<HIDDEN, VECTOR> source[TAPS];
    Vector<BASE, VECTOR> fixed[TAPS];
    Vector<COEFFICIENT, 1> varying[TAPS][COEFFICIENTS];
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) {
        source[tap].load(hidden + index - min(tap, row) * WIDTH);
        fixed[tap].load(base + (SIDE * TAPS + tap) * WIDTH + channel);
#pragma unroll
        for (int c = 0; c < COEFFICIENTS; ++c)
            varying[tap][c].load(dynamic + tap * GROUPS + (channel + c) / GROUP_SIZE);
    }
    float total[VECTOR];
#ifdef RESIDUAL
    Vector<RESIDUAL, VECTOR> added;
    added.load(residual + index);
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) total[c] = added[c];
#else
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) total[c] = 0.0f;
#endif

    const int position = row < block ? row : int(unsigned(row) % unsigned(block));
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) {
        if (position < tap) source[tap].clear();
#pragma unroll
        for (int c = 0; c < VECTOR; ++c)
            total[c] += (fixed[tap][c] + varying[tap][c % COEFFICIENTS][0]) * source[tap][c];
    }
    Vector<OUTPUT, VECTOR> result;
    result.round(total);
    result.store(output + index);
}
