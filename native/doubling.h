// Gradients of two axes and one channel whose windows of three cells go in steps of two along the last one: every cell becomes two
// positions side by side, one of which also adds the cell before it, or after it. Rows are divided into scratch, with what changes no
// sum, -0.0, around them; what one completes of the result is written at once.
#pragma once

#include "making.h"

namespace poolgrad {
namespace PG_ISA {

// a0 b0 a1 b1 ...: a vector or two of storage.
template <class S, class A, bool PAST> PG_INLINE void put_interleaved(Vec<A> a, Vec<A> b, char* to) {
    if constexpr (sizeof(S) < sizeof(A)) {
        const Vec<A> both = narrow_interleaved<S>(a, b);
        write_vectors<A, A, 1, PAST>(&both, to);
    } else {
        Vec<A> both[2];
        interleave<A>(a, b, both[0], both[1]);
        write_vectors<A, A, 2, PAST>(both, to);
    }
}

template <class S> bool Box<S>::is_doubling(const char* result) const {
    const bool whole = b_[1] - a_[1] == plan_.axes[1]->positions;
    return plan_.doubling != Doubling::none && whole && fills_lines(result);
}

// n positions of a row of the result, from the cells `x` of a row and, if they SHARE it, `y` of the one before.
template <class S, class A, bool AFTER, bool SHARED, bool PAST> inline void double_row(const A* x, const A* y, char* out, int64_t n) {
    constexpr int64_t v = LANES<A>, item = sizeof(S), beside = AFTER ? 1 : -1;
    alignas(64) char part[2 * v * item];
    for (int64_t k = 0; 2 * k < n; k += v, out += 2 * v * item) {
        auto pair = [&](const A* row) PG_INLINED { return AFTER ? load(row + k) + load(row + k + beside) : load(row + k + beside) + load(row + k); };
        Vec<A> one = load(x + k), two = pair(x);
        if (SHARED) {
            one = load(y + k) + one;
            two = pair(y) + two;
        }
        const Vec<A> even = AFTER ? one : two, odd = AFTER ? two : one;
        const int64_t bytes = (n - 2 * k) * item;
        if (bytes >= 2 * v * item) {
            put_interleaved<S, A, PAST>(even, odd, out);
            continue;
        }
        put_interleaved<S, A, false>(even, odd, part);
        if (PAST) stream_lines(out, part, bytes);
        else std::memcpy(out, part, size_t(bytes));
    }
}

template <class S, class A, bool AFTER, bool SHARED> inline void double_row(const A* x, const A* y, char* out, int64_t n, bool past) {
    past ? double_row<S, A, AFTER, SHARED, true>(x, y, out, n) : double_row<S, A, AFTER, SHARED, false>(x, y, out, n);
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
        for (; i < b_[0] && axis.hi[i] == r + 1; ++i) {
            char* to = result + (i - a_[0]) * down.result_stride;
            const bool shared = axis.lo[i] < r;
            if (plan_.doubling == Doubling::after) shared ? double_row<S, A, true, true>(x, y, to, n, streaming_) : double_row<S, A, true, false>(x, y, to, n, streaming_);
            else shared ? double_row<S, A, false, true>(x, y, to, n, streaming_) : double_row<S, A, false, false>(x, y, to, n, streaming_);
        }
        if (plan_.gather) pass_on(result + (i - a_[0]) * down.result_stride);
        A* before = x;
        x = y;
        y = before;
    }
}

}  // namespace PG_ISA
}  // namespace poolgrad
