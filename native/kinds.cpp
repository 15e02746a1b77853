// Which poolings have kernels of their own: what a plan must look like for each.
#include <algorithm>

#include "plan.h"

namespace poolgrad {

namespace {

constexpr int64_t FLAT_IMAGE = 2048;  // cells of an image whose tables stay in the nearest cache
constexpr int64_t PAIR_SPREAD = 4;  // rows of the result for a row of the source that are few

// Whether windows slide by one along an axis: position i adds the cells from i - lead on that are there.
bool slides(const Axis& axis, int64_t& lead) {
    const int64_t reach = axis.reach[0];
    int64_t i = 0;
    while (i < axis.positions && axis.hi[size_t(i)] - axis.lo[size_t(i)] != reach) ++i;
    if (i == axis.positions) return false;
    lead = i - axis.lo[size_t(i)];
    for (i = 0; i < axis.positions; ++i) {
        const int64_t lo = std::max(i - lead, axis.base), hi = std::min(i - lead + reach, axis.base + axis.rows);
        if (lo >= hi || axis.lo[size_t(i)] != lo || axis.hi[size_t(i)] != hi) return false;
    }
    return true;
}

// The most that anything is divided by, as far as WHOLE: what is more is WHOLE + 1. A constant counts for nothing.
int64_t most_divisor(const Plan& p) {
    int64_t product = 1;
    for (const Axis* axis : p.axes) {
        if (p.constant_divisor || axis->count.empty()) continue;
        product = std::min(WHOLE + 1, product * std::min(WHOLE + 1, *std::max_element(axis->count.begin(), axis->count.end())));
    }
    return product;
}

// Whether every position adds `least` cells at least and at most `most`; those that add any, in order.
bool adds_few(const Axis& axis, int64_t most, int64_t least = 1) {
    int64_t before = 0;
    if (axis.reach[0] > most) return false;
    for (size_t i = 0; i < axis.lo.size(); ++i) {
        const int64_t cells = axis.hi[i] - axis.lo[i];
        if (cells < least || (cells > 0 && axis.hi[i] < before)) return false;
        if (cells > 0) before = axis.hi[i];
    }
    return true;
}

// Which of two positions side by side adds two cells, if one does and these are all there is. Both have the cell `lead` and those after
// it, one for each two positions.
Doubling doubling_of(const Axis& axis, int64_t& lead) {
    const int64_t end = axis.base + axis.rows;
    if (axis.positions < 2) return Doubling::none;
    for (const Doubling adds : {Doubling::alone, Doubling::before, Doubling::after}) {
        const bool before = adds == Doubling::before, after = adds == Doubling::after;
        lead = axis.lo[before ? 1 : 0];
        bool fits = true;
        for (int64_t i = 0; i < axis.positions && fits; ++i) {
            const int64_t cell = lead + i / 2, lo = cell - (before && i % 2 == 0), hi = cell + 1 + (after && i % 2 == 1);
            fits = cell >= axis.base && cell < end && axis.lo[size_t(i)] == std::max(lo, axis.base) && axis.hi[size_t(i)] == std::min(hi, end);
        }
        if (fits) return adds;
    }
    return Doubling::none;
}

// Whether each image is summed to one cell, images lying packed in the source while the cells lie packed in the result.
bool sums_images(const Plan& p) {
    const int64_t item = size_of(p.dtype);
    if (p.divide_first || p.accumulate || item != accumulator_size(p.dtype) || p.channels < FEW_CHANNELS || p.channel_source % item || p.source_bytes == 0) return false;
    int64_t packed = item;
    for (size_t k = p.axes.size(); k-- > 0;) {
        const Axis& a = *p.axes[k];
        if (a.positions != 1 || a.rows < 1 || a.base != 0 || a.lo[0] != 0 || a.hi[0] != a.rows || (a.rows > 1 && p.steps[k].source_stride != packed)) return false;
        packed *= a.rows;
    }
    return p.channel_source == packed;
}

// Whether images lie packed, as wide before as after, and rows leave much of their last vector empty.
bool is_narrow(const Plan& p, int64_t lanes) {
    const Axis &first = *p.axes[0], &last = *p.axes.back();
    const int64_t width = last.positions, row = width * size_of(p.dtype);
    const bool whole = !p.constant_divisor || (p.divisor > 0 && p.divisor <= WHOLE);
    return p.rank() == 2 && p.channels == 1 && whole && last.rows == width && p.steps[0].source_stride == row && p.steps[0].result_stride == row &&
           9 * width <= 8 * round_up(width, lanes) && (width < 2 * lanes || size_of(p.dtype) == 2) && std::max(first.rows, first.positions) * width <= FLAT_IMAGE;
}

}  // namespace

// Whether sliding.h has it all: windows, channels and rows of the result that it knows; of many channels, a gradient. One channel
// fills vectors along the last axis: not if most of the last one is empty, and not if rows are wider than two strips, which read and
// write them in pieces too short for memory (16 bits in the caches do not mind).
void find_sliding(Plan& p, int64_t lanes) {
    const int K = p.rank();
    const Axis& last = *p.axes.back();
    const int64_t item = size_of(p.dtype), channels = p.channels * item, width = last.positions;
    const bool narrow = is_narrow(p, lanes);
    const bool one = p.channels == 1 && p.steps.back().source_stride == item && p.source_bytes > 0 && last.reach[0] == SLIDING &&
                     (narrow || 5 * width > 3 * round_up(width, lanes)) && most_divisor(p) <= WHOLE &&
                     (width <= 2 * lanes * strip_vectors(accumulator_size(p.dtype)) || (item == 2 && !p.streaming));
    const bool many = p.channels >= FEW_CHANNELS && channels % 64 == 0 && p.channel_source == item && p.channel_result == item;
    if (K > 3 || !(one || (many && p.divide_first)) || p.accumulate || p.steps.back().result_stride != channels) return;
    p.whole_lines = width * channels % 64 == 0;
    for (int k = 0; k < K; ++k) {
        const int64_t reach = p.axes[size_t(k)]->reach[0];
        if (reach > SLIDING || reach < (K == 2 || (one && k > 0) ? SLIDING : 2) || (many && p.steps[size_t(k)].result_stride % channels) || !slides(*p.axes[size_t(k)], p.lead[k])) return;
        p.whole_lines = p.whole_lines && (k == K - 1 || p.steps[size_t(k)].result_stride % 64 == 0);
    }
    p.flat = narrow && p.lead[1] == 1 - last.base;
    p.sliding = p.flat || many || 5 * width > 3 * round_up(width, lanes);
}

// Whether pairs.h has it all: a gradient of many channels, of which every position adds one cell or two of each axis, and a row of the
// source makes few rows of the result: those are written side by side.
void find_pairs(Plan& p) {
    const int64_t item = size_of(p.dtype), channels = p.channels * item;
    if (p.rank() != 2 || p.sliding || !p.divide_first || p.accumulate || p.channels < FEW_CHANNELS || channels % 64 || p.channel_source != item) return;
    if (p.channel_result != item || p.steps[1].result_stride != channels || p.steps[0].result_stride % channels) return;
    p.pairs = adds_few(*p.axes[0], 2, 0) && adds_few(*p.axes[1], 2) && p.axes[0]->positions <= PAIR_SPREAD * p.axes[0]->rows;
    p.whole_lines = p.steps[0].result_stride % 64 == 0;
}

// Whether doubling.h has it all: a gradient of one channel. Not if most of a row's last vector is empty.
void find_doubling(Plan& p, int64_t lanes) {
    const int64_t item = size_of(p.dtype), width = ceil_div(p.axes.back()->positions, 2);
    if (p.rank() != 2 || p.sliding || !p.divide_first || p.accumulate || p.channels != 1 || p.steps[1].result_stride != item) return;
    if (5 * width <= 3 * round_up(width, lanes) || !adds_few(*p.axes[0], 2, 0)) return;
    p.doubling = doubling_of(*p.axes[1], p.lead[1]);
    p.whole_lines = p.axes[1]->positions * item % 64 == 0 && p.steps[0].result_stride % 64 == 0;
}

// Whether halving.h has it all: a forward pass of one channel, of few cells. Windows of fewer cells than the others lie at the ends alone.
void find_halving(Plan& p, int64_t lanes) {
    const int K = p.rank();
    const Axis& last = *p.axes.back();
    const int64_t item = size_of(p.dtype), reach = last.reach[0], end = last.base + last.rows;
    if (K > 3 || p.sliding || p.divide_first || p.accumulate || p.channels != 1 || p.steps.back().source_stride != item || p.steps.back().result_stride != item) return;
    if (reach < 2 || reach > HALVED || p.axes[size_t(K - 2)]->reach[0] > HALVED || p.axes[0]->reach[0] > HALVED || last.positions < lanes) return;
    int64_t& lead = p.lead[K - 1];
    lead = last.lo[1] - 2;
    for (int64_t i = 0; i < last.positions; ++i) {
        const int64_t lo = std::max(2 * i + lead, last.base), hi = std::min(2 * i + lead + reach, end);
        if (lo >= hi || last.lo[size_t(i)] != lo || last.hi[size_t(i)] != hi) return;
    }
    p.halving = true;
}

// Whether joining.h has it all: one channel, few cells for each position. Not where cells are only spread, nor where most of a row's last
// vector is empty.
void find_joined(Plan& p, int64_t lanes) {
    const int64_t item = size_of(p.dtype), width = p.axes.back()->positions, most = joined_terms(p.divide_first);
    if (p.rank() != 2 || p.sliding || p.doubling != Doubling::none || p.halving || p.accumulate || p.channels != 1) return;
    if (p.steps[1].source_stride != item || p.steps[1].result_stride != item || 5 * width <= 3 * round_up(width, lanes)) return;
    if (p.axes[1]->reach[0] < 2 || !adds_few(*p.axes[0], most) || !adds_few(*p.axes[1], most) || most_divisor(p) > WHOLE) return;
    make_joined(p, lanes);
    p.whole_lines = width * item % 64 == 0 && p.steps[0].result_stride % 64 == 0;
}

// Whether cell.h has it all.
void find_one_cell(Plan& p) {
    p.one_cell = p.divide_first && !p.accumulate && p.channels >= FEW_CHANNELS && p.channel_result == size_of(p.dtype);
    for (const Axis* axis : p.axes)
        for (size_t i = 0; i < axis->lo.size() && p.one_cell; ++i) p.one_cell = axis->lo[i] == axis->lo[0] && axis->hi[i] == axis->lo[0] + 1;
}

// Whether filling.h has it all.
void find_filled(Plan& p, int64_t vector_bytes) {
    const int64_t item = size_of(p.dtype);
    if (p.rank() != 2 || !p.divide_first || p.accumulate || !p.constant_divisor || p.channels != 1) return;
    const Axis &images = *p.axes[0], &image = *p.axes[1];
    const int64_t bytes = image.positions * item;
    if (p.steps[0].source_stride != item || p.steps[0].result_stride != bytes || p.steps[1].result_stride != item || bytes < vector_bytes) return;
    p.filled = true;
    for (int64_t i = 0; i < images.positions && p.filled; ++i) p.filled = images.lo[size_t(i)] == images.lo[0] + i && images.hi[size_t(i)] == images.lo[0] + i + 1;
    for (int64_t i = 0; i < image.positions && p.filled; ++i) p.filled = image.lo[size_t(i)] == image.lo[0] && image.hi[size_t(i)] == image.lo[0] + 1;
}

// Whether images.h has it all.
void find_whole_images(Plan& p) { p.whole_images = sums_images(p); }

}  // namespace poolgrad
