// Sums along a packed row of few channels: each vector of the result picks its terms from the row by index.
//
// An absent term adds -0.0, which changes no number; where a position may be the sum of nothing, an absent first term is
// +0.0.
#pragma once

#include "plan.h"
#include "simd.h"

namespace poolgrad {
namespace PG_ISA {

// The places of one vector's picks. Where vectors hold them, an even weave keeps them there.
#if defined(__AVX512F__)
template <class A> struct Index;
template <> struct Index<float> {
    explicit Index(const int32_t* p) : i(_mm512_loadu_si512(p)) {}
    __m512i i;
};
template <> struct Index<double> {
    explicit Index(const int32_t* p) : i(_mm512_cvtepi32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))) {}
    __m512i i;
};
#else
template <class A> struct Index {
    explicit Index(const int32_t* p) : i(p) {}
    const int32_t* i;
};
#endif

// Lane l is element index[l] of `a` and, where TWO, of `b` after it, or `missing` where the index is negative (and its bit in `present`
// is 0). Indices are below the lanes of those.
#if defined(__AVX512F__)
template <bool TWO> PG_INLINE Vec<float> pick_of(Vec<float> a, Vec<float> b, Index<float> at, unsigned present, float missing) {
    const __m512 m = _mm512_set1_ps(missing);
    if (!TWO) return (Vec<float>)_mm512_mask_permutexvar_ps(m, __mmask16(present), at.i, (__m512)a);
    return (Vec<float>)_mm512_mask_blend_ps(__mmask16(present), m, _mm512_permutex2var_ps((__m512)a, at.i, (__m512)b));
}
template <bool TWO> PG_INLINE Vec<double> pick_of(Vec<double> a, Vec<double> b, Index<double> at, unsigned present, double missing) {
    const __m512d m = _mm512_set1_pd(missing);
    if (!TWO) return (Vec<double>)_mm512_mask_permutexvar_pd(m, __mmask8(present), at.i, (__m512d)a);
    return (Vec<double>)_mm512_mask_blend_pd(__mmask8(present), m, _mm512_permutex2var_pd((__m512d)a, at.i, (__m512d)b));
}
#elif defined(__AVX2__) && (defined(__GNUC__) || defined(__clang__))
template <bool TWO> PG_INLINE Vec<float> pick_of(Vec<float> a, Vec<float> b, Index<float> at, unsigned, float missing) {
    const __m256i i = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at.i));
    __m256 v = _mm256_permutevar8x32_ps((__m256)a, i);
    if (TWO) v = _mm256_blendv_ps(v, _mm256_permutevar8x32_ps((__m256)b, i), _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)));
    return (Vec<float>)_mm256_blendv_ps(v, _mm256_set1_ps(missing), _mm256_castsi256_ps(i));
}
template <bool TWO> PG_INLINE Vec<double> pick_of(Vec<double> a, Vec<double> b, Index<double> at, unsigned, double missing) {
    // Each double is a pair of 32-bit halves: indices 2i and 2i+1.
    const __m256i i = _mm256_cvtepi32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at.i)));
    const __m256i low = _mm256_slli_epi64(i, 1);
    const __m256i pair = _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi64x(0xffffffffll)), _mm256_slli_epi64(_mm256_add_epi64(low, _mm256_set1_epi64x(1)), 32));
    __m256d d = _mm256_castps_pd(_mm256_permutevar8x32_ps((__m256)a, pair));
    if (TWO) {
        const __m256 w = _mm256_permutevar8x32_ps((__m256)b, pair);
        d = _mm256_blendv_pd(d, _mm256_castps_pd(w), _mm256_castsi256_pd(_mm256_slli_epi64(i, 61)));
    }
    return (Vec<double>)_mm256_blendv_pd(d, _mm256_set1_pd(missing), _mm256_castsi256_pd(i));
}
#else
template <bool TWO, class A> inline Vec<A> pick_of(Vec<A> a, Vec<A> b, Index<A> at, unsigned, A missing) {
    constexpr int v = LANES<A>;
    A held[2 * v], picked[v];
    store(held, a);
    store(held + v, b);
    for (int l = 0; l < v; ++l) picked[l] = at.i[l] < 0 ? missing : held[at.i[l]];
    return load(picked);
}
#endif

// The same for what lies at p: below one vector's lanes or two's, for any index, and where every index is its own lane.
template <bool TWO, class A> PG_INLINE Vec<A> pick(const A* p, Index<A> at, unsigned present, A missing) {
    return pick_of<TWO>(load(p), load(p + (TWO ? LANES<A> : 0)), at, present, missing);
}
#if defined(__AVX512F__)
PG_INLINE Vec<float> pick_far(const float* p, Index<float> at, unsigned present, float missing) {
    return (Vec<float>)_mm512_mask_i32gather_ps(_mm512_set1_ps(missing), __mmask16(present), at.i, p, 4);
}
PG_INLINE Vec<double> pick_far(const double* p, Index<double> at, unsigned present, double missing) {
    return (Vec<double>)_mm512_mask_i64gather_pd(_mm512_set1_pd(missing), __mmask8(present), at.i, p, 8);
}
PG_INLINE Vec<float> pick_in_order(const float* p, Index<float>, unsigned present, float missing) {
    return (Vec<float>)_mm512_mask_loadu_ps(_mm512_set1_ps(missing), __mmask16(present), p);
}
PG_INLINE Vec<double> pick_in_order(const double* p, Index<double>, unsigned present, double missing) {
    return (Vec<double>)_mm512_mask_loadu_pd(_mm512_set1_pd(missing), __mmask8(present), p);
}
#else
template <class A> inline Vec<A> pick_far(const A* p, Index<A> at, unsigned, A missing) {
    A v[LANES<A>];
    for (int l = 0; l < LANES<A>; ++l) v[l] = at.i[l] < 0 ? missing : p[at.i[l]];
    return load(v);
}
template <class A> inline Vec<A> pick_in_order(const A* p, Index<A> at, unsigned present, A missing) {
    return pick<false>(p, at, present, missing);
}
#endif

template <Picks PICKS, class A> PG_INLINE Vec<A> pick_any(const A* p, Index<A> at, unsigned present, A missing) {
    if (PICKS == Picks::in_order) return pick_in_order(p, at, present, missing);
    if (PICKS == Picks::far) return pick_far(p, at, present, missing);
    return pick<PICKS == Picks::two_loads || PICKS == Picks::paired>(p, at, present, missing);
}

// The places of the terms of an even weave's first vector, in registers (hence a list, not an array).
template <class A, int R, int J = 0> struct Places {
    explicit Places(const int32_t* index) : at(index + J * LANES<A>), rest(index) {}
    template <int K> PG_INLINE Index<A> get() const { if constexpr (J == K) return at; else return rest.template get<K>(); }
    Index<A> at;
    Places<A, R, (J + 1 < R ? J + 1 : -1)> rest;
};
template <class A, int R> struct Places<A, R, -1> { explicit Places(const int32_t*) {} };

constexpr int FULL_TERMS = 4;  // of more it is not worth a kernel that no term is ever absent

// Terms J, J+1, ... of vector v of a period, added to s. Where the weave is even, `from` are the first vector's places and
// `at` is how far on this one's lie; FULL: nothing is ever absent.
template <class A, int R, Picks PICKS, bool EVEN, bool FULL, int J = 0>
PG_INLINE Vec<A> weave_vector(const Weave& w, const A* const* from, const Places<A, R>& places, int64_t at, int64_t v, Vec<A> s = splat(A(0))) {
    constexpr unsigned all = (1u << LANES<A>) - 1;
    const size_t k = size_t(v * R + J);
    const A* p = EVEN ? from[PICKS == Picks::paired ? J & ~1 : J] + at : from[0] + w.offset[k];
    const Index<A> index = EVEN ? places.template get<J>() : Index<A>(w.index.data() + k * LANES<A>);
    const Vec<A> term = pick_any<PICKS>(p, index, FULL ? all : w.present[k], J == 0 ? A(w.first_missing) : -A(0));
    s = J == 0 ? term : s + term;
    if constexpr (J + 1 < R) return weave_vector<A, R, PICKS, EVEN, FULL, J + 1>(w, from, places, at, v, s);
    else return s;
}

template <class A, int R, Picks PICKS, bool PAST, bool EVEN, bool FULL> inline void weave_rows(const Weave& w, const A* in, A* out, int64_t rows) {
    constexpr int64_t v = LANES<A>;
    const int64_t step = w.step, period = w.period, row_in = w.row_in, row_out = w.row_out;
    const Places<A, R> places(w.index.data());
    const A* from[R];
    for (int r = 0; r < R; ++r) from[r] = in + (EVEN ? w.offset[size_t(r)] : 0);
    for (; rows > 0; rows -= period, out += period * row_out) {
        const int64_t n = least(rows, period) * row_out;
        int64_t k = 0, at = 0;
        for (; (k + 1) * v <= n; ++k, at += step) {
            if (EVEN) prefetch(reinterpret_cast<const char*>(from[0] + at) + AHEAD, step * int64_t(sizeof(A)));
            const Vec<A> s = weave_vector<A, R, PICKS, EVEN, FULL>(w, from, places, at, k);
            if (R == 1 && !PAST) ask_to_write(out + k * v);
            if (PAST) stream(out + k * v, s); else store(out + k * v, s);
        }
        if (k * v < n) {
            const Vec<A> s = weave_vector<A, R, PICKS, EVEN, FULL>(w, from, places, at, k);
            std::memcpy(out + k * v, &s, size_t(n - k * v) * sizeof(A));
        }
        for (int r = 0; r < R; ++r) from[r] += period * row_in;
    }
}

template <class A, int R, Picks PICKS, bool PAST> inline void weave_rows(const Weave& w, const A* in, A* out, int64_t rows) {
    constexpr bool can = PICKS != Picks::far, must = PICKS == Picks::paired, full = can && R <= FULL_TERMS;
    if (full && w.even && w.full) return weave_rows<A, R, PICKS, PAST, can, full>(w, in, out, rows);
    if (can && (must || w.even)) return weave_rows<A, R, PICKS, PAST, can, false>(w, in, out, rows);
    if (R == 1 && can && !must && w.full) return weave_rows<A, R, PICKS, PAST, must, R == 1 && can>(w, in, out, rows);
    weave_rows<A, R, PICKS, PAST, must, false>(w, in, out, rows);
}

template <class A, Picks PICKS, bool PAST> inline void weave_rows(const Weave& w, const A* in, A* out, int64_t rows) {
    if constexpr (PAST) return weave_rows<A, 1, PICKS, true>(w, in, out, rows);
    else switch (w.terms) {
        case 1: return weave_rows<A, 1, PICKS, false>(w, in, out, rows);
        case 2: return weave_rows<A, 2, PICKS, false>(w, in, out, rows);
        case 3: return weave_rows<A, 3, PICKS, false>(w, in, out, rows);
        case 4: return weave_rows<A, 4, PICKS, false>(w, in, out, rows);
        case 5: return weave_rows<A, 5, PICKS, false>(w, in, out, rows);
        case 6: return weave_rows<A, 6, PICKS, false>(w, in, out, rows);
        case 7: return weave_rows<A, 7, PICKS, false>(w, in, out, rows);
        default: return weave_rows<A, 8, PICKS, false>(w, in, out, rows);
    }
}

// Packed rows at `in` (with a vector of room before them and three after) become packed rows at `out`; an even weave asks for
// what comes later as it goes. PAST: past the caches, which only rows that are spread, one term each, are written.
template <class A, bool PAST = false> inline void weave_rows(const Weave& w, const A* in, A* out, int64_t rows) {
    switch (w.picks) {
        case Picks::in_order: return weave_rows<A, Picks::in_order, PAST>(w, in, out, rows);
        case Picks::one_load: return weave_rows<A, Picks::one_load, PAST>(w, in, out, rows);
        case Picks::two_loads: return weave_rows<A, Picks::two_loads, PAST>(w, in, out, rows);
        case Picks::paired: return weave_rows<A, Picks::paired, PAST>(w, in, out, rows);
        case Picks::far: return weave_rows<A, Picks::far, PAST>(w, in, out, rows);
    }
}

}  // namespace PG_ISA
}  // namespace poolgrad
