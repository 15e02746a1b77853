// Whole images summed to one cell each, where images lie one after the other and every sum takes a whole axis: columns of a
// few images are turned in registers, so that the lanes are images, and added where they are.
#pragma once

#include "plan.h"
#include "simd.h"

namespace poolgrad {
namespace PG_ISA {

template <class A> struct Lanes;
#if (defined(__GNUC__) && __GNUC__ >= 12) || defined(__clang__)
template <> struct Lanes<float> { typedef F8 type; };
template <> struct Lanes<double> { typedef D4 type; };
#else
template <class A> struct Lanes {
    struct type {
        A v[SQUARE<A>];
        type operator+(const type& o) const { type r; for (int i = 0; i < SQUARE<A>; ++i) r.v[i] = v[i] + o.v[i]; return r; }
    };
};
#endif

// Columns that are turned at a time: sixteen bytes of each image.
template <class A> constexpr int64_t COLUMNS = 16 / int64_t(sizeof(A));

#if (defined(__GNUC__) && __GNUC__ >= 12) || defined(__clang__)
typedef float F4 __attribute__((vector_size(16)));

PG_INLINE F8 both(const float* p, const float* q) {
    F4 low, high;
    std::memcpy(&low, p, sizeof low);
    std::memcpy(&high, q, sizeof high);
#if defined(__AVX2__)
    return (F8)_mm256_insertf128_ps(_mm256_castps128_ps256((__m128)low), (__m128)high, 1);  // from memory, where a shuffle would take a register
#else
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
#endif
}

// to[c] is column c of as many images as there are lanes, `apart` elements apart.
PG_INLINE void turn(const float* from, int64_t apart, F8* to) {
    F8 a[4], b[4];
    for (int j = 0; j < 4; ++j) a[j] = both(from + j * apart, from + (j + 4) * apart);
    for (int j = 0; j < 4; j += 2) {
        b[j] = __builtin_shufflevector(a[j], a[j + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        b[j + 1] = __builtin_shufflevector(a[j], a[j + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int j = 0; j < 2; ++j) {
        to[2 * j] = __builtin_shufflevector(b[j], b[j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        to[2 * j + 1] = __builtin_shufflevector(b[j], b[j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
}

PG_INLINE void turn(const double* from, int64_t apart, D4* to) {
    const float *p = reinterpret_cast<const float*>(from), *q = reinterpret_cast<const float*>(from + apart);
    const D4 a = (D4)both(p, p + 4 * apart), b = (D4)both(q, q + 4 * apart);
    to[0] = __builtin_shufflevector(a, b, 0, 4, 2, 6);
    to[1] = __builtin_shufflevector(a, b, 1, 5, 3, 7);
}
#else
template <class A> inline void turn(const A* from, int64_t apart, typename Lanes<A>::type* to) {
    for (int64_t c = 0; c < COLUMNS<A>; ++c)
        for (int i = 0; i < SQUARE<A>; ++i) to[c].v[i] = from[i * apart + c];
}
#endif

// The sum of rows 0 ... n-1 in the contract's order; the rows are overwritten. There is no tail: rows begin at an edge.
template <class L> inline L sum_rows(L* rows, int64_t n) {
    if (n > BLOCK) {
        const int64_t blocks = n / BLOCK;
        L head = rows[blocks * BLOCK < n ? blocks * BLOCK : 0];
        for (int64_t k = blocks * BLOCK + 1; k < n; ++k) head = head + rows[k];
        for (int64_t b = 0; b < blocks; ++b) {
            L total = rows[b * BLOCK];
            for (int64_t k = 1; k < BLOCK; ++k) total = total + rows[b * BLOCK + k];
            rows[b] = total;
        }
        const L whole = sum_rows(rows, blocks);
        return blocks * BLOCK < n ? whole + head : whole;
    }
    L s = rows[0];
    for (int64_t k = 1; k < n; ++k) s = s + rows[k];
    return s;
}

// The sum of N columns, all in registers.
template <class A, int N> PG_INLINE typename Lanes<A>::type sum_columns(const A* from, int64_t apart) {
    constexpr int q = COLUMNS<A>;
    typename Lanes<A>::type columns[q], s;
    for (int i = 0; i < N; i += q) {
        const int at = i + q <= N ? i : N - q;
        turn(from + at, apart, columns);
        for (int c = i - at; c < q; ++c) s = i + c == 0 ? columns[c] : s + columns[c];
    }
    return s;
}

// The images from `from` on, `apart` elements apart, one in each lane: a row of theirs. `rows` has room for each axis's rows and a
// few more. N: a row has so many cells, no more than a block; 0: any number. Nothing is read at or past `end`.
template <class A, int N> PG_INLINE typename Lanes<A>::type sum_row(int64_t n, const A* from, int64_t apart, typename Lanes<A>::type* rows, const A* end) {
    constexpr int64_t q = COLUMNS<A>, lanes = SQUARE<A>;
    if constexpr (N > 0) return sum_columns<A, N>(from, apart);
    if (n >= q || from + (lanes - 1) * apart + q <= end) {
        for (int64_t i = 0; i < n; i += q) turn(from + most(0, least(i, n - q)), apart, rows + most(0, least(i, n - q)));
    } else {
        A close[lanes * q] = {};
        for (int64_t j = 0; j < lanes; ++j) std::memcpy(close + j * q, from + j * apart, size_t(n) * sizeof(A));
        turn(close, q, rows);
    }
    return sum_rows(rows, n);
}

// The same of axes k and after.
template <class A, int N> inline typename Lanes<A>::type sum_lanes(const Plan& p, int k, const A* from, int64_t apart, typename Lanes<A>::type* rows, const A* end) {
    const int64_t n = p.axes[size_t(k)]->rows, step = p.steps[size_t(k)].source_stride / int64_t(sizeof(A)), wide = p.axes.back()->rows;
    if (k + 2 == p.rank()) for (int64_t r = 0; r < n; ++r) rows[r] = sum_row<A, N>(wide, from + r * step, apart, rows + n, end);
    else for (int64_t r = 0; r < n; ++r) rows[r] = sum_lanes<A, N>(p, k + 1, from + r * step, apart, rows + n, end);
    return sum_rows(rows, n);
}

// `count` images, as many as there are lanes at least, into `to`; the last ones may be summed twice.
template <class A, int N> inline void sum_images(const Plan& p, const char* source, int64_t count, A* to, const char* end, A* scratch) {
    constexpr int64_t lanes = SQUARE<A>;
    auto* rows = reinterpret_cast<typename Lanes<A>::type*>(scratch);
    const int64_t bytes = lanes * p.channel_source, apart = p.channel_source / int64_t(sizeof(A));
    for (int64_t next = 0; next < count; next += lanes) {
        const int64_t c = least(next, count - lanes);
        const char* from = source + c * p.channel_source;
        prefetch(from + AHEAD_SQUARES * bytes, least(bytes, AHEAD));
        const auto s = sum_lanes<A, N>(p, 0, reinterpret_cast<const A*>(from), apart, rows, reinterpret_cast<const A*>(end));
        std::memcpy(to + c, &s, sizeof s);
    }
}

template <class A> inline void sum_images(const Plan& p, const char* source, int64_t count, A* to, const char* end, A* scratch) {
    switch (p.axes.back()->rows) {
        case 4: return sum_images<A, 4>(p, source, count, to, end, scratch);
        case 5: return sum_images<A, 5>(p, source, count, to, end, scratch);
        case 6: return sum_images<A, 6>(p, source, count, to, end, scratch);
        case 7: return sum_images<A, 7>(p, source, count, to, end, scratch);
        case 8: return sum_images<A, 8>(p, source, count, to, end, scratch);
        default: return sum_images<A, 0>(p, source, count, to, end, scratch);
    }
}

}  // namespace PG_ISA
}  // namespace poolgrad
