// Windows that slide, one channel: the cells of a row are lanes. A strip of a few vectors goes down a plane, and every row is added up
// on the way with its neighbours and with the two rows before, which stay in registers; divided first or last.
#pragma once

#include "box.h"

namespace poolgrad {
namespace PG_ISA {

constexpr int WIDEST = 4;  // vectors of a strip

// Where a strip stands. Lane k of a row is the middle one of position k's cells; pointers are those of the strip's first lane.
template <class S, class A> struct Strip {
    const A *counts, *inverses, *gone;  // of every lane; `gone` is negative where there is no cell
    bool before, after;                 // whether cells beside the strip are needed
    bool past;                          // the result is written past the caches, in whole lines
    int64_t vectors, elements;          // of the result: `elements` of them in each row
    int64_t ahead;                      // rows until the first one is complete
    int64_t source_step, result_step, plane_step, older_step, old_step;
    char* result;                       // of the first complete row; null: there is none yet
    A* plane;                           // sums of this plane and of the two before it, if there are three axes
    const A *older, *old;
    Vec<A> last[2][WIDEST];             // the sums of the row before the last and of the last
};

template <class A> PG_INLINE Vec<A> none() { return splat(-A(0)); }

// The first `bytes` bytes of a vector.
template <class A> PG_INLINE void store_part(char* to, Vec<A> v, int64_t bytes) {
#if defined(__AVX512BW__)
    _mm512_mask_storeu_epi8(to, bytes < 64 ? (uint64_t(1) << bytes) - 1 : ~uint64_t(0), (__m512i)v);
#else
    std::memcpy(to, &v, size_t(least(bytes, VECTOR_BYTES)));
#endif
}

// Write a complete row of N vectors.
template <class S, class A, int N> PG_INLINE void put_row(char* to, const Vec<A>* sums, int64_t elements, bool past) {
    constexpr int per = int(sizeof(A) / sizeof(S));
    constexpr int64_t item = sizeof(S);
    for (int v = 0; v < N; v += per) {
        Vec<A> x = sums[v];
        if constexpr (per == 2) x = narrow_pair<S>(x, v + 1 < N ? sums[v + 1] : none<A>());
        char* out = to + v * LANES<A> * item;
        if (past) stream(reinterpret_cast<A*>(out), x);
        else if (v + per < N) std::memcpy(out, &x, sizeof x);
        else store_part<A>(out, x, (elements - v * LANES<A>) * item);
    }
}

// `rows` rows from `from` on, divided (LAST: their sums are) by d times the counts of their lanes; no rows at all: one that is not there.
template <class S, class A, int N, bool LAST> inline void go_down(Strip<S, A>& s, const char* from, int64_t rows, A d) {
    constexpr int64_t lanes = LANES<A>, item = sizeof(S);
    Vec<A> by[N], over[N], first[N], second[N];
    const Vec<A> ds = splat(d), rs = splat(reciprocal(d));
    for (int v = 0; v < N; ++v) {
        by[v] = ds * load(s.counts + v * lanes);
        over[v] = rs * load(s.inverses + v * lanes);
        first[v] = s.last[0][v];
        second[v] = s.last[1][v];
    }
    const Vec<A> head = load(s.gone), tail = load(s.gone + (N - 1) * lanes);
    auto beside = [&](const char* row, int64_t k) {
        Vec<A> q = load_wide<S, A>(row + k * item);
        if (!LAST) q = quotient(q, ds * load(s.counts + k), rs * load(s.inverses + k));
        return chosen<A>(load(s.gone + k), q, none<A>());
    };
    for (int64_t r = 0; r < most(rows, 1); ++r) {
        const char* row = from + r * s.source_step;
        Vec<A> q[N], sums[N];
        if (rows) {
            for (int v = 0; v < N; ++v) {
                prefetch(row + v * lanes * item + AHEAD, 1);
                q[v] = load_wide<S, A>(row + v * lanes * item);
                if (!LAST) q[v] = quotient(q[v], by[v], over[v]);
            }
            q[0] = chosen<A>(head, q[0], none<A>());
            q[N - 1] = chosen<A>(tail, q[N - 1], none<A>());
        }
        const Vec<A> before = rows && s.before ? beside(row, -lanes) : none<A>(), after = rows && s.after ? beside(row, N * lanes) : none<A>();
        for (int v = 0; v < N; ++v) {
            const Vec<A> here = rows ? moved_up<A>(v ? q[v - 1] : before, q[v]) + q[v] + moved_down<A>(q[v], v + 1 < N ? q[v + 1] : after) : none<A>();
            sums[v] = first[v] + second[v] + here;
            first[v] = second[v];
            second[v] = here;
        }
        if (s.ahead > 0) { --s.ahead; continue; }
        if (s.plane) {
            for (int v = 0; v < N; ++v) {
                store(s.plane + v * lanes, sums[v]);
                if (s.result) sums[v] = load(s.older + v * lanes) + load(s.old + v * lanes) + sums[v];
            }
            s.plane += s.plane_step;
            s.older += s.older_step;
            s.old += s.old_step;
        }
        if (!s.result) continue;
        if (LAST) for (int v = 0; v < N; ++v) sums[v] = quotient(sums[v], by[v], over[v]);
        put_row<S, A, N>(s.result, sums, s.elements, s.past);
        s.result += s.result_step;
    }
    for (int v = 0; v < N; ++v) {
        s.last[0][v] = first[v];
        s.last[1][v] = second[v];
    }
}

template <class S> void Box<S>::strip_plane(const char* source, int64_t product, A* plane, const A* older, const A* old, char* result) {
    constexpr int64_t v = LANES<A>;
    const int k = K - 2;
    const int64_t stride = lanes_described(plan_), middle = a_[K - 1] - lead_[K - 1] + 1;  // the cell of lane 0
    const A *none = at(plan_.scratch.slid), *counts = Plan::table<A>(plan_.lanes) + FEW_CHANNELS;
    const Dim& step = plan_.steps[size_t(k)];
    for (int64_t w = 0; w < out_; w += WIDEST * v) {
        Strip<S, A> s;
        s.vectors = least(WIDEST, ceil_div(out_ - w, v));
        s.elements = least(s.vectors * v, out_ - w);
        s.counts = counts + w;
        s.inverses = s.counts + stride;
        s.gone = s.inverses + stride;
        s.before = middle + w > need_[K - 1].a;
        s.after = middle + w + s.vectors * v < need_[K - 1].b;
        s.past = streaming_;
        s.ahead = a_[k] - lead_[k] + SLIDING - 1 - need_[k].a;
        s.source_step = step.source_stride;
        s.result_step = step.result_stride;
        s.result = result ? result + w * int64_t(sizeof(S)) : nullptr;
        s.plane_step = plan_.pitch;
        s.older_step = older == none ? 0 : plan_.pitch;
        s.old_step = old == none ? 0 : plan_.pitch;
        s.plane = plane ? plane + w : nullptr;
        s.older = older + w;
        s.old = old + w;
        for (auto& row : s.last) for (auto& x : row) x = splat(-A(0));
        const char* from = source + (middle + w - need_[K - 1].a) * int64_t(sizeof(S));
        for (int64_t r = need_[k].a, n; r < b_[k] - lead_[k] + SLIDING - 1; r += n) {
            const int64_t count = strip_count(r, n), d = plan_.constant_divisor ? plan_.divisor : product * count;
            strip_rows(s, from + (r - need_[k].a) * step.source_stride, r < need_[k].b ? n : 0, d);
        }
    }
    if (plan_.gather) pass_on(result + (b_[k] - a_[k]) * step.result_stride);
}

template <class S> int64_t Box<S>::strip_count(int64_t r, int64_t& n) const {
    const int k = K - 2;
    const Axis& axis = *plan_.axes[size_t(k)];
    n = most(1, need_[k].b - r);  // beyond the last one, rows go one by one
    if (plan_.constant_divisor || (plan_.divide_first && r >= need_[k].b)) return 1;
    const int64_t completed = r + lead_[k] - (SLIDING - 1), j = most(a_[k], completed);
    n = least(n, plan_.divide_first ? axis.alike[size_t(r - axis.base)] : j - completed + axis.alike[size_t(j)]);
    return plan_.divide_first ? count_of_row(k, r) : count_of_position(k, j);
}

template <class S> void Box<S>::strip_rows(Strip<S, A>& s, const char* from, int64_t rows, int64_t d) {
    constexpr int64_t item = sizeof(S), v = LANES<A>;
    const char *begin = from - (s.before ? v : 0) * item, *end = from + (s.vectors + s.after) * v * item, *limit = source_ + plan_.source_bytes;
    const int64_t apart = (rows - 1) * s.source_step;
    if (rows > 0 && (least(begin - source_, begin + apart - source_) < 0 || least(limit - end, limit - end - apart) < 0)) {
        if (rows > 1) {
            strip_rows(s, from, 1, d);
            if (rows > 2) strip_rows(s, from + s.source_step, rows - 2, d);
            return strip_rows(s, from + apart, 1, d);
        }
        // Only what lies within the source.
        char* close = reinterpret_cast<char*>(row_in_) + 2 * LINE;
        const char *a = begin < source_ ? source_ : begin, *b = end > limit ? limit : end;
        std::memcpy(close + (a - begin), a, size_t(b - a));
        from = close + (from - begin);
    }
    auto go = [&](auto n) { plan_.divide_first ? go_down<S, A, n, false>(s, from, rows, A(d)) : go_down<S, A, n, true>(s, from, rows, A(d)); };
    switch (s.vectors) {
        case 1: return go(std::integral_constant<int, 1>());
        case 2: return go(std::integral_constant<int, 2>());
        case 3: return go(std::integral_constant<int, 3>());
        default: return go(std::integral_constant<int, WIDEST>());
    }
}

}  // namespace PG_ISA
}  // namespace poolgrad
