// Interval tables, and the order of additions that the numeric contract makes of them.
//
// An axis whose longest interval is at most eight adds in ascending order. A longer one is compiled into a Program: a
// list of sums of rows (heads, tails, totals of blocks, runs of totals) that ends in one sum per position. Every
// addition is an instruction, so the kernels need know nothing of blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace poolgrad {

constexpr int64_t BLOCK = 8;

struct Span { int64_t a, b; };

// Sums along one axis: result position i adds source rows lo[i] ... hi[i]-1, numbered on the whole axis; the caller's
// block begins at row `base`. together[i] says how many positions from i on have intervals of one length whose
// beginnings rise by one each: they can be added as one long row; even[i], by any one number each. alike[i] says how many counts from i on
// are the same.
struct Axis {
    int64_t positions = 0, rows = 0, base = 0;
    std::vector<int64_t> lo, hi, count, reach, together, even, alike;

    bool is_long() const { return reach[0] > BLOCK; }
    void find_runs();  // together, even and alike

    // The rows that positions [a, b) need.
    Span rows_needed(int64_t a, int64_t b) const;
};

// Instructions follow each other in `code`. A term >= 0 is a source row, counted from the first one needed; one < 0 is
// scratch row ~term. A running head h (a sum upwards from a block's beginning) stays in registers.
enum Instruction : int32_t {
    ADD,   // scratch row, number of terms, terms:          scratch = the sum of the terms
    TAIL,  // first scratch row, first source row, j:       scratch[i] = row[7] + row[6] + ... + row[i] for i = 6 ... j
    HEAD,  // source row, whether h begins, scratch row or -1:  h += row; scratch = h
    PUT,   // position, number of terms, terms:             position = the sum of the terms
    PUT_HEAD  // position, source row or -1, whether h begins, number of terms (at most 2), terms:  h += row; position = terms + h
};

// `scratch_rows` rows are used.
struct Program {
    std::vector<int32_t> code;
    int64_t scratch_rows = 0;
};

// The sums of positions [a, b) of an axis.
Program compile(const Axis& axis, int64_t a, int64_t b);

}  // namespace poolgrad
