// Whole images summed to one cell each, where images lie one after the other and every sum takes a whole axis. Then all rows of
// all images follow each other: columns of a few rows are turned in registers, so that the lanes are rows, and added where they
// are. Their sums follow each other in the same way, and so on. The source is read from one end to the other.
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

// Columns that are turned at a time: sixteen bytes of each row.
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

// to[c] is column c of as many rows as there are lanes, `apart` elements apart.
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

// N cells of each row, no more than a block, all in registers. Where N is less than the columns turned at a time, as many are read as
// these, with what lies before the cells (BEFORE) or after them.
template <class A, int N, bool BEFORE = false> PG_INLINE typename Lanes<A>::type sum_cells(const A* from, int64_t apart) {
    constexpr int q = COLUMNS<A>;
    typename Lanes<A>::type columns[q], s;
    for (int i = 0; i < N; i += q) {
        const int at = i + q > N && (BEFORE || N > q) ? N - q : i;
        turn(from + at, apart, columns);
        for (int c = 0; c < q; ++c) if (at + c >= i && at + c < N) s = at + c == 0 ? columns[c] : s + columns[c];
    }
    return s;
}

template <class A> inline typename Lanes<A>::type sum_head(const A* from, int64_t n, int64_t apart) {
    switch (n) {
        case 1: return sum_cells<A, 1, true>(from, apart);
        case 2: return sum_cells<A, 2, true>(from, apart);
        case 3: return sum_cells<A, 3, true>(from, apart);
        case 4: return sum_cells<A, 4, true>(from, apart);
        case 5: return sum_cells<A, 5, true>(from, apart);
        case 6: return sum_cells<A, 6, true>(from, apart);
        default: return sum_cells<A, 7, true>(from, apart);
    }
}

// Rows of some lines each are asked for by the block; shorter ones as many at a time as there are lanes.
template <class A> PG_INLINE bool asks_by_block(int64_t n) { return n * int64_t(sizeof(A)) > 2 * LINE; }

// Rows longer than a block. `blocks` has room for one sum of each.
template <class A> inline typename Lanes<A>::type sum_blocks(const A* from, int64_t n, typename Lanes<A>::type* blocks) {
    constexpr int64_t cell = SQUARE<A> * int64_t(sizeof(A));
    const int64_t count = n / BLOCK, head = n % BLOCK;
    const char* next = reinterpret_cast<const char*>(from) + AHEAD_ROWS;
    const bool far = asks_by_block<A>(n);
    for (int64_t b = 0; b < count; ++b) {
        if (far) prefetch(next + b * BLOCK * cell, BLOCK * cell);
        blocks[b] = sum_cells<A, BLOCK>(from + b * BLOCK, n);
    }
    if (far) prefetch(next + count * BLOCK * cell, head * cell);
    const auto whole = sum_rows(blocks, count);
    return head ? whole + sum_head(from + count * BLOCK, head, n) : whole;
}

// Rows too short to be read without what comes after them, and nothing after them.
template <class A> inline typename Lanes<A>::type sum_last_rows(const A* from, int64_t n) {
    constexpr int64_t q = COLUMNS<A>, lanes = SQUARE<A>;
    A close[lanes * q] = {};
    typename Lanes<A>::type columns[q];
    for (int64_t j = 0; j < lanes; ++j) std::memcpy(close + j * q, from + j * n, size_t(n) * sizeof(A));
    turn(close, q, columns);
    return sum_rows(columns, n);
}

// `count` rows of n cells, a multiple of the lanes, one after the other, into one sum each. N: n, where it is no more than a block; 0:
// more. Nothing is read at or past `end`.
template <class A, int N> inline void sum_each(const A* from, int64_t n, int64_t count, A* to, A* scratch, const A* end) {
    constexpr int64_t lanes = SQUARE<A>, over = N > 0 && N < COLUMNS<A> ? COLUMNS<A> - N : 0;
    const bool ask = count > lanes && (N > 0 || !asks_by_block<A>(n));
    for (int64_t r = 0; r < count; r += lanes, from += lanes * n) {
        if (ask) prefetch(reinterpret_cast<const char*>(from) + AHEAD, lanes * n * int64_t(sizeof(A)));
        typename Lanes<A>::type s;
        if (over > 0 && from + lanes * n + over > end) s = sum_last_rows(from, n);
        else if constexpr (N == 0) s = sum_blocks(from, n, reinterpret_cast<typename Lanes<A>::type*>(scratch));
        else s = sum_cells<A, N>(from, N);
        std::memcpy(to + r, &s, sizeof s);
    }
}

template <class A> inline void sum_each(const A* from, int64_t n, int64_t count, A* to, A* scratch, const A* end) {
    switch (n) {
        case 1: return sum_each<A, 1>(from, n, count, to, scratch, end);
        case 2: return sum_each<A, 2>(from, n, count, to, scratch, end);
        case 3: return sum_each<A, 3>(from, n, count, to, scratch, end);
        case 4: return sum_each<A, 4>(from, n, count, to, scratch, end);
        case 5: return sum_each<A, 5>(from, n, count, to, scratch, end);
        case 6: return sum_each<A, 6>(from, n, count, to, scratch, end);
        case 7: return sum_each<A, 7>(from, n, count, to, scratch, end);
        case 8: return sum_each<A, 8>(from, n, count, to, scratch, end);
        default: return sum_each<A, 0>(from, n, count, to, scratch, end);
    }
}

// `count` images of axes k and after, as many as there are lanes at least, into `to`; the last ones may be summed twice.
template <class A> inline void sum_images(const Plan& p, int k, const A* from, int64_t count, A* to, A* scratch, const A* end) {
    constexpr int64_t lanes = SQUARE<A>;
    const int64_t n = p.axes[size_t(k)]->rows;
    if (k + 1 == p.rank()) return sum_each(from, n, count, to, scratch, end);
    int64_t image = n;
    for (int m = k + 1; m < p.rank(); ++m) image *= p.axes[size_t(m)]->rows;
    A* rest = scratch + lanes * (n + COLUMNS<A>);
    for (int64_t next = 0; next < count; next += lanes) {
        const int64_t c = least(next, count - lanes);
        sum_images(p, k + 1, from + c * image, lanes * n, scratch, rest, end);
        sum_each<A>(scratch, n, lanes, to + c, rest, rest);
    }
}

}  // namespace PG_ISA
}  // namespace poolgrad
