#include "plan.h"

#include <algorithm>

namespace poolgrad {

namespace {

constexpr int64_t FEW_CHANNELS = 16;        // fewer than this do not fill the vectors
constexpr int64_t SMALL_IMAGE = 4096;       // elements, source and result together
constexpr int64_t LANE_ELEMENTS = 1 << 14;  // elements of a group of small images
constexpr int64_t GOOD_SCRATCH = 640 << 10; // bytes that stay in a core's own cache
constexpr int64_t MOST_SCRATCH = 6 << 20;
constexpr int64_t TILE = 256;
constexpr int64_t WORTH_SPLITTING = 1 << 14;

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }

Span rows_needed(const Axis& axis, int64_t a, int64_t b) {
    while (a < b && axis.lo[size_t(a)] >= axis.hi[size_t(a)]) ++a;
    while (a < b && axis.lo[size_t(b - 1)] >= axis.hi[size_t(b - 1)]) --b;
    return a < b ? Span{axis.lo[size_t(a)], axis.hi[size_t(b - 1)]} : Span{0, 0};
}

// The most rows that any box of this many positions needs.
int64_t most_rows(const Axis& axis, int64_t box) {
    int64_t rows = 0;
    for (int64_t a = 0; a < axis.positions; a += box) {
        Span s = rows_needed(axis, a, std::min(a + box, axis.positions));
        rows = std::max(rows, s.b - s.a);
    }
    return rows;
}

// Columns of scratch that the long sums along an axis keep: heads, tails, totals and a run at each level.
int64_t long_sum_rows(const Axis& axis, int64_t rows) {
    int64_t kept = 0;
    for (size_t k = 0; k < axis.reach.size() && axis.reach[k] > BLOCK; ++k) {
        rows = rows / BLOCK + 1;
        kept += 2 * BLOCK + 1 + rows;
    }
    return kept;
}

// An axis on which every position is its own row.
std::unique_ptr<Axis> identity(int64_t n) {
    auto axis = std::make_unique<Axis>();
    axis->positions = axis->rows = n;
    axis->lo.resize(size_t(n));
    axis->hi.resize(size_t(n));
    for (int64_t i = 0; i < n; ++i) { axis->lo[size_t(i)] = i; axis->hi[size_t(i)] = i + 1; }
    axis->count.assign(size_t(n), 1);
    axis->reach = {1};
    axis->find_together();
    return axis;
}

// Neighbouring dimensions that both arrays step through evenly become one.
void coalesce(std::vector<Dim>& dims) {
    std::sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.result_stride > b.result_stride; });
    std::vector<Dim> kept;
    for (const Dim& d : dims) {
        if (d.extent == 1) continue;
        if (!kept.empty() && kept.back().result_stride == d.extent * d.result_stride && kept.back().source_stride == d.extent * d.source_stride)
            kept.back() = {kept.back().extent * d.extent, d.source_stride, d.result_stride};
        else
            kept.push_back(d);
    }
    dims = kept;
}

// Channels are the dimension that lies packed in the result, if it is not a spatial one.
void choose_channels(Plan& p) {
    for (size_t k = 0; k < p.outer.size(); ++k)
        if (p.outer[k].result_stride == size_of(p.dtype)) {
            p.channels = p.outer[k].extent;
            p.channel_source = p.outer[k].source_stride;
            p.channel_result = p.outer[k].result_stride;
            p.outer.erase(p.outer.begin() + int64_t(k));
            return;
        }
}

bool spreads_one_row(const Axis& axis) {
    return axis.rows == 1 && axis.base == 0 &&
           std::all_of(axis.lo.begin(), axis.lo.end(), [](int64_t v) { return v == 0; }) &&
           std::all_of(axis.hi.begin(), axis.hi.end(), [](int64_t v) { return v == 1; });
}

// Axes that only spread one cell each, packed in the result, are one longer axis: no sum is involved.
void merge_spread_axes(Plan& p) {
    if (!p.divide_first || p.channels >= FEW_CHANNELS) return;
    for (size_t k = p.axes.size() - 1; k > 0; --k) {
        const Axis &a = *p.axes[k - 1], &b = *p.axes[k];
        if (!spreads_one_row(a) || !spreads_one_row(b) || p.steps[k - 1].result_stride != b.positions * p.steps[k].result_stride) continue;
        auto merged = std::make_unique<Axis>();
        merged->positions = a.positions * b.positions;
        merged->rows = 1;
        merged->lo.assign(size_t(merged->positions), 0);
        merged->hi.assign(size_t(merged->positions), 1);
        merged->count = {a.count[0] * b.count[0]};
        merged->reach = {1};
        merged->find_together();
        p.axes[k - 1] = merged.get();
        p.made.push_back(std::move(merged));
        p.steps[k - 1] = p.steps[k];
        p.axes.erase(p.axes.begin() + int64_t(k));
        p.steps.erase(p.steps.begin() + int64_t(k));
    }
}

bool images_are_packed(const Plan& p, int64_t& rows, int64_t& positions) {
    rows = positions = 1;
    bool packed = true;
    for (size_t k = p.axes.size(); k-- > 0;) {
        packed = packed && (p.axes[k]->rows == 1 || p.steps[k].source_stride == rows * size_of(p.dtype));
        packed = packed && (p.axes[k]->positions == 1 || p.steps[k].result_stride == positions * size_of(p.dtype));
        rows *= p.axes[k]->rows;
        positions *= p.axes[k]->positions;
        if (rows > SMALL_IMAGE || positions > SMALL_IMAGE) return false;
    }
    return packed && rows + positions <= SMALL_IMAGE;
}

// Two axes at least: a dimension of the batch stands in as the first, so that rows of several images share the vectors.
void ensure_two_axes(Plan& p) {
    if (p.rank() > 1) return;
    Dim first{1, 0, 0};
    auto longest = std::max_element(p.outer.begin(), p.outer.end(), [](const Dim& a, const Dim& b) { return a.extent < b.extent; });
    if (longest != p.outer.end()) {
        int64_t part = std::min<int64_t>(longest->extent, 1024);
        while (longest->extent % part) --part;
        first = {part, longest->source_stride, longest->result_stride};
        *longest = {longest->extent / part, part * longest->source_stride, part * longest->result_stride};
    }
    p.made.push_back(identity(first.extent));
    p.axes.insert(p.axes.begin(), p.made.back().get());
    p.steps.insert(p.steps.begin(), first);
}

// Lay out a box's scratch; returns its size in bytes.
int64_t lay_out(Plan& p) {
    const int K = p.rank();
    const int64_t item = accumulator_size(p.dtype), line = 64 / item;
    size_t next = 0;
    auto take = [&](int64_t elements, int64_t bytes) { size_t at = next; next += size_t(round_up(elements * bytes + 64, 64)); return at; };
    std::vector<int64_t> rows(static_cast<size_t>(K));
    for (int k = 0; k < K; ++k) rows[size_t(k)] = most_rows(*p.axes[size_t(k)], p.box[size_t(k)]);
    std::vector<int64_t> block(size_t(K) + 1, p.box_channels);
    for (int k = K - 1; k >= 1; --k) {
        block[size_t(k)] = p.box[size_t(k)] * block[size_t(k) + 1];
        if (k == K - 1) block[size_t(k)] = round_up(block[size_t(k)], line);
    }
    const int64_t last_rows = rows[size_t(K - 1)] * p.box_channels, last = block[size_t(K - 1)];
    const int64_t batch = K == 2 && p.strip ? p.strip : 1;
    p.ring_rows = p.axes[0]->is_long() ? rows[0] : std::min(rows[0], round_up(p.axes[0]->reach[0] + batch - 1, batch));
    p.ring_rows = std::max<int64_t>(p.ring_rows, 1);
    p.scratch.ring = take(p.ring_rows * block[1], item);
    for (int k = 1; k < K - 1; ++k) p.scratch.level[k] = take(rows[size_t(k)] * block[size_t(k) + 1], item);
    const int64_t lanes = std::max<int64_t>(p.strip, 1);
    p.scratch.row_in = take(lanes * std::max(round_up(last_rows, 8), p.strip ? last : 0), item);
    p.scratch.turned_in = take(p.strip ? round_up(last_rows, 8) * lanes : 0, item);
    p.scratch.turned_out = take(p.strip ? round_up(last, 8) * lanes : 0, item);
    p.scratch.row_out = take(last, item);
    p.scratch.stage = take(last, item);
    p.scratch.divisors = take(4 * std::max(last_rows, last), item);
    int64_t kept = 0;
    for (int k = 0; k < K; ++k) kept = std::max(kept, long_sum_rows(*p.axes[size_t(k)], rows[size_t(k)]));
    p.tile = std::max(TILE, p.box_channels);
    p.scratch.sums = take(kept * p.tile, item);
    p.scratch.total = next;
    return int64_t(next);
}

// Rows and blocks summed over all boxes: what cutting the result finer costs in work done twice.
double work(const Plan& p) {
    const int K = p.rank();
    double total = 0, boxes = 1, before = 1;
    for (int k = 0; k < K; ++k) boxes *= double(ceil_div(p.axes[size_t(k)]->positions, p.box[size_t(k)]));
    for (int k = 0; k < K; ++k) {
        double after = before;
        for (int j = k; j < K; ++j) after *= double(p.box[size_t(j)]);
        total += after;
        before *= double(std::max<int64_t>(1, most_rows(*p.axes[size_t(k)], p.box[size_t(k)])));
    }
    // A box of few channels touches short runs of the caller's memory.
    const double run = double(p.box_channels * size_of(p.dtype));
    const double ragged = p.box_channels < p.channels ? 1.0 + 16.0 / run : 1.0;
    return (total + before) * boxes * ragged;
}

int64_t task_count(const Plan& p) {
    int64_t n = p.image_count * ceil_div(p.channels, p.box_channels);
    for (int k = 0; k < p.rank(); ++k) n *= ceil_div(p.axes[size_t(k)]->positions, p.box[size_t(k)]);
    return n;
}

// Halve the box along whichever dimension costs least; `fits` says whether a candidate is an improvement.
template <class Fits> bool halve(Plan& p, double limit, Fits fits) {
    const std::vector<int64_t> box = p.box;
    const int64_t channels = p.box_channels;
    double best = limit;
    int chosen = -1;
    auto apply = [&](int k) {
        p.box = box;
        p.box_channels = channels;
        if (k == p.rank()) p.box_channels = round_up(ceil_div(channels, 2), FEW_CHANNELS);
        else p.box[size_t(k)] = ceil_div(box[size_t(k)], 2);
    };
    for (int k = 0; k <= p.rank(); ++k) {
        const bool can = k == p.rank() ? channels > FEW_CHANNELS : box[size_t(k)] > (k == p.rank() - 1 ? 16 : 1);
        if (!can) continue;
        apply(k);
        const double cost = work(p);
        if (cost < best * 0.999 && fits()) { best = cost; chosen = k; }
    }
    p.box = box;
    p.box_channels = channels;
    if (chosen >= 0) apply(chosen);
    return chosen >= 0;
}

void choose_boxes(Plan& p, int64_t threads) {
    p.box.clear();
    for (const Axis* axis : p.axes) p.box.push_back(std::max<int64_t>(1, axis->positions));
    p.box_channels = p.channels;
    const double whole = work(p);
    for (int64_t size = lay_out(p); size > GOOD_SCRATCH;) {
        const double limit = size > MOST_SCRATCH ? 1e300 : whole * 1.3;
        if (!halve(p, limit, [&] { return lay_out(p) < size * 0.8; })) break;
        size = lay_out(p);
    }
    // Enough tasks for the threads, where there is enough work to share.
    while (threads > 1 && task_count(p) < 3 * threads && double(p.image_count * p.channels) * work(p) > double(WORTH_SPLITTING * task_count(p)))
        if (!halve(p, work(p) * 1.5, [&] { return true; })) break;
    lay_out(p);
}

bool plan_lanes(Plan& p) {
    if (p.channels != 1 || p.outer.empty()) return false;
    int64_t rows, positions;
    auto longest = std::max_element(p.outer.begin(), p.outer.end(), [](const Dim& a, const Dim& b) { return a.extent < b.extent; });
    if (longest->extent < 8 || !images_are_packed(p, rows, positions)) return false;
    p.image_rows = rows;
    p.image_positions = positions;
    p.channels = longest->extent;
    p.channel_source = longest->source_stride;
    p.channel_result = longest->result_stride;
    p.outer.erase(longest);
    p.box_channels = std::min({round_up(p.channels, 8), round_up(LANE_ELEMENTS / (rows + positions) + 1, 16), int64_t(256)});

    const int64_t item = accumulator_size(p.dtype);
    p.lane_plan = std::make_unique<Plan>();
    Plan& q = *p.lane_plan;
    q.dtype = p.dtype == Dtype::float64 ? Dtype::float64 : Dtype::float32;
    q.divide_first = p.divide_first;
    q.constant_divisor = p.constant_divisor;
    q.divisor = p.divisor;
    q.axes = p.axes;
    q.channels = q.box_channels = p.box_channels;
    q.channel_source = q.channel_result = item;
    int64_t source = item * q.channels, result = item * q.channels;
    q.steps.resize(q.axes.size());
    for (size_t k = q.axes.size(); k-- > 0;) {
        q.steps[k] = {0, source, result};
        source *= q.axes[k]->rows;
        result *= q.axes[k]->positions;
    }
    ensure_two_axes(q);
    for (const Axis* axis : q.axes) q.box.push_back(std::max<int64_t>(1, axis->positions));
    lay_out(q);

    size_t next = 0;
    auto take = [&](int64_t elements) { size_t at = next; next += size_t(round_up(elements * item + 64, 64)); return at; };
    p.scratch.row_in = take(p.box_channels * std::max(round_up(rows, 8), positions) + 64);
    p.scratch.turned_in = take(p.box_channels * round_up(rows, 8));
    p.scratch.turned_out = take(p.box_channels * round_up(positions, 8));
    p.scratch.stage = take(p.box_channels * positions);
    p.scratch.lanes = next;
    p.scratch.total = next + q.scratch.total;
    return true;
}

}  // namespace

void Axis::find_together() {
    together.assign(lo.size(), 1);
    for (size_t i = lo.size(); i-- > 1;)
        if (hi[i] - lo[i] == hi[i - 1] - lo[i - 1] && lo[i] == lo[i - 1] + 1) together[i - 1] = together[i] + 1;
}

void finish_plan(Plan& p, int64_t threads) {
    coalesce(p.outer);
    choose_channels(p);
    merge_spread_axes(p);
    if (plan_lanes(p)) {
        for (const Dim& d : p.outer) p.image_count *= d.extent;
        p.channel_boxes = ceil_div(p.channels, p.box_channels);
        p.tasks = p.image_count * p.channel_boxes;
        return;
    }
    ensure_two_axes(p);
    for (const Dim& d : p.outer) p.image_count *= d.extent;
    if (p.channels < FEW_CHANNELS) {
        const int64_t rows = p.axes[p.axes.size() - 2]->rows;
        p.strip = std::min<int64_t>(p.axes.back()->is_long() ? 64 : 16, round_up(std::max<int64_t>(rows, 1), 8));
    }
    choose_boxes(p, threads);
    p.channel_boxes = ceil_div(p.channels, p.box_channels);
    for (int k = 0; k < p.rank(); ++k) p.box_count *= ceil_div(p.axes[size_t(k)]->positions, p.box[size_t(k)]);
    p.tasks = p.image_count * p.channel_boxes * p.box_count;
}

}  // namespace poolgrad
