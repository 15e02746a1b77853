#include "plan.h"

#include <algorithm>
#include <functional>

namespace poolgrad {

namespace {

constexpr int64_t GOOD_RING = 1 << 20;        // bytes that stay in a core's own cache
constexpr int64_t GOOD_SCRATCH = 5 << 20;     // bytes that stay in its part of the shared one
constexpr int64_t MOST_SCRATCH = 6 << 20;
constexpr int64_t TILE = 512;                 // columns of a long first axis summed and written at a time
constexpr int64_t OFTEN = 4;                  // counts change often if that many positions or fewer share one, on average
constexpr int64_t APART = 240;                // channels taken at a time that lie apart in the source
constexpr int64_t SUM_COLUMNS = 128;          // most columns a program runs on at once
constexpr int64_t TURNED = 16, TURNED_LONG = 256, TURNED_ELEMENTS = 1 << 18;  // rows; bytes of as many; elements
constexpr int64_t IMAGES = 1024;               // images summed to a cell each at a time
constexpr int64_t FOLDED_IMAGE = 1 << 13;     // elements of an image worth computing together with its neighbours
constexpr int64_t RUN_ELEMENTS = 4096;        // elements written as one
constexpr int64_t WORTH_SPLITTING = 1 << 14;

// The most rows that any box of this many positions needs.
int64_t most_rows(const Axis& axis, int64_t box) {
    int64_t rows = 0;
    for (int64_t a = 0; a < axis.positions; a += box) {
        const Span s = axis.rows_needed(a, std::min(a + box, axis.positions));
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
    axis->find_runs();
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
        merged->find_runs();
        p.axes[k - 1] = merged.get();
        p.made.push_back(std::move(merged));
        p.steps[k - 1] = p.steps[k];
        p.axes.erase(p.axes.begin() + int64_t(k));
        p.steps.erase(p.steps.begin() + int64_t(k));
    }
}

// Images that follow each other in both arrays, with short intervals on the first axis, are one taller image: the same
// intervals, repeated. Nothing is added across the seams.
void fold_images(Plan& p) {
    const Axis& axis = *p.axes[0];
    if (p.channels >= FEW_CHANNELS || p.rank() < 2 || axis.is_long() || (p.sliding && p.rank() > 2)) return;
    int64_t elements = p.channels;
    for (const Axis* a : p.axes) elements *= std::max(a->rows, a->positions);
    for (Dim& d : p.outer) {
        if (d.source_stride != axis.rows * p.steps[0].source_stride || d.result_stride != axis.positions * p.steps[0].result_stride) continue;
        int64_t times = std::min(d.extent, FOLDED_IMAGE / std::max<int64_t>(elements, 1));
        while (times > 1 && d.extent % times) --times;
        if (times < 2) return;
        auto tall = std::make_unique<Axis>();
        tall->positions = times * axis.positions;
        tall->rows = times * axis.rows;
        tall->reach = axis.reach;
        for (int64_t t = 0; t < times; ++t) {
            for (int64_t i = 0; i < axis.positions; ++i) {
                const int64_t shift = t * axis.rows - axis.base, lo = axis.lo[size_t(i)] + shift, hi = axis.hi[size_t(i)] + shift;
                tall->lo.push_back(lo < hi ? lo : t * axis.rows);
                tall->hi.push_back(lo < hi ? hi : t * axis.rows);
            }
            tall->count.insert(tall->count.end(), axis.count.begin(), axis.count.end());
        }
        tall->find_runs();
        p.axes[0] = tall.get();
        p.made.push_back(std::move(tall));
        p.folded = times;
        p.lead[0] += axis.base;  // cells are counted from 0 now
        d = {d.extent / times, d.source_stride * times, d.result_stride * times};
        return;
    }
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

// Whether every cell that the last axis needs becomes two positions of it, side by side.
bool doubles(const Axis& axis) {
    const Span need = axis.rows_needed(0, axis.positions);
    if (axis.positions == 0 || axis.positions != 2 * (need.b - need.a)) return false;
    for (int64_t i = 0; i < axis.positions; ++i)
        if (axis.lo[size_t(i)] != need.a + i / 2 || axis.hi[size_t(i)] != axis.lo[size_t(i)] + 1) return false;
    return true;
}

void choose_rows(Plan& p, int64_t lanes) {
    const Axis& last = *p.axes.back();
    const int64_t rows = p.axes[p.axes.size() - 2]->rows;
    if (p.channels >= FEW_CHANNELS) p.rows = Rows::packed;
    else if (make_weave(p, lanes)) p.rows = Rows::woven;
    else p.rows = Rows::turned;
    p.spread_late = p.rows != Rows::turned && last.reach[0] <= 1;
    p.doubled = p.spread_late && p.rows == Rows::woven && p.channels == 1 && size_of(p.dtype) == 2 && doubles(last);
    if (p.rows == Rows::turned) p.batch = std::min(last.is_long() ? TURNED_LONG / accumulator_size(p.dtype) : TURNED, round_up(std::max<int64_t>(rows, 1), 16));
    if (p.rows == Rows::packed && last.is_long() && p.channels <= 2 * lanes) p.batch = 4;
    while (p.rows == Rows::turned && p.batch > TURNED && p.batch * std::max(last.rows, last.positions) * p.channels > TURNED_ELEMENTS) p.batch /= 2;
    if (p.rows == Rows::woven) {
        const int64_t row = p.spread_late && !p.streaming ? p.weave.row_in : std::max(p.weave.row_in, p.weave.row_out);
        p.batch = std::max(round_up(ceil_div(RUN_ELEMENTS / 4, std::max<int64_t>(row, 1)), p.weave.period), p.weave.period);
    }
}

// Whether a box has whole rows of the result, which follow each other there.
bool has_packed_rows(const Plan& p) {
    const size_t K = p.axes.size();
    const int64_t item = size_of(p.dtype), cell = p.channels * item, positions = p.axes[K - 1]->positions;
    return (p.channels == 1 || p.channel_result == item) && p.steps[K - 1].result_stride == cell && p.steps[K - 2].result_stride == positions * cell &&
           p.box[K - 1] == positions && p.box_channels == p.channels;
}

// Result rows that can be written as one: they lie packed in scratch and in the result, and divide by the same.
void choose_run(Plan& p) {
    const int K = p.rank();
    p.run_rows = 1;
    const int64_t row = p.axes[size_t(K - 1)]->positions * p.channels;
    const bool packed_scratch = p.rows == Rows::woven || (!p.spread_late && padded_row(row, accumulator_size(p.dtype)) == row);
    p.packed_rows = has_packed_rows(p) && packed_scratch;
    if (!p.packed_rows) return;
    p.run_rows = K == 2 ? std::max<int64_t>(1, RUN_ELEMENTS / std::max<int64_t>(row, 1)) : p.box[size_t(K - 2)];
    if (K == 2 && p.rows == Rows::woven && p.run_rows > p.weave.period) p.run_rows -= p.run_rows % p.weave.period;  // each run begins with a vector
    if (!p.divide_first && !p.constant_divisor) p.run_rows = std::min(p.run_rows, p.batch);
}

// The most columns that the long sums of an axis run on at once.
int64_t sum_columns(const Plan& p, int k) {
    const bool turned = k == p.rank() - 1 && p.rows == Rows::turned;
    return turned ? std::min(SUM_COLUMNS, p.batch * p.box_channels) : SUM_COLUMNS;
}

// Lay out a box's scratch; returns its size in bytes.
int64_t lay_out(Plan& p) {
    const int K = p.rank();
    const int64_t item = accumulator_size(p.dtype), line = 64 / item, spare = 192 / item;
    size_t next = 64;  // a woven row may be read a vector early
    auto take = [&](int64_t elements) { size_t at = next; next += size_t(round_up((elements + spare) * item, 64)); return at; };
    std::vector<int64_t> rows(static_cast<size_t>(K));
    for (int k = 0; k < K; ++k) rows[size_t(k)] = std::max<int64_t>(1, most_rows(*p.axes[size_t(k)], p.box[size_t(k)]));
    const int64_t in = rows[size_t(K - 1)] * p.box_channels, out = p.box[size_t(K - 1)] * p.box_channels;
    std::vector<int64_t> block(size_t(K) + 1, 1);
    block[size_t(K - 1)] = p.spread_late ? in : out;
    if (p.rows != Rows::woven) block[size_t(K - 1)] = padded_row(block[size_t(K - 1)], item);
    for (int k = K - 2; k >= 1; --k) block[size_t(k)] = p.box[size_t(k)] * block[size_t(k) + 1];
    const int64_t batch = K == 2 ? p.batch : 1;
    choose_run(p);
    const int64_t joined = int64_t(p.joined.offset.size()) * FEW_CHANNELS;
    // Rows of whole pages lie well apart: or what is read next has the last 12 bits of an address that was just written to.
    p.pitch = joined ? padded_row(joined, item) : p.doubling != Doubling::none ? padded_row(in + 4 * FEW_CHANNELS, item) : p.sliding ? padded_row(out, item) + (out * item % PAGE ? 0 : 1024 / item) : 0;
    p.ring_rows = p.axes[0]->is_long() ? rows[0] : std::min(rows[0], round_up(p.axes[0]->reach[0] + batch - 1, batch));
    const int64_t slid = p.sliding && K == 3 ? SLIDING * (p.box[1] + 1) * p.pitch : 0;  // a row more, so that planes do not share a cache's sets
    const int64_t flat = p.flat ? 2 * (rows[0] + SLIDING - 1) * out + 8 * FEW_CHANNELS : 0;  // sums, and a copy of the source's end
    p.scratch.ring = take(std::max(std::max(std::max(slid, flat), p.pairs ? in : joined ? (JOINED_ROWS + 3) * p.pitch : p.doubling != Doubling::none ? 2 * p.pitch : 0), p.ring_rows * (K == 2 ? block[1] : padded_row(block[1], item))));
    for (int k = 1; k < K - 1; ++k) p.scratch.level[k] = take(rows[size_t(k)] * block[size_t(k) + 1]);
    p.scratch.slid = take(p.sliding ? (SLIDING + 1) * p.pitch : 0);
    const bool turned = p.rows == Rows::turned;
    int64_t images = 0, longest = 0;
    for (const Axis* axis : p.axes) {
        images += axis->rows + 8;
        longest = std::max(longest, axis->rows);
    }
    p.scratch.row_in = take((p.sliding && p.channels == 1 ? p.pitch + SLIDING : 0) + (p.whole_images ? images * 8 + longest : p.batch * (turned ? std::max(turned_chunk(p.box_channels) * p.box_channels, block[size_t(K - 1)]) : round_up(in, 8))));
    p.scratch.turned_in = take(turned ? round_up(in, 8) * p.batch : 0);
    p.scratch.turned_out = take(turned ? round_up(out, 8) * p.batch : 0);
    const int64_t emitted = p.run_rows * round_up(p.spread_late ? std::max(in, out) : out, line);
    p.scratch.row_out = take(emitted);
    p.scratch.spread = take((p.spread_late || p.whole_images ? emitted : 0) + (p.one_cell ? PAGE / item : 0));
    p.scratch.divided = take(p.divide_first ? 0 : emitted);
    p.scratch.raw = take(p.divide_first ? in * (p.rows == Rows::woven ? p.batch : 1) : 0);
    p.tile = std::max(TILE, p.box_channels);
    if (p.spread_late) p.tile = std::max(p.tile, in);
    const bool rows_apart = p.sliding && p.channels > 1 && p.box_channels == p.channels;  // each is a run of its own
    p.gather = p.streaming && !p.accumulate && !p.filled && !p.one_cell && !p.whole_images && (rows_apart || has_packed_rows(p));
    const int64_t gathered = p.gather ? GATHERED / item : 0;
    p.scratch.gathered = take(gathered);
    p.scratch.finished = take(p.axes[0]->is_long() ? p.box[0] * round_up(p.tile, FEW_CHANNELS) : 0);
    int64_t kept = 0;
    for (int k = 0; k < K; ++k) kept = std::max(kept, sum_columns(p, k) * long_sum_rows(*p.axes[size_t(k)], rows[size_t(k)]));
    p.scratch.sums = take(kept);
    p.scratch.total = next;
    return int64_t(next) - gathered * item;  // which is little, and not always used
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
    const double ragged = p.box_channels < p.channels ? 1.0 + 128.0 / run : 1.0;
    return (total + before) * boxes * ragged;
}

int64_t task_count(const Plan& p) {
    int64_t n = p.image_count * ceil_div(p.channels, p.box_channels);
    for (int k = 0; k < p.rank(); ++k) n *= ceil_div(p.axes[size_t(k)]->positions, p.box[size_t(k)]);
    return n;
}

// About `wanted` channels, such that no box is left with few of them.
int64_t good_channels(const Plan& p, int64_t wanted) {
    wanted = round_up(wanted, FEW_CHANNELS);
    while (wanted < p.channels && p.channels % wanted && p.channels % wanted < FEW_CHANNELS) wanted += FEW_CHANNELS;
    return std::min(wanted, p.channels);
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
        if (k < p.rank()) p.box[size_t(k)] = ceil_div(box[size_t(k)], 2);
        else p.box_channels = good_channels(p, ceil_div(channels, 2));
    };
    for (int k = 0; k <= p.rank(); ++k) {
        const bool can = k == p.rank() ? channels > FEW_CHANNELS : k == p.rank() - 1 ? box[size_t(k)] > 16 && p.rows != Rows::woven : box[size_t(k)] > 1;
        if (!can) continue;
        apply(k);
        if (k == p.rank() && p.box_channels >= channels) continue;
        const double cost = work(p) * (k ? 1.05 : 1.0);  // whole rows of the result are written best
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
    p.box_channels = p.channel_source == size_of(p.dtype) ? p.channels : good_channels(p, p.whole_images ? IMAGES : APART);
    const double whole = work(p);
    // A gradient's ring is read as often as an interval is long; a forward pass reads its source in place, best in large boxes.
    const int64_t good = p.divide_first && !p.axes[0]->is_long() ? GOOD_RING : GOOD_SCRATCH;
    for (int64_t size = lay_out(p); size > good;) {
        const double limit = size > MOST_SCRATCH ? 1e300 : whole * 1.3;
        if (!halve(p, limit, [&] { return lay_out(p) < size * 0.8; })) break;
        size = lay_out(p);
    }
    // Enough tasks for the threads, where there is enough work to share.
    while (threads > 1 && task_count(p) < 3 * threads && double(p.image_count * p.channels) * work(p) > double(WORTH_SPLITTING * task_count(p)))
        if (!halve(p, work(p) * 1.5, [&] { return true; })) break;
    lay_out(p);
}

// Where every window divides by the same, that is the divisor.
void find_constant_divisor(Plan& p) {
    if (p.constant_divisor) return;
    int64_t product = 1;
    for (const Axis* axis : p.axes) {
        if (axis->count.empty() || std::adjacent_find(axis->count.begin(), axis->count.end(), std::not_equal_to<>()) != axis->count.end()) return;
        product *= axis->count[0];
    }
    p.constant_divisor = true;
    p.divisor = product;
}

// Counts of the last axis to divide by: of few channels as rows of them, of many where they differ from position to position.
template <class A> void fill_divisors(Plan& p) {
    const Axis& axis = *p.axes.back();
    const Span need = p.divide_first ? axis.rows_needed(0, axis.positions) : Span{0, axis.positions};
    const int64_t *count = axis.count.data() + need.a - (p.divide_first ? axis.base : 0), *end = count + (need.b - need.a), n = end - count;
    if (p.constant_divisor || n == 0) return;
    int64_t runs = 1;
    for (int64_t i = 1; i < n; ++i) runs += count[i] != count[i - 1];
    const bool few = p.channels < FEW_CHANNELS;
    p.most_count = *std::max_element(count, end);
    if (p.most_count > EXACT_COUNT<A> || runs == 1 || (!few && (!p.divide_first || runs * OFTEN < n))) return;
    const int64_t wide = few ? p.channels : 1, row = n * wide;
    p.divisors_half = row * (few ? divided_rows(p) : 1);
    p.divisors.resize(size_t(2 * p.divisors_half) * sizeof(A) + 128);  // room to begin with a line, and to read the last vector whole
    A* to = const_cast<A*>(Plan::table<A>(p.divisors));
    for (int64_t k = 0; k < p.divisors_half; ++k) {
        to[k] = A(count[k % row / wide]);
        to[k + p.divisors_half] = A(1) / to[k];
    }
}

template <class A> void fill_flat(Plan& p, int64_t lanes) {
    const Axis &first = *p.axes[0], &last = *p.axes[1];
    const int64_t wide = last.positions, n = flat_size(p);
    p.lanes.resize(size_t(2 * n) * sizeof(A) + 64);
    p.edges.assign(size_t(2 * ceil_div(n, lanes)), 0);
    A* to = const_cast<A*>(Plan::table<A>(p.lanes));
    for (int64_t k = 0; k < n; ++k) {
        const int64_t row = k / wide, column = k % wide, vector = 2 * (k / lanes);
        const bool counts = !p.constant_divisor && row < int64_t(first.count.size());
        to[k] = A(counts ? first.count[size_t(row)] * last.count[size_t(column)] : p.divisor);
        to[n + k] = 1 / to[k];
        p.edges[size_t(vector)] = uint16_t(p.edges[size_t(vector)] | (column > 0) << k % lanes);
        p.edges[size_t(vector + 1)] = uint16_t(p.edges[size_t(vector + 1)] | (column + 1 < wide) << k % lanes);
    }
}

template <class A> void fill_lanes(Plan& p, int64_t lanes) {
    const Axis& axis = *p.axes.back();
    if (!p.sliding || p.channels > 1 || p.box.back() < axis.positions) return;
    if (p.flat) return fill_flat<A>(p, lanes);
    const Span need = axis.rows_needed(0, axis.positions);
    const int64_t n = lanes_described(p);
    p.lanes.resize(size_t(3 * n) * sizeof(A) + 64);
    A* to = const_cast<A*>(Plan::table<A>(p.lanes));
    for (int64_t k = 0; k < n; ++k) {
        const int64_t position = k - FEW_CHANNELS, cell = position + 1 - p.lead[p.rank() - 1];
        const bool there = cell >= need.a && cell < need.b, counts = p.divide_first ? there : position >= 0 && position < axis.positions;
        to[k] = A(counts && !p.constant_divisor ? axis.count[size_t(p.divide_first ? cell - axis.base : position)] : 1);
        to[n + k] = 1 / to[k];
        to[2 * n + k] = there ? A(0) : -A(1);
    }
}

void compile_programs(Plan& p) {
    p.programs.resize(p.axes.size());
    for (size_t k = 0; k < p.axes.size(); ++k) {
        const Axis& axis = *p.axes[k];
        if (!axis.is_long()) continue;
        for (int64_t a = 0; a < axis.positions; a += p.box[k]) p.programs[k].push_back(compile(axis, a, std::min(a + p.box[k], axis.positions)));
        for (const Program& program : p.programs[k])
            p.scratch.total = std::max(p.scratch.total, p.scratch.sums + size_t(program.scratch_rows * sum_columns(p, int(k)) * accumulator_size(p.dtype)));
    }
}

}  // namespace

void finish_plan(Plan& p, int64_t threads, int64_t vector_bytes) {
    find_constant_divisor(p);
    find_planes(p);
    coalesce(p.outer);
    choose_channels(p);
    merge_spread_axes(p);
    ensure_two_axes(p);
    find_sliding(p, vector_bytes / accumulator_size(p.dtype));
    fold_images(p);
    find_pairs(p);
    find_doubling(p, vector_bytes / accumulator_size(p.dtype));
    find_halving(p, vector_bytes / accumulator_size(p.dtype));
    find_joined(p, vector_bytes / accumulator_size(p.dtype));
    for (const Dim& d : p.outer) p.image_count *= d.extent;
    choose_rows(p, vector_bytes / accumulator_size(p.dtype));
    find_whole_images(p);
    find_one_cell(p);
    find_filled(p, vector_bytes);
    choose_boxes(p, threads);
    compile_programs(p);
    if (p.dtype == Dtype::float64) { fill_divisors<double>(p); fill_lanes<double>(p, vector_bytes / 8); }
    else { fill_divisors<float>(p); fill_lanes<float>(p, vector_bytes / 4); }
    p.channel_boxes = ceil_div(p.channels, p.box_channels);
    for (int k = 0; k < p.rank(); ++k) p.box_count *= ceil_div(p.axes[size_t(k)]->positions, p.box[size_t(k)]);
    p.tasks = p.image_count * p.channel_boxes * p.box_count;
}

}  // namespace poolgrad
