// Sums of rows in the contract's order (docs/numeric-contract.md).
//
// A row is a run of accumulators; a sum begins with its first term and adds the others one by one. `Intervals` turns an
// interval of rows into the few rows whose sum it is: the rows themselves where the axis's intervals are short, and
// otherwise a tail, a run of whole blocks and a head, kept as the interval moves on.
#pragma once

#include "plan.h"
#include "simd.h"

namespace poolgrad {
namespace PG_ISA {

template <class A, int R, bool PAST> inline void add_rows(A* out, const A* const* in, int64_t n) {
    const A* p[R];
    for (int r = 0; r < R; ++r) p[r] = in[r];
    constexpr int64_t v = LANES<A>;
    int64_t k = 0;
    for (; k + v <= n; k += v) {
        Vec<A> s = load(p[0] + k);
        for (int r = 1; r < R; ++r) s = s + load(p[r] + k);
        if (PAST) stream(out + k, s); else store(out + k, s);
    }
    if (k < n && n >= v && !PAST) {
        k = n - v;
        Vec<A> s = load(p[0] + k);
        for (int r = 1; r < R; ++r) s = s + load(p[r] + k);
        store(out + k, s);
        return;
    }
    for (; k < n; ++k) {
        A s = p[0][k];
        for (int r = 1; r < R; ++r) s = s + p[r][k];
        out[k] = s;
    }
}

// out = in[0] + in[1] + ... (count rows of n). PAST: `out` is aligned to a vector and written past the caches.
template <class A, bool PAST = false> inline void add_rows(A* out, const A* const* in, int count, int64_t n) {
    switch (count) {
        case 0: for (int64_t k = 0; k < n; ++k) out[k] = 0; return;
        case 1: return add_rows<A, 1, PAST>(out, in, n);
        case 2: return add_rows<A, 2, PAST>(out, in, n);
        case 3: return add_rows<A, 3, PAST>(out, in, n);
        case 4: return add_rows<A, 4, PAST>(out, in, n);
        case 5: return add_rows<A, 5, PAST>(out, in, n);
        case 6: return add_rows<A, 6, PAST>(out, in, n);
        case 7: return add_rows<A, 7, PAST>(out, in, n);
        default: return add_rows<A, 8, PAST>(out, in, n);
    }
}

// The same, past the caches where whole lines allow it.
template <class A> inline void add_rows_streaming(A* out, const A* const* in, int count, int64_t n) {
    int64_t head = to_line(out);
    if (head % int64_t(sizeof(A)) != 0) return add_rows(out, in, count, n);
    head = least(head / int64_t(sizeof(A)), n);
    int64_t body = (n - head) / (LINE / int64_t(sizeof(A))) * (LINE / int64_t(sizeof(A)));
    const A* p[BLOCK];
    if (head) add_rows(out, in, count, head);
    for (int r = 0; r < count; ++r) p[r] = in[r] + head;
    add_rows<A, true>(out + head, p, count, body);
    if (head + body == n) return;
    for (int r = 0; r < count; ++r) p[r] += body;
    add_rows(out + head + body, p, count, n - head - body);
}

// Intervals of one axis over rows in memory, `tile` columns wide. Intervals must be asked for in ascending order.
template <class A> class Intervals {
public:
    // Rows first ... first+rows-1 of the axis lie at `in`, `stride` apart. Returns the scratch it leaves free.
    A* begin(const int64_t* reach, const A* in, int64_t stride, int64_t first, int64_t rows, int64_t tile, A* scratch) {
        levels_ = 0;
        tile_ = tile;
        for (;; ++levels_) {
            Level& l = level_[levels_];
            l.in = in; l.stride = stride; l.first = first; l.rows = rows;
            l.lo = l.hi = l.head_block = l.tail_block = -1;
            l.is_long = reach[levels_] > BLOCK;
            if (levels_) { l.run = scratch; scratch += tile; }
            if (!l.is_long) break;
            l.head = scratch; scratch += BLOCK * tile;
            l.tail = scratch; scratch += BLOCK * tile;
            // Blocks wholly inside first ... first+rows-1, numbered from block `first_block`.
            int64_t first_block = (first + BLOCK - 1) / BLOCK, end_block = (first + rows) / BLOCK;
            l.totals = scratch; l.totals_done = first_block;
            in = scratch; stride = tile; first = first_block; rows = most(end_block - first_block, 0);
            scratch += rows * tile;
        }
        return scratch;
    }

    // The rows whose sum, in order, is the sum over [lo, hi); their number is at most eight.
    int parts(int64_t lo, int64_t hi, const A** out) { return parts_at(0, lo, hi, out); }

private:
    struct Level {
        const A* in; int64_t stride, first, rows;
        A *head, *tail, *totals, *run;
        int64_t head_block, head_done, tail_block, totals_done, lo, hi;
        int found; const A* single;
        bool is_long;
        const A* row(int64_t c) const { return in + (c - first) * stride; }
    };

    int parts_at(int k, int64_t lo, int64_t hi, const A** out) {
        Level& l = level_[k];
        int64_t first = (lo + BLOCK - 1) / BLOCK, last = hi / BLOCK;
        if (!l.is_long || first > last) {
            for (int64_t c = lo; c < hi; ++c) out[c - lo] = l.row(c);
            return int(hi - lo);
        }
        int found = 0;
        if (lo < first * BLOCK) out[found++] = tail(l, lo);
        if (first < last) { add_totals(l, last); out[found++] = run_of(k + 1, first, last); }
        if (last * BLOCK < hi) out[found++] = head(l, last, hi);
        return found;
    }

    // Sums downwards from the end of lo's block.
    const A* tail(Level& l, int64_t lo) {
        int64_t block = lo / BLOCK, j = lo % BLOCK;
        if (l.tail_block != block) {
            l.tail_block = block;
            const A* p[2] = {l.row(block * BLOCK + 7), nullptr};
            add_rows(l.tail + 7 * tile_, p, 1, tile_);
            for (int64_t i = 6; i >= j; --i) {
                p[0] = l.tail + (i + 1) * tile_; p[1] = l.row(block * BLOCK + i);
                add_rows(l.tail + i * tile_, p, 2, tile_);
            }
        }
        return l.tail + j * tile_;
    }

    // Sums upwards from the beginning of a block, as far as they have been asked for.
    const A* head(Level& l, int64_t block, int64_t hi) {
        if (l.head_block != block) { l.head_block = block; l.head_done = 0; }
        for (int64_t i = l.head_done; i < hi - block * BLOCK; ++i) {
            const A* p[2] = {l.head + (i - 1) * tile_, l.row(block * BLOCK + i)};
            add_rows(l.head + i * tile_, i ? p : p + 1, i ? 2 : 1, tile_);
        }
        l.head_done = most(l.head_done, hi - block * BLOCK);
        return l.head + (hi - block * BLOCK - 1) * tile_;
    }

    // Totals of every whole block below `end`. A block whose head is finished already has its total there.
    void add_totals(Level& l, int64_t end) {
        const Level& up = (&l)[1];
        for (int64_t b = l.totals_done; b < end; ++b) {
            A* total = l.totals + (b - up.first) * tile_;
            const A* p[BLOCK];
            if (l.head_block == b && l.head_done == BLOCK - 1) {
                p[0] = l.head + (BLOCK - 2) * tile_; p[1] = l.row(b * BLOCK + BLOCK - 1);
                add_rows(total, p, 2, tile_);
            } else {
                for (int64_t i = 0; i < BLOCK; ++i) p[i] = l.row(b * BLOCK + i);
                add_rows(total, p, int(BLOCK), tile_);
            }
        }
        l.totals_done = most(l.totals_done, end);
    }

    const A* run_of(int k, int64_t lo, int64_t hi) {
        Level& l = level_[k];
        if (l.lo == lo && l.hi == hi) return l.single;
        const A* p[BLOCK];
        int found = parts_at(k, lo, hi, p);
        l.lo = lo; l.hi = hi; l.single = p[0];
        if (found > 1) { add_rows(l.run, p, found, tile_); l.single = l.run; }
        return l.single;
    }

    Level level_[MAX_LEVELS];
    int levels_ = 0;
    int64_t tile_ = 0;
};

// out[i] = sum of rows lo[i] ... hi[i]-1 for positions [a, b); rows are `inner` long and lie packed from row `first`.
template <class A>
inline void sum_axis(const Axis& axis, int64_t a, int64_t b, const A* in, int64_t first, int64_t rows, int64_t inner, A* out,
                     int64_t tile, A* scratch) {
    const int64_t *lo = axis.lo.data(), *hi = axis.hi.data(), *together = axis.together.data();
    const A* p[BLOCK];
    if (!axis.is_long()) {
        for (int64_t i = a; i < b;) {
            int64_t n = least(together[i], b - i), terms = hi[i] - lo[i];
            const A* row = in + (lo[i] - first) * inner;
            for (int64_t r = 0; r < terms; ++r) p[r] = row + r * inner;
            add_rows(out + (i - a) * inner, p, int(terms), n * inner);
            i += n;
        }
        return;
    }
    Intervals<A> intervals;
    for (int64_t c = 0; c < inner; c += tile) {
        int64_t n = least(tile, inner - c);
        intervals.begin(axis.reach.data(), in + c, inner, first, rows, n, scratch);
        for (int64_t i = a; i < b; ++i)
            add_rows(out + (i - a) * inner + c, p, hi[i] > lo[i] ? intervals.parts(lo[i], hi[i], p) : 0, n);
    }
}

}  // namespace PG_ISA
}  // namespace poolgrad
