// Walk over the candidates of a draft block's slots (semantics B.4): one thread block a row, one warp a candidate.
//
// Element types ID, LOGIT, PROJECTED, CODEBOOK; sizes CANDIDATES (at most 32) and RANK; SAMPLED 0 or 1; and what
// launch.py chooses: VECTOR elements an access; AHEAD 1 where a slot's rows are loaded while the one before is decided,
// and the predecessor rows of all candidates wait in shared memory for the choice.
#include "numbers.cuh"

constexpr int WARP = 32;
constexpr unsigned ALL = 0xffffffffu;
constexpr int PIECES = (RANK + WARP * VECTOR - 1) / (WARP * VECTOR);
constexpr int LINE = 128;

// A lane's share of a codebook row: element (piece * WARP + lane) * VECTOR + v.
struct Share {
    Vector<CODEBOOK, VECTOR> pieces[PIECES];

    __device__ __forceinline__ void load(const CODEBOOK* codebook, long long token, int piece, int lane) {
        const int element = (piece * WARP + lane) * VECTOR;
        if (element < RANK) pieces[piece].load(codebook + token * RANK + element);
        else pieces[piece].clear();
    }

    __device__ __forceinline__ void load(const CODEBOOK* codebook, long long token, int lane) {
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) load(codebook, token, piece, lane);
    }
};

__device__ __forceinline__ void prefetch_line(const char* address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

__device__ __forceinline__ void prefetch(const CODEBOOK* codebook, long long token, int lane) {
    const char* row = reinterpret_cast<const char*>(codebook + token * RANK);
    for (int byte = lane * LINE; byte < RANK * int(sizeof(CODEBOOK)); byte += WARP * LINE) prefetch_line(row + byte);
}

// A slot's candidate of this warp: what its score and those of the next slot need.
struct Candidate {
    Share successor;
    Share predecessor;
    Vector<PROJECTED, VECTOR> projected[PIECES];
};

__device__ __forceinline__ void load_projected(
    const PROJECTED* row, int piece, int lane, Vector<PROJECTED, VECTOR>& projected) {
    const int element = (piece * WARP + lane) * VECTOR;
    if (element < RANK) projected.load(row + element);
    else projected.clear();
}

// Numbers in the order of the scores they stand for; adding zero makes -0 equal to 0.
__device__ __forceinline__ unsigned order(float score) {
    const unsigned bits = __float_as_uint(score + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float score_of(unsigned ordered) {
    return __uint_as_float(ordered & 0x80000000u ? ordered ^ 0x80000000u : ~ordered);
}

extern "C" __global__ void __launch_bounds__(WARP* CANDIDATES, 1) dfc_candidate_selector(
    const ID* __restrict__ candidate_ids,
    const LOGIT* __restrict__ candidate_logits,
    const PROJECTED* __restrict__ projected,
    const CODEBOOK* __restrict__ predecessor_codebook,
    const CODEBOOK* __restrict__ successor_codebook,
    const ID* __restrict__ anchor,
#if SAMPLED
    const float* __restrict__ temperature,
    const float* __restrict__ uniforms,
#endif
    int slots, ID* __restrict__ tokens
#if SAMPLED
    , float* __restrict__ q
#endif
) {
    // Two of each, for slots of even and odd number: what one slot reads, the next does not overwrite.
    __shared__ float scores[2][CANDIDATES];
    __shared__ ID ids[2][CANDIDATES];
#if AHEAD
    __shared__ Share predecessors[2][CANDIDATES][WARP];
#endif
    const int row = blockIdx.x;
    const int candidate = threadIdx.x / WARP;
    const int lane = threadIdx.x % WARP;
    const bool valid = lane < CANDIDATES;
    projected += size_t(row) * slots * RANK;

    // Lane s has what the warp's candidate needs in slot s.
    ID id_of_slot = 0;
    float logit_of_slot = 0.0f;
    if (lane < slots) {
        const size_t index = (size_t(row) * slots + lane) * CANDIDATES + candidate;
        id_of_slot = candidate_ids[index];
        logit_of_slot = to_float(candidate_logits[index]);
    }
#if SAMPLED
    const float heat = temperature[row];
    // e^x = 2^(x / ln 2); the bound keeps the quotient finite.
    const float bits_per_score = 1.44269504f / fmaxf(heat, 1e-30f);
    const float uniform_of_slot = lane < slots ? uniforms[size_t(row) * slots + lane] : 0.0f;
#endif
    Share before;
    before.load(predecessor_codebook, anchor[row], lane);
#if AHEAD
    Candidate current;
    auto load_candidate = [&](int slot) {
        const ID id = __shfl_sync(ALL, id_of_slot, slot);
        current.successor.load(successor_codebook, id, lane);
        current.predecessor.load(predecessor_codebook, id, lane);
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece)
            load_projected(projected + slot * RANK, piece, lane, current.projected[piece]);
    };
    load_candidate(0);
#endif
    // The rows of later slots, asked for all at once, come from the L2 cache when their turn is.
    for (int slot = 1; slot < slots; ++slot) {
        const ID id = __shfl_sync(ALL, id_of_slot, slot);
        prefetch(successor_codebook, id, lane);
        if (slot + 1 < slots) prefetch(predecessor_codebook, id, lane);
    }
    for (int byte = threadIdx.x * LINE; byte < slots * RANK * int(sizeof(PROJECTED)); byte += WARP * CANDIDATES * LINE)
        prefetch_line(reinterpret_cast<const char*>(projected) + byte);

    for (int slot = 0; slot < slots; ++slot) {
        const int parity = slot % 2;
        const ID id = __shfl_sync(ALL, id_of_slot, slot);
        float score = 0.0f;
#if AHEAD
        float weights[PIECES][VECTOR];
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
#pragma unroll
            for (int v = 0; v < VECTOR; ++v)
                weights[piece][v] = current.successor.pieces[piece][v] * current.projected[piece][v];
        }
        predecessors[parity][candidate][lane] = current.predecessor;
        if (slot + 1 < slots) load_candidate(slot + 1);
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) score += before.pieces[piece][v] * weights[piece][v];
        }
#else
        // One piece at a time: there are not the registers for whole rows.
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            Share successor;
            Vector<PROJECTED, VECTOR> factors;
            successor.load(successor_codebook, id, piece, lane);
            load_projected(projected + slot * RANK, piece, lane, factors);
#pragma unroll
            for (int v = 0; v < VECTOR; ++v)
                score += before.pieces[piece][v] * factors[v] * successor.pieces[piece][v];
        }
#endif
#pragma unroll
        for (int distance = WARP / 2; distance > 0; distance /= 2) score += __shfl_xor_sync(ALL, score, distance);
        score += __shfl_sync(ALL, logit_of_slot, slot);
        if (lane == 0) {
            scores[parity][candidate] = score;
            ids[parity][candidate] = id;
        }
        __syncthreads();

        // Every warp makes the same choice, which saves telling them. The lowest of the best candidates wins.
        score = valid ? scores[parity][lane] : 0.0f;
        const unsigned ordered = valid ? order(score) : 0u;
        const unsigned highest = __reduce_max_sync(ALL, ordered);
        int choice = __ffs(__ballot_sync(ALL, ordered == highest)) - 1;
#if SAMPLED
        float probability = lane == choice ? 1.0f : 0.0f;
        if (heat > 0.0f) {
            const float weight = valid ? exp2f((score - score_of(highest)) * bits_per_score) : 0.0f;
            float cumulative = weight;
#pragma unroll
            for (int distance = 1; distance < CANDIDATES; distance *= 2) {
                const float lower = __shfl_up_sync(ALL, cumulative, distance);
                if (lane >= distance) cumulative += lower;
            }
            const float total = __shfl_sync(ALL, cumulative, CANDIDATES - 1);
            const float passed = __shfl_sync(ALL, uniform_of_slot, slot) * total;
            // Rounding must not carry the draw past the last candidate that has any probability.
            const int last = max(31 - __clz(__ballot_sync(ALL, weight > 0.0f)), 0);
            choice = min(__popc(__ballot_sync(ALL, valid && passed >= cumulative)), last);
            probability = __fdividef(weight, total);
        }
        if (candidate == 0 && valid) q[(size_t(row) * slots + slot) * CANDIDATES + lane] = probability;
#endif
        const ID token = ids[parity][choice];
        if (threadIdx.x == 0) tokens[size_t(row) * slots + slot] = token;
#if AHEAD
        before = predecessors[parity][choice][lane];
#else
        before.load(predecessor_codebook, token, lane);
#endif
    }
}
