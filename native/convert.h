// Storage types and the accumulator each is computed in: float16 and bfloat16 in float32, the others in themselves.
// Widening is exact; narrowing rounds to nearest, ties to even, once.
#pragma once

#include "simd.h"

namespace poolgrad {
namespace PG_ISA {

struct Half { uint16_t bits; };
struct Bfloat { uint16_t bits; };

template <class S> struct AccumulatorOf { using type = S; };
template <> struct AccumulatorOf<Half> { using type = float; };
template <> struct AccumulatorOf<Bfloat> { using type = float; };

inline uint32_t bits_of(float f) { uint32_t u; std::memcpy(&u, &f, 4); return u; }
inline float float_of(uint32_t u) { float f; std::memcpy(&f, &u, 4); return f; }

inline float widen(float s) { return s; }
inline double widen(double s) { return s; }
inline float widen(Bfloat s) { return float_of(uint32_t(s.bits) << 16); }

inline float widen(Half s) {
    // Shift the half's exponent and fraction into place, then rescale; infinities and NaNs need their exponent filled.
    uint32_t body = uint32_t(s.bits & 0x7fff) << 13, sign = uint32_t(s.bits & 0x8000) << 16;
    float f = float_of(body) * 0x1p112f;
    uint32_t u = (s.bits & 0x7c00) == 0x7c00 ? body | 0x7f800000u : bits_of(f);
    return float_of(u | sign);
}

inline void narrow(float a, float& s) { s = a; }
inline void narrow(double a, double& s) { s = a; }

// What is not a number has come from storage or from arithmetic: its lower half is zero, and it stays what it is.
inline void narrow(float a, Bfloat& s) {
    const uint32_t u = bits_of(a);
    s.bits = uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline void narrow(float a, Half& s) {
    uint32_t u = bits_of(a), sign = (u >> 16) & 0x8000u, body = u & 0x7fffffffu;
    // Below the smallest normal half, adding a power of two lets the hardware round at the right bit.
    uint32_t small = bits_of(float_of(body) + 0.5f) - 0x3f000000u;
    uint32_t normal = (body - 0x38000000u + 0xfffu + ((body >> 13) & 1u)) >> 13;
    uint32_t h = body < 0x38800000u ? small : normal;
    h = body >= 0x477ff000u ? 0x7c00u : h;
    h = body > 0x7f800000u ? 0x7e00u : h;
    s.bits = uint16_t(h | sign);
}

template <class S> inline S read(const char* p) { S s; std::memcpy(&s, p, sizeof s); return s; }
template <class S> inline void write(char* p, S s) { std::memcpy(p, &s, sizeof s); }

// Two vectors of accumulators as one vector's worth of storage elements.
#if defined(__AVX512F__)
alignas(64) constexpr uint16_t ODD[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                          33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
alignas(64) constexpr uint16_t TWICE[32] = {0, 0, 1, 1, 2,  2,  3,  3,  4,  4,  5,  5,  6,  6,  7,  7,
                                            8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15};
template <class S> PG_INLINE Vec<float> narrow_pair(Vec<float> a, Vec<float> b);
template <> PG_INLINE Vec<float> narrow_pair<Half>(Vec<float> a, Vec<float> b) {
    const __m256i low = _mm512_cvtps_ph((__m512)a, _MM_FROUND_TO_NEAREST_INT), high = _mm512_cvtps_ph((__m512)b, _MM_FROUND_TO_NEAREST_INT);
    return (Vec<float>)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
// The upper halves are the rounded numbers.
PG_INLINE __m512i round_bfloat(Vec<float> a) {
    const __m512i u = (__m512i)a, up = _mm512_add_epi32(u, _mm512_set1_epi32(0x7fff));
    return _mm512_mask_add_epi32(up, _mm512_test_epi32_mask(u, _mm512_set1_epi32(0x10000)), u, _mm512_set1_epi32(0x8000));
}
template <> PG_INLINE Vec<float> narrow_pair<Bfloat>(Vec<float> a, Vec<float> b) {
    return (Vec<float>)_mm512_permutex2var_epi16(round_bfloat(a), _mm512_load_si512(ODD), round_bfloat(b));
}
// A vector of accumulators as storage elements, each of them twice.
template <class S> PG_INLINE Vec<float> narrow_twice(Vec<float> a);
template <> PG_INLINE Vec<float> narrow_twice<Half>(Vec<float> a) {
    const __m512i x = _mm512_castsi256_si512(_mm512_cvtps_ph((__m512)a, _MM_FROUND_TO_NEAREST_INT));
    return (Vec<float>)_mm512_permutexvar_epi16(_mm512_load_si512(TWICE), x);
}
template <> PG_INLINE Vec<float> narrow_twice<Bfloat>(Vec<float> a) {
    const __m512i x = round_bfloat(a);
    return (Vec<float>)_mm512_mask_blend_epi16(0x55555555, x, _mm512_srli_epi32(x, 16));
}
// Two vectors of accumulators as storage elements: a0 b0 a1 b1 ...
template <class S> PG_INLINE Vec<float> narrow_interleaved(Vec<float> a, Vec<float> b);
template <> PG_INLINE Vec<float> narrow_interleaved<Half>(Vec<float> a, Vec<float> b) {
    const __m512i even = _mm512_cvtepu16_epi32(_mm512_cvtps_ph((__m512)a, _MM_FROUND_TO_NEAREST_INT));
    const __m512i odd = _mm512_cvtepu16_epi32(_mm512_cvtps_ph((__m512)b, _MM_FROUND_TO_NEAREST_INT));
    return (Vec<float>)_mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
}
template <> PG_INLINE Vec<float> narrow_interleaved<Bfloat>(Vec<float> a, Vec<float> b) {
    return (Vec<float>)_mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(round_bfloat(a), 16), round_bfloat(b));
}
PG_INLINE Vec<float> widen_vector(const char* p, Half) { return (Vec<float>)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
PG_INLINE Vec<float> widen_vector(const char* p, Bfloat) {
    const __m512i x = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return (Vec<float>)_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, _mm512_load_si512(TWICE), x);
}
#elif defined(__AVX2__) && (defined(__F16C__) || defined(_MSC_VER)) && (defined(__GNUC__) || defined(__clang__))
template <class S> PG_INLINE Vec<float> narrow_pair(Vec<float> a, Vec<float> b);
template <> PG_INLINE Vec<float> narrow_pair<Half>(Vec<float> a, Vec<float> b) {
    return (Vec<float>)_mm256_set_m128i(_mm256_cvtps_ph((__m256)b, _MM_FROUND_TO_NEAREST_INT), _mm256_cvtps_ph((__m256)a, _MM_FROUND_TO_NEAREST_INT));
}
PG_INLINE __m256i round_bfloat(__m256 a) {
    const __m256i u = _mm256_castps_si256(a), even = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    return _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff))), 16);
}
template <> PG_INLINE Vec<float> narrow_pair<Bfloat>(Vec<float> a, Vec<float> b) {
    return (Vec<float>)_mm256_permute4x64_epi64(_mm256_packus_epi32(round_bfloat((__m256)a), round_bfloat((__m256)b)), 0xd8);
}
template <class S> PG_INLINE Vec<float> narrow_twice(Vec<float> a);
template <> PG_INLINE Vec<float> narrow_twice<Half>(Vec<float> a) {
    const __m128i x = _mm256_cvtps_ph((__m256)a, _MM_FROUND_TO_NEAREST_INT);
    return (Vec<float>)_mm256_set_m128i(_mm_unpackhi_epi16(x, x), _mm_unpacklo_epi16(x, x));
}
template <> PG_INLINE Vec<float> narrow_twice<Bfloat>(Vec<float> a) {
    const __m256i x = round_bfloat((__m256)a);
    return (Vec<float>)_mm256_or_si256(x, _mm256_slli_epi32(x, 16));
}
template <class S> PG_INLINE Vec<float> narrow_interleaved(Vec<float> a, Vec<float> b);
template <> PG_INLINE Vec<float> narrow_interleaved<Half>(Vec<float> a, Vec<float> b) {
    const __m128i even = _mm256_cvtps_ph((__m256)a, _MM_FROUND_TO_NEAREST_INT), odd = _mm256_cvtps_ph((__m256)b, _MM_FROUND_TO_NEAREST_INT);
    return (Vec<float>)_mm256_set_m128i(_mm_unpackhi_epi16(even, odd), _mm_unpacklo_epi16(even, odd));
}
template <> PG_INLINE Vec<float> narrow_interleaved<Bfloat>(Vec<float> a, Vec<float> b) {
    return (Vec<float>)_mm256_or_si256(round_bfloat((__m256)a), _mm256_slli_epi32(round_bfloat((__m256)b), 16));
}
PG_INLINE Vec<float> widen_vector(const char* p, Half) { return (Vec<float>)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
PG_INLINE Vec<float> widen_vector(const char* p, Bfloat) {
    return (Vec<float>)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16);
}
#else
template <class S> inline Vec<float> narrow_pair(Vec<float> a, Vec<float> b) {
    float in[2 * LANES<float>];
    S out[2 * LANES<float>];
    store(in, a);
    store(in + LANES<float>, b);
    for (int k = 0; k < 2 * LANES<float>; ++k) narrow(in[k], out[k]);
    Vec<float> v;
    std::memcpy(&v, out, sizeof v);
    return v;
}
template <class S> inline Vec<float> narrow_twice(Vec<float> a) {
    float in[LANES<float>];
    S out[2 * LANES<float>];
    store(in, a);
    for (int k = 0; k < LANES<float>; ++k) { narrow(in[k], out[2 * k]); out[2 * k + 1] = out[2 * k]; }
    Vec<float> v;
    std::memcpy(&v, out, sizeof v);
    return v;
}
template <class S> inline Vec<float> narrow_interleaved(Vec<float> a, Vec<float> b) {
    float even[LANES<float>], odd[LANES<float>];
    S out[2 * LANES<float>];
    store(even, a);
    store(odd, b);
    for (int k = 0; k < LANES<float>; ++k) { narrow(even[k], out[2 * k]); narrow(odd[k], out[2 * k + 1]); }
    Vec<float> v;
    std::memcpy(&v, out, sizeof v);
    return v;
}
template <class S> inline Vec<float> widen_vector(const char* p, S) {
    float v[LANES<float>];
    for (int k = 0; k < LANES<float>; ++k) v[k] = widen(read<S>(p + k * int64_t(sizeof(S))));
    return load(v);
}
#endif

// A vector of accumulators from storage, packed at p.
template <class S, class A> PG_INLINE Vec<A> load_wide(const char* p) {
    if constexpr (sizeof(S) == sizeof(A)) { Vec<A> v; std::memcpy(&v, p, sizeof v); return v; }
    else return widen_vector(p, S());
}

// n storage elements, packed, into accumulators; and back.
template <class S, class A> inline void widen_run(const char* from, A* to, int64_t n) {
    if constexpr (sizeof(S) == sizeof(A)) {
        std::memcpy(to, from, size_t(n) * sizeof(A));
    } else {
        int64_t k = 0;
        for (; k + LANES<A> <= n; k += LANES<A>) store(to + k, load_wide<S, A>(from + k * int64_t(sizeof(S))));
        for (; k < n; ++k) to[k] = widen(read<S>(from + k * int64_t(sizeof(S))));
    }
}

template <class S, class A> inline void narrow_run(const A* from, char* to, int64_t n) {
    if constexpr (sizeof(S) == sizeof(A)) {
        std::memcpy(to, from, size_t(n) * sizeof(A));
    } else {
        constexpr int64_t v = LANES<A>;
        int64_t k = 0;
        for (; k + 2 * v <= n; k += 2 * v) {
            const Vec<float> both = narrow_pair<S>(load(from + k), load(from + k + v));
            std::memcpy(to + k * int64_t(sizeof(S)), &both, sizeof both);
        }
        for (; k < n; ++k) { S s; narrow(from[k], s); write(to + k * int64_t(sizeof(S)), s); }
    }
}

// n accumulators as storage elements of half their size, each of them twice. `past`: past the caches; then they are whole vectors, and
// `to` is aligned to a line.
template <class S> inline void narrow_run_twice(const float* from, char* to, int64_t n, bool past) {
    constexpr int64_t v = LANES<float>, item = sizeof(float);
    auto put = [&](int64_t k) PG_INLINED {
        const Vec<float> both = narrow_twice<S>(load(from + k));
        if (past) return stream(reinterpret_cast<float*>(to + k * item), both);
        ask_to_write(to + k * item);
        std::memcpy(to + k * item, &both, sizeof both);
    };
    int64_t k = 0;
    for (; k + v <= n; k += v) put(k);
    if (k < n && n >= v) return put(n - v);  // overlaps its neighbour
    for (S s; k < n; ++k) {
        narrow(from[k], s);
        write(to + k * item, s);
        write(to + k * item + int64_t(sizeof s), s);
    }
}

}  // namespace PG_ISA
}  // namespace poolgrad
