// The rows of a box from the source: loaded, widened, divided where that comes first, and summed along every axis but the
// first.
#pragma once

#include "box.h"
#include "weave.h"

namespace poolgrad {
namespace PG_ISA {

template <class S> void Box<S>::expand(int k, int64_t product, const char* source, A* to) {
    const Span need = need_[k];
    A* blocks = at(plan_.scratch.level[k]);
    if (k == K - 2) make_rows(k, need.a, need.b - need.a, product, source, blocks);
    else for (int64_t c = need.a; c < need.b; ++c)
        expand(k + 1, product * count_of_row(k, c), source + (c - need.a) * plan_.steps[k].source_stride, blocks + (c - need.a) * inner_[k + 1]);
    sum_axis(*plan_.axes[k], program_[k], a_[k], b_[k], blocks, need.a, inner_[k + 1], to, sums_);
}

template <class S> void Box<S>::make_rows(int k, int64_t row, int64_t n, int64_t product, const char* source, A* to) {
    const int64_t stride = plan_.steps[k].source_stride;
    for (int64_t r = 0; r < n; r += plan_.batch) {
        const int64_t m = least(plan_.batch, n - r);
        const char* from = source + r * stride;
        A* rows = to + r * inner_[K - 1];
        if (plan_.spread_late) load_rows(k, row + r, m, product, from, rows, inner_[K - 1]);
        else if (plan_.rows == Rows::packed) sum_packed(k, row + r, m, product, from, rows);
        else if (plan_.rows == Rows::turned) sum_turned(k, row + r, m, product, from, rows);
        else {
            const A* in = rows_in_place(k, from, m);
            if (!in || !plan_.weave.even) prefetch_rows(k, m, from);
            if (!in) {
                load_rows(k, row + r, m, product, from, row_in_, in_);
                in = row_in_;
            }
            weave_rows(plan_.weave, in, rows, m);
        }
    }
}

template <class S> void Box<S>::prefetch_rows(int k, int64_t n, const char* source) const {
    const int64_t stride = plan_.steps[k].source_stride;
    if (plan_.steps[K - 1].source_stride != channels_ * int64_t(sizeof(S))) return;
    const int64_t bytes = in_ * int64_t(sizeof(S));
    if (stride == bytes) return prefetch(source + n * stride, n * bytes);
    for (int64_t r = n; r < 2 * n; ++r) prefetch(source + r * stride, bytes);
}

template <class S> auto Box<S>::rows_in_place(int k, const char* from, int64_t n) const -> const A* {
    constexpr int64_t item = sizeof(A), before = VECTOR_BYTES, after = 3 * VECTOR_BYTES;
    if (sizeof(S) != sizeof(A) || plan_.divide_first || plan_.source_bytes == 0) return nullptr;
    const bool packed = plan_.steps[K - 1].source_stride == channels_ * item && (channels_ == 1 || plan_.channel_source == item) &&
                        plan_.steps[k].source_stride == in_ * item && reinterpret_cast<uintptr_t>(from) % sizeof(A) == 0;
    const int64_t at = from - source_;
    return packed && at >= before && at + n * in_ * item + after <= plan_.source_bytes ? reinterpret_cast<const A*>(from) : nullptr;
}

template <class S> void Box<S>::sum_packed(int k, int64_t row, int64_t n, int64_t product, const char* source, A* to) {
    if (program_[K - 1]) {
        load_rows(k, row, n, product, source, row_in_, in_);
        const int64_t stride = plan_.steps[k].source_stride;
        const Later later{source + n * stride, plan_.steps[K - 1].source_stride, stride, sizeof(S)};
        return sum_long<A>(*program_[K - 1], {row_in_, channels_, in_}, {to, channels_, inner_[K - 1]}, channels_, n, sums_, plan_.channel_source == later.item ? later : Later{});
    }
    for (int64_t r = 0; r < n; ++r) {
        const int64_t stride = plan_.steps[k].source_stride;
        const A* in = load_row(source + r * stride, product * count_of_row(k, row + r), row_in_);
        sum_last(in, channels_, to + r * inner_[K - 1], in == row_in_ ? 0 : stride / int64_t(sizeof(A)));
    }
}

template <class S> int64_t Box<S>::turn_divided(int k, int64_t row, int64_t n, int64_t product, const char* source, int64_t lanes) {
    constexpr int64_t tall = LANES<A>;
    const int64_t stride = plan_.steps[k].source_stride;
    const A *counts = divider_.row(1, 0), *inverses = divider_.inverse_row();
    if (VECTOR_BYTES < 64 || sizeof(S) != sizeof(A) || !plan_.divide_first || in_ % 8 || stride % int64_t(sizeof(A)) || !is_aligned(source)) return 0;
    if (!(counts || plan_.constant_divisor) || !place_of(need_[K - 1].b - need_[K - 1].a, 1).packed()) return 0;
    const int64_t done = n / 16 * 16, whole = WHOLE / plan_.most_count;
    for (int64_t r = 0; r < done; r += tall) {
        A rows[tall], reciprocals[tall];
        for (int64_t j = 0; j < tall; ++j) {
            const int64_t d = plan_.constant_divisor ? plan_.divisor : product * count_of_row(k, row + r + j);
            if (!plan_.constant_divisor && d > EXACT_COUNT<A>) return r / 16 * 16;
            rows[j] = A(d);
            reciprocals[j] = reciprocal(A(plan_.constant_divisor || d <= whole ? d : 0));
        }
        const Vec<A> by = load(rows), over = load(reciprocals);
        const char *from = source + r * stride, *next = from + tall * stride;
        A* to = turned_in_ + r;
        auto turn = [&](const auto& divided) PG_INLINED {
            transpose_tall(reinterpret_cast<const A*>(from), stride / int64_t(sizeof(A)), to, lanes, in_, [&](Vec<A> x, int64_t c) PG_INLINED {
                if (c % SQUARE<A> == 0) prefetch(next + c * VECTOR_BYTES, SQUARE<A> * VECTOR_BYTES);
                return divided(x, c);
            });
        };
        if (plan_.constant_divisor) turn([&](Vec<A> x, int64_t) PG_INLINED { return quotient(x, by, over); });
        else turn([&](Vec<A> x, int64_t c) PG_INLINED { return quotient(x, by * splat(counts[c]), over * splat(inverses[c])); });
    }
    return done;
}

template <class S> void Box<S>::sum_turned(int k, int64_t row, int64_t n, int64_t product, const char* source, A* to) {
    const int64_t lanes = (n + 15) / 16 * 16, width = need_[K - 1].b - need_[K - 1].a, stride = plan_.steps[k].source_stride;
    const int64_t chunk = turned_chunk(channels_), chunk_stride = chunk * channels_;
    const int64_t turned = turn_divided(k, row, n, product, source, lanes);
    for (int64_t w = 0; w < width; w += chunk) {
        const int64_t m = least(chunk, width - w);
        for (int64_t r = turned; r < lanes; r += 16) {
            for (int64_t j = r; j < least(r + 16, n); ++j) load_cells(source + j * stride, product * count_of_row(k, row + j), w, m, row_in_ + (j - r) * chunk_stride);
            transpose(row_in_, chunk_stride, turned_in_ + w * channels_ * lanes + r, lanes, 16, m * channels_);
        }
    }
    Later later{source + n * stride, channels_ * lanes * int64_t(sizeof(S)), 0, sizeof(S)};
    if (!program_[K - 1] || stride != in_ * int64_t(sizeof(S))) {
        prefetch_rows(k, n, source);
        later.at = nullptr;
    }
    sum_axis(*plan_.axes[K - 1], program_[K - 1], a_[K - 1], b_[K - 1], turned_in_, need_[K - 1].a, channels_ * lanes, turned_out_, sums_, 0, later);
    A* target = n == lanes ? to : row_in_;
    transpose(turned_out_, lanes, target, inner_[K - 1], out_, lanes);
    if (target != to) std::memcpy(to, target, size_t(n * inner_[K - 1]) * sizeof(A));
}

template <class S> void Box<S>::sum_last(const A* in, int64_t inner, A* to, int64_t ahead) {
    sum_axis(*plan_.axes[K - 1], program_[K - 1], a_[K - 1], b_[K - 1], in, need_[K - 1].a, inner, to, sums_, ahead);
}

template <class S> void Box<S>::load_rows(int k, int64_t row, int64_t n, int64_t product, const char* source, A* to, int64_t stride) {
    const int64_t step = plan_.steps[k].source_stride, width = need_[K - 1].b - need_[K - 1].a;
    // Rows that follow each other on both sides and divide by the same are one long row.
    const bool packed = stride == in_ && step == in_ * int64_t(sizeof(S)) && plan_.rows == Rows::woven &&
                        Place{width, plan_.steps[K - 1].source_stride, channels_, plan_.channel_source, int64_t(sizeof(S))}.packed();
    for (int64_t r = 0, rows; r < n; r += rows) {
        const int64_t count = count_of_row(k, row + r);
        for (rows = 1; packed && r + rows < n && count_of_row(k, row + r + rows) == count;) ++rows;
        A* place = to + r * stride;
        const char* from = source + r * step;
        if (packed && plan_.divide_first) {
            divider_.template divide<S>(from, place, product * count, 0, rows * width, AHEAD);
            continue;
        }
        const A* loaded = load_row(from, product * count, place, rows);
        if (loaded != place) std::memcpy(place, loaded, size_t(rows * in_) * sizeof(A));
    }
}

template <class S> auto Box<S>::load_row(const char* source, int64_t product, A* to, int64_t rows) -> const A* {
    const int64_t n = rows * (need_[K - 1].b - need_[K - 1].a);
    if (const A* there = cells_in_place(source, n)) return there;
    load_cells(source, product, 0, n, to, rows);
    return to;
}

template <class S> auto Box<S>::cells_in_place(const char* source, int64_t n) const -> const A* {
    const bool usable = !plan_.divide_first && sizeof(S) == sizeof(A) && place_of(n, 1).packed() && is_aligned(source);
    return usable ? reinterpret_cast<const A*>(source) : nullptr;
}

template <class S> void Box<S>::load_cells(const char* source, int64_t product, int64_t w, int64_t n, A* to, int64_t rows) {
    const Place place = place_of(n, rows);
    const char *from = source + w * place.step, *end = source_ + plan_.source_bytes;
    if (n <= 0) return;
    if (!plan_.divide_first) return read_row<S>(from, place, to, end);
    const bool cut = plan_.box[size_t(K - 1)] < plan_.axes[size_t(K - 1)]->positions;
    const int64_t ahead = cut ? plan_.steps[size_t(K - 2)].source_stride : AHEAD;
    if (place.packed()) return divider_.template divide<S>(from, to, product, w, n, ahead);
    read_row<S>(from, place, raw_, end);
    divider_.template divide<A>(reinterpret_cast<const char*>(raw_), to, product, w, n, ahead);
}

template <class S> auto Box<S>::place_of(int64_t n, int64_t rows) const -> Place {
    const int64_t item = sizeof(S), step = rows > 1 ? channels_ * item : plan_.steps[K - 1].source_stride;
    return {n, step, channels_, plan_.channel_source, item};
}

}  // namespace PG_ISA
}  // namespace poolgrad
