// Rows between the caller's arrays and scratch: any strides, any storage type, the division where it belongs.
//
// In scratch a row is [positions of the last axis][channels], packed, in accumulators. In the caller's array both may
// have any stride; runs that are packed there too are moved as one.
#pragma once

#include "convert.h"
#include "sums.h"

namespace poolgrad {
namespace PG_ISA {

// Where a row lies in a caller's array: n positions `step` bytes apart, each with c channels `channel_step` apart.
struct Place {
    int64_t n, step, c, channel_step, item;

    bool packed() const { return channels_packed() && (n == 1 || step == c * item); }
    bool channels_packed() const { return c == 1 || channel_step == item; }
};

template <class S, class A> inline void read_row(const char* from, const Place& p, A* to) {
    if (p.packed()) return widen_run<S>(from, to, p.n * p.c);
    for (int64_t i = 0; i < p.n; ++i) {
        const char* q = from + i * p.step;
        if (p.channels_packed()) widen_run<S>(q, to + i * p.c, p.c);
        else for (int64_t j = 0; j < p.c; ++j) to[i * p.c + j] = widen(read<S>(q + j * p.channel_step));
    }
}

template <class S, class A> inline void store_run(const A* from, char* to, int64_t n, bool accumulate, bool streaming, char* stage) {
    constexpr int64_t item = sizeof(S);
    if (accumulate) {
        for (int64_t k = 0; k < n; ++k) {
            S s;
            narrow(widen(read<S>(to + k * item)) + from[k], s);
            write(to + k * item, s);
        }
    } else if (!streaming) {
        narrow_run<S>(from, to, n);
    } else if (sizeof(S) == sizeof(A)) {
        stream_copy(to, reinterpret_cast<const char*>(from), n * item);
    } else {
        narrow_run<S>(from, stage, n);
        stream_copy(to, stage, n * item);
    }
}

template <class S, class A> inline void store_row(const A* from, char* to, const Place& p, bool accumulate, bool streaming, char* stage) {
    if (p.packed()) return store_run<S>(from, to, p.n * p.c, accumulate, streaming, stage);
    for (int64_t i = 0; i < p.n; ++i) {
        char* q = to + i * p.step;
        if (p.channels_packed() && p.c > 1) store_run<S>(from + i * p.c, q, p.c, accumulate, streaming, stage);
        else for (int64_t j = 0; j < p.c; ++j) {
            A old = accumulate ? A(widen(read<S>(q + j * p.channel_step))) : A(0);
            S s;
            narrow(accumulate ? old + from[i * p.c + j] : from[i * p.c + j], s);
            write(q + j * p.channel_step, s);
        }
    }
}

inline bool is_power_of_two(int64_t d) { return d > 0 && (d & (d - 1)) == 0; }

// out[k] = function(in[k], k) by vectors; the last one overlaps its neighbour. Arrays must lie apart.
template <class A, class F> inline void map_vectors(const A* in, A* out, int64_t n, F function) {
    constexpr int64_t v = LANES<A>;
    int64_t k = 0;
    for (; k + v <= n; k += v) store(out + k, function(load(in + k), k));
    if (k == n) return;
    if (n >= v) return store(out + n - v, function(load(in + n - v), n - v));
    A part[LANES<A>] = {};
    for (int64_t j = 0; j < n; ++j) part[j] = in[j];
    const Vec<A> result = function(load(part), 0);
    std::memcpy(part, &result, sizeof result);
    for (int64_t j = 0; j < n; ++j) out[j] = part[j];
}

// out = in / d, correctly rounded; a power of two has an exact reciprocal.
template <class A> inline void divide_run(const A* in, A* out, int64_t n, int64_t d) {
    if (is_power_of_two(d)) {
        const Vec<A> by = splat(A(1) / A(d));
        map_vectors(in, out, n, [&](Vec<A> x, int64_t) { return x * by; });
    } else {
        const Vec<A> by = splat(A(d));
        map_vectors(in, out, n, [&](Vec<A> x, int64_t) { return x / by; });
    }
}

// Divides rows by the counts of the last axis times the product of the others. With few channels, where the counts
// differ along the row, they are kept as a row of accumulators: a product of two integers that the accumulator holds
// exactly is rounded once, as the contract asks.
template <class A> class Divider {
public:
    // Up to `rows` rows that follow each other may be divided at once.
    void begin(const Plan& plan, const int64_t* count, int64_t n, int64_t channels, int64_t rows, A* scratch) {
        plan_ = &plan; count_ = count; n_ = n; c_ = channels; counts_ = scratch;
        bool changes = false, exact = true;
        if (!plan.constant_divisor)
            for (int64_t i = 0; i < n; ++i) { changes |= count[i] != count[0]; exact &= count[i] <= EXACT; }
        by_row_ = changes && exact && channels < FEW_CHANNELS;
        if (!by_row_) return;
        for (int64_t i = 0; i < n; ++i) for (int64_t j = 0; j < channels; ++j) scratch[i * channels + j] = A(count[i]);
        for (int64_t r = 1; r < rows; ++r) std::memcpy(scratch + r * n * channels, scratch, size_t(n * channels) * sizeof(A));
    }

    // Positions w ... w+n-1 of a row, which lie at `in`; `out` lies apart.
    void divide(const A* in, A* out, int64_t product, int64_t w, int64_t n) const {
        if (plan_->constant_divisor) return divide_run(in, out, n * c_, plan_->divisor);
        if (by_row_ && product <= EXACT) {
            const Vec<A> by = splat(A(product));
            const A* counts = counts_ + w * c_;
            return map_vectors(in, out, n * c_, [&](Vec<A> x, int64_t k) { return x / (by * load(counts + k)); });
        }
        for (int64_t i = w, j; i < w + n; i = j) {
            for (j = i + 1; j < w + n && count_[j % n_] == count_[i % n_];) ++j;
            divide_run(in + (i - w) * c_, out + (i - w) * c_, (j - i) * c_, product * count_[i % n_]);
        }
    }

private:
    static constexpr int64_t EXACT = sizeof(A) == 4 ? int64_t(1) << 24 : int64_t(1) << 53;

    const Plan* plan_; const int64_t* count_; int64_t n_, c_; A* counts_; bool by_row_;
};

}  // namespace PG_ISA
}  // namespace poolgrad
