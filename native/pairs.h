// Gradients of two axes in which every position adds one cell or two of each: windows side by side, or that overlap by less than half,
// as of three cells with stride two. A row is divided cell by cell, and the positions that a cell completes are written at once, in all
// rows of the result that the row completes: of the row before, only its divided cells are kept. Channels are whole lines.
#pragma once

#include "sliding.h"

namespace poolgrad {
namespace PG_ISA {

constexpr int PAIR_VECTORS = VECTOR_BYTES == 64 ? 4 : 2;  // of channels at a time: four sets of these must fit the registers
constexpr int PAIR_ROWS = 4;                              // of the result at a time

// Rows of the result: each is the sum of the source's row and, if it is `shared`, of the one before.
struct PairRows {
    char* out[PAIR_ROWS];
    bool shared[PAIR_ROWS];
    int count;
    bool last;  // of those that the source's row completes
};

template <class S> bool Box<S>::is_paired(const char* result) const {
    return plan_.pairs && channels_ == plan_.channels && fills_lines(result);
}

template <class S> template <int V, Way WAY, bool KEEPS> void Box<S>::pair_channels(const PairRows& rows, const Cells& cells, int64_t channel) {
    constexpr int64_t v = LANES<A>, item = sizeof(S);
    const Axis& axis = *plan_.axes[1];
    const int64_t *lo = axis.lo.data(), *hi = axis.hi.data(), first = need_[1].a;
    const char* from = cells.from + channel * item;
    A* kept = ring_ + channel;  // the row before
    int64_t i = a_[1], place = channel * item;
    Lines<S, A> lines[WAY == Way::joined ? PAIR_ROWS : 1];
    const int64_t size = plan_.steps[0].result_stride;
    if (WAY == Way::joined) for (int r = 0; r < rows.count; ++r) {
        lines[r].begin(rows.out[r]);
        ask_for_line(rows.out[r] + rows.count * size);
    }
    Vec<A> x0[V], x1[V], y0[V], y1[V];
    each<V>([&](auto k) PG_INLINED { x0[k] = y0[k] = splat(A(0)); });
    for (int64_t c = 0, n; c < cells.end; c += n) {
        const int64_t d = divider_.divisor_at(cells.product, c, cells.end - c, n);
        const Vec<A> by = splat(A(d)), over = splat(reciprocal(A(d)));
        for (int64_t j = c; j < c + n; ++j, from += cells.step, kept += channels_) {
            if (WAY != Way::kept) insist<V * v * item>(from + cells.ahead);
            else prefetch(from + cells.ahead, V * v * item);
            each<V>([&](auto k) PG_INLINED {
                x1[k] = quotient(load_wide<S, A>(from + k * v * item), by, over);
                if (KEEPS) y1[k] = load(kept + k * v);
                if (KEEPS && rows.last) store(kept + k * v, x1[k]);
            });
            for (; i < b_[1] && hi[i] == first + j + 1; ++i, place += channels_ * item) {
                Vec<A> x[V], y[V];
                const bool two = lo[i] < first + j;
                each<V>([&](auto k) PG_INLINED {
                    x[k] = two ? x0[k] + x1[k] : x1[k];
                    if (KEEPS) y[k] = two ? y0[k] + y1[k] : y1[k];
                });
                for (int r = 0; r < rows.count; ++r) {
                    Vec<A> sum[V];
                    each<V>([&](auto k) PG_INLINED { sum[k] = KEEPS && rows.shared[r] ? y[k] + x[k] : x[k]; });
                    write_vectors<S, A, V, WAY, KEEPS>(sum, rows.out[r] + place, lines[WAY == Way::joined ? r : 0]);
                }
            }
            each<V>([&](auto k) PG_INLINED { x0[k] = x1[k]; if (KEEPS) y0[k] = y1[k]; });
        }
    }
    if (WAY == Way::joined) for (int r = 0; r < rows.count; ++r) lines[r].end();
}

template <class S> template <Way WAY> void Box<S>::pair_rows(const PairRows& rows, const Cells& cells) {
    by_vectors<S, A, PAIR_VECTORS>(channels_, [&](auto V, int64_t c) {
        constexpr int v = decltype(V)::value;
        plan_.axes[0]->reach[0] > 1 ? pair_channels<v, WAY, true>(rows, cells, c) : pair_channels<v, WAY, false>(rows, cells, c);
    });
}

template <class S> void Box<S>::run_pairs(const char* source, char* result) {
    const Axis& axis = *plan_.axes[0];
    const Dim &down = plan_.steps[0], &along = plan_.steps[1];
    int64_t i = pass_empty(a_[0], result);
    for (int64_t r = need_[0].a; r < need_[0].b; ++r) {
        const Cells cells{source + (r - need_[0].a) * down.source_stride, 0, need_[1].b - need_[1].a, 0, along.source_stride,
                          rows_ahead(down.source_stride), count_of_row(0, r)};
        PairRows rows{};
        for (rows.last = false; !rows.last;) {
            const int64_t begin = i;
            for (rows.count = 0; rows.count < PAIR_ROWS && i < b_[0] && axis.lo[i] < axis.hi[i] && axis.hi[i] == r + 1; ++rows.count, ++i)
                rows.shared[rows.count] = axis.lo[i] < r;
            if (rows.count) rows.out[0] = place(result + (begin - a_[0]) * down.result_stride, rows.count * down.result_stride);
            for (int k = 1; k < rows.count; ++k) rows.out[k] = rows.out[k - 1] + down.result_stride;
            int64_t next = i;
            while (next < b_[0] && axis.lo[next] >= axis.hi[next]) ++next;
            rows.last = next == b_[0] || axis.hi[next] > r + 1;
            by_way([&](auto way) { pair_rows<decltype(way)::value>(rows, cells); });
            i = pass_empty(i, result);
        }
    }
}

}  // namespace PG_ISA
}  // namespace poolgrad
