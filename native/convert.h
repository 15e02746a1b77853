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

inline void narrow(float a, Bfloat& s) {
    uint32_t u = bits_of(a);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    s.bits = uint16_t((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded);
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

// n storage elements, packed, into accumulators; and back. Loops of one shape, so that the compiler vectorises them.
template <class S, class A> inline void widen_run(const char* from, A* to, int64_t n) {
    for (int64_t k = 0; k < n; ++k) to[k] = widen(read<S>(from + k * int64_t(sizeof(S))));
}
template <> inline void widen_run<float, float>(const char* from, float* to, int64_t n) { std::memcpy(to, from, size_t(n) * 4); }
template <> inline void widen_run<double, double>(const char* from, double* to, int64_t n) { std::memcpy(to, from, size_t(n) * 8); }

template <class S, class A> inline void narrow_run(const A* from, char* to, int64_t n) {
    for (int64_t k = 0; k < n; ++k) { S s; narrow(from[k], s); write(to + k * int64_t(sizeof(S)), s); }
}
template <> inline void narrow_run<float, float>(const float* from, char* to, int64_t n) { std::memcpy(to, from, size_t(n) * 4); }
template <> inline void narrow_run<double, double>(const double* from, char* to, int64_t n) { std::memcpy(to, from, size_t(n) * 8); }

#if defined(__AVX2__) && (defined(__F16C__) || defined(_MSC_VER))
template <> inline void widen_run<Half, float>(const char* from, float* to, int64_t n) {
    int64_t k = 0;
    for (; k + 8 <= n; k += 8)
        _mm256_storeu_ps(to + k, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * k))));
    for (; k < n; ++k) to[k] = widen(read<Half>(from + 2 * k));
}
template <> inline void narrow_run<Half, float>(const float* from, char* to, int64_t n) {
    int64_t k = 0;
    for (; k + 8 <= n; k += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * k), _mm256_cvtps_ph(_mm256_loadu_ps(from + k), _MM_FROUND_TO_NEAREST_INT));
    for (; k < n; ++k) { Half s; narrow(from[k], s); write(to + 2 * k, s); }
}
#endif

}  // namespace PG_ISA
}  // namespace poolgrad
