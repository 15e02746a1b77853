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

template <class S, class A> inline void load_row(const char* from, const Place& p, A* to) {
    if (p.packed()) return widen_run<S>(from, to, p.n * p.c);
    for (int64_t i = 0; i < p.n; ++i) {
        const char* q = from + i * p.step;
        if (p.channels_packed()) widen_run<S>(q, to + i * p.c, p.c);
        else for (int64_t j = 0; j < p.c; ++j) to[i * p.c + j] = widen(read<S>(q + j * p.channel_step));
    }
}

template <class S, class A> inline void store_run(const A* from, char* to, int64_t n, const Plan& plan, char* stage) {
    constexpr int64_t item = sizeof(S);
    if (plan.accumulate) {
        for (int64_t k = 0; k < n; ++k) {
            S s;
            narrow(widen(read<S>(to + k * item)) + from[k], s);
            write(to + k * item, s);
        }
    } else if (!plan.streaming) {
        narrow_run<S>(from, to, n);
    } else if (sizeof(S) == sizeof(A)) {
        stream_copy(to, reinterpret_cast<const char*>(from), n * item);
    } else {
        narrow_run<S>(from, stage, n);
        stream_copy(to, stage, n * item);
    }
}

template <class S, class A> inline void store_row(const A* from, char* to, const Place& p, const Plan& plan, char* stage) {
    if (p.packed()) return store_run<S>(from, to, p.n * p.c, plan, stage);
    for (int64_t i = 0; i < p.n; ++i) {
        char* q = to + i * p.step;
        if (p.channels_packed() && p.c > 1) store_run<S>(from + i * p.c, q, p.c, plan, stage);
        else for (int64_t j = 0; j < p.c; ++j) {
            A old = plan.accumulate ? A(widen(read<S>(q + j * p.channel_step))) : A(0);
            S s;
            narrow(plan.accumulate ? old + from[i * p.c + j] : from[i * p.c + j], s);
            write(q + j * p.channel_step, s);
        }
    }
}

inline bool is_power_of_two(int64_t d) { return d > 0 && (d & (d - 1)) == 0; }

// out = in / d, correctly rounded; a power of two has an exact reciprocal.
template <class A> inline void divide_run(const A* in, A* out, int64_t n, int64_t d) {
    constexpr int64_t v = LANES<A>;
    int64_t k = 0;
    if (is_power_of_two(d)) {
        const A by = A(1) / A(d);
        for (; k + v <= n; k += v) store(out + k, load(in + k) * splat(by));
        for (; k < n; ++k) out[k] = in[k] * by;
    } else {
        const A by = A(d);
        for (; k + v <= n; k += v) store(out + k, load(in + k) / splat(by));
        for (; k < n; ++k) out[k] = in[k] / by;
    }
}

// Divides rows by the counts of the last axis times the product of the others. Where the counts change from one
// position to the next, a row of divisors is kept for each of the last few products.
template <class A> class Divider {
public:
    static constexpr int KEPT = 4;

    void begin(const Plan& plan, const int64_t* count, int64_t n, int64_t channels, A* scratch) {
        plan_ = &plan; count_ = count; n_ = n; c_ = channels; rows_ = scratch; next_ = 0;
        int64_t changes = 0;
        if (!plan.constant_divisor) for (int64_t i = 1; i < n; ++i) changes += count[i] != count[i - 1];
        by_row_ = changes > 8 && channels < 16;
        for (int k = 0; k < KEPT; ++k) product_[k] = 0;
    }

    // Positions w ... w+n-1 of a row, which lie at `in`; out may be in.
    void divide(const A* in, A* out, int64_t product, int64_t w, int64_t n) {
        if (plan_->constant_divisor) return divide_run(in, out, n * c_, plan_->divisor);
        if (!by_row_) {
            const int64_t* count = count_ + w;
            for (int64_t i = 0, j; i < n; i = j) {
                for (j = i + 1; j < n && count[j] == count[i];) ++j;
                divide_run(in + i * c_, out + i * c_, (j - i) * c_, product * count[i]);
            }
            return;
        }
        const A* by = row_of(product) + w * c_;
        constexpr int64_t v = LANES<A>;
        int64_t k = 0;
        n *= c_;
        for (; k + v <= n; k += v) store(out + k, load(in + k) / load(by + k));
        for (; k < n; ++k) out[k] = in[k] / by[k];
    }

private:
    const A* row_of(int64_t product) {
        for (int k = 0; k < KEPT; ++k)
            if (product_[k] == product) return rows_ + k * n_ * c_;
        A* row = rows_ + next_ * n_ * c_;
        product_[next_] = product;
        next_ = (next_ + 1) % KEPT;
        for (int64_t i = 0; i < n_; ++i)
            for (int64_t j = 0; j < c_; ++j) row[i * c_ + j] = A(product * count_[i]);
        return row;
    }

    const Plan* plan_; const int64_t* count_; int64_t n_, c_; A* rows_;
    int64_t product_[KEPT]; int next_; bool by_row_;
};

}  // namespace PG_ISA
}  // namespace poolgrad
