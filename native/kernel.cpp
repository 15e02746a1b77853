// One box of the result, computed from exactly the source rows it needs. Compiled once per instruction set.
//
// A box goes axis by axis from last to first, as the numeric contract orders. Rows of the last axis are loaded,
// (divided,) and summed into scratch; each axis before it sums blocks of what follows; the first axis writes the
// result. Short intervals on the first axis keep a ring of the blocks in reach, so nothing is computed twice; long
// ones keep them all.
#include "rows.h"

namespace poolgrad {
namespace PG_ISA {
namespace {

template <class S> class Box {
    using A = typename AccumulatorOf<S>::type;

public:
    Box(const Plan& plan, char* scratch) : plan_(plan), K(plan.rank()), scratch_(scratch) {
        ring_ = at(plan.scratch.ring);
        row_in_ = at(plan.scratch.row_in);
        row_out_ = at(plan.scratch.row_out);
        turned_in_ = at(plan.scratch.turned_in);
        turned_out_ = at(plan.scratch.turned_out);
        sums_ = at(plan.scratch.sums);
        stage_ = scratch + plan.scratch.stage;
    }

    // The box whose k-th axis covers positions from a[k] on, channels from `channel` on, of one image.
    void run(const char* source, char* result, const int64_t* index, int64_t channel) {
        channels_ = least(plan_.box_channels, plan_.channels - channel);
        source += channel * plan_.channel_source;
        result += channel * plan_.channel_result;
        for (int k = 0; k < K; ++k) {
            const Axis& axis = *plan_.axes[k];
            a_[k] = index[k] * plan_.box[k];
            b_[k] = least(a_[k] + plan_.box[k], axis.positions);
            need_[k] = needed(axis, a_[k], b_[k]);
            source += (need_[k].a - axis.base) * plan_.steps[k].source_stride;
            result += a_[k] * plan_.steps[k].result_stride;
        }
        inner_[K] = channels_;
        for (int k = K - 1; k >= 1; --k) inner_[k] = round_row(k, (b_[k] - a_[k]) * inner_[k + 1]);
        const Axis& last = *plan_.axes[K - 1];
        const Span w = plan_.divide_first ? need_[K - 1] : Span{a_[K - 1], b_[K - 1]};
        divider_.begin(plan_, last.count.data() + w.a - (plan_.divide_first ? last.base : 0), w.b - w.a, channels_, at(plan_.scratch.divisors));
        if (plan_.axes[0]->is_long()) run_long(source, result);
        else run_short(source, result);
    }

private:
    A* at(size_t offset) const { return reinterpret_cast<A*>(scratch_ + offset); }

    // Rows of the last axis start on a cache line of their own.
    int64_t round_row(int k, int64_t n) const {
        constexpr int64_t line = LINE / int64_t(sizeof(A));
        return k == K - 1 ? (n + line - 1) / line * line : n;
    }

    static Span needed(const Axis& axis, int64_t a, int64_t b) {
        Span s{0, 0};
        for (; a < b && axis.lo[a] >= axis.hi[a];) ++a;
        for (; a < b && axis.lo[b - 1] >= axis.hi[b - 1];) --b;
        if (a < b) { s.a = axis.lo[a]; s.b = axis.hi[b - 1]; }
        else s.a = s.b = axis.base;
        return s;
    }

    int64_t count_of(int k, int64_t row) const {
        return plan_.divide_first && !plan_.constant_divisor ? plan_.axes[k]->count[row - plan_.axes[k]->base] : 1;
    }

    // First axis, short intervals: a ring of blocks.
    void run_short(const char* source, char* result) {
        const Axis& axis = *plan_.axes[0];
        const int64_t size = inner_[1], slots = plan_.ring_rows, batch = K == 2 && plan_.strip ? plan_.strip : 1, first = need_[0].a;
        int64_t made = first;
        const A* p[BLOCK];
        for (int64_t i = a_[0]; i < b_[0]; ++i) {
            const int64_t lo = axis.lo[i], hi = axis.hi[i];
            if (made < lo) made = lo;
            while (made < hi) {
                const int64_t slot = (made - first) % slots, n = least(least(batch, need_[0].b - made), slots - slot);
                make_blocks(made, n, source + (made - first) * plan_.steps[0].source_stride, ring_ + slot * size);
                made += n;
            }
            for (int64_t c = lo; c < hi; ++c) p[c - lo] = ring_ + (c - first) % slots * size;
            emit(p, hi > lo ? int(hi - lo) : 0, i, result + (i - a_[0]) * plan_.steps[0].result_stride);
        }
    }

    // Blocks of `n` consecutive rows of the first axis.
    void make_blocks(int64_t row, int64_t n, const char* source, A* to) {
        const int64_t stride = plan_.steps[0].source_stride;
        if (K == 2) return make_rows(0, row, n, 1, source, to);
        for (int64_t k = 0; k < n; ++k) expand(1, count_of(0, row + k), source + k * stride, to + k * inner_[1]);
    }

    // First axis, long intervals: every block, then sums a few columns at a time.
    void run_long(const char* source, char* result) {
        const Axis& axis = *plan_.axes[0];
        const int64_t size = inner_[1], rows = need_[0].b - need_[0].a;
        make_blocks(need_[0].a, rows, source, ring_);
        const int64_t width = b_[K - 1] - a_[K - 1], row_size = inner_[K - 1];
        const int64_t columns = most(1, plan_.tile / channels_);
        for (int64_t r = 0; r < size / row_size; ++r)
            for (int64_t w = 0; w < width; w += columns) {
                const int64_t n = least(columns, width - w);
                intervals_.begin(axis.reach.data(), ring_ + r * row_size + w * channels_, size, need_[0].a, rows, n * channels_, sums_);
                for (int64_t i = a_[0]; i < b_[0]; ++i) {
                    const A* p[BLOCK];
                    const int found = axis.hi[i] > axis.lo[i] ? intervals_.parts(axis.lo[i], axis.hi[i], p) : 0;
                    int64_t product = divisor_at(0, i);
                    char* to = row_place(r, result + (i - a_[0]) * plan_.steps[0].result_stride, product);
                    emit_row(p, found, to + w * plan_.steps[K - 1].result_stride, w, n, product);
                }
            }
    }

    // Write position i of the first axis: the sum of the blocks p.
    void emit(const A** p, int found, int64_t i, char* result) {
        const int64_t row_size = inner_[K - 1], rows = inner_[1] / row_size;
        for (int64_t r = 0; r < rows; ++r) {
            int64_t product = divisor_at(0, i);
            char* to = row_place(r, result, product);
            emit_row(p, found, to, 0, b_[K - 1] - a_[K - 1], product);
            for (int j = 0; j < found; ++j) p[j] += row_size;
        }
    }

    int64_t divisor_at(int k, int64_t i) const {
        return plan_.divide_first || plan_.constant_divisor ? 1 : plan_.axes[k]->count[i];
    }

    // Row r of a block in the result, and its divisor so far.
    char* row_place(int64_t r, char* result, int64_t& product) const {
        for (int k = K - 2; k >= 1; --k) {
            const int64_t n = b_[k] - a_[k], i = r % n;
            result += i * plan_.steps[k].result_stride;
            product *= divisor_at(k, a_[k] + i);
            r /= n;
        }
        return result;
    }

    // n positions of a result row, from position w of the box on.
    void emit_row(const A* const* p, int found, char* to, int64_t w, int64_t n, int64_t product) {
        const Place place{n, plan_.steps[K - 1].result_stride, channels_, plan_.channel_result, int64_t(sizeof(S))};
        if (sizeof(S) == sizeof(A) && plan_.divide_first && !plan_.accumulate && place.packed() && reinterpret_cast<uintptr_t>(to) % sizeof(A) == 0) {
            A* out = reinterpret_cast<A*>(to);
            if (plan_.streaming) add_rows_streaming(out, p, found, n * channels_);
            else add_rows(out, p, found, n * channels_);
            return;
        }
        const A* row = found == 1 ? p[0] : row_out_;
        if (found != 1) add_rows(row_out_, p, found, n * channels_);
        if (!plan_.divide_first) { divider_.divide(row, row_out_, product, w, n); row = row_out_; }
        store_row<S>(row, to, place, plan_, stage_);
    }

    // Axes k and after, for one row of the axis before: `to` becomes [positions of k]...[channels].
    void expand(int k, int64_t product, const char* source, A* to) {
        const Axis& axis = *plan_.axes[k];
        const Span need = need_[k];
        A* blocks = at(plan_.scratch.level[k]);
        if (k == K - 2) make_rows(k, need.a, need.b - need.a, product, source, blocks);
        else for (int64_t c = need.a; c < need.b; ++c)
            expand(k + 1, product * count_of(k, c), source + (c - need.a) * plan_.steps[k].source_stride, blocks + (c - need.a) * inner_[k + 1]);
        sum_axis(axis, a_[k], b_[k], blocks, need.a, need.b - need.a, inner_[k + 1], to, plan_.tile, sums_);
    }

    // n rows of axis k (the last but one) from `row` on, each summed along the last axis.
    void make_rows(int k, int64_t row, int64_t n, int64_t product, const char* source, A* to) {
        const int64_t stride = plan_.steps[k].source_stride;
        if (plan_.strip) {
            for (int64_t r = 0; r < n; r += plan_.strip)
                make_strip(k, row + r, least(plan_.strip, n - r), product, source + r * stride, to + r * inner_[K - 1]);
            return;
        }
        const Axis& axis = *plan_.axes[K - 1];
        const Span need = need_[K - 1];
        for (int64_t r = 0; r < n; ++r) {
            const A* in = load(source + r * stride, product * count_of(k, row + r), row_in_);
            sum_axis(axis, a_[K - 1], b_[K - 1], in, need.a, need.b - need.a, channels_, to + r * inner_[K - 1], plan_.tile, sums_);
        }
    }

    // The same for few channels: rows are turned so that they lie side by side and fill the vectors.
    void make_strip(int k, int64_t row, int64_t n, int64_t product, const char* source, A* to) {
        constexpr int64_t square = 8;
        const Axis& axis = *plan_.axes[K - 1];
        const Span need = need_[K - 1];
        const int64_t in = (need.b - need.a) * channels_, out = (b_[K - 1] - a_[K - 1]) * channels_;
        const int64_t in_stride = (in + square - 1) / square * square, lanes = (n + square - 1) / square * square;
        if (in == 0) return zero(to, n * inner_[K - 1]);
        for (int64_t r = 0; r < n; ++r) {
            A* lane = row_in_ + r * in_stride;
            const A* loaded = load(source + r * plan_.steps[k].source_stride, product * count_of(k, row + r), lane);
            if (loaded != lane) std::memcpy(lane, loaded, size_t(in) * sizeof(A));
        }
        transpose(row_in_, in_stride, turned_in_, lanes, lanes, in);
        sum_axis(axis, a_[K - 1], b_[K - 1], turned_in_, need.a, need.b - need.a, channels_ * lanes, turned_out_, plan_.tile, sums_);
        A* target = n == lanes ? to : row_in_;
        transpose(turned_out_, lanes, target, inner_[K - 1], out, lanes);
        if (target != to) std::memcpy(to, target, size_t(n * inner_[K - 1]) * sizeof(A));
    }

    static void zero(A* to, int64_t n) { for (int64_t k = 0; k < n; ++k) to[k] = 0; }

    // One source row in accumulators, divided if the division comes first: in `to`, or where it lies already.
    const A* load(const char* source, int64_t product, A* to) {
        const Span need = need_[K - 1];
        const Place place{need.b - need.a, plan_.steps[K - 1].source_stride, channels_, plan_.channel_source, int64_t(sizeof(S))};
        const bool usable = sizeof(S) == sizeof(A) && place.packed() && reinterpret_cast<uintptr_t>(source) % sizeof(A) == 0;
        const A* in = usable ? reinterpret_cast<const A*>(source) : to;
        if (!usable) load_row<S>(source, place, to);
        if (!plan_.divide_first) return in;
        divider_.divide(in, to, product, 0, need.b - need.a);
        return to;
    }

    const Plan& plan_;
    const int K;
    char* scratch_;
    A *ring_, *row_in_, *row_out_, *turned_in_, *turned_out_, *sums_;
    char* stage_;
    int64_t channels_ = 0, a_[MAX_AXES], b_[MAX_AXES], inner_[MAX_AXES + 1];
    Span need_[MAX_AXES];
    Divider<A> divider_;
    Intervals<A> intervals_;
};

// Small images whose channels lie apart: a group of them is turned into channels, computed as such, and turned back.
template <class S> void run_lanes(const Plan& plan, const char* source, char* result, int64_t channel, char* scratch) {
    using A = typename AccumulatorOf<S>::type;
    const Plan& inner = *plan.lane_plan;
    const int64_t lanes = plan.box_channels, n = least(lanes, plan.channels - channel), zero[MAX_AXES] = {};
    const int64_t in = plan.image_rows, out = plan.image_positions, in_stride = (in + 7) / 8 * 8;
    A* rows = reinterpret_cast<A*>(scratch + plan.scratch.row_in);
    A* turned_in = reinterpret_cast<A*>(scratch + plan.scratch.turned_in);
    A* turned_out = reinterpret_cast<A*>(scratch + plan.scratch.turned_out);
    for (int64_t r = 0; r < n; ++r) widen_run<S>(source + (channel + r) * plan.channel_source, rows + r * in_stride, in);
    if (in) transpose(rows, in_stride, turned_in, lanes, lanes, in);
    Box<A>(inner, scratch + plan.scratch.lanes)
        .run(reinterpret_cast<const char*>(turned_in), reinterpret_cast<char*>(turned_out), zero, 0);
    if (out >= 8) transpose(turned_out, lanes, rows, out, out, lanes);
    else for (int64_t r = 0; r < n; ++r) for (int64_t k = 0; k < out; ++k) rows[r * out + k] = turned_out[k * lanes + r];
    const Place place{n, plan.channel_result, out, int64_t(sizeof(S)), int64_t(sizeof(S))};
    store_row<S>(rows, result + channel * plan.channel_result, place, plan, scratch + plan.scratch.stage);
}

template <class S> void run_one(const Plan& plan, const char* source, char* result, int64_t task, char* scratch) {
    int64_t box = task % plan.box_count, rest = task / plan.box_count, index[MAX_AXES];
    const int64_t channel = rest % plan.channel_boxes * plan.box_channels;
    rest /= plan.channel_boxes;
    for (int k = int(plan.outer.size()) - 1; k >= 0; --k) {
        const Dim& d = plan.outer[size_t(k)];
        source += rest % d.extent * d.source_stride;
        result += rest % d.extent * d.result_stride;
        rest /= d.extent;
    }
    if (plan.lane_plan) return run_lanes<S>(plan, source, result, channel, scratch);
    for (int k = plan.rank() - 1; k >= 0; --k) {
        const int64_t n = (plan.axes[size_t(k)]->positions + plan.box[size_t(k)] - 1) / plan.box[size_t(k)];
        index[k] = box % n;
        box /= n;
    }
    Box<S>(plan, scratch).run(source, result, index, channel);
}

}  // namespace

void run_task(const Plan& plan, const char* source, char* result, int64_t task, char* scratch) {
    switch (plan.dtype) {
        case Dtype::float32: run_one<float>(plan, source, result, task, scratch); break;
        case Dtype::float64: run_one<double>(plan, source, result, task, scratch); break;
        case Dtype::float16: run_one<Half>(plan, source, result, task, scratch); break;
        case Dtype::bfloat16: run_one<Bfloat>(plan, source, result, task, scratch); break;
    }
    if (plan.streaming) stream_fence();
}

}  // namespace PG_ISA
}  // namespace poolgrad
