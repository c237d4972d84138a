// Element types and vector access, without any header of the CUDA toolkit: NVRTC alone is enough to compile.
#pragma once

struct alignas(2) Bfloat16 {
    unsigned short bits;
};

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(Bfloat16 value) { return __uint_as_float(unsigned(value.bits) << 16); }

// Loads that stay where they are written: the compiler would move each to its first use, and its latency with it.
__device__ __forceinline__ void load_now(const uint4* from, uint4& to) {
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w) : "l"(from));
}
__device__ __forceinline__ void load_now(const uint2* from, uint2& to) {
    asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(to.x), "=r"(to.y) : "l"(from));
}
__device__ __forceinline__ void load_now(const unsigned int* from, unsigned int& to) {
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(to) : "l"(from));
}
__device__ __forceinline__ void load_now(const unsigned short* from, unsigned short& to) {
    asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(to) : "l"(from));
}

template <int BYTES> struct Word;
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned int; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<16> { using type = uint4; };

// N neighbouring elements, moved in accesses of at most 16 bytes.
template <typename T, int N> struct Vector {
    static constexpr int BYTES = N * sizeof(T);
    static constexpr int ACCESS = BYTES < 16 ? BYTES : 16;
    static constexpr int ACCESSES = BYTES / ACCESS;
    static constexpr bool PAIRS = sizeof(T) == 2 && N % 2 == 0;
    using Access = typename Word<ACCESS>::type;

    union {
        Access accesses[ACCESSES];
        unsigned int words[(BYTES + 3) / 4];
        T values[N];
    };

    __device__ __forceinline__ Vector() {}

    __device__ __forceinline__ void load(const T* __restrict__ from) {
#pragma unroll
        for (int i = 0; i < ACCESSES; ++i) load_now(reinterpret_cast<const Access*>(from) + i, accesses[i]);
    }

    __device__ __forceinline__ void store(T* to) const {
#pragma unroll
        for (int i = 0; i < ACCESSES; ++i) reinterpret_cast<Access*>(to)[i] = accesses[i];
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < (BYTES + 3) / 4; ++i) words[i] = 0;
    }

    // One instruction an element, which the element's own type would take two for.
    __device__ __forceinline__ float operator[](int i) const {
        if constexpr (PAIRS) return __uint_as_float(i % 2 ? words[i / 2] & 0xffff0000u : words[i / 2] << 16);
        else return to_float(values[i]);
    }

    // Round to nearest, ties to even.
    __device__ __forceinline__ void round(const float (&exact)[N]) {
        if constexpr (PAIRS) {
#pragma unroll
            for (int i = 0; i < N / 2; ++i)
                asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(words[i]) : "f"(exact[2 * i + 1]), "f"(exact[2 * i]));
        } else if constexpr (sizeof(T) == 2) {
            asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(values[0].bits) : "f"(exact[0]));
        } else {
#pragma unroll
            for (int i = 0; i < N; ++i) values[i] = exact[i];
        }
    }
};
