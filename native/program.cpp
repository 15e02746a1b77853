#include "program.h"

#include <initializer_list>
#include <map>

namespace poolgrad {

namespace {

// Emits instructions and remembers what each level has summed already. Level 0 are source rows; rows of level k are the
// totals of blocks of level k-1. Rows of a level are known by their number on the whole axis.
class Compiler {
public:
    Compiler(const Axis& axis, Span need) : axis_(axis), need_(need), levels_(axis.reach.size()) {}

    Program run(int64_t a, int64_t b) {
        for (int64_t i = a; i < b; ++i) put(int32_t(i - a), axis_.lo[size_t(i)], axis_.hi[size_t(i)]);
        return std::move(program_);
    }

private:
    using Terms = std::vector<int32_t>;

    struct Level {
        int64_t head_block = -1, head_done = 0, tail_block = -1, lo = -1, hi = -1;
        int32_t head = -1, tail = -1, run_row = -1, run = 0;  // first scratch rows of heads and tails; a run and its row
        std::map<int64_t, int32_t> totals;                    // rows of this level that have been summed
    };

    int32_t scratch(int64_t rows) {
        program_.scratch_rows += rows;
        return int32_t(program_.scratch_rows - rows);
    }

    void emit(std::initializer_list<int32_t> fields, const Terms& terms = {}) {
        program_.code.insert(program_.code.end(), fields);
        program_.code.insert(program_.code.end(), terms.begin(), terms.end());
    }

    void put(int32_t position, int64_t lo, int64_t hi) {
        Terms terms;
        const int64_t first = (lo + BLOCK - 1) / BLOCK, last = hi / BLOCK;
        if (lo < hi && first > last) {
            for (int64_t c = lo; c < hi; ++c) terms.push_back(where(0, c));
        } else if (lo < hi) {
            if (lo < first * BLOCK) terms.push_back(tail(0, lo));
            if (first < last) terms.push_back(run_of(1, first, last));
            if (last * BLOCK < hi) return put_head(position, last, hi, terms);
        }
        emit({PUT, position, int32_t(terms.size())}, terms);
    }

    void put_head(int32_t position, int64_t block, int64_t hi, const Terms& terms) {
        advance_head(block, hi - 1);
        Level& l = levels_[0];
        const bool steps = l.head_done < hi - block * BLOCK;
        emit({PUT_HEAD, position, steps ? where(0, hi - 1) : -1, l.head_done == 0, int32_t(terms.size())}, terms);
        l.head_done = hi - block * BLOCK;
    }

    // Take the running head up to row `hi` - 1 of a block.
    void advance_head(int64_t block, int64_t hi, int32_t total = -1) {
        Level& l = levels_[0];
        if (l.head_block != block) { l.head_block = block; l.head_done = 0; }
        for (; l.head_done < hi - block * BLOCK; ++l.head_done)
            emit({HEAD, where(0, block * BLOCK + l.head_done), l.head_done == 0, l.head_done == BLOCK - 1 ? total : -1});
    }

    // The term for row c of a level; a total is summed when it is first asked for.
    int32_t where(size_t k, int64_t c) {
        if (k == 0) return int32_t(c - need_.a);
        auto found = levels_[k].totals.find(c);
        if (found != levels_[k].totals.end()) return found->second;
        const int32_t row = scratch(1);
        if (k == 1 && levels_[0].head_block == c && levels_[0].head_done < BLOCK) {
            advance_head(c, (c + 1) * BLOCK, row);
        } else {
            Terms terms;
            for (int64_t j = 0; j < BLOCK; ++j) terms.push_back(where(k - 1, c * BLOCK + j));
            emit({ADD, row, int32_t(BLOCK)}, terms);
        }
        return levels_[k].totals[c] = ~row;
    }

    // Sums downwards from the end of lo's block. Intervals come in ascending order, so rows below lo are not needed.
    int32_t tail(size_t k, int64_t lo) {
        Level& l = levels_[k];
        const int64_t block = lo / BLOCK, j = lo % BLOCK;
        if (j == BLOCK - 1) return where(k, lo);
        if (l.tail < 0) l.tail = scratch(BLOCK);
        if (l.tail_block != block) {
            l.tail_block = block;
            if (k == 0) {
                emit({TAIL, l.tail, where(0, block * BLOCK), int32_t(j)});
            } else {
                int32_t above = where(k, block * BLOCK + BLOCK - 1);
                for (int64_t i = BLOCK - 2; i >= j; --i) {
                    const int32_t row = where(k, block * BLOCK + i);
                    emit({ADD, l.tail + int32_t(i), 2}, {above, row});
                    above = ~(l.tail + int32_t(i));
                }
            }
        }
        return ~(l.tail + int32_t(j));
    }

    // Sums of totals upwards from the beginning of a block, as far as they have been asked for.
    int32_t head(size_t k, int64_t block, int64_t hi) {
        Level& l = levels_[k];
        if (l.head < 0) l.head = scratch(BLOCK);
        const int64_t n = hi - block * BLOCK;
        if (l.head_block != block) { l.head_block = block; l.head_done = 1; }
        for (; l.head_done < n; ++l.head_done) {
            const int32_t i = int32_t(l.head_done), before = i == 1 ? where(k, block * BLOCK) : ~(l.head + i - 1);
            const int32_t row = where(k, block * BLOCK + i);
            emit({ADD, l.head + i, 2}, {before, row});
        }
        return n == 1 ? where(k, block * BLOCK) : ~(l.head + int32_t(n) - 1);
    }

    // The sum of a run of totals; kept while the run stays the same.
    int32_t run_of(size_t k, int64_t lo, int64_t hi) {
        Level& l = levels_[k];
        if (l.lo == lo && l.hi == hi) return l.run;
        Terms terms;
        const int64_t first = (lo + BLOCK - 1) / BLOCK, last = hi / BLOCK;
        if (axis_.reach[k] <= BLOCK || first > last) {
            // In ascending order: what a run has been summed to already begins a longer one.
            int64_t c = lo;
            if (l.lo == lo && l.hi > lo && l.hi < hi) { terms.push_back(l.run); c = l.hi; }
            for (; c < hi; ++c) terms.push_back(where(k, c));
        } else {
            if (lo < first * BLOCK) terms.push_back(tail(k, lo));
            if (first < last) terms.push_back(run_of(k + 1, first, last));
            if (last * BLOCK < hi) terms.push_back(head(k, last, hi));
        }
        l.lo = lo;
        l.hi = hi;
        if (terms.size() == 1) return l.run = terms[0];
        if (l.run_row < 0) l.run_row = scratch(1);
        emit({ADD, l.run_row, int32_t(terms.size())}, terms);
        return l.run = ~l.run_row;
    }

    const Axis& axis_;
    Span need_;
    std::vector<Level> levels_;
    Program program_;
};

}  // namespace

void Axis::find_runs() {
    together.assign(lo.size(), 1);
    for (size_t i = lo.size(); i-- > 1;)
        if (hi[i] - lo[i] == hi[i - 1] - lo[i - 1] && lo[i] == lo[i - 1] + 1) together[i - 1] = together[i] + 1;
    even.assign(lo.size(), 1);
    for (size_t i = lo.size(); i-- > 1;)
        if (hi[i] - lo[i] == hi[i - 1] - lo[i - 1]) even[i - 1] = even[i] > 1 && lo[i + 1] - lo[i] == lo[i] - lo[i - 1] ? even[i] + 1 : 2;
    alike.assign(count.size(), 1);
    for (size_t i = count.size(); i-- > 1;) if (count[i] == count[i - 1]) alike[i - 1] = alike[i] + 1;
}

Span Axis::rows_needed(int64_t a, int64_t b) const {
    while (a < b && lo[size_t(a)] >= hi[size_t(a)]) ++a;
    while (a < b && lo[size_t(b - 1)] >= hi[size_t(b - 1)]) --b;
    return a < b ? Span{lo[size_t(a)], hi[size_t(b - 1)]} : Span{base, base};
}

Program compile(const Axis& axis, int64_t a, int64_t b) { return Compiler(axis, axis.rows_needed(a, b)).run(a, b); }

}  // namespace poolgrad
