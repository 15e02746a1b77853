// Gradients of two axes and one channel whose windows of two or three cells go in steps of two along the last one: every cell becomes
// two positions side by side, one of which, of three cells, also adds the cell before it, or after it. Rows are divided into scratch,
// with what changes no sum, -0.0, around them; what one completes of the result is written at once.
#pragma once

#include "making.h"

namespace poolgrad {
namespace PG_ISA {

// a0 b0 a1 b1 ...: the first `bytes` bytes of a vector or two of storage. SAME: a and b are the same. PAST: these are whole lines.
template <class S, class A, bool SAME, bool PAST> PG_INLINE void put_interleaved(Vec<A> a, Vec<A> b, char* to, int64_t bytes) {
    constexpr int V = 2 * int(sizeof(S)) / int(sizeof(A));
    Vec<A> both[2];
    if constexpr (sizeof(S) < sizeof(A)) both[0] = SAME ? narrow_twice<S>(a) : narrow_interleaved<S>(a, b);
    else interleave<A>(a, b, both[0], both[1]);
    if (bytes >= V * VECTOR_BYTES) return write_vectors<A, A, V, PAST>(both, to);
    if (PAST) return stream_lines(to, reinterpret_cast<const char*>(both), bytes);
    store_part<A>(to, both[0], bytes);
    if (bytes > VECTOR_BYTES) store_part<A>(to + VECTOR_BYTES, both[1], bytes - VECTOR_BYTES);
}

template <class S> bool Box<S>::is_doubling(const char* result) const {
    const bool whole = b_[1] - a_[1] == plan_.axes[1]->positions;
    return plan_.doubling != Doubling::none && whole && fills_lines(result);
}

// A row's cells, vector by vector, and each with its neighbour. What was just written cannot be read again at once but where it was
// written, so neighbours come from registers.
template <class A, Doubling ADDS> struct Beside {
    Vec<A> here, other;

    PG_INLINE explicit Beside(const A* row) {
        if (ADDS == Doubling::before) here = splat(row[-1]);
        if (ADDS == Doubling::after) other = load(row);
    }
    PG_INLINE Vec<A> pair(const A* p) {
        if constexpr (ADDS == Doubling::after) {
            here = other;
            other = load(p + LANES<A>);
            return here + moved_down<A>(here, other);
        } else if constexpr (ADDS == Doubling::before) {
            other = here;
            here = load(p);
            return moved_up<A>(other, here) + here;
        } else {
            return here = load(p);
        }
    }
};

// n positions of a row of the result, from the cells `x` of a row and, if they SHARE it, `y` of the one before.
template <class S, class A, Doubling ADDS, bool SHARED, bool PAST> inline void double_row(const A* x, const A* y, char* out, int64_t n) {
    constexpr int64_t v = LANES<A>, item = sizeof(S);
    constexpr bool same = ADDS == Doubling::alone;
    Beside<A, ADDS> in_x(x), in_y(SHARED ? y : x);
    for (int64_t k = 0; 2 * k < n; k += v, out += 2 * v * item) {
        Vec<A> two = in_x.pair(x + k), one = in_x.here;
        if (SHARED) {
            two = in_y.pair(y + k) + two;
            one = in_y.here + one;
        }
        const Vec<A> even = ADDS == Doubling::after ? one : two, odd = ADDS == Doubling::after ? two : one;
        put_interleaved<S, A, same, PAST>(even, odd, out, (n - 2 * k) * item);
    }
}

template <class S, class A, Doubling ADDS> inline void double_row(const A* x, const A* y, char* out, int64_t n, bool shared, bool past) {
    if (shared) past ? double_row<S, A, ADDS, true, true>(x, y, out, n) : double_row<S, A, ADDS, true, false>(x, y, out, n);
    else past ? double_row<S, A, ADDS, false, true>(x, y, out, n) : double_row<S, A, ADDS, false, false>(x, y, out, n);
}

template <class S> void Box<S>::run_doubling(const char* source, char* result) {
    const Axis& axis = *plan_.axes[0];
    const Dim& down = plan_.steps[0];
    const int64_t first = need_[1].a - plan_.lead[1], cells = need_[1].b - need_[1].a, n = b_[1] - a_[1];
    for (int64_t k = 0; k < 2 * plan_.pitch; ++k) ring_[k] = -A(0);
    A *x = ring_ + FEW_CHANNELS, *y = x + plan_.pitch;
    int64_t i = a_[0];
    for (int64_t r = need_[0].a; r < need_[0].b; ++r) {
        load_cells(source + (r - need_[0].a) * down.source_stride, count_of_row(0, r), 0, cells, x + first);
        for (; (i = pass_empty(i, result)) < b_[0] && axis.hi[i] == r + 1; ++i) {
            char* to = place(result + (i - a_[0]) * down.result_stride, n * int64_t(sizeof(S)));
            const bool shared = axis.lo[i] < r;
            switch (plan_.doubling) {
                case Doubling::after: double_row<S, A, Doubling::after>(x, y, to, n, shared, streaming_); break;
                case Doubling::before: double_row<S, A, Doubling::before>(x, y, to, n, shared, streaming_); break;
                default: double_row<S, A, Doubling::alone>(x, y, to, n, shared, streaming_);
            }
        }
        A* before = x;
        x = y;
        y = before;
    }
    pass_empty(i, result);
}

}  // namespace PG_ISA
}  // namespace poolgrad
