// One box of the result, computed from exactly the source rows it needs. Compiled once per instruction set.
//
// A box goes axis by axis from last to first, as the numeric contract orders. Rows of the last axis are loaded,
// (divided,) and summed into scratch; each axis before it sums blocks of what follows; the first axis writes the
// result. Short intervals on the first axis keep a ring of the blocks in reach, so nothing is computed twice; long
// ones keep them all. A last axis that adds nothing is spread only when the result is written: copying commutes with
// every sum.
#include "cell.h"
#include "direct.h"
#include "doubling.h"
#include "filling.h"
#include "flat.h"
#include "floor.h"
#include "halving.h"
#include "images.h"
#include "joining.h"
#include "making.h"
#include "pairs.h"

namespace poolgrad {
namespace PG_ISA {

template <class S> void Box<S>::run(const char* source, char* result, const int64_t* index, int64_t channel, bool empty) {
    channels_ = least(plan_.box_channels, plan_.channels - channel);
    source += channel * plan_.channel_source;
    result += channel * plan_.channel_result;
    for (int k = 0; k < K; ++k) {
        const Axis& axis = *plan_.axes[k];
        a_[k] = index[k] * plan_.box[k];
        b_[k] = least(a_[k] + plan_.box[k], axis.positions);
        need_[k] = axis.rows_needed(a_[k], b_[k]);
        source += (need_[k].a - axis.base) * plan_.steps[k].source_stride;
        result += a_[k] * plan_.steps[k].result_stride;
        program_[k] = axis.is_long() ? &plan_.programs[k][index[k]] : nullptr;
    }
    const Axis& last = *plan_.axes[K - 1];
    in_ = (need_[K - 1].b - need_[K - 1].a) * channels_;
    out_ = (b_[K - 1] - a_[K - 1]) * channels_;
    inner_[K - 1] = plan_.spread_late ? in_ : out_;
    inner_[K - 1] = plan_.rows == Rows::woven ? most(inner_[K - 1], 1) : padded_row(most(inner_[K - 1], 1), int64_t(sizeof(A)));
    for (int k = K - 2; k >= 1; --k) inner_[k] = (b_[k] - a_[k]) * inner_[k + 1];
    block_ = K == 2 ? inner_[1] : padded_row(inner_[1], int64_t(sizeof(A)));
    const Span w = plan_.divide_first ? need_[K - 1] : Span{a_[K - 1], b_[K - 1]};
    const Span whole = plan_.divide_first ? last.rows_needed(0, last.positions) : Span{0, last.positions};
    divider_.begin(plan_, last, w.a - (plan_.divide_first ? last.base : 0), w.a - whole.a, w.b - w.a, channels_);
    gathers_ = is_ragged(result);
    streaming_ = plan_.streaming && !gathers_;
    joins_ = gathers_ && !empty && is_joining(result);
    gathers_ = gathers_ && !joins_;
    const char* end = result + (b_[0] - a_[0]) * plan_.steps[0].result_stride;
    if (gathers_) gathered_.begin(scratch_ + plan_.scratch.gathered, out_ * int64_t(sizeof(S)) % LINE == 0, end);
    plain_ = plan_.divide_first && !plan_.spread_late && !plan_.accumulate &&
             Place{b_[K - 1] - a_[K - 1], plan_.steps[K - 1].result_stride, channels_, plan_.channel_result, int64_t(sizeof(S))}.packed();
    if (empty) emit_empty(a_[0], b_[0], result);
    else if (plan_.whole_images) run_images(source, result);
    else if (plan_.one_cell) run_cell(source, result);
    else if (is_filled(result)) run_filled(source, result);
    else if (is_sliding(result)) run_sliding(source, result);
    else if (is_paired(result)) run_pairs(source, result);
    else if (is_doubling(result)) run_doubling(source, result);
    else if (is_joined(result)) run_joined(source, result);
    else if (plan_.halving) each_row(source, result, [&](auto... row) { halve_row(row...); });
    else if (is_direct(source, result)) each_row(source, result, [&](auto... row) { direct_row(row...); });
    else if (program_[0]) run_long(source, result);
    else run_short(source, result);
    if (gathers_) gathered_.end();
}

template <class S> bool Box<S>::is_ragged(const char* result) const {
    if (!plan_.gather) return false;
    const bool strips = plan_.sliding && channels_ == 1 && !plan_.flat && out_ > WIDEST<A> * LANES<A>;
    const int64_t row = out_ * int64_t(sizeof(S)), run = run_bytes(strips ? K - 2 : program_[0] ? 0 : K - 1);  // columns are one run
    if (run == 0 || run > MOST_GATHERED) return false;
    const bool whole = row % LINE == 0, reads = plan_.rows == Rows::packed && !plan_.divide_first;  // more than it writes, which then hardly matters
    if (whole && (to_line(result) == 0 || reads)) return false;
    return plan_.own_kernel() || (rows_are_one() ? run : row) < WIDE_RUN || !(whole || program_[0]);
}

template <class S> int64_t Box<S>::run_bytes(int k) const {
    int64_t bytes = out_ * int64_t(sizeof(S));
    for (int j = K - 2; j >= k; --j) {
        if (b_[j] - a_[j] > 1 && plan_.steps[j].result_stride != bytes) return 0;
        bytes *= b_[j] - a_[j];
    }
    return bytes;
}

template <class S> bool Box<S>::is_joining(const char* result) const {
    constexpr int64_t v = LANES<A>, item = sizeof(S);
    if (to_line(result) % item || plan_.steps[K - 2].result_stride != out_ * item) return false;
    if (channels_ == 1) return K == 2 && is_sliding(result) && !plan_.flat && out_ <= WIDEST<A> * v;
    const bool together = channels_ == 4 * v || channels_ == 2 * v || (channels_ == v && sizeof(S) == sizeof(A));  // all channels, cell by cell
    return VECTOR_BYTES == LINE && together && (is_sliding(result) || is_paired(result));
}

template <class S> void Box<S>::run_images(const char* source, char* result) {
    if constexpr (sizeof(S) == sizeof(A)) sum_images<A>(plan_, 0, reinterpret_cast<const A*>(source), channels_, spread_, row_in_, reinterpret_cast<const A*>(source_ + plan_.source_bytes));
    const A* sums = spread_;
    write_sum<S, A>(result, &sums, 1, channels_, plan_.divisor, streaming_);
}

template <class S> bool Box<S>::is_direct(const char* source, const char* result) const {
    int64_t terms = 1;
    for (const Axis* axis : plan_.axes) terms *= axis->reach[0];
    const bool small = K <= 3 && !program_[0] && terms <= DIRECT_TERMS && plan_.axes[K - 1]->reach[0] <= DIRECT_SIDE && plan_.axes[K - 2]->reach[0] <= DIRECT_SIDE;
    const Place place{b_[K - 1] - a_[K - 1], plan_.steps[K - 1].result_stride, channels_, plan_.channel_result, int64_t(sizeof(S))};
    return small && plan_.rows == Rows::packed && channels_ >= LANES<A> && !plan_.accumulate && place.packed() && is_aligned(result) &&
           cells_in_place(source, need_[K - 1].b - need_[K - 1].a);
}

template <class S> template <class F> void Box<S>::each_row(const char* source, char* result, const F& function) {
    const int64_t planes = K == 3 ? b_[0] - a_[0] : 1;
    for (int64_t d = 0; d < planes; ++d) {
        const Span deep = K == 3 ? Span{plan_.axes[0]->lo[a_[0] + d], plan_.axes[0]->hi[a_[0] + d]} : Span{0, 1};
        const char* plane = source + (K == 3 ? (deep.a - need_[0].a) * plan_.steps[0].source_stride : 0);
        char* to = result + (K == 3 ? d * plan_.steps[0].result_stride : 0);
        const int64_t product = K == 3 ? count_of_position(0, a_[0] + d) : 1;
        for (int64_t i = a_[K - 2]; i < b_[K - 2]; ++i) {
            char* row = place(to + (i - a_[K - 2]) * plan_.steps[K - 2].result_stride, out_ * int64_t(sizeof(S)));
            function(i, deep.b - deep.a, plane, product * count_of_position(K - 2, i), row);
        }
    }
}

template <class S> void Box<S>::direct_row(int64_t i, int64_t planes, const char* source, int64_t product, char* to) {
    const Axis &deep = *plan_.axes[0], &rows = *plan_.axes[K - 2], &last = *plan_.axes[K - 1];
    const int64_t high = rows.hi[i] - rows.lo[i], width = b_[K - 1] - a_[K - 1], row = plan_.steps[K - 2].source_stride;
    const bool past = streaming_ && to_line(to) == 0 && channels_ * int64_t(sizeof(A)) % LINE == 0;
    // Where most of a window was read for the row before, new lines are too few under way unless they are asked for.
    const bool apart = K < 3 || deep.positions < 2 || deep.lo[1] >= deep.hi[0];
    const bool ask = 2 * (apart ? planes : 1) * (i > a_[K - 2] ? rows.hi[i] - rows.hi[i - 1] : high) < planes * high;
    source += (rows.lo[i] - need_[K - 2].a) * row;
    for (int64_t w = 0, n; w < width; w += n) {
        const int64_t a = a_[K - 1] + w, lo = last.lo[a], wide = last.hi[a] - lo;
        const int64_t d = divider_.divisor_at(product, w, least(last.even[a], width - w), n), step = n > 1 ? last.lo[a + 1] - lo : 0;
        A* out = reinterpret_cast<A*>(to) + w * channels_;
        const char* from = source + (lo - need_[K - 1].a) * channels_ * int64_t(sizeof(A));
        if (planes <= 0 || high <= 0 || wide <= 0) std::memset(out, 0, size_t(n * channels_) * sizeof(A));
        else direct_cells<A>({out, from, planes, plan_.steps[0].source_stride, row, step * channels_, n, channels_, ask, past, d}, high, wide);
    }
}

template <class S> void Box<S>::run_short(const char* source, char* result) {
    const Axis& axis = *plan_.axes[0];
    const int64_t size = block_, slots = plan_.ring_rows, batch = K == 2 ? plan_.batch : 1, first = need_[0].a;
    int64_t made = first, slot = 0;
    const A* p[BLOCK];
    for (int64_t i = a_[0], n; i < b_[0]; i += n) {
        const int64_t lo = axis.lo[i], hi = axis.hi[i];
        char* to = result + (i - a_[0]) * plan_.steps[0].result_stride;
        n = 1;
        if (lo >= hi) { emit_empty(i, i + 1, result); continue; }
        if (made < lo) { made = lo; slot = (made - first) % slots; }
        while (made < hi) {
            const int64_t m = least(least(batch, need_[0].b - made), slots - slot);
            make_blocks(made, m, source + (made - first) * plan_.steps[0].source_stride, ring_ + slot * size);
            made += m;
            slot = slot + m == slots ? 0 : slot + m;
        }
        if (K == 2) n = least(least(axis.together[i], b_[0] - i), least(plan_.run_rows, made - hi + 1));
        int64_t q = (lo - first) % slots;
        for (int64_t c = lo; c < hi; ++c) {
            p[c - lo] = ring_ + q * size;
            n = least(n, slots - q);
            if (++q == slots) q = 0;
        }
        n = alike(0, i, n);
        emit(p, int(hi - lo), i, n, to);
    }
}

template <class S> void Box<S>::emit_empty(int64_t i, int64_t end, char* result) {
    const A* none[BLOCK] = {};
    for (; i < end; ++i) emit(none, 0, i, 1, result + (i - a_[0]) * plan_.steps[0].result_stride);
}

template <class S> int64_t Box<S>::pass_empty(int64_t i, char* result) {
    const Axis& axis = *plan_.axes[0];
    int64_t end = i;
    while (end < b_[0] && axis.lo[end] >= axis.hi[end]) ++end;
    emit_empty(i, end, result);
    return end;
}

template <class S> void Box<S>::make_blocks(int64_t row, int64_t n, const char* source, A* to) {
    const int64_t stride = plan_.steps[0].source_stride;
    if (K == 2) return make_rows(0, row, n, 1, source, to);
    for (int64_t k = 0; k < n; ++k) expand(1, count_of_row(0, row + k), source + k * stride, to + k * block_);
}

template <class S> void Box<S>::run_long(const char* source, char* result) {
    result = place(result, run_bytes(0));
    const bool one = rows_are_one();
    const int64_t row_size = one ? inner_[1] : inner_[K - 1], width = one ? row_size / channels_ : b_[K - 1] - a_[K - 1], rows = b_[0] - a_[0];
    make_blocks(need_[0].a, need_[0].b - need_[0].a, source, ring_);
    const int64_t columns = plan_.spread_late ? width : most(1, plan_.tile / channels_);
    for (int64_t r = 0; r < inner_[1] / row_size; ++r)
        for (int64_t w = 0; w < width; w += columns) {
            const int64_t n = least(columns, width - w), elements = round_up(plan_.spread_late ? in_ : n * channels_, FEW_CHANNELS);
            const Grid<const A> in{ring_ + r * row_size + w * channels_, block_, 0};
            int64_t divisor = 1;
            if (sum_into(in, n, row_place(r, result, divisor) + w * plan_.steps[K - 1].result_stride)) continue;
            sum_long<A>(*program_[0], in, {finished_, elements, 0}, elements, 1, sums_);
            for (int64_t i = 0; i < rows; ++i) {
                const A* row = finished_ + i * elements;
                int64_t product = count_of_position(0, a_[0] + i);
                char* to = row_place(r, result + i * plan_.steps[0].result_stride, product);
                emit_rows(&row, 1, to + w * plan_.steps[K - 1].result_stride, 1, w, n, product);
            }
        }
}

template <class S> bool Box<S>::sum_into(Grid<const A> in, int64_t n, char* to) {
    const int64_t elements = n * channels_, stride = plan_.steps[0].result_stride, unit = streaming_ ? LINE : int64_t(sizeof(A));
    const Place place{n, plan_.steps[K - 1].result_stride, channels_, plan_.channel_result, int64_t(sizeof(S))};
    if (sizeof(S) != sizeof(A) || !plan_.divide_first || plan_.spread_late || plan_.accumulate || !place.packed()) return false;
    if (elements % FEW_CHANNELS || stride % unit || reinterpret_cast<uintptr_t>(to) % uintptr_t(unit)) return false;
    const Grid<A> out{reinterpret_cast<A*>(to), stride / int64_t(sizeof(A)), 0};
    if (streaming_) sum_long<A, true>(*program_[0], in, out, elements, 1, sums_);
    else sum_long<A>(*program_[0], in, out, elements, 1, sums_);
    return true;
}

template <class S> void Box<S>::emit(const A** p, int found, int64_t i, int64_t n, char* result) {
    const int64_t width = b_[K - 1] - a_[K - 1], row_size = inner_[K - 1], bytes = out_ * int64_t(sizeof(S));
    if (K == 2) result = place(result, n * bytes);
    if (K == 2 && plain_) return write_sum<S, A>(result, p, found, n * out_, 1, streaming_);
    if (K == 2) return emit_rows(p, found, result, n, 0, width, count_of_position(0, i));
    const int64_t rows = inner_[1] / row_size, wide = b_[K - 2] - a_[K - 2];
    for (int64_t r = 0, together; r < rows; r += together) {
        together = alike(K - 2, a_[K - 2] + r % wide, least(plan_.run_rows, wide - r % wide));
        int64_t product = count_of_position(0, i);
        char* to = row_place(r, result, product);
        emit_rows(p, found, place(to, together * bytes), together, 0, width, product);
        for (int j = 0; j < found; ++j) p[j] += together * row_size;
    }
}

template <class S> char* Box<S>::row_place(int64_t r, char* result, int64_t& product) const {
    for (int k = K - 2; k >= 1; --k) {
        const int64_t n = b_[k] - a_[k], i = r % n;
        result += i * plan_.steps[k].result_stride;
        product *= count_of_position(k, a_[k] + i);
        r /= n;
    }
    return result;
}

template <class S> void Box<S>::emit_rows(const A* const* p, int found, char* to, int64_t rows, int64_t w, int64_t n, int64_t product) {
    const int64_t step = rows > 1 ? channels_ * int64_t(sizeof(S)) : plan_.steps[K - 1].result_stride;
    const Place place{rows * n, step, channels_, plan_.channel_result, int64_t(sizeof(S))};
    const bool direct = !plan_.accumulate && place.packed();
    const int64_t elements = rows * n * channels_;
    if (direct && (found == 0 || (!plan_.spread_late && plan_.divide_first))) return write_sum<S, A>(to, p, found, elements, 1, streaming_);
    if (direct && !plan_.spread_late && (!divider_.by_row() || divider_.row(product, w))) return write_divided(p, found, to, rows, w, n, product);
    const A* row = found == 1 ? p[0] : row_out_;
    if (found != 1) add_rows(row_out_, p, found, plan_.spread_late ? rows * inner_[K - 1] : elements);
    if (plan_.spread_late) {
        if (direct && plan_.divide_first && spread_into(row, to, rows)) return;
        spread(row, spread_, rows);
        row = spread_;
    }
    if (!plan_.divide_first) {
        divider_.template divide<A>(reinterpret_cast<const char*>(row), divided_, product, w, rows * n, AHEAD);
        row = divided_;
    }
    store_row<S>(row, to, place, plan_.accumulate, streaming_);
}

template <class S> void Box<S>::write_divided(const A* const* in, int found, char* to, int64_t rows, int64_t w, int64_t n, int64_t product) {
    const A* p[BLOCK + 1];
    for (int r = 0; r < found; ++r) p[r] = in[r];
    if ((p[found] = divider_.row(product, w))) return write_sum<S, A, OVER_ROW>(to, p, found, rows * n * channels_, A(product), streaming_);
    for (int64_t i = 0, shared; i < rows * n; i += shared) {
        const int64_t d = divider_.divisor_at(product, w + i, rows * n - i, shared), run = shared * channels_;
        write_sum<S, A>(to, p, found, run, d, streaming_);
        to += run * int64_t(sizeof(S));
        for (int r = 0; r < found; ++r) p[r] += run;
    }
}

template <class S> bool Box<S>::spread_into(const A* row, char* to, int64_t rows) {
    const bool woven = plan_.rows == Rows::woven, aligned = to_line(to) == 0;
    if constexpr (sizeof(S) < sizeof(A)) if (plan_.doubled) {
        narrow_run_twice<S>(row, to, rows * in_, streaming_ && aligned && rows * in_ % LANES<A> == 0);
        return true;
    }
    if (woven) {
        if (sizeof(S) != sizeof(A) || reinterpret_cast<uintptr_t>(to) % sizeof(A)) return false;
        if (!streaming_) { weave_rows<A>(plan_.weave, row, reinterpret_cast<A*>(to), rows); return true; }
        if (!aligned || plan_.weave.period * out_ * int64_t(sizeof(A)) % LINE) return false;
        weave_rows<A, true>(plan_.weave, row, reinterpret_cast<A*>(to), rows);
        return true;
    }
    const Axis& axis = *plan_.axes[K - 1];
    const int64_t bytes = channels_ * int64_t(sizeof(S));
    const char* from = reinterpret_cast<const char*>(row);
    if (sizeof(S) != sizeof(A)) {
        narrow_run<S>(row, reinterpret_cast<char*>(spread_), in_);
        from = reinterpret_cast<const char*>(spread_);
    }
    const bool past = streaming_ && aligned && bytes % LINE == 0;
    for (int64_t i = a_[K - 1]; i < b_[K - 1]; ++i, to += bytes) {
        const char* cell = from + (axis.lo[i] - need_[K - 1].a) * bytes;
        if (axis.lo[i] >= axis.hi[i]) past ? clear_run<true>(to, bytes) : clear_run<false>(to, bytes);
        else if (past) stream_lines(to, cell, bytes);
        else copy_vectors(to, cell, bytes);
    }
    return true;
}

template <class S> void Box<S>::spread(const A* row, A* out, int64_t rows) {
    if (plan_.rows == Rows::woven) return weave_rows<A>(plan_.weave, row, out, rows);
    const Axis& axis = *plan_.axes[K - 1];
    for (int64_t i = a_[K - 1]; i < b_[K - 1]; ++i, out += channels_) {
        const A* p = row + (axis.lo[i] - need_[K - 1].a) * channels_;
        add_rows(out, &p, axis.lo[i] < axis.hi[i], channels_);
    }
}

namespace {

template <class S> void run_one(const Plan& plan, const char* source, char* result, int64_t task, char* scratch) {
    const char* whole = source;
    int64_t box = task % plan.box_count, rest = task / plan.box_count, index[MAX_AXES];
    const int64_t channel = rest % plan.channel_boxes * plan.box_channels;
    rest /= plan.channel_boxes;
    bool empty = false;
    if (const Axis* planes = plan.planes) {
        const size_t i = size_t(rest % planes->positions);
        rest /= planes->positions;
        empty = planes->lo[i] >= planes->hi[i];
        if (!empty) source += (planes->lo[i] - planes->base) * plan.plane_step.source_stride;
        result += int64_t(i) * plan.plane_step.result_stride;
    }
    for (int k = int(plan.outer.size()) - 1; k >= 0; --k) {
        const Dim& d = plan.outer[size_t(k)];
        source += rest % d.extent * d.source_stride;
        result += rest % d.extent * d.result_stride;
        rest /= d.extent;
    }
    for (int k = plan.rank() - 1; k >= 0; --k) {
        const int64_t n = (plan.axes[size_t(k)]->positions + plan.box[size_t(k)] - 1) / plan.box[size_t(k)];
        index[k] = box % n;
        box /= n;
    }
    Box<S>(plan, whole, scratch).run(source, result, index, channel, empty);
}

}  // namespace

void run_boxes(const Plan& plan, const char* source, char* result, int64_t begin, int64_t end, char* scratch) {
    for (int64_t task = begin; task < end; ++task) switch (plan.dtype) {
        case Dtype::float32: run_one<float>(plan, source, result, task, scratch); break;
        case Dtype::float64: run_one<double>(plan, source, result, task, scratch); break;
        case Dtype::float16: run_one<Half>(plan, source, result, task, scratch); break;
        case Dtype::bfloat16: run_one<Bfloat>(plan, source, result, task, scratch); break;
    }
    if (plan.streaming) stream_fence();
}

void move(const char* from, int64_t read, char* to, int64_t written, bool streaming) {
    if (streaming) move_bytes<true>(from, read, to, written);
    else move_bytes<false>(from, read, to, written);
}

}  // namespace PG_ISA
}  // namespace poolgrad
