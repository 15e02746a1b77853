// Short windows of a forward pass, straight from the source to the result: nothing is kept in between. A source element is
// read once for each window that holds it, from the cache but for the first time.
#pragma once

#include "rows.h"

namespace poolgrad {
namespace PG_ISA {

constexpr int64_t DIRECT_SIDE = 3, DIRECT_TERMS = 9;  // of a window: cells along one of the last two axes, cells in all
constexpr int64_t NEWEST = 1024, NEWEST_CELLS = 3;    // bytes of the newest row asked for ahead of their use, and cells: at least so many

// Result cells that follow each other along the last axis, each W source cells wide, from `planes` times H source rows.
template <class A> struct DirectRun {
    A* out;
    const A* const* rows;
    int64_t planes;
    const int64_t* lo;  // of each cell, its first source cell; `first` is the one that the rows begin with
    int64_t first, cells, channels;
    A by;
};

template <class A, int H, int W> PG_INLINE Vec<A> direct_sum(const DirectRun<A>& run, int64_t at) {
    Vec<A> s = splat(A(0));
    for (int64_t d = 0; d < run.planes; ++d) {
        Vec<A> plane = splat(A(0));
        for (int h = 0; h < H; ++h) {
            const A* p = run.rows[d * H + h] + at;
            Vec<A> row = load(p);
            for (int w = 1; w < W; ++w) row = row + load(p + w * run.channels);
            plane = h ? plane + row : row;
        }
        s = d ? s + plane : plane;
    }
    return s;
}

template <class A, int H, int W, bool TIMES, bool PAST> inline void direct_cells(const DirectRun<A>& run) {
    constexpr int64_t v = LANES<A>;
    const int64_t n = run.channels;
    const Vec<A> by = splat(run.by), inverse = splat(TIMES ? run.by : reciprocal(run.by));
    const int64_t more = NEWEST_CELLS * n * int64_t(sizeof(A)) - NEWEST;
    A* out = run.out;
    for (int64_t i = 0; i < run.cells; ++i, out += n) {
        const int64_t at = (run.lo[i] - run.first) * n;
        const char* next = reinterpret_cast<const char*>(run.rows[run.planes * H - 1] + at + W * n);
        prefetch(next, NEWEST);
        if (more > 0) prefetch(next + NEWEST, more);
        auto put = [&](int64_t k) {
            const Vec<A> s = direct_sum<A, H, W>(run, at + k), t = TIMES ? s * by : quotient(s, by, inverse);
            if (PAST) stream(out + k, t); else store(out + k, t);
        };
        int64_t k = 0;
        for (; k + v <= n; k += v) put(k);
        if (!PAST && k < n) put(n - v);
    }
}

template <class A, int H, int W> inline void direct_cells(DirectRun<A> run, int64_t divisor, bool past) {
    const bool times = is_power_of_two(divisor);
    run.by = times ? A(1) / A(divisor) : A(divisor);
    if (times) return past ? direct_cells<A, H, W, true, true>(run) : direct_cells<A, H, W, true, false>(run);
    return past ? direct_cells<A, H, W, false, true>(run) : direct_cells<A, H, W, false, false>(run);
}

// `past`: past the caches; then `out` is aligned to a line and the channels are whole lines.
template <class A> inline void direct_cells(const DirectRun<A>& run, int64_t h, int64_t w, int64_t divisor, bool past) {
    switch (h * 4 + w) {
        case 5: return direct_cells<A, 1, 1>(run, divisor, past);
        case 6: return direct_cells<A, 1, 2>(run, divisor, past);
        case 7: return direct_cells<A, 1, 3>(run, divisor, past);
        case 9: return direct_cells<A, 2, 1>(run, divisor, past);
        case 10: return direct_cells<A, 2, 2>(run, divisor, past);
        case 11: return direct_cells<A, 2, 3>(run, divisor, past);
        case 13: return direct_cells<A, 3, 1>(run, divisor, past);
        case 14: return direct_cells<A, 3, 2>(run, divisor, past);
        default: return direct_cells<A, 3, 3>(run, divisor, past);
    }
}

}  // namespace PG_ISA
}  // namespace poolgrad
