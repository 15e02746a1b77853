// What one call computes, and how it is cut up: the arrays' shapes and strides, the interval tables, the boxes of the
// result that are computed one at a time, and where each box keeps its scratch.
//
// Plain data, made once by plan.cpp and read by the kernels of every instruction set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "program.h"

namespace poolgrad {

constexpr int MAX_AXES = 64;
constexpr int64_t FEW_CHANNELS = 16;  // fewer than this do not fill the vectors
constexpr int64_t SLIDING = 3;        // cells of the longest window that sliding.h knows
constexpr int64_t HALVED = 3;         // cells of the longest window that halving.h knows
constexpr int64_t JOINED_ROWS = 8;    // that joining.h sums along the last axis before it goes on
constexpr int joined_terms(bool divide_first) { return divide_first ? 2 : 3; }  // cells that it adds at the most
constexpr int64_t PAGE = 4096;         // bytes after which the last 12 bits of an address are the same again
constexpr int64_t WHOLE = 1 << 16;    // what quotient.h divides by

enum class Dtype : int { float32, float64, float16, bfloat16 };

inline int64_t size_of(Dtype t) { return t == Dtype::float64 ? 8 : t == Dtype::float32 ? 4 : 2; }
inline int64_t accumulator_size(Dtype t) { return t == Dtype::float64 ? 8 : 4; }
inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
inline int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }

// The widest strip of one channel (strips.h), in vectors of accumulators: as many as the registers hold.
constexpr int strip_vectors(int64_t accumulator) { return accumulator == 8 ? 6 : 4; }

// Elements between rows in scratch: whole cache lines, and not a power of two apart, so that rows do not share a cache's sets.
inline int64_t padded_row(int64_t n, int64_t item) {
    const int64_t line = 64 / item, row = round_up(n, line);
    return row * item % 1024 == 0 ? row + line : row;
}

struct Dim { int64_t extent, source_stride, result_stride; };

// How rows of few channels become vectors.
enum class Rows : int {
    packed,  // enough channels: each position is a run of vectors
    woven,   // short intervals: vectors are picked from the packed row by index
    turned   // anything else: several rows are transposed so that they lie side by side
};

// How far apart the elements of one vector lie: each in its own lane; within one vector; within two; within the same two for
// a term and the next; anywhere.
enum class Picks : int { in_order, one_load, two_loads, paired, far };

// Which neighbour one of the two positions that a cell becomes adds (doubling.h): the first of them the cell before, or the second the
// cell after, or they are the cell alone. (Or cells do not become two.)
enum class Doubling : int { none, before, after, alone };

// Picks for `period` packed rows: vector v of the result adds, for each term t, the elements index[v][t][lane] after
// offset[v][t]; a negative index means that the term is absent. Made for one vector width.
struct Weave {
    int64_t period = 0, terms = 0, row_in = 0, row_out = 0;
    Picks picks = Picks::in_order;
    bool even = false;         // every vector's picks are the first one's, `step` elements further on for each
    bool full = false;         // no lane of any term is ever absent, but past the end
    int64_t step = 0;
    double first_missing = 0;  // +0.0 where a position may be the sum of nothing
    std::vector<int64_t> offset;
    std::vector<int32_t> index;
    std::vector<uint16_t> present;  // one bit per lane
};

// A row of one channel whose positions add few cells (joining.h), for each vector of the result: its terms t are elements
// index[v][t][lane], of which a negative one is absent, of the vector (forwards: two) at cell offset[v]; `counts` has what the cells of
// that vector (forwards: its positions) are divided by, and the reciprocals. There is a vector more where their number is odd.
struct Joined {
    std::vector<int64_t> offset;
    std::vector<int32_t> index;
    std::vector<uint16_t> present;  // one bit per lane
    std::vector<char> counts;
};

constexpr int64_t GATHERED = 256 << 10;  // bytes of a thread's scratch in which rows are gathered before they are written

// Offsets into a thread's scratch, in bytes.
struct Scratch {
    size_t ring = 0, level[MAX_AXES] = {}, row_in = 0, row_out = 0, spread = 0, divided = 0, raw = 0, finished = 0, gathered = 0, turned_in = 0, turned_out = 0,
           sums = 0, slid = 0, total = 0;
};

struct Plan {
    Dtype dtype = Dtype::float32;
    bool divide_first = true, accumulate = false, constant_divisor = false, streaming = false;
    int64_t divisor = 1;

    std::vector<Dim> outer;                   // looped over, one image at a time
    std::vector<const Axis*> axes;            // first to last
    std::vector<Dim> steps;                   // each axis's strides (bytes); the extent is unused
    const Axis* planes = nullptr;             // an axis before these along which nothing is added: each position is an image, or zeros
    Dim plane_step = {};                      // its strides
    std::vector<std::unique_ptr<Axis>> made;  // axes that the plan itself added or merged
    int64_t channels = 1, channel_source = 0, channel_result = 0;

    std::vector<int64_t> box;                 // positions of each axis computed at a time
    int64_t box_channels = 1;
    Rows rows = Rows::packed;
    Weave weave;
    bool spread_late = false;                 // no position of the last axis adds anything: it is spread when written
    bool doubled = false;                     // each cell of a packed row of 16 bits becomes two of the result, and that is all
    bool whole_images = false;                // every axis is summed whole, and images lie packed, one after the other
    bool one_cell = false;                    // a gradient of many channels: every position is the same cell
    bool filled = false;                      // a gradient of one channel: every image is one cell, and images lie packed, one after the other
    bool sliding = false;                     // small windows that slide by one: position i adds the cells from i - lead on that are there
    bool flat = false;                        // of these, narrow images of one channel, as wide before as after and packed in both arrays
    bool pairs = false;                       // a gradient of two axes, every position of which adds one cell or two
    Joined joined;                            // of one channel: few cells for each position, anywhere. (Or empty.)
    bool halving = false;                     // a forward pass of one channel: small windows in steps of two along the last axis
    Doubling doubling = Doubling::none;       // of one channel: cells become two positions side by side
    bool whole_lines = false;                 // of sliding, pairs, doubling: rows of the result are whole lines, as far apart
    int64_t lead[3] = {}, pitch = 0;          // of each axis; elements between its rows in scratch
    int64_t folded = 1;                       // images that the first axis is made of
    bool gather = false;                      // rows of a box follow each other in a result past the caches: they can be gathered
    int64_t batch = 1;                        // rows of the last axis made at a time
    int64_t ring_rows = 0, run_rows = 1;      // rows kept of a short first axis; result rows written as one
    int64_t tile = 0;                         // columns of a long first axis summed and written at a time
    std::vector<std::vector<Program>> programs;  // [axis][box], for the long axes
    Scratch scratch;

    // Counts that differ along the last axis, as accumulators: of few channels as many rows of them as may be divided as one; of many,
    // if they differ often, one for each position. `divisors_half` elements further on are their reciprocals.
    std::vector<char> divisors;
    int64_t divisors_half = 0, most_count = 1;

    // Of a sliding plan of one channel (strips.h), for every lane of a row and a few to either side: its count, 1 / count, and whether
    // its middle cell is there (0) or not (-1). Of a flat one (flat.h), for every cell of an image and a few more: what it is divided by, and
    // the reciprocal; `edges` has for each vector of them which have one before them in their row, and which one after, one bit per lane.
    std::vector<char> lanes;
    std::vector<uint16_t> edges;

    int64_t source_bytes = 0;                 // from the source's first element to the end of its last; 0: not known
    bool packed_rows = false;                 // whole rows of a box follow each other in scratch and in the result

    int64_t image_count = 1, channel_boxes = 1, box_count = 1, tasks = 1;

    int rank() const { return int(axes.size()); }

    // Whether one of the kernels for poolings of their own has it (kinds.cpp).
    bool own_kernel() const { return sliding || pairs || halving || doubling != Doubling::none || !joined.offset.empty(); }

    // A table of accumulators, from a line's beginning on.
    template <class A> static const A* table(const std::vector<char>& held) {
        return held.empty() ? nullptr : reinterpret_cast<const A*>((reinterpret_cast<uintptr_t>(held.data()) + 63) / 64 * 64);
    }
};

// Whole numbers up to this are accumulators.
template <class A> constexpr int64_t EXACT_COUNT = sizeof(A) == 4 ? int64_t(1) << 24 : int64_t(1) << 53;

// Rows that may be divided as one.
inline int64_t divided_rows(const Plan& p) { return !p.divide_first ? p.run_rows : p.rows == Rows::woven ? p.batch : 1; }

// Lanes that `lanes` describes.
inline int64_t lanes_described(const Plan& p) { return p.pitch + 2 * FEW_CHANNELS; }

// Cells that it describes of a flat plan.
inline int64_t flat_size(const Plan& p) { return std::max(p.axes[0]->rows, p.axes[0]->positions) / p.folded * p.axes[1]->positions + 4 * FEW_CHANNELS; }

// Positions of the last axis that are turned at a time; times the channels, a multiple of 8.
inline int64_t turned_chunk(int64_t channels) { return 256 / channels / 8 * 8 + 8; }

// Index tables for a short last axis of few channels (weaving.cpp), if they are not too large.
bool make_weave(Plan& plan, int64_t lanes);

// The same for joining.h: none if a vector's positions have too many cells.
void make_joined(Plan& plan, int64_t lanes);

// Take out the axes along which nothing is added (planes.cpp).
void find_planes(Plan& plan);

// Which of the kernels for poolings of their own a plan is for (kinds.cpp), by vectors of so many lanes.
void find_sliding(Plan& plan, int64_t lanes);
void find_pairs(Plan& plan);
void find_doubling(Plan& plan, int64_t lanes);
void find_halving(Plan& plan, int64_t lanes);
void find_joined(Plan& plan, int64_t lanes);
void find_whole_images(Plan& plan);
void find_one_cell(Plan& plan);
void find_filled(Plan& plan, int64_t vector_bytes);

// Plan a call from its arrays' non-spatial dimensions (`plan.outer`), its axes and their strides. `threads` bounds how
// finely the work is cut, never the result.
void finish_plan(Plan& plan, int64_t threads, int64_t vector_bytes);

// Tasks begin ... end-1 of a plan; `scratch` holds plan.scratch.total bytes, aligned to a cache line.
using RunBoxes = void (*)(const Plan&, const char* source, char* result, int64_t begin, int64_t end, char* scratch);

// Read and write so many bytes and nothing else (floor.h).
using Move = void (*)(const char* from, int64_t read, char* to, int64_t written, bool streaming);

#define POOLGRAD_KERNELS(isa) \
    namespace isa { \
    void run_boxes(const Plan&, const char*, char*, int64_t, int64_t, char*); \
    void move(const char*, int64_t, char*, int64_t, bool); \
    }
POOLGRAD_KERNELS(baseline)
POOLGRAD_KERNELS(avx2)
POOLGRAD_KERNELS(avx512)
#undef POOLGRAD_KERNELS

}  // namespace poolgrad
