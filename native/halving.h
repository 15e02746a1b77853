// Forward passes of one channel whose windows of two or three cells go in steps of two along the last axis: a row's even and odd cells
// are told apart as they are read, where they lie, and every row of the result is summed, divided and written at once.
#pragma once

#include "making.h"

namespace poolgrad {
namespace PG_ISA {

// The source rows under a row of the result: `high` of each of `planes`, and the bytes from one to the next.
struct Halved {
    const char* from;
    int64_t planes, high, plane, row;

    PG_INLINE const char* place(int64_t d, int64_t h) const { return from + d * plane + h * row; }
};

// The sums of as many windows as a vector has lanes along one source row. No cell is read that is not theirs.
template <class S, class A, int W> PG_INLINE Vec<A> sum_halves(const char* from) {
    constexpr int64_t v = LANES<A>, item = sizeof(S);
    insist<2 * v * item>(from + AHEAD);
    Vec<A> even, odd;
    deinterleave<A>(load_wide<S, A>(from), load_wide<S, A>(from + v * item), even, odd);
    if (W == 2) return even + odd;
    return even + odd + moved_down<A>(even, splat(A(widen(read<S>(from + 2 * v * item)))));
}

// n windows, at least a vector of them, from the one that begins `at` bytes after each row's first. The places of the rows of D planes (0:
// of as many as there are) are kept in registers.
template <class S, class A, int D, int H, int W> inline void halve_windows(const Halved& in, int64_t at, A* out, int64_t n, A by) {
    constexpr int64_t v = LANES<A>, item = sizeof(S);
    const int64_t planes = D ? D : in.planes;
    const char* rows[D ? D * H : 1];
    for (int k = 0; k < D * H; ++k) rows[k] = in.place(k / H, k % H) + at;
    const Vec<A> d = splat(by);
    for (int64_t k = 0; k < n; k += v) {
        const int64_t i = least(k, n - v);  // the last vector overlaps its neighbour
        auto plane = [&](int64_t p) PG_INLINED {
            Vec<A> s = splat(A(0));
            each<H>([&](auto h) PG_INLINED {
                const Vec<A> row = sum_halves<S, A, W>((D ? rows[p * H + h] : in.place(p, h) + at) + 2 * i * item);
                s = h ? s + row : row;
            });
            return s;
        };
        Vec<A> sum = plane(0);
        for (int64_t p = 1; p < planes; ++p) sum = sum + plane(p);
        store(out + i, sum / d);
    }
}

template <class S, class A, int H, int W> inline void halve_windows(const Halved& in, int64_t at, A* out, int64_t n, A by) {
    switch (in.planes) {
        case 1: return halve_windows<S, A, 1, H, W>(in, at, out, n, by);
        case 2: return halve_windows<S, A, 2, H, W>(in, at, out, n, by);
        default: return halve_windows<S, A, 0, H, W>(in, at, out, n, by);
    }
}

template <class S, class A, int W> inline void halve_windows(const Halved& in, int64_t at, A* out, int64_t n, A by) {
    switch (in.high) {
        case 1: return halve_windows<S, A, 1, W>(in, at, out, n, by);
        case 2: return halve_windows<S, A, 2, W>(in, at, out, n, by);
        default: return halve_windows<S, A, 3, W>(in, at, out, n, by);
    }
}

// One window of any width.
template <class S, class A> inline A halve_window(const Halved& in, int64_t at, int64_t wide, A by) {
    A sum = 0;
    for (int64_t p = 0; p < in.planes; ++p) {
        A plane = 0;
        for (int64_t h = 0; h < in.high; ++h) {
            const char* from = in.place(p, h) + at;
            A row = widen(read<S>(from));
            for (int64_t w = 1; w < wide; ++w) row = row + widen(read<S>(from + w * int64_t(sizeof(S))));
            plane = h ? plane + row : row;
        }
        sum = p ? sum + plane : plane;
    }
    return sum / by;
}

template <class S> void Box<S>::halve_row(int64_t i, int64_t planes, const char* source, int64_t product, char* to) {
    constexpr int64_t item = sizeof(S);
    const Axis &rows = *plan_.axes[K - 2], &last = *plan_.axes[K - 1];
    const int64_t first = a_[K - 1], n = b_[K - 1] - first, reach = last.reach[0];
    const int64_t whole = (last.base + last.rows - reach - plan_.lead[K - 1]) / 2 + 1 - first;  // windows until those that end too early
    A* out = sizeof(S) == sizeof(A) && !streaming_ && is_aligned(to) ? reinterpret_cast<A*>(to) : row_out_;
    const int64_t row = plan_.steps[K - 2].source_stride;
    const Halved in{source + (rows.lo[i] - need_[K - 2].a) * row, planes, rows.hi[i] - rows.lo[i], plan_.steps[0].source_stride, row};
    if (planes <= 0 || in.high <= 0) std::memset(out, 0, size_t(n) * sizeof(A));
    else for (int64_t w = 0, alike; w < n; w += alike) {
        const A by = A(divider_.divisor_at(product, w, n - w, alike));
        const int64_t lo = last.lo[first + w], at = (lo - need_[K - 1].a) * item, wide = last.hi[first + w] - lo;
        if (wide == reach) alike = least(alike, whole - w);
        if (wide < reach || alike < LANES<A>) { out[w] = halve_window<S>(in, at, wide, by); alike = 1; }
        else reach == 2 ? halve_windows<S, A, 2>(in, at, out + w, alike, by) : halve_windows<S, A, 3>(in, at, out + w, alike, by);
    }
    if (out == row_out_) store_row<S>(row_out_, to, {n, item, 1, item, item}, false, streaming_);
}

}  // namespace PG_ISA
}  // namespace poolgrad
