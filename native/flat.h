// Windows of three cells that slide by one over narrow images of one channel, as wide before as after: an image is one long row, and no lane
// of a vector is empty but at its end. All cells are summed with those beside them, which are -0.0 beyond an edge, into scratch; then
// come the sums of three of its rows.
#pragma once

#include "box.h"

namespace poolgrad {
namespace PG_ISA {

constexpr int FLAT_VECTORS = 2;  // that are summed at a time

template <class S> template <bool LAST> void Box<S>::run_flat(const char* source, char* result) {
    const int64_t wide = plan_.axes[1]->positions, item = sizeof(S), first = need_[0].a, start = a_[0];
    const A* counts = Plan::table<A>(plan_.lanes);
    A* sums = ring_ + round_up((SLIDING - 1) * wide, FEW_CHANNELS);
    for (A* p = ring_; p < sums; p += LANES<A>) store(p, splat(-A(0)));
    const Axis& axis = *plan_.axes[0];
    const int64_t rows = axis.rows / plan_.folded, high = axis.positions / plan_.folded;
    each_image([&] {
        const int64_t image = a_[0] / high;
        const A* table = counts + (LAST ? a_[0] - image * high : need_[0].a - axis.base - image * rows) * wide;
        const int64_t n = (need_[0].b - need_[0].a) * wide, read = n + 2 * FLAT_VECTORS * LANES<A>;
        const char* from = source + (need_[0].a - first) * wide * item;
        if (source_ + plan_.source_bytes - from < read * item) {  // what follows the source in memory is not read
            char* copy = reinterpret_cast<char*>(sums + n + round_up((SLIDING - 1) * wide, FEW_CHANNELS) + FEW_CHANNELS);
            std::memset(copy, 0, size_t(read * item));
            from = static_cast<const char*>(std::memcpy(copy, from, size_t(n * item)));
        }
        sum_flat_rows<LAST>(from, table, n, sums);
        put_flat_rows<LAST>(sums + (a_[0] - lead_[0] - need_[0].a) * wide, table, place(result + (a_[0] - start) * wide * item, (b_[0] - a_[0]) * wide * item));
    });
}

// n cells, each with its neighbours, and nothing in the rows after them.
template <class S> template <bool LAST> void Box<S>::sum_flat_rows(const char* from, const A* table, int64_t n, A* sums) const {
    constexpr int64_t v = LANES<A>, item = sizeof(S);
    const int64_t size = flat_size(plan_);
    const uint16_t* edges = plan_.edges.data();
    const Vec<A> none = splat(-A(0));
    auto cells = [&](int64_t k) PG_INLINED {
        insist<v * item>(from + k * item + AHEAD);
        const Vec<A> x = load_wide<S, A>(from + k * item);
        return LAST ? x : whole_quotient(x, load(table + k), load(table + size + k), S());
    };
    Vec<A> x[FLAT_VECTORS + 2] = {none, cells(0)};
    for (int64_t k = 0; k < n; k += FLAT_VECTORS * v, edges += 2 * FLAT_VECTORS) {
        each<FLAT_VECTORS>([&](auto j) PG_INLINED {
            x[j + 2] = cells(k + (j + 1) * v);
            const Vec<A> left = moved_up_where<A>(edges[2 * j], x[j], x[j + 1]), right = moved_down_where<A>(edges[2 * j + 1], x[j + 1], x[j + 2]);
            store(sums + k + j * v, left + x[j + 1] + right);
        });
        x[0] = x[FLAT_VECTORS];
        x[1] = x[FLAT_VECTORS + 1];
    }
    for (int64_t k = n; k < n + (SLIDING - 1) * plan_.axes[1]->positions; k += v) store(sums + k, none);
}

// The image's positions in this box: each is the sum of three from `top` on, a row apart.
template <class S> template <bool LAST> void Box<S>::put_flat_rows(const A* top, const A* table, char* to) {
    constexpr int64_t v = LANES<A>, item = sizeof(S), per = sizeof(A) / sizeof(S);
    const int64_t wide = plan_.axes[1]->positions, n = (b_[0] - a_[0]) * wide, size = flat_size(plan_);
    auto sum = [&](int64_t k) PG_INLINED {
        const Vec<A> x = load(top + k) + load(top + wide + k) + load(top + 2 * wide + k);
        return LAST ? whole_quotient(x, load(table + k), load(table + size + k), S()) : x;
    };
    for (int64_t k = 0; k < n; k += per * v, to += VECTOR_BYTES) {
        Vec<A> x = sum(k);
        if constexpr (per == 2) x = narrow_pair<S>(x, sum(k + v));
        if (k + per * v <= n) std::memcpy(to, &x, sizeof x);
        else store_part<A>(to, x, (n - k) * item);
    }
}

}  // namespace PG_ISA
}  // namespace poolgrad
