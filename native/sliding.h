// Gradients whose windows of three cells (of three axes: two or three) slide by one: every row is divided and summed along all axes
// while it is close by, and what it completes of the result is written at once. What is not there, beyond an edge or where a
// window has but two cells, is -0.0, which changes no sum. Channels are whole lines, or there is but one (strips.h).
#pragma once

#include "strips.h"

namespace poolgrad {
namespace PG_ISA {

constexpr int64_t CLOSE = 1024;  // elements of a row divided and summed at a time

// The terms of one row, oldest first: of the last axis, then of the axis before it, and of the first of three, whose last terms are
// what comes out of the one before. `row` and `plane` keep these for later.
template <class A> struct Terms {
    const A *x[SLIDING], *y[SLIDING - 1], *z[SLIDING - 1];
    A *row, *plane;
};

// PLANE: sums of the middle axis are complete, and kept. OUT: those of the first axis are, and written; PAST: past the caches.
template <class S, class A, bool PLANE, bool OUT, bool PAST> inline void slide_row(const Terms<A>& t, char* out, int64_t n) {
    constexpr int64_t v = LANES<A>, item = sizeof(S), per = sizeof(A) / sizeof(S);
    const A *x0 = t.x[0], *x1 = t.x[1], *x2 = t.x[2], *y0 = t.y[0], *y1 = t.y[1], *z0 = t.z[0], *z1 = t.z[1];
    A *row = t.row, *plane = t.plane;
    auto vector = [=](int64_t k) {
        Vec<A> sum = load(x0 + k) + load(x1 + k) + load(x2 + k);
        store(row + k, sum);
        if (PLANE || OUT) sum = load(y0 + k) + load(y1 + k) + sum;
        if (PLANE) store(plane + k, sum);
        if (PLANE && OUT) sum = load(z0 + k) + load(z1 + k) + sum;
        return sum;
    };
    auto vectors = [=](int64_t k) {
        Vec<A> sum = vector(k);
        if constexpr (per == 2) {
            const Vec<A> next = vector(k + v);
            if (OUT) sum = narrow_pair<S>(sum, next);
        }
        return sum;
    };
    int64_t k = 0;
    for (; k + per * v <= n; k += per * v) {
        const Vec<A> sum = vectors(k);
        if (PAST) stream(reinterpret_cast<A*>(out + k * item), sum);
        else if (OUT) {
            ask_to_write(out + k * item);
            std::memcpy(out + k * item, &sum, sizeof sum);
        }
    }
}

template <class S> bool Box<S>::is_sliding(const char* result) const {
    const bool whole = channels_ == plan_.channels && (channels_ > 1 || b_[K - 1] - a_[K - 1] == plan_.axes[K - 1]->positions);
    return plan_.sliding && whole && (!streaming_ || (plan_.whole_lines && to_line(result) == 0));
}

template <class S> void Box<S>::run_sliding(const char* source, char* result) {
    A* none = at(plan_.scratch.slid);
    for (int k = 0; k < K; ++k) lead_[k] = plan_.lead[k];
    if (channels_ > 1 || K == 3) for (int64_t k = 0; k < plan_.pitch; ++k) none[k] = -A(0);
    if (channels_ > 1) for (int64_t k = 0; k < plan_.pitch + SLIDING * channels_; ++k) row_in_[k] = -A(0);
    if (K == 2) slide_images(source, result);
    else slide_volume(source, result);
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
    if (channels_ == 1) return strip_planes(source, 1, nullptr, none, none, result);
    const Dim& step = plan_.steps[0];
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
        const int64_t product = plan_.divide_first ? (plane(d) == none ? 1 : count_of_row(0, d)) : count_of_position(0, most(i, a_[0]));
        if (plane(d) != none) slide_plane(source + (d - need_[0].a) * plan_.steps[0].source_stride, product, plane(d), older, old, to);
        else if (to) for (int64_t j = 0; j < b_[1] - a_[1]; ++j) {
            const A* p[SLIDING - 1];
            int found = 0;
            for (const A* plane : {older, old}) if (plane != none) p[found++] = plane + j * plan_.pitch;
            emit_rows(p, found, to + j * plan_.steps[1].result_stride, 1, 0, b_[2] - a_[2], count_of_position(0, i) * count_of_position(1, a_[1] + j));
        }
    }
}

template <class S> void Box<S>::slide_plane(const char* source, int64_t product, A* plane, const A* older, const A* old, char* result) {
    if (channels_ == 1) return strip_planes(source, product, plane, older, old, result);
    const int k = K - 2;
    const Axis &axis = *plan_.axes[size_t(k)], &last = *plan_.axes[size_t(K - 1)];
    const int64_t pitch = plan_.pitch, lead = lead_[k], behind = axis.reach[0] - 1, chunk = most(1, CLOSE / channels_), width = b_[K - 1] - a_[K - 1];
    const int64_t first = a_[K - 1] - lead_[K - 1];  // the cell that row_in_ begins with
    A *none = at(plan_.scratch.slid), *rows = none + pitch;
    auto row_of = [&](int64_t r) { return r >= need_[k].a && r < need_[k].b ? rows + (r - need_[k].a) % SLIDING * pitch : none; };
    for (int64_t r = a_[k] - lead; r < b_[k] - lead + behind; ++r) {
        const int64_t j = r + lead - behind, at = (j - a_[k]) * pitch, by = product * (row_of(r) == none ? 1 : count_of_row(k, r));
        const char* from = source + (r - need_[k].a) * plan_.steps[size_t(k)].source_stride;
        char* to = result && j >= a_[k] ? result + (j - a_[k]) * plan_.steps[size_t(k)].result_stride : nullptr;
        if (row_of(r) == none && j < a_[k]) continue;
        int64_t loaded = need_[K - 1].a;
        for (int64_t w = 0; w < width; w += chunk) {
            const int64_t n = least(chunk, width - w), cells = last.hi[size_t(a_[K - 1] + w + n - 1)], c = w * channels_;
            if (row_of(r) != none && loaded < cells) {
                load_cells(from, by, loaded - need_[K - 1].a, cells - loaded, row_in_ + (loaded - first) * channels_);
                loaded = cells;
            }
            Terms<A> t;
            for (int64_t x = 0; x < SLIDING; ++x) t.x[x] = row_of(r) == none || x >= last.reach[0] ? none + c : row_in_ + c + x * channels_;
            t.y[0] = (behind > 1 ? row_of(r - 2) : none) + c;
            t.y[1] = row_of(r - 1) + c;
            t.z[0] = (older == none ? none : older + at) + c;
            t.z[1] = (old == none ? none : old + at) + c;
            t.row = rows + (r - need_[k].a + SLIDING) % SLIDING * pitch + c;
            t.plane = plane ? plane + at + c : nullptr;
            slide_part(t, j >= a_[k], to ? to + c * int64_t(sizeof(S)) : nullptr, n * channels_);
        }
    }
}

template <class S> void Box<S>::slide_part(const Terms<A>& t, bool complete, char* to, int64_t n) {
    if (!complete) return slide_row<A, A, false, false, false>(t, nullptr, n);
    if (!to) return slide_row<A, A, true, false, false>(t, nullptr, n);
    if (streaming_) return t.plane ? slide_row<S, A, true, true, true>(t, to, n) : slide_row<S, A, false, true, true>(t, to, n);
    return t.plane ? slide_row<S, A, true, true, false>(t, to, n) : slide_row<S, A, false, true, false>(t, to, n);
}

}  // namespace PG_ISA
}  // namespace poolgrad
