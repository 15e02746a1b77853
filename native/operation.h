// Interval tables bound to the shapes of their arrays, with the plans kept for them.
//
// Whoever calls (Python's binding, XLA's handler) brings shapes, strides and memory. Everything that memory safety rests on
// is checked in the constructor, which throws std::invalid_argument.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "isa.h"
#include "plan.h"

namespace poolgrad {

// The build of the kernels in use, and those that could be.
const std::vector<Isa>& isas();
const Isa& chosen_isa();
void choose_isa(size_t index);

// Results of so many bytes or more are written past the caches.
int64_t streaming_bytes();
void set_streaming_bytes(int64_t bytes);

class Operation {
public:
    // `axes` hold lo, hi, base, rows, count and reach; the rest is worked out here.
    Operation(std::vector<std::unique_ptr<Axis>> axes, bool divide_first, std::optional<int64_t> divisor, std::vector<int> spatial,
              std::vector<int64_t> source_shape, std::vector<int64_t> result_shape);

    void run(const Plan& plan, const char* source, char* result, int64_t threads) const;

    std::shared_ptr<const Plan> plan_for(Dtype dtype, bool accumulate, int64_t threads, const int64_t* source_strides,
                                         const int64_t* result_strides);

    // Few elements are never worth more than one thread.
    int64_t useful_threads(int64_t threads) const { return elements_ < SERIAL_ELEMENTS ? 1 : threads; }
    bool is_quick() const { return elements_ < QUICK_ELEMENTS; }
    bool is_empty() const { return result_elements_ == 0; }
    const std::vector<int64_t>& source_shape() const { return source_shape_; }
    const std::vector<int64_t>& result_shape() const { return result_shape_; }

private:
    static constexpr int64_t SERIAL_ELEMENTS = 1 << 15, QUICK_ELEMENTS = 1 << 11;
    static constexpr size_t KEPT_PLANS = 8, MOST_LEVELS = 22;
    static constexpr int64_t MOST_ROW = int64_t(1) << 41;  // of an axis; far from where sums of row numbers overflow

    struct Kept { std::vector<int64_t> key; std::shared_ptr<const Plan> plan; };

    bool is_spatial(size_t d) const;
    void check(const Axis& axis, int position) const;
    std::shared_ptr<const Plan> make_plan(Dtype dtype, bool accumulate, int64_t threads, const int64_t* source_strides,
                                          const int64_t* result_strides) const;

    std::vector<std::unique_ptr<Axis>> axes_;
    bool divide_first_;
    std::optional<int64_t> divisor_;
    std::vector<int> spatial_;
    std::vector<int64_t> source_shape_, result_shape_;
    int64_t elements_ = 0, result_elements_ = 0;
    std::mutex mutex_;
    std::vector<Kept> kept_;
};

}  // namespace poolgrad
