// Whole images summed to one cell each, where images lie one after the other and every sum takes a whole axis: a square of
// images is turned in registers, so that the lanes are images, and never stored turned.
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

// A square of images from `from` on, `apart` elements apart; axes k and after. `rows` has room for each axis's rows and a
// square more. CLOSE: nothing may be read beyond the images.
template <class A, bool CLOSE> inline typename Lanes<A>::type sum_square(const Plan& p, int k, const A* from, int64_t apart, typename Lanes<A>::type* rows) {
    constexpr int64_t q = SQUARE<A>;
    const int64_t n = p.axes[size_t(k)]->rows;
    if (k + 1 < p.rank()) {
        const int64_t step = p.steps[size_t(k)].source_stride / int64_t(sizeof(A));
        for (int64_t r = 0; r < n; ++r) rows[r] = sum_square<A, CLOSE>(p, k + 1, from + r * step, apart, rows + n);
        return sum_rows(rows, n);
    }
    for (int64_t i = 0; i < n; i += q) {
        A* to = reinterpret_cast<A*>(rows + i);
        if (CLOSE && i + q > n) {
            A part[q * q] = {};
            for (int64_t j = 0; j < q; ++j) std::memcpy(part + j * q, from + j * apart + i, size_t(n - i) * sizeof(A));
            transpose_square(part, q, to, q);
        } else {
            transpose_square(from + i, apart, to, q);
        }
    }
    return sum_rows(rows, n);
}

// `count` images, a square of them at least, into `to`; the last square may overlap the one before.
template <class A> inline void sum_images(const Plan& p, const char* source, int64_t count, A* to, const char* end, A* scratch) {
    constexpr int64_t q = SQUARE<A>, item = sizeof(A);
    auto* rows = reinterpret_cast<typename Lanes<A>::type*>(scratch);
    const int64_t apart = p.channel_source / item;
    for (int64_t next = 0; next < count; next += q) {
        const int64_t c = least(next, count - q);
        const char *at = source + c * p.channel_source, *after = at + q * p.channel_source + q * item;
        const A* from = reinterpret_cast<const A*>(at);
        prefetch(at + AHEAD_SQUARES * q * p.channel_source, least(q * p.channel_source, AHEAD));
        const auto s = after > end ? sum_square<A, true>(p, 0, from, apart, rows) : sum_square<A, false>(p, 0, from, apart, rows);
        std::memcpy(to + c, &s, sizeof s);
    }
}

}  // namespace PG_ISA
}  // namespace poolgrad
