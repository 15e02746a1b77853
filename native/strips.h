// Windows that slide, one channel: the cells of a row are lanes. A strip of a few vectors goes down a plane, and every row is added up
// on the way with its neighbours and with the two rows before, which stay in registers; divided first or last.
#pragma once

#include "box.h"

namespace poolgrad {
namespace PG_ISA {

// Where a strip stands. Lane k of a row is the middle one of position k's cells; pointers are those of the strip's first lane.
template <class S, class A> struct Strip {
    const A *counts, *inverses, *gone;  // of every lane; `gone` is negative where there is no cell
    bool before, after;                 // whether cells beside the strip are needed
    bool past;                          // the result is written past the caches, in whole lines
    int64_t vectors, elements;          // of the result: `elements` of them in each row
    int64_t source_step, result_step, plane_step, older_step, old_step;
    char* result;                       // of the first complete row; null: there is none yet
    A* plane;                           // sums of this plane and of the two before it, if there are three axes
    const A *older, *old;
    Lines<S, A> lines;                  // if open, where complete rows go
};

constexpr int PARTS = 32;

// Rows that divide by the same: d times the counts of their lanes. `ahead`: a plane begins, and so many rows go before the first one is
// complete; -1: it goes on.
template <class A> struct Part {
    const char* from;
    int64_t rows;
    A d;
    int64_t ahead;
};

// What a strip does next, and what it has of the rows before.
template <class A> struct Course {
    Part<A> parts[PARTS];
    int found = 0;
    int64_t ahead = 0;
    Vec<A> last[2][WIDEST<A>] = {};  // the sums of the row before the last and of the last
};

template <class A> PG_INLINE Vec<A> none() { return splat(-A(0)); }

// The same in storage.
template <class S, class A> PG_INLINE Vec<A> stored_none() {
    if constexpr (sizeof(S) == sizeof(A)) return none<A>();
    else return narrow_pair<S>(none<A>(), none<A>());
}

// Keep a row of this plane's sums, and add it to those of the planes before.
template <class S, class A, int N> PG_INLINE void add_planes(Strip<S, A>& s, Vec<A>* sums) {
    constexpr int64_t lanes = LANES<A>;
    each<N>([&](auto v) PG_INLINED {
        store(s.plane + v * lanes, sums[v]);
        if (s.result) sums[v] = load(s.older + v * lanes) + load(s.old + v * lanes) + sums[v];
    });
    s.plane += s.plane_step;
    s.older += s.older_step;
    s.old += s.old_step;
}

// Write a complete row of N vectors.
template <class S, class A, int N> PG_INLINE void put_row(Strip<S, A>& s, const Vec<A>* sums) {
    constexpr int per = int(sizeof(A) / sizeof(S)), M = (N + per - 1) / per;
    constexpr int64_t whole = VECTOR_BYTES / int64_t(sizeof(S));  // elements of a vector
    Vec<A> x[M];
    each<M>([&](auto v) PG_INLINED {
        if constexpr (per == 1) x[v] = sums[v];
        else x[v] = narrow_pair<S>(sums[2 * v], 2 * v + 1 < N ? sums[2 * v + 1 < N ? 2 * v + 1 : 0] : none<A>());
    });
    if (s.lines.open()) s.lines.template put<M>(x, s.elements);
    else each<M>([&](auto v) PG_INLINED {
        char* out = s.result + v * VECTOR_BYTES;
        if (s.past) stream(reinterpret_cast<A*>(out), x[v]);
        else if (v + 1 < M) std::memcpy(out, &x[v], sizeof x[v]);
        else store_part<A>(out, x[v], (s.elements - v * whole) * int64_t(sizeof(S)));
    });
    s.result += s.result_step;
}

// Every part, its rows divided or (LAST) their sums. ALONE: nothing lies beside the strip, and there are two axes.
template <class S, class A, int N, bool LAST, bool ALONE> inline void go_down(Strip<S, A>& strip, Course<A>& course) {
    constexpr int64_t lanes = LANES<A>, item = sizeof(S);
    std::conditional_t<ALONE, Strip<S, A>, Strip<S, A>&> s = strip;  // a copy can stay in registers; with planes that was slower
    Vec<A> by[N], over[N], first[N], second[N], complete[N] = {}, ds, rs;
    bool waiting = false;  // whether a row is complete: it is written while the next one is added up
    int64_t ahead = course.ahead;
    each<N>([&](auto v) PG_INLINED {
        first[v] = course.last[0][v];
        second[v] = course.last[1][v];
    });
    const Vec<A> head = load(s.gone), tail = load(s.gone + (N - 1) * lanes);
    auto beside = [&](const char* row, int64_t k) PG_INLINED {
        Vec<A> q = load_wide<S, A>(row + k * item);
        if (!LAST) q = quotient(q, ds * load(s.counts + k), rs * load(s.inverses + k));
        return chosen<A>(load(s.gone + k), q, none<A>());
    };
    for (const Part<A>* part = course.parts; part != course.parts + course.found; ++part) {
        ds = splat(part->d);
        rs = splat(reciprocal(part->d));
        each<N>([&](auto v) PG_INLINED {
            by[v] = ds * load(s.counts + v * lanes);
            over[v] = rs * load(s.inverses + v * lanes);
            if (part->ahead >= 0) first[v] = second[v] = none<A>();
        });
        if (part->ahead >= 0) ahead = part->ahead;
        const char* row = part->from;
        for (int64_t rows = part->rows; rows > 0; --rows, row += s.source_step) {
            Vec<A> q[N], sums[N];
            each<N>([&](auto v) PG_INLINED {
                if (v * lanes * item % LINE == 0) insist<LINE>(row + v * lanes * item + AHEAD);
                q[v] = load_wide<S, A>(row + v * lanes * item);
                if (!LAST) q[v] = quotient(q[v], by[v], over[v]);
            });
            q[0] = chosen<A>(head, q[0], none<A>());
            q[N - 1] = chosen<A>(tail, q[N - 1], none<A>());
            const Vec<A> before = !ALONE && s.before ? beside(row, -lanes) : none<A>(), after = !ALONE && s.after ? beside(row, N * lanes) : none<A>();
            each<N>([&](auto v) PG_INLINED {
                const Vec<A> left = v ? q[v ? v - 1 : 0] : before, right = v + 1 < N ? q[v + 1 < N ? v + 1 : 0] : after;
                const Vec<A> here = moved_up<A>(left, q[v]) + q[v] + moved_down<A>(q[v], right);
                sums[v] = first[v] + second[v] + here;
                first[v] = second[v];
                second[v] = here;
            });
            if (ahead > 0) { --ahead; continue; }
            if (!ALONE && s.plane) add_planes<S, A, N>(s, sums);
            if (!ALONE && !s.result) continue;
            if (LAST) each<N>([&](auto v) PG_INLINED { sums[v] = quotient(sums[v], by[v], over[v]); });
            if (waiting) put_row<S, A, N>(s, complete);
            each<N>([&](auto v) PG_INLINED { complete[v] = sums[v]; });
            waiting = true;
        }
    }
    if (waiting) put_row<S, A, N>(s, complete);
    each<N>([&](auto v) PG_INLINED {
        course.last[0][v] = first[v];
        course.last[1][v] = second[v];
    });
    course.ahead = ahead;
    course.found = 0;
    if constexpr (ALONE) strip = s;
}

template <class S, class A, int N> inline void go_down(Strip<S, A>& s, Course<A>& course, bool last) {
    const bool alone = !s.before && !s.after && !s.plane;
    if (last) alone ? go_down<S, A, N, true, true>(s, course) : go_down<S, A, N, true, false>(s, course);
    else alone ? go_down<S, A, N, false, true>(s, course) : go_down<S, A, N, false, false>(s, course);
}

template <class S, class A> inline void go_down(Strip<S, A>& s, Course<A>& course, bool last) {
    switch (s.vectors) {
        case 1: return go_down<S, A, 1>(s, course, last);
        case 2: return go_down<S, A, 2>(s, course, last);
        case 3: return go_down<S, A, 3>(s, course, last);
        case 4: return go_down<S, A, 4>(s, course, last);
        case 5: return go_down<S, A, WIDEST<A> - 1>(s, course, last);  // of doubles; others are never as wide
        default: return go_down<S, A, WIDEST<A>>(s, course, last);
    }
}

template <class S> void Box<S>::strip_planes(const char* source, int64_t product, A* plane, const A* older, const A* old, char* result) {
    constexpr int64_t v = LANES<A>;
    const int k = K - 2;
    const int64_t stride = lanes_described(plan_), top = need_[k].a, middle = a_[K - 1] - lead_[K - 1] + 1;  // the cell of lane 0
    const A *absent = at(plan_.scratch.slid), *counts = Plan::table<A>(plan_.lanes) + FEW_CHANNELS;
    char* lost = reinterpret_cast<char*>(at(plan_.scratch.slid) + plan_.pitch);  // a row that is not there
    const Vec<A> nothing = stored_none<S, A>();
    for (int64_t i = 0; i < (least(WIDEST<A>, ceil_div(out_, v)) + 2) * v * int64_t(sizeof(S)); i += VECTOR_BYTES) std::memcpy(lost + i, &nothing, sizeof nothing);
    for (int64_t w = 0; w < out_; w += WIDEST<A> * v) {
        Strip<S, A> s;
        s.vectors = least(WIDEST<A>, ceil_div(out_ - w, v));
        s.elements = least(s.vectors * v, out_ - w);
        s.counts = counts + w;
        s.inverses = s.counts + stride;
        s.gone = s.inverses + stride;
        s.before = middle + w > need_[K - 1].a;
        s.after = middle + w + s.vectors * v < need_[K - 1].b;
        s.past = streaming_;
        s.lines = lines_;
        s.source_step = plan_.steps[size_t(k)].source_stride;
        s.result_step = plan_.steps[size_t(k)].result_stride;
        s.result = result ? result + w * int64_t(sizeof(S)) : nullptr;
        s.plane_step = plan_.pitch;
        s.older_step = older == absent ? 0 : plan_.pitch;
        s.old_step = old == absent ? 0 : plan_.pitch;
        s.plane = plane ? plane + w : nullptr;
        s.older = older + w;
        s.old = old + w;
        Course<A> course;
        const char* from = source + (middle + w - need_[K - 1].a) * int64_t(sizeof(S));
        each_image([&] { add_plane(s, course, from + (need_[k].a - top) * s.source_step, product, lost + v * int64_t(sizeof(S))); });
        go_down(s, course, !plan_.divide_first);
        lines_ = s.lines;
    }
}

template <class S> void Box<S>::add_plane(Strip<S, A>& s, Course<A>& course, const char* from, int64_t product, const char* lost) {
    const int k = K - 2;
    int64_t ahead = a_[k] - lead_[k] + SLIDING - 1 - need_[k].a;
    for (int64_t r = need_[k].a, n; r < b_[k] - lead_[k] + SLIDING - 1; r += n, from += n * s.source_step, ahead = -1) {
        const int64_t count = strip_count(r, n), d = plan_.constant_divisor ? plan_.divisor : product * count;
        if (r < need_[k].b) add_alike(s, course, {from, n, A(d), ahead});
        else add_part(s, course, {lost, 1, A(plan_.divide_first ? 1 : d), ahead});  // which is -0.0, whatever the sign of d
    }
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

template <class S> void Box<S>::add_part(Strip<S, A>& s, Course<A>& course, const Part<A>& part) {
    if (course.found == PARTS) go_down(s, course, !plan_.divide_first);
    course.parts[course.found++] = part;
}

template <class S> void Box<S>::add_alike(Strip<S, A>& s, Course<A>& course, Part<A> part) {
    constexpr int64_t item = sizeof(S), v = LANES<A>;
    const char *begin = part.from - (s.before ? v : 0) * item, *end = part.from + (s.vectors + s.after) * v * item, *limit = source_ + plan_.source_bytes;
    const int64_t apart = (part.rows - 1) * s.source_step;
    if (least(begin - source_, begin + apart - source_) >= 0 && least(limit - end, limit - end - apart) >= 0) return add_part(s, course, part);
    if (part.rows > 1) {
        add_alike(s, course, {part.from, 1, part.d, part.ahead});
        if (part.rows > 2) add_alike(s, course, {part.from + s.source_step, part.rows - 2, part.d, -1});
        return add_alike(s, course, {part.from + apart, 1, part.d, -1});
    }
    // Only what lies within the source.
    char* close = reinterpret_cast<char*>(row_in_) + 2 * LINE;
    const char *a = begin < source_ ? source_ : begin, *b = end > limit ? limit : end;
    std::memcpy(close + (a - begin), a, size_t(b - a));
    part.from = close + (part.from - begin);
    add_part(s, course, part);
    go_down(s, course, !plan_.divide_first);  // `close` holds but one
}

}  // namespace PG_ISA
}  // namespace poolgrad
