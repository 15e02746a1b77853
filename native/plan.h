// What one call computes, and how it is cut up: the arrays' shapes and strides, the interval tables, the boxes of the
// result that are computed one at a time, and where each box keeps its scratch.
//
// Plain data, made once by plan.cpp and read by the kernels of every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace poolgrad {

constexpr int MAX_AXES = 64;
constexpr int64_t BLOCK = 8;
constexpr int MAX_LEVELS = 12;

enum class Dtype : int { float32, float64, float16, bfloat16 };

inline int64_t size_of(Dtype t) { return t == Dtype::float64 ? 8 : t == Dtype::float32 ? 4 : 2; }
inline int64_t accumulator_size(Dtype t) { return t == Dtype::float64 ? 8 : 4; }

// Sums along one axis: result position i adds source rows lo[i] ... hi[i]-1, numbered on the whole axis; the caller's
// block begins at row `base`. together[i] says how many positions from i on have intervals of one length whose
// beginnings rise by one each: they can be added as one long row.
struct Axis {
    int64_t positions = 0, rows = 0, base = 0;
    std::vector<int64_t> lo, hi, count, reach, together;

    bool is_long() const { return reach[0] > BLOCK; }
    void find_together();
};

struct Dim { int64_t extent, source_stride, result_stride; };

struct Span { int64_t a, b; };

// Offsets into a thread's scratch, in bytes.
struct Scratch {
    size_t ring = 0, level[MAX_AXES] = {}, row_in = 0, row_out = 0, turned_in = 0, turned_out = 0, stage = 0, sums = 0,
           divisors = 0, lanes = 0, total = 0;
};

struct Plan {
    Dtype dtype = Dtype::float32;
    bool divide_first = true, accumulate = false, constant_divisor = false, streaming = false;
    int64_t divisor = 1;

    std::vector<Dim> outer;              // looped over, one image at a time
    std::vector<const Axis*> axes;       // first to last
    std::vector<Dim> steps;              // each axis's strides (bytes); the extent is unused
    std::vector<std::unique_ptr<Axis>> made;  // axes that the plan itself added or merged
    int64_t channels = 1, channel_source = 0, channel_result = 0;

    std::vector<int64_t> box;            // positions of each axis computed at a time
    int64_t box_channels = 1;
    int64_t strip = 0;                   // rows turned so that they become the vector; 0: channels are the vector
    int64_t ring_rows = 0, tile = 0;     // rows kept of the first axis; columns summed at a time on a long axis
    std::vector<int64_t> block;          // elements of a box from axis k on
    std::unique_ptr<Plan> lane_plan;     // small images: box_channels of them are turned into channels
    int64_t image_rows = 0, image_positions = 0;
    Scratch scratch;

    int64_t image_count = 1, channel_boxes = 1, box_count = 1, tasks = 1;

    int rank() const { return int(axes.size()); }
};

// Plan a call from its arrays' non-spatial dimensions (`plan.outer`), its axes and their strides. `threads` bounds how
// finely the work is cut, never the result.
void finish_plan(Plan& plan, int64_t threads);

// One task of a plan; `scratch` holds plan.scratch.total bytes, aligned to a cache line.
using RunTask = void (*)(const Plan&, const char* source, char* result, int64_t task, char* scratch);
namespace baseline { void run_task(const Plan&, const char*, char*, int64_t, char*); }
namespace avx2 { void run_task(const Plan&, const char*, char*, int64_t, char*); }
namespace avx512 { void run_task(const Plan&, const char*, char*, int64_t, char*); }

}  // namespace poolgrad
