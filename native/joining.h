// Two axes and one channel, every position of which adds few cells of each, anywhere: a fractional or an adaptive pooling, windows in steps
// of three. Rows of the source are summed along the last axis a few at a time, vector by vector of the result from the cells that these
// share; then come the rows of the result that they complete. No row goes another way than the one before: what is not there is -0.0, which
// changes no sum, and costs less than a processor that guessed wrong.
#pragma once

#include "box.h"
#include "weave.h"

namespace poolgrad {
namespace PG_ISA {

template <class S> bool Box<S>::is_joined(const char* result) const {
    return !plan_.joined.offset.empty() && b_[1] - a_[1] == plan_.axes[1]->positions && fills_lines(result);
}

template <class S> template <bool LAST> void Box<S>::join_row(const char* source, A d, A* to) const {
    constexpr int64_t v = LANES<A>, item = sizeof(S);
    constexpr int terms = joined_terms(!LAST);
    const Joined& j = plan_.joined;
    const A* counts = Plan::table<A>(j.counts);
    const int32_t* index = j.index.data();
    const uint16_t* present = j.present.data();
    const Vec<A> by = splat(d), over = splat(reciprocal(d));
    for (const int64_t *at = j.offset.data(), *end = at + j.offset.size(); at != end; ++at, to += v, counts += 2 * v) {
        const char* from = source + *at * item;
        prefetch(from + AHEAD, v * item);
        Vec<A> a = load_wide<S, A>(from), b = a, sum;
        if (LAST) b = load_wide<S, A>(from + v * item);
        else a = quotient(a, by * load(counts), over * load(counts + v));
        each<terms>([&](auto t) PG_INLINED {
            const Vec<A> term = pick_of<LAST>(a, b, Index<A>(index + t * v), present[t], -A(0));
            sum = t ? sum + term : term;
        });
        store(to, sum);
        index += terms * v;
        present += terms;
    }
}

template <class S> template <bool LAST, bool PAST> void Box<S>::write_joined(const A* const* rows, A d, char* to) const {
    constexpr int64_t v = LANES<A>, item = sizeof(S), per = sizeof(A) / sizeof(S);
    constexpr int terms = joined_terms(!LAST);
    const A *p[terms], *counts = Plan::table<A>(plan_.joined.counts);
    for (int t = 0; t < terms; ++t) p[t] = rows[t];
    const Vec<A> by = splat(d), over = splat(reciprocal(d));
    auto finished = [&](int64_t k) PG_INLINED {
        const Vec<A> s = add_at<A, terms>(p, k);
        return LAST ? quotient(s, by * load(counts + 2 * k), over * load(counts + 2 * k + v)) : s;
    };
    for (int64_t k = 0; k < out_; k += per * v, to += VECTOR_BYTES) {
        Vec<A> x = finished(k);
        if constexpr (per == 2) x = narrow_pair<S>(x, finished(k + v));
        if (PAST) stream(reinterpret_cast<A*>(to), x);
        else store_part<A>(to, x, least(VECTOR_BYTES, (out_ - k) * item));
    }
}

template <class S> template <bool LAST> void Box<S>::join_rows(const char* source, char* result) {
    constexpr int terms = joined_terms(!LAST);
    const Axis& axis = *plan_.axes[0];
    const Dim& down = plan_.steps[0];
    const int64_t first = need_[0].a, slots = JOINED_ROWS + terms - 1;
    A* none = ring_ + slots * plan_.pitch;
    for (int64_t k = 0; k < plan_.pitch; ++k) none[k] = -A(0);
    auto slot = [&](int64_t r) { return ring_ + (r - first) % slots * plan_.pitch; };
    auto divisor = [&](int64_t count) { return A(plan_.constant_divisor ? plan_.divisor : count); };
    for (int64_t r = first, i = a_[0]; r < need_[0].b;) {
        for (const int64_t end = least(r + JOINED_ROWS, need_[0].b); r < end; ++r)
            join_row<LAST>(source + (r - first) * down.source_stride, divisor(count_of_row(0, r)), slot(r));
        int64_t complete = i;
        while (complete < b_[0] && axis.hi[complete] <= r) ++complete;
        char* to = place(result + (i - a_[0]) * down.result_stride, (complete - i) * down.result_stride);
        for (; i < complete; ++i, to += down.result_stride) {
            const A* rows[terms];
            for (int t = 0; t < terms; ++t) rows[t] = axis.lo[i] + t < axis.hi[i] ? slot(axis.lo[i] + t) : none;
            const A d = divisor(count_of_position(0, i));
            streaming_ ? write_joined<LAST, true>(rows, d, to) : write_joined<LAST, false>(rows, d, to);
        }
    }
}

template <class S> void Box<S>::run_joined(const char* source, char* result) {
    plan_.divide_first ? join_rows<false>(source, result) : join_rows<true>(source, result);
}

}  // namespace PG_ISA
}  // namespace poolgrad
