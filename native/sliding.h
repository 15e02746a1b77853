// Gradients whose windows of three cells (of three axes: two or three) slide by one: every row is divided and summed along all axes
// while it is close by, and what it completes of the result is written at once. What is not there, beyond an edge or where a
// window has but two cells, is -0.0, which changes no sum. Channels are whole lines, or there is but one (strips.h).
#pragma once

#include "strips.h"

namespace poolgrad {
namespace PG_ISA {

constexpr int MOST_VECTORS = 4;  // of channels that slide together: what they keep must fit the registers

// Where the terms of a row lie, oldest first: of the axis before the last, and of the first of three. `row` and `plane` keep what
// will be a term later. Without `complete` there is only a row to keep, without `out` nothing to write.
template <class A> struct Terms {
    const A *y[SLIDING - 1], *z[SLIDING - 1];
    A *row, *plane;
    bool complete;
    char* out;
};

// Some cells of the source's last axis: [begin, end) of `all` are there, counted from the first position's first; cell `begin` is
// at `from`, the others `step` bytes apart, and what comes `ahead` bytes later is needed soon.
struct Cells {
    const char* from;
    int64_t begin, end, all, step, ahead, product;
};

// What V vectors of channels have in hand of a window along the last axis.
template <class S, class A, int V, bool PLANE, Way WAY> struct Slide {
    static constexpr int64_t v = LANES<A>;
    const Terms<A> t;
    const bool three;
    Lines<S, A>& lines;
    Vec<A> x0[V], x1[V];

    PG_INLINE Slide(const Terms<A>& terms, int64_t reach, Lines<S, A>& to) : t(terms), three(reach == SLIDING), lines(to) {
        each<V>([&](auto i) PG_INLINED { x0[i] = x1[i] = splat(-A(0)); });
    }

    // One more cell, which completes the position at element k, if that is not negative.
    PG_INLINE void add(const Vec<A>* x, int64_t k) {
        Vec<A> sum[V];
        each<V>([&](auto i) PG_INLINED {
            sum[i] = x0[i] + x1[i] + x[i];
            if (three) x0[i] = x1[i];
            x1[i] = x[i];
        });
        if (k < 0) return;
        each<V>([&](auto i) PG_INLINED { store(t.row + k + i * v, sum[i]); });
        if (!t.complete) return;
        each<V>([&](auto i) PG_INLINED { sum[i] = load(t.y[0] + k + i * v) + load(t.y[1] + k + i * v) + sum[i]; });
        if (PLANE) each<V>([&](auto i) PG_INLINED { store(t.plane + k + i * v, sum[i]); });
        if (!t.out) return;
        if (PLANE) each<V>([&](auto i) PG_INLINED { sum[i] = load(t.z[0] + k + i * v) + load(t.z[1] + k + i * v) + sum[i]; });
        write_vectors<S, A, V, WAY>(sum, t.out + k * int64_t(sizeof(S)), lines);
    }
};

template <class S> template <int V, bool PLANE, Way WAY> void Box<S>::slide_channels(const Terms<A>& terms, const Cells& cells, int64_t channel) {
    constexpr int64_t v = LANES<A>, item = sizeof(S);
    const int64_t before = plan_.axes[size_t(K - 1)]->reach[0] - 1;
    Slide<S, A, V, PLANE, WAY> slide(terms, before + 1, lines_);
    const char* from = cells.from + channel * item;
    int64_t k = channel - before * channels_;
    Vec<A> x[V];
    for (int64_t c = 0, n; c < cells.all; c += n) {
        n = 1;
        if (c < cells.begin || c >= cells.end) {
            each<V>([&](auto i) PG_INLINED { x[i] = splat(-A(0)); });
            slide.add(x, k);
            k += channels_;
            continue;
        }
        const int64_t d = divider_.divisor_at(cells.product, c - cells.begin, cells.end - c, n);
        const Vec<A> by = splat(A(d)), over = splat(reciprocal(A(d)));
        for (int64_t j = 0; j < n; ++j, from += cells.step, k += channels_) {
            insist<V * v * item>(from + cells.ahead, 2 * cells.step);
            each<V>([&](auto i) PG_INLINED { x[i] = quotient(load_wide<S, A>(from + i * v * item), by, over); });
            slide.add(x, k);
        }
    }
}

template <class S> template <bool PLANE, Way WAY> void Box<S>::slide_row(const Terms<A>& terms, const Cells& cells, Span channels) {
    by_vectors<S, A, MOST_VECTORS>(channels.b - channels.a, [&](auto V, int64_t c) { slide_channels<decltype(V)::value, PLANE, WAY>(terms, cells, channels.a + c); });
}

template <class S> bool Box<S>::is_sliding(const char* result) const {
    const bool whole = channels_ == plan_.channels && (channels_ > 1 || b_[K - 1] - a_[K - 1] == plan_.axes[K - 1]->positions);
    return plan_.sliding && whole && fills_lines(result);
}

template <class S> void Box<S>::run_sliding(const char* source, char* result) {
    A* none = at(plan_.scratch.slid);
    for (int k = 0; k < K; ++k) lead_[k] = plan_.lead[k];
    if (channels_ > 1 || K == 3) for (int64_t k = 0; k < plan_.pitch; ++k) none[k] = -A(0);
    if (K == 3) return slide_volume(source, result);
    if (joins_) lines_.begin(result);
    slide_images(source, result);
    if (joins_) lines_.end();
}

// Several images one above the other: each is a plane of its own.
template <class S> template <class F> void Box<S>::each_image(const F& function) {
    if (plan_.folded == 1) return function();
    const Axis& axis = *plan_.axes[0];
    const int64_t high = axis.positions / plan_.folded, rows = axis.rows / plan_.folded, a = a_[0], b = b_[0];
    const Span need = need_[0];
    for (int64_t m = a / high; m * high < b; ++m) {
        a_[0] = most(a, m * high);
        b_[0] = least(b, (m + 1) * high);
        lead_[0] = plan_.lead[0] + m * (high - rows);
        need_[0] = {most(a_[0] - lead_[0], m * rows), least(b_[0] - lead_[0] + SLIDING - 1, (m + 1) * rows)};
        function();
    }
    a_[0] = a;
    b_[0] = b;
    need_[0] = need;
}

template <class S> void Box<S>::slide_images(const char* source, char* result) {
    const A* none = at(plan_.scratch.slid);
    if (plan_.flat) return plan_.divide_first ? run_flat<false>(source, result) : run_flat<true>(source, result);
    const Dim& step = plan_.steps[0];
    if (channels_ == 1) return strip_planes(source, 1, nullptr, none, none, place(result, (b_[0] - a_[0]) * step.result_stride));
    const int64_t first = need_[0].a, a = a_[0];
    each_image([&] { slide_plane(source + (need_[0].a - first) * step.source_stride, 1, nullptr, none, none, result + (a_[0] - a) * step.result_stride); });
}

template <class S> void Box<S>::slide_volume(const char* source, char* result) {
    const int64_t lead = lead_[0], behind = plan_.axes[0]->reach[0] - 1, size = (plan_.box[size_t(K - 2)] + 1) * plan_.pitch;
    A* none = at(plan_.scratch.slid);
    auto plane = [&](int64_t d) { return d >= need_[0].a && d < need_[0].b ? ring_ + (d - need_[0].a) % SLIDING * size : none; };
    for (int64_t d = a_[0] - lead; d < b_[0] - lead + behind; ++d) {
        const int64_t i = d + lead - behind;
        const A *older = behind > 1 ? plane(d - 2) : none, *old = plane(d - 1);
        char* to = i < a_[0] ? nullptr : result + (i - a_[0]) * plan_.steps[0].result_stride;
        if (to && channels_ == 1 && plane(d) != none) to = place(to, (b_[1] - a_[1]) * plan_.steps[1].result_stride);
        const int64_t product = plan_.divide_first ? (plane(d) == none ? 1 : count_of_row(0, d)) : count_of_position(0, most(i, a_[0]));
        if (plane(d) != none) {
            if (to && joins_) lines_.begin(to);
            slide_plane(source + (d - need_[0].a) * plan_.steps[0].source_stride, product, plane(d), older, old, to);
            if (to && joins_) lines_.end();
        } else if (to) for (int64_t j = 0; j < b_[1] - a_[1]; ++j) {
            const A* p[SLIDING - 1];
            int found = 0;
            for (const A* plane : {older, old}) if (plane != none) p[found++] = plane + j * plan_.pitch;
            char* row = place(to + j * plan_.steps[1].result_stride, out_ * int64_t(sizeof(S)));
            emit_rows(p, found, row, 1, 0, b_[2] - a_[2], count_of_position(0, i) * count_of_position(1, a_[1] + j));
        }
    }
}

template <class S> void Box<S>::slide_plane(const char* source, int64_t product, A* plane, const A* older, const A* old, char* result) {
    if (channels_ == 1) return strip_planes(source, product, plane, older, old, result);
    const int k = K - 2;
    const Axis &axis = *plan_.axes[size_t(k)], &last = *plan_.axes[size_t(K - 1)];
    const int64_t pitch = plan_.pitch, lead = lead_[k], behind = axis.reach[0] - 1, stride = plan_.steps[size_t(k)].source_stride;
    const int64_t first = a_[K - 1] - lead_[K - 1];  // the first position's first cell
    A *none = at(plan_.scratch.slid), *rows = none + pitch;
    const int64_t together = gathers_ ? channels_ : MOST_VECTORS * LANES<A>;  // rows that are gathered are made whole
    auto row_of = [&](int64_t r) { return r >= need_[k].a && r < need_[k].b ? rows + (r - need_[k].a) % SLIDING * pitch : none; };
    Cells cells{nullptr, 0, 0, b_[K - 1] - a_[K - 1] + last.reach[0] - 1, plan_.steps[size_t(K - 1)].source_stride, rows_ahead(stride), 0};
    for (Span some{0, together}; some.a < channels_; some.a += together, some.b += together) {
        some.b = least(some.b, channels_);
        for (int64_t r = a_[k] - lead; r < b_[k] - lead + behind; ++r) {
            const int64_t j = r + lead - behind - a_[k];  // the position that this row completes
            const bool there = row_of(r) != none;
            if (!there && j < 0) continue;
            cells.from = source + (r - need_[k].a) * stride;
            cells.begin = need_[K - 1].a - first;
            cells.end = there ? need_[K - 1].b - first : 0;
            cells.product = there ? product * count_of_row(k, r) : 1;
            Terms<A> t;
            t.y[0] = behind > 1 ? row_of(r - 2) : none;
            t.y[1] = row_of(r - 1);
            t.z[0] = older == none ? none : older + j * pitch;
            t.z[1] = old == none ? none : old + j * pitch;
            t.row = rows + (r - need_[k].a + SLIDING) % SLIDING * pitch;
            t.plane = plane ? plane + j * pitch : nullptr;
            t.complete = j >= 0;
            t.out = result && j >= 0 ? place(result + j * plan_.steps[size_t(k)].result_stride, out_ * int64_t(sizeof(S))) : nullptr;
            by_way([&](auto way) { plane ? slide_row<true, decltype(way)::value>(t, cells, some) : slide_row<false, decltype(way)::value>(t, cells, some); });
        }
    }
}

}  // namespace PG_ISA
}  // namespace poolgrad
