#include "operation.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "threads.h"

namespace poolgrad {

namespace {

std::atomic<size_t> chosen{0};
std::atomic<int64_t> streaming{int64_t(32) << 20};

struct Call { const Plan* plan; const char* source; char* result; RunBoxes run; };

void run_call(const void* context, int64_t begin, int64_t end, char* scratch) {
    const Call& c = *static_cast<const Call*>(context);
    c.run(*c.plan, c.source, c.result, begin, end, scratch);
}

// Every level above must be marked long while runs of blocks can exceed eight.
bool deep_enough(const Axis& axis) {
    for (size_t k = 0; k < axis.reach.size(); ++k)
        if ((axis.reach[k] > BLOCK) == (k + 1 == axis.reach.size())) return false;
    int64_t longest = axis.reach[0];
    for (size_t k = 1; k < axis.reach.size(); ++k) {
        longest /= BLOCK;
        if (axis.reach[k] < 0 || axis.reach[k] > longest || axis.reach[k] < longest - 1) return false;
        longest = axis.reach[k];
    }
    return true;
}

int64_t product(const std::vector<int64_t>& shape) {
    int64_t elements = 1;
    for (int64_t n : shape) elements *= n;
    return elements;
}

}  // namespace

const std::vector<Isa>& isas() {
    static const std::vector<Isa> found = available_isas();
    return found;
}

const Isa& chosen_isa() { return isas()[chosen.load(std::memory_order_relaxed)]; }
void choose_isa(size_t index) { chosen.store(index); }

int64_t streaming_bytes() { return streaming.load(std::memory_order_relaxed); }
void set_streaming_bytes(int64_t bytes) { streaming.store(bytes); }

Operation::Operation(std::vector<std::unique_ptr<Axis>> axes, bool divide_first, std::optional<int64_t> divisor,
                     std::vector<int> spatial, std::vector<int64_t> source_shape, std::vector<int64_t> result_shape)
    : axes_(std::move(axes)), divide_first_(divide_first), divisor_(divisor), spatial_(std::move(spatial)),
      source_shape_(std::move(source_shape)), result_shape_(std::move(result_shape)) {
    const size_t rank = source_shape_.size();
    if (result_shape_.size() != rank || rank > MAX_AXES - 2 || spatial_.size() != axes_.size() || spatial_.empty())
        throw std::invalid_argument("ranks do not agree");
    for (size_t k = 0; k < spatial_.size(); ++k) {
        if (std::count(spatial_.begin(), spatial_.end(), spatial_[k]) > 1) throw std::invalid_argument("a spatial axis is named twice");
        check(*axes_[k], spatial_[k]);
        axes_[k]->find_runs();
    }
    for (size_t d = 0; d < rank; ++d)
        if (!is_spatial(d) && source_shape_[d] != result_shape_[d]) throw std::invalid_argument("batch shapes do not agree");
    result_elements_ = product(result_shape_);
    elements_ = product(source_shape_) + result_elements_;
}

bool Operation::is_spatial(size_t d) const { return std::find(spatial_.begin(), spatial_.end(), int(d)) != spatial_.end(); }

void Operation::check(const Axis& axis, int position) const {
    if (position < 0 || size_t(position) >= source_shape_.size()) throw std::invalid_argument("no such spatial axis");
    bool sound = axis.hi.size() == axis.lo.size() && axis.positions == int64_t(axis.lo.size()) &&
                 axis.positions == result_shape_[size_t(position)] && axis.rows == source_shape_[size_t(position)] &&
                 axis.base >= 0 && !axis.reach.empty() && axis.reach.size() <= size_t(MOST_LEVELS) &&
                 int64_t(axis.count.size()) == (divide_first_ ? axis.rows : axis.positions);
    for (size_t i = 0; sound && i < axis.lo.size(); ++i) {
        const int64_t lo = axis.lo[i], hi = axis.hi[i];
        sound = lo >= 0 && lo <= hi && hi <= MOST_ROW &&
                (lo == hi || (lo >= axis.base && hi <= axis.base + axis.rows && hi - lo <= axis.reach[0])) &&
                (i == 0 || (lo >= axis.lo[i - 1] && hi >= axis.hi[i - 1]));
    }
    if (!sound || !deep_enough(axis)) throw std::invalid_argument("a table does not fit its arrays");
}

void Operation::run(const Plan& plan, const char* source, char* result, int64_t threads) const {
    const Call call{&plan, source, result, chosen_isa().run_boxes};
    run_tasks(run_call, &call, plan.tasks, threads, plan.scratch.total);
}

std::shared_ptr<const Plan> Operation::plan_for(Dtype dtype, bool accumulate, int64_t threads, const int64_t* source_strides,
                                                const int64_t* result_strides) {
    const size_t n = source_shape_.size();
    int64_t key[2 * MAX_AXES + 5] = {int64_t(dtype), accumulate, threads, int64_t(chosen.load()), streaming_bytes()};
    std::copy(source_strides, source_strides + n, key + 5);
    std::copy(result_strides, result_strides + n, key + 5 + n);
    std::lock_guard<std::mutex> lock(mutex_);
    for (const Kept& k : kept_)
        if (std::equal(k.key.begin(), k.key.end(), key)) return k.plan;
    if (kept_.size() == KEPT_PLANS) kept_.erase(kept_.begin());
    kept_.push_back({std::vector<int64_t>(key, key + 5 + 2 * n), make_plan(dtype, accumulate, threads, source_strides, result_strides)});
    return kept_.back().plan;
}

std::shared_ptr<const Plan> Operation::make_plan(Dtype dtype, bool accumulate, int64_t threads, const int64_t* source_strides,
                                                 const int64_t* result_strides) const {
    auto plan = std::make_shared<Plan>();
    plan->dtype = dtype;
    plan->divide_first = divide_first_;
    plan->accumulate = accumulate;
    plan->streaming = result_elements_ * size_of(dtype) >= streaming_bytes();
    plan->constant_divisor = divisor_.has_value();
    plan->divisor = divisor_.value_or(1);
    for (size_t k = 0; k < axes_.size(); ++k) {
        plan->axes.push_back(axes_[k].get());
        plan->steps.push_back({0, source_strides[spatial_[k]], result_strides[spatial_[k]]});
    }
    bool forward = true;
    int64_t bytes = size_of(dtype);
    for (size_t d = 0; d < source_shape_.size(); ++d) {
        if (!is_spatial(d)) plan->outer.push_back({source_shape_[d], source_strides[d], result_strides[d]});
        forward = forward && source_strides[d] >= 0;
        bytes += (source_shape_[d] - 1) * source_strides[d];
    }
    plan->source_bytes = forward ? bytes : 0;
    finish_plan(*plan, threads, chosen_isa().vector_bytes);
    return plan;
}

}  // namespace poolgrad
