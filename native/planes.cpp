// Axes along which nothing is added leave a plan before anything else is decided: copying commutes with every sum, so their order means
// nothing, and what is left may be one of the poolings that have a kernel of their own.
#include <algorithm>

#include "plan.h"

namespace poolgrad {

namespace {

constexpr int64_t PLANE_BYTES = 16 << 10;  // of a result's plane that is worth a task
constexpr int64_t PLANE_SOURCE = 2 << 20;  // bytes of a source's plane that is read again from a core's own cache

// Whether all counts of an axis are the same.
bool counts_alike(const Axis& axis) { return std::adjacent_find(axis.count.begin(), axis.count.end(), std::not_equal_to<>()) == axis.count.end(); }

// Whether every position of an axis is its own row.
bool is_identity(const Axis& axis) {
    if (axis.positions != axis.rows) return false;
    for (int64_t i = 0; i < axis.positions; ++i)
        if (axis.lo[size_t(i)] != axis.base + i || axis.hi[size_t(i)] != axis.base + i + 1) return false;
    return true;
}

// Whether the last axis had better be channels than an axis: where it lies packed, and has rows to sum beside it.
bool is_last_better_as_channels(const Plan& p) { return p.steps.back().result_stride == size_of(p.dtype) && (!p.divide_first || p.rank() > 2); }

// Take out axis k; what it divides by is left to another.
void drop_axis(Plan& p, size_t k) {
    const Axis& axis = *p.axes[k];
    const int64_t count = axis.count.empty() || p.constant_divisor ? 1 : axis.count[0];
    p.axes.erase(p.axes.begin() + int64_t(k));
    p.steps.erase(p.steps.begin() + int64_t(k));
    if (count == 1) return;
    auto other = std::make_unique<Axis>(*p.axes[0]);
    for (int64_t& c : other->count) c *= count;
    other->find_runs();
    p.axes[0] = other.get();
    p.made.push_back(std::move(other));
}

int64_t elements_of(const Plan& p, int64_t Axis::*extent) {
    int64_t n = 1;
    for (size_t k = 1; k < p.axes.size(); ++k) n *= p.axes[k]->*extent;
    for (const Dim& d : p.outer)
        if (d.result_stride == size_of(p.dtype)) n *= d.extent;
    return n;
}

}  // namespace

void find_planes(Plan& p) {
    for (size_t k = p.axes.size() - !is_last_better_as_channels(p); k-- > 0;) {
        const Axis& axis = *p.axes[k];
        if (p.rank() == 1 || !is_identity(axis) || !(p.constant_divisor || counts_alike(axis))) continue;
        p.outer.push_back({axis.positions, p.steps[k].source_stride, p.steps[k].result_stride});
        drop_axis(p, k);
    }
    const Axis& first = *p.axes[0];
    if (p.rank() < 3 || p.accumulate || first.reach[0] > 1 || first.rows < 2 || !(p.constant_divisor || counts_alike(first))) return;
    const int64_t item = size_of(p.dtype);
    if (elements_of(p, &Axis::positions) * item < PLANE_BYTES || elements_of(p, &Axis::rows) * item > PLANE_SOURCE) return;
    p.planes = &first;
    p.plane_step = p.steps[0];
    drop_axis(p, 0);
    p.image_count *= p.planes->positions;
}

}  // namespace poolgrad
