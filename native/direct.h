// Short windows of a forward pass, straight from the source to the result: nothing is kept in between. A source element is
// read once for each window that holds it, from the cache but for the first time.
#pragma once

#include "rows.h"

namespace poolgrad {
namespace PG_ISA {

constexpr int64_t DIRECT_SIDE = 3, DIRECT_TERMS = 9;  // of a window: cells along one of the last two axes, cells in all

// Result cells that follow each other along the last axis, each W source cells wide, from `planes` times H source rows.
template <class A> struct DirectRun {
    A* out;
    const char* from;  // the first cell's first element
    int64_t planes, plane, row;  // how many; bytes from one to the next
    int64_t step;      // elements from a cell's first to that of the next
    int64_t cells, channels;
    bool ask;          // for the last row ahead of its use
    bool past;         // the caches; then `out` is aligned to a line and the channels are whole lines
    int64_t divisor;
};

template <class A> PG_INLINE const A* direct_place(const DirectRun<A>& run, int64_t d, int64_t h) {
    return reinterpret_cast<const A*>(run.from + d * run.plane + h * run.row);
}

// How many lines are under way at once depends on how few instructions there are to each: the places of the rows of D planes (0: of as many
// as there are) are kept in registers, channels are taken TWO vectors at a time where they can be, and the division is a single one (which has
// time, where it waits for memory).
template <class A, int D, int H, int W, bool TIMES, bool PAST, bool TWO> inline void direct_cells(const DirectRun<A>& run) {
    constexpr int64_t v = LANES<A>;
    const int64_t n = run.channels, planes = D ? D : run.planes, step = run.step;
    const A* rows[D ? D * H : 1];
    for (int k = 0; k < D * H; ++k) rows[k] = direct_place(run, k / H, k % H);
    const Vec<A> by = splat(TIMES ? A(1) / A(run.divisor) : A(run.divisor));
    A *out = run.out, *const end = out + run.cells * n;
    for (int64_t at = 0; out < end; out += n, at += step) {
        const char* next = reinterpret_cast<const char*>(direct_place(run, planes - 1, H - 1) + at + W * n) + AHEAD;
        if (run.ask) for (int64_t t = 0; t < ASKED; ++t) prefetch(next + t * NEARER, n * int64_t(sizeof(A)));
        auto row = [&](int64_t d, int h, int64_t k) PG_INLINED {
            const A* p = (D ? rows[d * H + h] : direct_place(run, d, h)) + at + k;
            Vec<A> s = load(p);
            for (int w = 1; w < W; ++w) s = s + load(p + w * n);
            return s;
        };
        auto plane = [&](int64_t d, int64_t k) PG_INLINED {
            Vec<A> s = row(d, 0, k);
            for (int h = 1; h < H; ++h) s = s + row(d, h, k);
            return s;
        };
        auto put = [&](int64_t k) PG_INLINED {
            Vec<A> s = plane(0, k);
            for (int64_t d = 1; d < planes; ++d) s = s + plane(d, k);
            const Vec<A> t = TIMES ? s * by : s / by;
            if (PAST) stream(out + k, t); else store(out + k, t);
        };
        if (TWO) for (int64_t k = 0; k < n; k += 2 * v) { put(k); put(k + v); }
        else for (int64_t k = 0; k < n; k += v) put(PAST ? k : least(k, n - v));
    }
}

// (Where the planes are not known, or the caches are near, fewer kinds do: each takes its place in the wheel.)
template <class A, int D, int H, int W, bool TIMES> inline void direct_cells(const DirectRun<A>& run) {
    constexpr bool known = D > 0;
    if (!run.past) return direct_cells<A, D, H, W, TIMES, false, false>(run);
    if (known && run.channels % (2 * LANES<A>) == 0) return direct_cells<A, D, H, W, TIMES, true, known>(run);
    direct_cells<A, D, H, W, TIMES, true, false>(run);
}

template <class A, int D, int H, int W> inline void direct_cells(const DirectRun<A>& run) {
    constexpr bool known = D > 0;
    known && is_power_of_two(run.divisor) ? direct_cells<A, D, H, W, known>(run) : direct_cells<A, D, H, W, false>(run);
}

template <class A, int H, int W> inline void direct_cells(const DirectRun<A>& run) {
    constexpr int two = 2 * H * W <= DIRECT_TERMS ? 2 : 0;
    if (run.planes == 1) return direct_cells<A, 1, H, W>(run);
    if (run.planes == two) return direct_cells<A, two, H, W>(run);
    direct_cells<A, 0, H, W>(run);
}

// (By reference all the way: a copy would read what was just written, and wait for every store before it.)
template <class A> inline void direct_cells(const DirectRun<A>& run, int64_t h, int64_t w) {
    switch (h * 4 + w) {
        case 5: return direct_cells<A, 1, 1>(run);
        case 6: return direct_cells<A, 1, 2>(run);
        case 7: return direct_cells<A, 1, 3>(run);
        case 9: return direct_cells<A, 2, 1>(run);
        case 10: return direct_cells<A, 2, 2>(run);
        case 11: return direct_cells<A, 2, 3>(run);
        case 13: return direct_cells<A, 3, 1>(run);
        case 14: return direct_cells<A, 3, 2>(run);
        default: return direct_cells<A, 3, 3>(run);
    }
}

}  // namespace PG_ISA
}  // namespace poolgrad
