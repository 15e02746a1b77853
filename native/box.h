// One box of the result, computed from exactly the source rows it needs: what it is made of. `making.h` has the way from the
// source to sums along the last axes, `kernel.cpp` the first axis and the way into the result.
#pragma once

#include "rows.h"

namespace poolgrad {
namespace PG_ISA {

struct Cells;
struct PairRows;
template <class A> struct Terms;
template <class A> struct Part;
template <class A> struct Course;
template <class S, class A> struct Strip;

template <class S> class Box {
    using A = typename AccumulatorOf<S>::type;

public:
    Box(const Plan& plan, const char* source, char* scratch) : plan_(plan), K(plan.rank()), source_(source), scratch_(scratch) {
        ring_ = at(plan.scratch.ring);
        row_in_ = at(plan.scratch.row_in);
        row_out_ = at(plan.scratch.row_out);
        spread_ = at(plan.scratch.spread);
        divided_ = at(plan.scratch.divided);
        raw_ = at(plan.scratch.raw);
        finished_ = at(plan.scratch.finished);
        turned_in_ = at(plan.scratch.turned_in);
        turned_out_ = at(plan.scratch.turned_out);
        sums_ = at(plan.scratch.sums);
    }

    // The box with these indices along the axes, channels from `channel` on, of one image; of an `empty` one, the sums of nothing.
    void run(const char* source, char* result, const int64_t* index, int64_t channel, bool empty);

private:
    A* at(size_t offset) const { return reinterpret_cast<A*>(scratch_ + offset); }

    // Whether the box's rows are gathered (lines.h): they follow each other in a result past the caches, and do not begin and end with
    // its lines.
    bool is_ragged(const char* result) const;
    // Whether rows that follow each other in scratch and in the result are summed and written as one where the first axis is long.
    bool rows_are_one() const { return K == 3 && program_[0] && plan_.packed_rows && plan_.divide_first && !plan_.spread_late; }
    // Bytes of the box's positions of axis k and those after it in the result, where they follow each other; if not, 0.
    int64_t run_bytes(int k) const;
    // Whether they are joined in registers instead.
    bool is_joining(const char* result) const;
    // Where the `bytes` that will lie at `to` are made. All before them are complete.
    char* place(char* to, int64_t bytes) { return gathers_ ? gathered_.place(to, bytes) : to; }
    // The divisor's share of row `row` of axis k, where the division comes first; of position i, where it comes last.
    int64_t count_of_row(int k, int64_t row) const {
        return plan_.divide_first && !plan_.constant_divisor ? plan_.axes[k]->count[row - plan_.axes[k]->base] : 1;
    }
    int64_t count_of_position(int k, int64_t i) const {
        return plan_.divide_first || plan_.constant_divisor ? 1 : plan_.axes[k]->count[i];
    }
    // How many of n positions from i on divide by the same.
    int64_t alike(int k, int64_t i, int64_t n) const {
        if (plan_.divide_first || plan_.constant_divisor) return n;
        return least(n, plan_.axes[k]->alike[i]);
    }
    void run_images(const char* source, char* result);
    void run_cell(const char* source, char* result);
    bool is_filled(const char* result) const;
    void spread_cells(const char* source, int64_t i, char* wide);
    void run_filled(const char* source, char* result);
    // Small windows over rows that can be used where they lie, into rows that lie packed.
    bool is_direct(const char* source, const char* result) const;
    void direct_row(int64_t i, int64_t planes, const char* source, int64_t product, char* to);
    // One channel, in steps of two along the last axis (halving.h).
    void halve_row(int64_t i, int64_t planes, const char* source, int64_t product, char* to);
    // Calls the function for row i of the last axis but one, from `planes` planes of `source` on, to be divided by `product` and the counts
    // of the last axis.
    template <class F> void each_row(const char* source, char* result, const F& function);
    // Windows that slide (sliding.h), all channels at a time.
    bool is_sliding(const char* result) const;
    void run_sliding(const char* source, char* result);
    void slide_images(const char* source, char* result);
    void slide_volume(const char* source, char* result);
    // A plane of the first of three axes (of two axes, all of it): its sums go into `plane`, and with those of the two planes before
    // into `result`, unless that is null.
    void slide_plane(const char* source, int64_t product, A* plane, const A* older, const A* old, char* result);
    // Some channels of one row of it; V vectors of them. PLANE: of three axes.
    template <bool PLANE, Way WAY> void slide_row(const Terms<A>& terms, const Cells& cells, Span channels);
    template <int V, bool PLANE, Way WAY> void slide_channels(const Terms<A>& terms, const Cells& cells, int64_t channel);
    // How far behind a row lies one that is needed soon, but not at once.
    int64_t rows_ahead(int64_t stride) const { return stride * ceil_div(AHEAD, most(in_, 1) * int64_t(sizeof(S))); }
    // Calls the function with the way that rows of many channels are written.
    template <class F> PG_INLINE void by_way(const F& function) const {
        if constexpr (VECTOR_BYTES == LINE) if (joins_) return function(std::integral_constant<Way, Way::joined>());
        if (streaming_) function(std::integral_constant<Way, Way::past>());
        else function(std::integral_constant<Way, Way::kept>());
    }
    // Whether rows of the result can be written past the caches, if they must.
    bool fills_lines(const char* result) const { return !streaming_ || (plan_.whole_lines && to_line(result) == 0); }
    // Windows side by side, or that overlap by less than half (pairs.h), all channels at a time.
    bool is_paired(const char* result) const;
    void run_pairs(const char* source, char* result);
    // Rows of the result that the row with these cells completes: all channels; V vectors of them.
    template <Way WAY> void pair_rows(const PairRows& rows, const Cells& cells);
    template <int V, Way WAY, bool KEEPS> void pair_channels(const PairRows& rows, const Cells& cells, int64_t channel);
    // One channel, in steps of two along the last axis (doubling.h).
    bool is_doubling(const char* result) const;
    void run_doubling(const char* source, char* result);
    // One channel, few cells for each position (joining.h).
    bool is_joined(const char* result) const;
    void run_joined(const char* source, char* result);
    template <bool LAST> void join_rows(const char* source, char* result);
    // A source row summed along the last axis, divided before by d and its cells' counts if it is divided first.
    template <bool LAST> void join_row(const char* source, A d, A* to) const;
    // A row of the result: the sum of such rows, divided by d and its positions' counts if it is divided last.
    template <bool LAST, bool PAST> void write_joined(const A* const* rows, A d, char* to) const;
    // Calls the function for every image of a folded first axis, with that image's rows and positions as the box's.
    template <class F> void each_image(const F& function);
    // A plane of one channel, in strips of vectors along the last axis (strips.h); of two axes, every image.
    void strip_planes(const char* source, int64_t product, A* plane, const A* older, const A* old, char* result);
    // What a strip does next: all rows of a plane; rows that divide by the same (one without room around it goes alone); a part.
    void add_plane(Strip<S, A>& strip, Course<A>& course, const char* from, int64_t product, const char* lost);
    void add_alike(Strip<S, A>& strip, Course<A>& course, Part<A> part);
    void add_part(Strip<S, A>& strip, Course<A>& course, const Part<A>& part);
    // What row r divides by, or the position that it completes; and how many rows from it on do the same.
    int64_t strip_count(int64_t r, int64_t& n) const;
    // The same over narrow images (flat.h).
    template <bool LAST> void run_flat(const char* source, char* result);
    template <bool LAST> void sum_flat_rows(const char* from, const A* table, int64_t n, A* sums) const;
    template <bool LAST> void put_flat_rows(const A* top, const A* table, char* to);
    // First axis, short intervals: a ring of blocks.
    void run_short(const char* source, char* result);
    // Blocks of `n` consecutive rows of the first axis.
    void make_blocks(int64_t row, int64_t n, const char* source, A* to);
    // First axis, long intervals: every block, then sums of a group of columns, then its rows of the result.
    void run_long(const char* source, char* result);
    // Such a group, n positions wide, straight into the result, if it lies well for that.
    bool sum_into(Grid<const A> in, int64_t n, char* to);
    // Write positions i ... i+n-1 of the first axis: the sum of the blocks p. More than one only where K is 2.
    void emit(const A** p, int found, int64_t i, int64_t n, char* result);
    // Positions i ... end-1 of the first axis that are the sums of nothing.
    void emit_empty(int64_t i, int64_t end, char* result);
    // All of them from position i on; the next that is not.
    int64_t pass_empty(int64_t i, char* result);
    // Row r of a block in the result, and its divisor so far.
    char* row_place(int64_t r, char* result, int64_t& product) const;
    // `rows` result rows (more than one only where they lie packed on both sides), each n positions from position w of
    // the box on.
    void emit_rows(const A* const* p, int found, char* to, int64_t rows, int64_t w, int64_t n, int64_t product);
    // Sum, divide and write in one go; positions that share a divisor are one run.
    void write_divided(const A* const* in, int found, char* to, int64_t rows, int64_t w, int64_t n, int64_t product);
    // Spread rows straight into the result, if it lies well for that. Many channels are rounded to storage first.
    bool spread_into(const A* row, char* to, int64_t rows);
    void spread(const A* row, A* out, int64_t rows);

    // Axes k and after, for one row of the axis before: `to` becomes [positions of k]...[row]. 0 < k < K-1.
    void expand(int k, int64_t product, const char* source, A* to);
    // n rows of axis k (the last but one) from `row` on, each summed along the last axis.
    void make_rows(int k, int64_t row, int64_t n, int64_t product, const char* source, A* to);
    // Ask for the n rows after these while these are computed.
    void prefetch_rows(int k, int64_t n, const char* source) const;
    // Rows that can be woven where they lie: packed, not to be divided, and with room around them in the source.
    const A* rows_in_place(int k, const char* from, int64_t n) const;
    void sum_packed(int k, int64_t row, int64_t n, int64_t product, const char* source, A* to);
    // Rows are turned so that they lie side by side and fill the vectors.
    void sum_turned(int k, int64_t row, int64_t n, int64_t product, const char* source, A* to);
    // As many of those rows as can be divided as they are turned, sixteen at a time.
    int64_t turn_divided(int k, int64_t row, int64_t n, int64_t product, const char* source, int64_t lanes);
    void sum_last(const A* in, int64_t inner, A* to, int64_t ahead = 0);
    void load_rows(int k, int64_t row, int64_t n, int64_t product, const char* source, A* to, int64_t stride);
    // One source row (or several that are one) in accumulators, divided if the division comes first: in `to`, or where
    // it lies already.
    const A* load_row(const char* source, int64_t product, A* to, int64_t rows = 1);
    // n cells that can be used where they lie: accumulators, packed, and not to be divided.
    const A* cells_in_place(const char* source, int64_t n) const;
    // Cells w ... w+n-1 of a source row into `to`, divided if the division comes first.
    void load_cells(const char* source, int64_t product, int64_t w, int64_t n, A* to, int64_t rows = 1);
    // n cells of the source's last axis; several rows are one only where they are packed.
    Place place_of(int64_t n, int64_t rows) const;
    static bool is_aligned(const char* p) { return reinterpret_cast<uintptr_t>(p) % sizeof(A) == 0; }

    const Plan& plan_;
    const int K;
    const char* source_;  // the whole source
    char* scratch_;
    A *ring_, *row_in_, *row_out_, *spread_, *divided_, *raw_, *finished_, *turned_in_, *turned_out_, *sums_;
    int64_t channels_, in_, out_;  // elements of a source row and of a result row
    int64_t block_;                // elements between the blocks of the first axis
    bool streaming_;
    bool plain_;         // sums are written as they are, whole rows packed
    bool gathers_;       // rows are gathered before they are written
    bool joins_;         // they are joined as they are written
    Gathered gathered_;
    Lines<S, A> lines_;  // if open, where joined rows go
    int64_t a_[MAX_AXES], b_[MAX_AXES], inner_[MAX_AXES], lead_[3];
    Span need_[MAX_AXES];
    const Program* program_[MAX_AXES];
    Divider<A> divider_;
};

}  // namespace PG_ISA
}  // namespace poolgrad
