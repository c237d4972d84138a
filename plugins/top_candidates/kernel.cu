// The K largest logits of a row, one thread block a row, largest first and of equal ones the lowest id first.
//
// Element type LOGIT; CANDIDATES at most 32; WIDTH logits a row, of which the first VOCABULARY count; VECTOR logits an
// access; THREADS. The row is read twice, the second time from the cache: the first time for a bound that at least K
// logits reach, the second time for those that do.
#include "numbers.cuh"

constexpr unsigned ALL = 0xffffffffu;
constexpr int WARP = 32;
#define LOWEST __int_as_float(0xff800000)
// Lanes whose logits share a maximum: the K-th largest of these maxima is the bound.
constexpr int GROUP = 16;
constexpr int GROUPS = THREADS / GROUP;
// Logits that may reach the bound before a row is taken for one of the rare ones with too many.
constexpr int CAPACITY = 3072;
constexpr int VECTORS = (VOCABULARY + VECTOR - 1) / VECTOR;
// Accesses of a thread that are under way together.
constexpr int AHEAD = 8;

static_assert(CANDIDATES <= GROUPS, "every candidate needs a group");

// Greater for a greater logit, then for a lower id. Adding zero makes -0 equal to 0.
__device__ __forceinline__ unsigned long long key_of(float logit, int id) {
    const unsigned bits = __float_as_uint(logit + 0.0f);
    const unsigned ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return static_cast<unsigned long long>(ordered) << 32 | (0xffffffffu - unsigned(id));
}
__device__ __forceinline__ int id_of(unsigned long long key) { return int(0xffffffffu - unsigned(key)); }

// Calls `visit` with every vector of the row that is this thread's, and the id of its first logit.
template <typename Visit> __device__ __forceinline__ void visit_row(const LOGIT* row, Visit visit) {
    for (int begin = threadIdx.x; begin < VECTORS; begin += THREADS * AHEAD) {
        Vector<LOGIT, VECTOR> loaded[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const int vector = begin + i * THREADS;
            if (vector < VECTORS) loaded[i].load(row + vector * VECTOR);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const int vector = begin + i * THREADS;
            if (vector < VECTORS) visit(loaded[i], vector * VECTOR);
        }
    }
}

__device__ __forceinline__ float largest(const Vector<LOGIT, VECTOR>& logits, int first) {
    float most = LOWEST;
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) {
        if (VOCABULARY % VECTOR == 0 || first + v < VOCABULARY) most = fmaxf(most, logits[v]);
    }
    return most;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) dfc_top_candidates(
    const LOGIT* __restrict__ logits, int rows, LOGIT* __restrict__ values, long long* __restrict__ ids) {
    __shared__ float maxima[GROUPS];
    __shared__ float bound;
    __shared__ int count;
    __shared__ unsigned long long keys[CAPACITY];
    __shared__ unsigned long long of_warps[THREADS / WARP];
    const int lane = threadIdx.x % WARP;
    const LOGIT* row = logits + size_t(blockIdx.x) * WIDTH;
    values += size_t(blockIdx.x) * CANDIDATES;
    ids += size_t(blockIdx.x) * CANDIDATES;
    if (blockIdx.x >= rows) return;

    float most = LOWEST;
    visit_row(row, [&](const Vector<LOGIT, VECTOR>& loaded, int first) { most = fmaxf(most, largest(loaded, first)); });
#pragma unroll
    for (int distance = GROUP / 2; distance > 0; distance /= 2) most = fmaxf(most, __shfl_xor_sync(ALL, most, distance));
    if (threadIdx.x % GROUP == 0) maxima[threadIdx.x / GROUP] = most;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    if (threadIdx.x < GROUPS) {
        const float mine = maxima[threadIdx.x];
        int above = 0;
        for (int other = 0; other < GROUPS; ++other) {
            const float theirs = maxima[other];
            above += theirs > mine || (theirs == mine && other < int(threadIdx.x));
        }
        if (above == CANDIDATES - 1) bound = mine;
    }
    __syncthreads();

    const float least = bound;
    visit_row(row, [&](const Vector<LOGIT, VECTOR>& loaded, int first) {
        if (largest(loaded, first) < least) return;
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) {
            if (first + v < VOCABULARY && loaded[v] >= least) {
                const int place = atomicAdd(&count, 1);
                if (place < CAPACITY) keys[place] = key_of(loaded[v], first + v);
            }
        }
    });
    __syncthreads();

    const int found = count;
    if (found >= CANDIDATES && found <= CAPACITY) {
        for (int place = threadIdx.x; place < found; place += THREADS) {
            const unsigned long long mine = keys[place];
            int rank = 0;
            for (int other = 0; other < found && rank < CANDIDATES; ++other) rank += keys[other] > mine;
            if (rank < CANDIDATES) {
                ids[rank] = id_of(mine);
                values[rank] = row[id_of(mine)];
            }
        }
        return;
    }
    // One candidate after the other: for rows with thousands of equal logits, and for those that are not numbers.
    unsigned long long previous = ~0ull;
    for (int candidate = 0; candidate < CANDIDATES; ++candidate) {
        unsigned long long best = 0;
        visit_row(row, [&](const Vector<LOGIT, VECTOR>& loaded, int first) {
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) {
                const unsigned long long key = key_of(loaded[v], first + v);
                if (first + v < VOCABULARY && key < previous && key > best) best = key;
            }
        });
#pragma unroll
        for (int distance = WARP / 2; distance > 0; distance /= 2) {
            const unsigned long long other = __shfl_xor_sync(ALL, best, distance);
            best = other > best ? other : best;
        }
        if (lane == 0) of_warps[threadIdx.x / WARP] = best;
        __syncthreads();
        previous = 0;
        for (int warp = 0; warp < THREADS / WARP; ++warp) previous = of_warps[warp] > previous ? of_warps[warp] : previous;
        __syncthreads();
        if (threadIdx.x == 0) {
            ids[candidate] = id_of(previous);
            values[candidate] = row[id_of(previous)];
        }
    }
}
