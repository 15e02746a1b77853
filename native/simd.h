// Vectors as wide as the instruction set this file is compiled for, and nothing that depends on which one that is.
//
// Everything lives in a namespace named after the instruction set, so that one source can be compiled several times and
// the linker can never pick a wide copy of an inline function for a narrow machine. For the same reason the kernels use
// nothing of the standard library but element access, which is always inlined.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__SSE2__) || defined(_M_X64)
#include <immintrin.h>
#endif

#ifndef PG_ISA
#define PG_ISA baseline
#endif

// PG_INLINE and PG_APART, which is never inlined, stand before a function, PG_INLINED behind the parameters of a lambda.
#if defined(__GNUC__) || defined(__clang__)
#define PG_INLINE inline __attribute__((always_inline))
#define PG_INLINED __attribute__((always_inline))
#define PG_APART inline __attribute__((noinline))
#elif defined(_MSC_VER)
#define PG_INLINE __forceinline
#define PG_INLINED
#define PG_APART __declspec(noinline)
#else
#define PG_INLINE inline
#define PG_INLINED
#define PG_APART inline
#endif

namespace poolgrad {
namespace PG_ISA {

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
#elif defined(__AVX2__)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif

constexpr int64_t LINE = 64;

template <class A> constexpr int LANES = VECTOR_BYTES / int(sizeof(A));

#if defined(__GNUC__) || defined(__clang__)
template <class A> struct VecOf { typedef A type __attribute__((vector_size(VECTOR_BYTES))); };
template <class A> using Vec = typename VecOf<A>::type;
template <class A> PG_INLINE Vec<A> splat(A a) { return a - Vec<A>{}; }
#else
template <class A> struct Vec {
    A v[LANES<A>];
    Vec operator+(const Vec& o) const { Vec r; for (int i = 0; i < LANES<A>; ++i) r.v[i] = v[i] + o.v[i]; return r; }
    Vec operator*(const Vec& o) const { Vec r; for (int i = 0; i < LANES<A>; ++i) r.v[i] = v[i] * o.v[i]; return r; }
    Vec operator/(const Vec& o) const { Vec r; for (int i = 0; i < LANES<A>; ++i) r.v[i] = v[i] / o.v[i]; return r; }
};
template <class A> inline Vec<A> splat(A a) { Vec<A> r; for (int i = 0; i < LANES<A>; ++i) r.v[i] = a; return r; }
#endif

// function(0), function(1), ... function(N-1), with numbers that the compiler knows: arrays that are indexed with these stay in registers.
template <int N, class F> PG_INLINE void each(const F& function) {
    if constexpr (N > 0) {
        each<N - 1>(function);
        function(std::integral_constant<int, N - 1>());
    }
}

template <class A> PG_INLINE Vec<A> load(const A* p) { Vec<A> v; std::memcpy(&v, p, sizeof v); return v; }
template <class A> PG_INLINE void store(A* p, Vec<A> v) { std::memcpy(p, &v, sizeof v); }

// A store that goes past the caches; p must be aligned to the vector. Machines without one use a plain store.
template <class A> PG_INLINE void stream(A* p, Vec<A> v) {
#if defined(__AVX512F__)
    __m512i x; std::memcpy(&x, &v, sizeof x); _mm512_stream_si512(reinterpret_cast<__m512i*>(p), x);
#elif defined(__AVX2__)
    __m256i x; std::memcpy(&x, &v, sizeof x); _mm256_stream_si256(reinterpret_cast<__m256i*>(p), x);
#elif defined(__SSE2__) || defined(_M_X64)
    __m128i x; std::memcpy(&x, &v, sizeof x); _mm_stream_si128(reinterpret_cast<__m128i*>(p), x);
#else
    store(p, v);
#endif
}

inline void stream_fence() {
#if defined(__SSE2__) || defined(_M_X64)
    _mm_sfence();
#endif
}

// The elements one lane further on: the last of `before` and then those of `here`; those of `here` without its first, and the first of `after`.
template <class A> PG_INLINE Vec<A> moved_up(Vec<A> before, Vec<A> here) {
    A lanes[2 * LANES<A>];
    store(lanes, before);
    store(lanes + LANES<A>, here);
    return load(lanes + LANES<A> - 1);
}
template <class A> PG_INLINE Vec<A> moved_down(Vec<A> here, Vec<A> after) {
    A lanes[2 * LANES<A>];
    store(lanes, here);
    store(lanes + LANES<A>, after);
    return load(lanes + 1);
}

// a0 b0 a1 b1 ...
template <class A> PG_INLINE void interleave(Vec<A> a, Vec<A> b, Vec<A>& low, Vec<A>& high) {
    A even[LANES<A>], odd[LANES<A>], both[2 * LANES<A>];
    store(even, a);
    store(odd, b);
    for (int i = 0; i < LANES<A>; ++i) { both[2 * i] = even[i]; both[2 * i + 1] = odd[i]; }
    low = load(both);
    high = load(both + LANES<A>);
}

// The even and the odd elements of both.
template <class A> PG_INLINE void deinterleave(Vec<A> a, Vec<A> b, Vec<A>& even, Vec<A>& odd) {
    A both[2 * LANES<A>], evens[LANES<A>], odds[LANES<A>];
    store(both, a);
    store(both + LANES<A>, b);
    for (int i = 0; i < LANES<A>; ++i) { evens[i] = both[2 * i]; odds[i] = both[2 * i + 1]; }
    even = load(evens);
    odd = load(odds);
}

// y where `sign` is negative, elsewhere x.
template <class A> PG_INLINE Vec<A> chosen(Vec<A> sign, Vec<A> x, Vec<A> y) {
    A s[LANES<A>], a[LANES<A>], b[LANES<A>];
    store(s, sign);
    store(a, x);
    store(b, y);
    for (int i = 0; i < LANES<A>; ++i) a[i] = s[i] < 0 ? b[i] : a[i];
    return load(a);
}

// The same where a lane's bit is set, elsewhere -0.0.
template <class A> PG_INLINE Vec<A> where(unsigned bits, Vec<A> x) {
    A lanes[LANES<A>];
    store(lanes, x);
    for (int i = 0; i < LANES<A>; ++i) lanes[i] = bits >> i & 1 ? lanes[i] : -A(0);
    return load(lanes);
}
template <class A> PG_INLINE Vec<A> moved_up_where(unsigned bits, Vec<A> before, Vec<A> here) { return where<A>(bits, moved_up<A>(before, here)); }
template <class A> PG_INLINE Vec<A> moved_down_where(unsigned bits, Vec<A> here, Vec<A> after) { return where<A>(bits, moved_down<A>(here, after)); }

#if defined(__AVX512F__)
template <> PG_INLINE Vec<float> moved_up_where<float>(unsigned bits, Vec<float> before, Vec<float> here) {
    return (Vec<float>)_mm512_mask_alignr_epi32((__m512i)_mm512_set1_ps(-0.0f), __mmask16(bits), (__m512i)here, (__m512i)before, 15);
}
template <> PG_INLINE Vec<float> moved_down_where<float>(unsigned bits, Vec<float> here, Vec<float> after) {
    return (Vec<float>)_mm512_mask_alignr_epi32((__m512i)_mm512_set1_ps(-0.0f), __mmask16(bits), (__m512i)after, (__m512i)here, 1);
}
template <> PG_INLINE Vec<double> moved_up_where<double>(unsigned bits, Vec<double> before, Vec<double> here) {
    return (Vec<double>)_mm512_mask_alignr_epi64((__m512i)_mm512_set1_pd(-0.0), __mmask8(bits), (__m512i)here, (__m512i)before, 7);
}
template <> PG_INLINE Vec<double> moved_down_where<double>(unsigned bits, Vec<double> here, Vec<double> after) {
    return (Vec<double>)_mm512_mask_alignr_epi64((__m512i)_mm512_set1_pd(-0.0), __mmask8(bits), (__m512i)after, (__m512i)here, 1);
}
template <> PG_INLINE Vec<float> moved_up<float>(Vec<float> before, Vec<float> here) { return (Vec<float>)_mm512_alignr_epi32((__m512i)here, (__m512i)before, 15); }
template <> PG_INLINE Vec<float> moved_down<float>(Vec<float> here, Vec<float> after) { return (Vec<float>)_mm512_alignr_epi32((__m512i)after, (__m512i)here, 1); }
template <> PG_INLINE Vec<double> moved_up<double>(Vec<double> before, Vec<double> here) { return (Vec<double>)_mm512_alignr_epi64((__m512i)here, (__m512i)before, 7); }
template <> PG_INLINE Vec<double> moved_down<double>(Vec<double> here, Vec<double> after) { return (Vec<double>)_mm512_alignr_epi64((__m512i)after, (__m512i)here, 1); }
template <> PG_INLINE void interleave<float>(Vec<float> a, Vec<float> b, Vec<float>& low, Vec<float>& high) {
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    low = (Vec<float>)_mm512_permutex2var_ps((__m512)a, first, (__m512)b);
    high = (Vec<float>)_mm512_permutex2var_ps((__m512)a, second, (__m512)b);
}
template <> PG_INLINE void interleave<double>(Vec<double> a, Vec<double> b, Vec<double>& low, Vec<double>& high) {
    const __m512i first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), second = _mm512_add_epi64(first, _mm512_set1_epi64(4));
    low = (Vec<double>)_mm512_permutex2var_pd((__m512d)a, first, (__m512d)b);
    high = (Vec<double>)_mm512_permutex2var_pd((__m512d)a, second, (__m512d)b);
}
template <> PG_INLINE void deinterleave<float>(Vec<float> a, Vec<float> b, Vec<float>& even, Vec<float>& odd) {
    const __m512i first = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), second = _mm512_add_epi32(first, _mm512_set1_epi32(1));
    even = (Vec<float>)_mm512_permutex2var_ps((__m512)a, first, (__m512)b);
    odd = (Vec<float>)_mm512_permutex2var_ps((__m512)a, second, (__m512)b);
}
template <> PG_INLINE void deinterleave<double>(Vec<double> a, Vec<double> b, Vec<double>& even, Vec<double>& odd) {
    even = (Vec<double>)_mm512_permutex2var_pd((__m512d)a, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), (__m512d)b);
    odd = (Vec<double>)_mm512_permutex2var_pd((__m512d)a, _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15), (__m512d)b);
}
template <> PG_INLINE Vec<float> chosen<float>(Vec<float> sign, Vec<float> x, Vec<float> y) {
    return (Vec<float>)_mm512_mask_mov_ps((__m512)x, _mm512_movepi32_mask((__m512i)sign), (__m512)y);
}
template <> PG_INLINE Vec<double> chosen<double>(Vec<double> sign, Vec<double> x, Vec<double> y) {
    return (Vec<double>)_mm512_mask_mov_pd((__m512d)x, _mm512_movepi64_mask((__m512i)sign), (__m512d)y);
}
#elif defined(__AVX2__) && ((defined(__GNUC__) && __GNUC__ >= 12) || defined(__clang__))
template <> PG_INLINE Vec<float> moved_up<float>(Vec<float> before, Vec<float> here) { return __builtin_shufflevector(before, here, 7, 8, 9, 10, 11, 12, 13, 14); }
template <> PG_INLINE Vec<float> moved_down<float>(Vec<float> here, Vec<float> after) { return __builtin_shufflevector(here, after, 1, 2, 3, 4, 5, 6, 7, 8); }
template <> PG_INLINE Vec<double> moved_up<double>(Vec<double> before, Vec<double> here) { return __builtin_shufflevector(before, here, 3, 4, 5, 6); }
template <> PG_INLINE Vec<double> moved_down<double>(Vec<double> here, Vec<double> after) { return __builtin_shufflevector(here, after, 1, 2, 3, 4); }
template <> PG_INLINE void interleave<float>(Vec<float> a, Vec<float> b, Vec<float>& low, Vec<float>& high) {
    low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
template <> PG_INLINE void interleave<double>(Vec<double> a, Vec<double> b, Vec<double>& low, Vec<double>& high) {
    low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
template <> PG_INLINE void deinterleave<float>(Vec<float> a, Vec<float> b, Vec<float>& even, Vec<float>& odd) {
    even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
    odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
}
template <> PG_INLINE void deinterleave<double>(Vec<double> a, Vec<double> b, Vec<double>& even, Vec<double>& odd) {
    even = __builtin_shufflevector(a, b, 0, 2, 4, 6);
    odd = __builtin_shufflevector(a, b, 1, 3, 5, 7);
}
template <> PG_INLINE Vec<float> chosen<float>(Vec<float> sign, Vec<float> x, Vec<float> y) { return (Vec<float>)_mm256_blendv_ps((__m256)x, (__m256)y, (__m256)sign); }
template <> PG_INLINE Vec<double> chosen<double>(Vec<double> sign, Vec<double> x, Vec<double> y) {
    return (Vec<double>)_mm256_blendv_pd((__m256d)x, (__m256d)y, (__m256d)sign);
}
#endif

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// The first `bytes` bytes of a vector.
template <class A> PG_INLINE void store_part(char* to, Vec<A> v, int64_t bytes) {
#if defined(__AVX512BW__)
    _mm512_mask_storeu_epi8(to, bytes < 64 ? (uint64_t(1) << bytes) - 1 : ~uint64_t(0), (__m512i)v);
#else
    std::memcpy(to, &v, size_t(least(bytes, VECTOR_BYTES)));
#endif
}

// Bytes until p is aligned to a cache line.
inline int64_t to_line(const void* p) { return int64_t((0 - reinterpret_cast<uintptr_t>(p)) & uintptr_t(LINE - 1)); }

constexpr int64_t AHEAD = 4096;      // bytes that a run is asked for ahead of its use
constexpr int64_t AHEAD_WRITTEN = 8192;  // bytes of a result that are asked for ahead, where the caches keep it
constexpr int64_t AHEAD_ROWS = 8192;     // bytes that rows of packed images are asked for ahead
constexpr int64_t AHEAD_SQUARES = 8;  // squares that are asked for ahead, where images are turned

// Ask for memory that will be read soon, into the nearest cache, or the second; never faults, never waits. (Always inlined: a call of a
// function that only asks may be left out.)
constexpr int NEAREST = 3, SECOND = 2;
constexpr int64_t HELD_NEAR = 32 << 10;  // bytes that the nearest cache holds: what is needed after more is asked into the second
template <int CACHE = NEAREST> PG_INLINE void prefetch(const char* p, int64_t bytes) {
#if defined(__GNUC__) || defined(__clang__)
    for (int64_t k = 0; k < bytes; k += LINE) __builtin_prefetch(p + k, 0, CACHE);
#else
    (void)p; (void)bytes;
#endif
}

// Ask for a piece of a stream as often as it takes: while much is under way a processor drops some of what it is asked for, so every
// line is asked for several times, each time from a little nearer. A line that is there already costs next to nothing.
constexpr int64_t ASKED = 4, NEARER = 256;
template <int64_t BYTES> PG_INLINE void insist(const char* p, int64_t nearer = NEARER) {
    constexpr int64_t part = ASKED * BYTES / LINE, times = BYTES >= LINE ? ASKED : part > 0 ? part : 1;
    for (int64_t t = 0; t < times; ++t) prefetch(p + t * nearer, BYTES);
}

// Ask for a line of which only a part will be written: where others go past the caches, all of them wait for it.
PG_INLINE void ask_for_line(const void* p) {
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(p, 1, 2);
#else
    (void)p;
#endif
}

// Ask for the line that a vector will be written to before long: a store waits for it, if only as far as to the next cache.
PG_INLINE void ask_to_write(const void* p) { ask_for_line(static_cast<const char*>(p) + AHEAD_WRITTEN); }

// Copy whole lines past the caches; `to` is aligned to one.
inline void stream_lines(char* to, const char* from, int64_t bytes) {
    for (int64_t k = 0; k < bytes; k += VECTOR_BYTES)
        stream(reinterpret_cast<float*>(to + k), load(reinterpret_cast<const float*>(from + k)));
}

// Copy bytes that the caches keep, two lines at a time. (Asking for these before they are written makes it slower.)
PG_INLINE void copy_vectors(char* to, const char* from, int64_t bytes) {
    constexpr int64_t v = VECTOR_BYTES, two = 2 * LINE;
    if (bytes < v) { std::memcpy(to, from, size_t(bytes)); return; }
    int64_t k = 0;
    for (; k + two <= bytes; k += two) {
        Vec<float> x[two / v];
        each<int(two / v)>([&](auto i) PG_INLINED { std::memcpy(&x[i], from + k + i * v, v); });
        each<int(two / v)>([&](auto i) PG_INLINED { std::memcpy(to + k + i * v, &x[i], v); });
    }
    for (; k < bytes; k += v) {
        const int64_t at = least(k, bytes - v);  // the last one overlaps its neighbour
        store(reinterpret_cast<float*>(to + at), load(reinterpret_cast<const float*>(from + at)));
    }
}

// out[c * out_stride + r] = in[r * in_stride + c] for a square block: 8 x 8 for float, 4 x 4 for double.
template <class A> constexpr int SQUARE = sizeof(A) == 4 ? 8 : 4;

#if (defined(__GNUC__) && __GNUC__ >= 12) || defined(__clang__)
typedef float F8 __attribute__((vector_size(32)));
typedef double D4 __attribute__((vector_size(32)));

PG_INLINE void transpose_square(const float* in, int64_t is, float* out, int64_t os) {
    F8 a[8], b[8];
    for (int r = 0; r < 8; ++r) std::memcpy(&a[r], in + r * is, 32);
    for (int r = 0; r < 8; r += 2) {
        b[r] = __builtin_shufflevector(a[r], a[r + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        b[r + 1] = __builtin_shufflevector(a[r], a[r + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int r = 0; r < 8; r += 4)
        for (int k = 0; k < 2; ++k) {
            a[r + 2 * k] = __builtin_shufflevector(b[r + k], b[r + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            a[r + 2 * k + 1] = __builtin_shufflevector(b[r + k], b[r + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int c = 0; c < 4; ++c) {
        F8 low = __builtin_shufflevector(a[c], a[c + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        F8 high = __builtin_shufflevector(a[c], a[c + 4], 4, 5, 6, 7, 12, 13, 14, 15);
        std::memcpy(out + c * os, &low, 32);
        std::memcpy(out + (c + 4) * os, &high, 32);
    }
}

PG_INLINE void transpose_square(const double* in, int64_t is, double* out, int64_t os) {
    D4 a[4], b[4];
    for (int r = 0; r < 4; ++r) std::memcpy(&a[r], in + r * is, 32);
    for (int r = 0; r < 4; r += 2) {
        b[r] = __builtin_shufflevector(a[r], a[r + 1], 0, 4, 2, 6);
        b[r + 1] = __builtin_shufflevector(a[r], a[r + 1], 1, 5, 3, 7);
    }
    for (int c = 0; c < 2; ++c) {
        D4 low = __builtin_shufflevector(b[c], b[c + 2], 0, 1, 4, 5);
        D4 high = __builtin_shufflevector(b[c], b[c + 2], 2, 3, 6, 7);
        std::memcpy(out + c * os, &low, 32);
        std::memcpy(out + (c + 2) * os, &high, 32);
    }
}
#else
template <class A> PG_INLINE void transpose_square(const A* in, int64_t is, A* out, int64_t os) {
    for (int r = 0; r < SQUARE<A>; ++r)
        for (int c = 0; c < SQUARE<A>; ++c) out[c * os + r] = in[r * is + c];
}
#endif

// The same for twice as many rows, as many as a vector has lanes, and all squares beside each other; each column goes through
// finish(column, its number).
template <class A> constexpr int64_t TALL = SQUARE<A>;
#if defined(__AVX512F__)
template <> constexpr int64_t TALL<float> = 16;
template <> constexpr int64_t TALL<double> = 8;

// Half a vector from each of two places.
PG_INLINE __m512 halves(const float* p, const float* q) {
    return _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castps_pd(_mm512_castps256_ps512(_mm256_loadu_ps(p))), _mm256_loadu_pd(reinterpret_cast<const double*>(q)), 1));
}
PG_INLINE __m512d halves(const double* p, const double* q) { return _mm512_insertf64x4(_mm512_castpd256_pd512(_mm256_loadu_pd(p)), _mm256_loadu_pd(q), 1); }

// (Rows four apart have a place of their own: every one is then three strides at most from a register.)
template <class F> PG_INLINE void transpose_tall(const float* in, int64_t is, float* out, int64_t os, int64_t cols, const F& finish) {
    const float* rows[4] = {in, in + 4 * is, in + 8 * is, in + 12 * is};
    for (int64_t c = 0; c < cols; c += 8, out += 8 * os) {
        __m512 a[8], b[8];
        each<8>([&](auto r) PG_INLINED { a[r] = halves(rows[r / 4 * 2] + c + r % 4 * is, rows[r / 4 * 2 + 1] + c + r % 4 * is); });
        each<4>([&](auto r) PG_INLINED {
            b[2 * r] = _mm512_unpacklo_ps(a[2 * r], a[2 * r + 1]);
            b[2 * r + 1] = _mm512_unpackhi_ps(a[2 * r], a[2 * r + 1]);
        });
        each<4>([&](auto r) PG_INLINED {  // a[4 i + j]: by 128 bits, column j of four rows, column 4 + j of these, the same of the next four
            constexpr int i = r / 2 * 4, j = r % 2;
            const __m512d low = _mm512_castps_pd(b[i + j]), high = _mm512_castps_pd(b[i + j + 2]);
            a[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            a[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        });
        float* further = out + 4 * os;
        each<4>([&](auto j) PG_INLINED { store(out + j * os, finish((Vec<float>)_mm512_shuffle_f32x4(a[j], a[4 + j], 0x88), c + j)); });
        each<4>([&](auto j) PG_INLINED { store(further + j * os, finish((Vec<float>)_mm512_shuffle_f32x4(a[j], a[4 + j], 0xdd), c + 4 + j)); });
    }
}

template <class F> PG_INLINE void transpose_tall(const double* in, int64_t is, double* out, int64_t os, int64_t cols, const F& finish) {
    const double* further = in + 4 * is;
    for (int64_t c = 0; c < cols; c += 4, out += 4 * os) {
        __m512d a[4], b[4];
        each<4>([&](auto r) PG_INLINED { const double* p = (r / 2 ? further : in) + c + r % 2 * is; a[r] = halves(p, p + 2 * is); });
        each<2>([&](auto r) PG_INLINED {  // b[2 i + j]: by 128 bits, column j of two rows, column 2 + j of these, the same of the next two
            b[2 * r] = _mm512_unpacklo_pd(a[2 * r], a[2 * r + 1]);
            b[2 * r + 1] = _mm512_unpackhi_pd(a[2 * r], a[2 * r + 1]);
        });
        each<2>([&](auto j) PG_INLINED { store(out + j * os, finish((Vec<double>)_mm512_shuffle_f64x2(b[j], b[2 + j], 0x88), c + j)); });
        each<2>([&](auto j) PG_INLINED { store(out + (2 + j) * os, finish((Vec<double>)_mm512_shuffle_f64x2(b[j], b[2 + j], 0xdd), c + 2 + j)); });
    }
}
#else
template <class A, class F> PG_INLINE void transpose_tall(const A* in, int64_t is, A* out, int64_t os, int64_t cols, const F&) {
    for (int64_t c = 0; c < cols; c += SQUARE<A>) transpose_square(in + c, is, out + c * os, os);
}
#endif

// Transpose in whole squares: rows and columns are rounded up to a multiple of 8, and both sides must have room for
// that. Rows go from last to first, so that where `os` is less than the rounded number of rows (but at least 8), what
// spills over the end of an output row is overwritten by its owner.
template <class A> inline void transpose(const A* in, int64_t is, A* out, int64_t os, int64_t rows, int64_t cols) {
    constexpr int64_t q = SQUARE<A>, tall = TALL<A>;
    for (int64_t r = (rows + 7) / 8 * 8; r > 0;) {
        const bool many = r % tall == 0;
        r -= many ? tall : q;
        if (many) transpose_tall(in + r * is, is, out + r, os, cols, [](auto column, int64_t) PG_INLINED { return column; });
        else for (int64_t c = 0; c < cols; c += q) transpose_square(in + r * is + c, is, out + c * os + r, os);
    }
}

}  // namespace PG_ISA
}  // namespace poolgrad
