// The index tables of a weave (weave.h): which elements of packed rows of few channels each vector of the result adds.
#include <algorithm>
#include <functional>

#include "plan.h"

namespace poolgrad {

namespace {

constexpr int64_t WOVEN_ROW = 8192;  // elements of the longest row worth an index table

// Terms 0 and 1, 2 and 3, ... of an even weave read the same two vectors, if those hold both.
void pair_terms(Weave& w, int64_t lanes) {
    if (w.picks != Picks::two_loads) return;
    std::vector<int32_t> index(w.index.begin(), w.index.begin() + w.terms * lanes);
    for (int64_t t = 1; t < w.terms; t += 2)
        for (int64_t l = 0; l < lanes; ++l) {
            const int64_t further = w.offset[size_t(t)] - w.offset[size_t(t - 1)];
            int32_t& i = index[size_t(t * lanes + l)];
            if (i >= 0) i += int32_t(further);
            if (further < 0 || i >= 2 * lanes) return;
        }
    for (int64_t t = 1; t < w.terms; t += 2) w.offset[size_t(t)] = w.offset[size_t(t - 1)];
    std::copy(index.begin(), index.end(), w.index.begin());
    w.picks = Picks::paired;
}

// Whether the first vector's picks, moved on evenly, do for all: then the kernel need not look each of them up. Without
// masks an absent lane is known by its index, so the same lanes must be absent throughout.
void find_even(Weave& w, int64_t vectors, int64_t lanes, bool masks) {
    if (lanes * w.row_in % w.row_out || w.picks == Picks::far) return;
    const int64_t step = lanes * w.row_in / w.row_out, absent = INT64_MIN;
    std::vector<int64_t> element(size_t(w.terms * lanes), absent), offset(size_t(w.terms), 0);
    for (int64_t at = 0; at < vectors * w.terms; ++at)
        for (int64_t l = 0; l < lanes; ++l) {
            const int32_t index = w.index[size_t(at * lanes + l)];
            int64_t& known = element[size_t(at % w.terms * lanes + l)];
            const int64_t here = index < 0 ? absent : w.offset[size_t(at)] + index - at / w.terms * step;
            if (at < w.terms || (masks && known == absent)) known = here;
            else if (here != known && !(masks && here == absent)) return;
        }
    for (int64_t t = 0; t < w.terms; ++t) {
        int64_t least = INT64_MAX, most = INT64_MIN;
        for (int64_t l = 0; l < lanes; ++l) {
            const int64_t e = element[size_t(t * lanes + l)];
            if (e == absent) continue;
            least = std::min(least, w.picks == Picks::in_order ? e - l : e);
            most = std::max(most, e);
        }
        if (least == INT64_MAX || most - least >= (w.picks == Picks::two_loads ? 2 : 1) * lanes) return;
        offset[size_t(t)] = least;
    }
    for (int64_t k = 0; k < w.terms * lanes; ++k)
        w.index[size_t(k)] = element[size_t(k)] == absent ? -1 : int32_t(element[size_t(k)] - offset[size_t(k / lanes)]);
    std::copy(offset.begin(), offset.end(), w.offset.begin());
    w.step = step;
    w.even = true;
    pair_terms(w, lanes);
    w.full = w.full && std::all_of(element.begin(), element.end(), [&](int64_t e) { return e != absent; });
}

bool is_full(const Weave& w, int64_t vectors, int64_t lanes) {
    const int64_t tail = w.period * w.row_out - (vectors - 1) * lanes;  // lanes of the last vector that are there
    auto has = [](int64_t n) { return [n](uint16_t bits) { return bits == (1u << n) - 1; }; };
    return std::all_of(w.present.begin(), w.present.end() - w.terms, has(lanes)) && std::all_of(w.present.end() - w.terms, w.present.end(), has(tail));
}

template <class A> void fill_counts(Plan& p, int64_t first, int64_t lanes) {
    const std::vector<int64_t>& count = p.axes.back()->count;
    Joined& j = p.joined;
    j.counts.resize(j.offset.size() * size_t(2 * lanes) * sizeof(A) + 64);
    A* to = const_cast<A*>(Plan::table<A>(j.counts));
    for (size_t v = 0; v < j.offset.size(); ++v, to += 2 * lanes)
        for (int64_t l = 0; l < lanes; ++l) {
            const size_t k = size_t(p.divide_first ? first + j.offset[v] + l : int64_t(v) * lanes + l);
            to[l] = A(p.constant_divisor || k >= count.size() ? 1 : count[k]);
            to[l + lanes] = 1 / to[l];
        }
}

}  // namespace

void make_joined(Plan& p, int64_t lanes) {
    const Axis& axis = *p.axes.back();
    const Span need = axis.rows_needed(0, axis.positions);
    const int64_t cells = need.b - need.a, wide = (p.divide_first ? 1 : 2) * lanes, terms = joined_terms(p.divide_first);
    const size_t vectors = size_t(round_up(ceil_div(axis.positions, lanes), 2));
    if (cells < wide || axis.positions > WOVEN_ROW) return;
    Joined j;
    j.offset.assign(vectors, 0);
    j.index.assign(vectors * size_t(terms * lanes), -1);
    j.present.assign(vectors * size_t(terms), 0);
    for (int64_t i = 0; i < axis.positions; ++i) {
        const int64_t v = i / lanes, l = i % lanes, last = std::min((v + 1) * lanes, axis.positions) - 1;
        const int64_t offset = std::min(axis.lo[size_t(v * lanes)] - need.a, cells - wide);  // no cell beyond the row is read
        if (axis.hi[size_t(last)] - need.a > offset + wide) return;
        j.offset[size_t(v)] = offset;
        for (int64_t c = axis.lo[size_t(i)]; c < axis.hi[size_t(i)]; ++c) {
            const size_t at = size_t(v * terms + c - axis.lo[size_t(i)]);
            j.index[at * size_t(lanes) + size_t(l)] = int32_t(c - need.a - offset);
            j.present[at] = uint16_t(j.present[at] | 1u << l);
        }
    }
    p.joined = std::move(j);
    if (p.dtype == Dtype::float64) fill_counts<double>(p, need.a - axis.base, lanes);
    else fill_counts<float>(p, need.a - axis.base, lanes);
}

bool make_weave(Plan& p, int64_t lanes) {
    const Axis& axis = *p.axes.back();
    Weave& w = p.weave;
    const Span need = axis.rows_needed(0, axis.positions);
    w.row_in = (need.b - need.a) * p.channels;
    w.row_out = axis.positions * p.channels;
    const bool narrow = std::min(w.row_in, w.row_out) < FEW_CHANNELS && std::any_of(p.axes.begin(), p.axes.end(), [](const Axis* a) { return a->is_long(); });
    if (axis.is_long() || narrow || w.row_out == 0 || std::max(w.row_in, w.row_out) > WOVEN_ROW) return false;
    w.period = 1;
    while (w.period * w.row_out % lanes && w.period < lanes) ++w.period;
    if (w.period * w.row_out * axis.reach[0] > WOVEN_ROW) w.period = 1;
    w.terms = std::max<int64_t>(axis.reach[0], 1);
    const int64_t vectors = ceil_div(w.period * w.row_out, lanes);
    // Where a position has fewer terms, they may take later slots: that keeps a vector's picks close together. The sum of
    // nothing is in the first slot or nowhere.
    const bool empties = std::mismatch(axis.lo.begin(), axis.lo.end(), axis.hi.begin(), std::less<>()).first != axis.lo.end();
    std::vector<int64_t> slot(axis.lo.size(), 0);
    for (size_t i = 0; i < slot.size() && !empties; ++i) {
        const int64_t least = axis.lo[i] - (w.terms - (axis.hi[i] - axis.lo[i]));
        const int64_t wanted = i ? axis.lo[i - 1] - slot[i - 1] + std::max<int64_t>(axis.lo[i] - axis.lo[i - 1], 1) : least;
        slot[i] = axis.lo[i] - std::min(std::max(wanted, least), axis.lo[i]);
    }
    w.picks = Picks::in_order;
    w.offset.assign(size_t(vectors * w.terms), 0);
    w.index.assign(size_t(vectors * w.terms * lanes), -1);
    w.present.assign(size_t(vectors * w.terms), 0);
    w.first_missing = empties ? 0.0 : -0.0;
    for (int64_t v = 0; v < vectors; ++v)
        for (int64_t t = 0; t < w.terms; ++t) {
            const size_t at = size_t(v * w.terms + t);
            std::vector<int64_t> element(size_t(lanes), -1);
            int64_t offset = 0, lowest = -1;
            for (int64_t l = 0; l < lanes && v * lanes + l < w.period * w.row_out; ++l) {
                const int64_t flat = v * lanes + l, row = flat / w.row_out, i = flat % w.row_out / p.channels, c = flat % p.channels;
                const int64_t source = axis.lo[size_t(i)] - slot[size_t(i)] + t;
                if (source < axis.lo[size_t(i)] || source >= axis.hi[size_t(i)]) continue;
                const int64_t e = element[size_t(l)] = row * w.row_in + (source - need.a) * p.channels + c;
                if (!w.present[at]) offset = empties ? e : e - l;
                lowest = w.present[at] ? std::min(lowest, e) : e;
                w.present[at] = uint16_t(w.present[at] | 1u << l);
            }
            if (lowest >= 0 && lowest < offset) offset = lowest;
            for (int64_t l = 0; l < lanes; ++l) {
                const int64_t e = element[size_t(l)];
                if (e < 0) continue;
                if (e != offset + l) w.picks = std::max(w.picks, Picks::one_load);
                if (e >= offset + lanes) w.picks = std::max(w.picks, Picks::two_loads);
                if (e >= offset + 2 * lanes) w.picks = Picks::far;
                w.index[at * size_t(lanes) + size_t(l)] = int32_t(e - offset);
            }
            w.offset[at] = offset;
        }
    w.full = is_full(w, vectors, lanes);
    find_even(w, vectors, lanes, lanes * accumulator_size(p.dtype) == 64);
    return true;
}

}  // namespace poolgrad
