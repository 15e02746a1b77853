// Rows between the caller's arrays and scratch: any strides, any storage type, the division where it belongs.
//
// In scratch a row is [positions of the last axis][channels], packed, in accumulators. In the caller's array both may
// have any stride; runs that are packed there too are moved as one.
#pragma once

#include "convert.h"
#include "lines.h"
#include "quotient.h"
#include "sums.h"

namespace poolgrad {
namespace PG_ISA {

inline bool is_power_of_two(int64_t d) { return d > 0 && (d & (d - 1)) == 0; }

// Where a row lies in a caller's array: n positions `step` bytes apart, each with c channels `channel_step` apart.
struct Place {
    int64_t n, step, c, channel_step, item;

    bool packed() const { return channels_packed() && (n == 1 || step == c * item); }
    bool channels_packed() const { return c == 1 || channel_step == item; }
};

// Channels that lie apart while positions are packed: turned square by square. Squares that would read at or past `end`
// are left to the caller; returns the channels done.
template <class A> inline int64_t turn_row(const char* from, const Place& p, A* to, const char* end) {
    constexpr int64_t q = SQUARE<A>, item = sizeof(A);
    const int64_t wide = (p.n + q - 1) / q * q, stride = p.channel_step / item;
    if (p.step != item || p.channel_step % item || reinterpret_cast<uintptr_t>(from) % sizeof(A)) return 0;
    int64_t c = 0;
    A square[q * q];
    for (; c + q <= p.c && from + (c + q - 1) * p.channel_step + wide * item <= end; c += q) {
        const A* in = reinterpret_cast<const A*>(from + c * p.channel_step);
        if (p.channel_step <= 2 * wide * item) prefetch(from + (c + AHEAD_SQUARES * q) * p.channel_step, q * p.channel_step);
        for (int64_t i = 0; i < p.n; i += q) {
            const bool whole = i + q <= p.n;
            transpose_square(in + i, stride, whole ? to + i * p.c + c : square, whole ? p.c : q);
            if (!whole) for (int64_t j = 0; j < p.n - i; ++j) std::memcpy(to + (i + j) * p.c + c, square + j * q, sizeof(A) * q);
        }
    }
    return c;
}

template <class S, class A> inline void read_row(const char* from, const Place& p, A* to, const char* end) {
    if (p.packed()) return widen_run<S>(from, to, p.n * p.c);
    int64_t done = 0;
    if constexpr (sizeof(S) == sizeof(A)) if (!p.channels_packed() && p.channel_step > 0) done = turn_row<A>(from, p, to, end);
    if (done == p.c) return;
    for (int64_t i = 0; i < p.n; ++i) {
        const char* q = from + i * p.step;
        if (p.channels_packed()) widen_run<S>(q, to + i * p.c, p.c);
        else for (int64_t j = done; j < p.c; ++j) to[i * p.c + j] = widen(read<S>(q + j * p.channel_step));
    }
}

// A packed run of the result: the sum of R rows, divided, rounded to storage and written. PAST: past the caches, `out`
// aligned to a line and n a whole number of lines.
enum Finish { AS_IS, TIMES, OVER, OVER_ROW };  // OVER_ROW: element by element, `by` times a row that comes after those added

template <class A, int R, int FINISH> PG_INLINE Vec<A> finished(const A* const* p, int64_t k, Vec<A> by, Vec<A> inverse) {
    const Vec<A> s = add_at<A, R>(p, k);
    if constexpr (FINISH == OVER_ROW) return s / (by * load(p[R] + k));
    if constexpr (FINISH == OVER) return quotient(s, by, inverse);
    return FINISH == AS_IS ? s : s * by;
}

// Fewer than a vector of them, one by one: a kernel of its own for every number of rows would be a large part of the wheel.
template <class S, class A, int FINISH> PG_APART void write_few(char* out, const A* const* in, int rows, int64_t n, A by) {
    for (int64_t k = 0; k < n; ++k) {
        A s = in[0][k];
        for (int r = 1; r < rows; ++r) s = s + in[r][k];
        if constexpr (FINISH == OVER_ROW) s = s / (by * in[rows][k]);
        S t;
        narrow(FINISH == TIMES ? s * by : FINISH == OVER ? s / by : s, t);
        write(out + k * int64_t(sizeof(S)), t);
    }
}

// Elements k ... k+n-1 of a longer run, which are less than a vector.
template <class S, class A, int FINISH>
PG_APART void write_edge(char* out, const A* const* in, int rows, int64_t k, int64_t n, int64_t all, A by) {
    constexpr int64_t v = LANES<A>, item = sizeof(S), per = sizeof(A) / sizeof(S);
    const int64_t first = least(k, all - per * v);
    auto sum = [&](int64_t i) {
        Vec<A> s = load(in[0] + i);
        for (int r = 1; r < rows; ++r) s = s + load(in[r] + i);
        if constexpr (FINISH == OVER_ROW) s = s / (splat(by) * load(in[rows] + i));
        return FINISH == TIMES ? s * splat(by) : FINISH == OVER ? s / splat(by) : s;
    };
    Vec<A> x = sum(first);
    if constexpr (per == 2) x = narrow_pair<S>(x, sum(first + v));
    std::memcpy(out + k * item, reinterpret_cast<const char*>(&x) + (k - first) * item, size_t(n * item));
}

template <class S, class A, int R, int FINISH, bool PAST> inline void write_sum(char* out, const A* const* in, int64_t n, A by) {
    constexpr int64_t v = LANES<A>, item = sizeof(S), per = sizeof(A) / sizeof(S);
    constexpr int ROWS = R + (FINISH == OVER_ROW);
    const A* p[ROWS];
    for (int r = 0; r < ROWS; ++r) p[r] = in[r];
    const Vec<A> d = splat(by), inverse = splat(FINISH == OVER ? reciprocal(by) : by);
    auto vectors = [&](int64_t k) {
        Vec<A> x = finished<A, R, FINISH>(p, k, d, inverse);
        if constexpr (per == 2) x = narrow_pair<S>(x, finished<A, R, FINISH>(p, k + v, d, inverse));
        return x;
    };
    int64_t k = 0;
    for (; k + per * v <= n; k += per * v) {
        const Vec<A> x = vectors(k);
        if (PAST) stream(reinterpret_cast<A*>(out + k * item), x);
        else {
            ask_to_write(out + k * item);
            std::memcpy(out + k * item, &x, sizeof x);
        }
    }
    if (PAST || k == n) return;
    if (n >= per * v) {  // the last ones overlap their neighbours: the same sums again
        const Vec<A> x = vectors(n - per * v);
        std::memcpy(out + (n - per * v) * item, &x, sizeof x);
        return;
    }
    write_few<S, A, FINISH>(out, in, R, n, by);
}

// PAST: whole lines, past the caches.
template <bool PAST> inline void clear_run(char* out, int64_t bytes) {
    if (!PAST) { std::memset(out, 0, size_t(bytes)); return; }
    for (int64_t k = 0; k < bytes; k += VECTOR_BYTES) stream(reinterpret_cast<float*>(out + k), splat(0.0f));
}

template <class S, class A, int FINISH, bool PAST> inline void write_sum(char* out, const A* const* in, int count, int64_t n, A by) {
    switch (count) {
        case 0: return clear_run<PAST>(out, n * int64_t(sizeof(S)));
        case 1: return write_sum<S, A, 1, FINISH, PAST>(out, in, n, by);
        case 2: return write_sum<S, A, 2, FINISH, PAST>(out, in, n, by);
        case 3: return write_sum<S, A, 3, FINISH, PAST>(out, in, n, by);
        case 4: return write_sum<S, A, 4, FINISH, PAST>(out, in, n, by);
        case 5: return write_sum<S, A, 5, FINISH, PAST>(out, in, n, by);
        case 6: return write_sum<S, A, 6, FINISH, PAST>(out, in, n, by);
        case 7: return write_sum<S, A, 7, FINISH, PAST>(out, in, n, by);
        default: return write_sum<S, A, 8, FINISH, PAST>(out, in, n, by);
    }
}

template <class S, class A, int FINISH> inline void write_sum(char* out, const A* const* in, int count, int64_t n, A by, bool streaming) {
    constexpr int64_t item = sizeof(S), line = LINE / item;
    if (!streaming || to_line(out) % item) return write_sum<S, A, FINISH, false>(out, in, count, n, by);
    const int64_t head = least(to_line(out) / item, n), body = (n - head) / line * line;
    if (head == 0 && body == n) return write_sum<S, A, FINISH, true>(out, in, count, n, by);
    constexpr int64_t vector = VECTOR_BYTES / item;
    const int rows = count + (FINISH == OVER_ROW);
    auto from = [&](int64_t k, int64_t elements, auto past) {
        if (elements == 0) return;
        if (!past && count > 0 && elements < vector && n >= vector) return write_edge<S, A, FINISH>(out, in, count, k, elements, n, by);
        const A* p[BLOCK + 1] = {};
        for (int r = 0; r < rows; ++r) p[r] = in[r] + k;
        write_sum<S, A, FINISH, decltype(past)::value>(out + k * item, p, count, elements, by);
    };
    from(0, head, std::false_type());
    from(head, body, std::true_type());
    from(head + body, n - head - body, std::false_type());
}

// The same, divided by d (1: not at all).
template <class S, class A> inline void write_sum(char* out, const A* const* in, int count, int64_t n, int64_t d, bool streaming) {
    if (d == 1) return write_sum<S, A, AS_IS>(out, in, count, n, A(1), streaming);
    if (is_power_of_two(d)) return write_sum<S, A, TIMES>(out, in, count, n, A(1) / A(d), streaming);
    write_sum<S, A, OVER>(out, in, count, n, A(d), streaming);
}

// V vectors of accumulators as vectors of storage, half as many if that is half as wide.
template <class S, class A, int V> PG_INLINE void narrow_vectors(const Vec<A>* sum, Vec<A>* x) {
    constexpr int per = sizeof(A) / sizeof(S);
    each<V / per>([&](auto i) PG_INLINED {
        if constexpr (per == 2) x[i] = narrow_pair<S>(sum[2 * i], sum[2 * i + 1]);
        else x[i] = sum[i];
    });
}

template <class S, class A, int V, bool PAST, bool ASK = true> PG_INLINE void write_vectors(const Vec<A>* sum, char* out) {
    constexpr int M = V * int(sizeof(S)) / int(sizeof(A));
    Vec<A> x[M];
    narrow_vectors<S, A, V>(sum, x);
    each<M>([&](auto i) PG_INLINED {
        char* to = out + i * VECTOR_BYTES;
        if (PAST) return stream(reinterpret_cast<A*>(to), x[i]);
        if (ASK) ask_to_write(to);
        std::memcpy(to, &x[i], sizeof x[i]);
    });
}

// How rows are written: into the caches; past them, in whole lines; past them from any address on, each after the one before.
enum class Way { kept, past, joined };

template <class S, class A, int V, Way WAY, bool ASK = true> PG_INLINE void write_vectors(const Vec<A>* sum, char* out, Lines<S, A>& lines) {
    if constexpr (WAY == Way::joined) {
        constexpr int M = V * int(sizeof(S)) / int(sizeof(A));
        Vec<A> x[M];
        narrow_vectors<S, A, V>(sum, x);
        lines.template put<M>(x, M * VECTOR_BYTES / int64_t(sizeof(S)));
    } else {
        write_vectors<S, A, V, WAY == Way::past, ASK>(sum, out);
    }
}

// function(V, c) for every c channels on, V vectors of them at a time, at most MOST: as many as there are, in whole lines.
template <class S, class A, int MOST, class F> PG_INLINE void by_vectors(int64_t channels, const F& function) {
    constexpr int64_t v = LANES<A>;
    int64_t c = 0;
    for (; c + MOST * v <= channels; c += MOST * v) function(std::integral_constant<int, MOST>(), c);
    for (; c + 2 * v <= channels; c += 2 * v) function(std::integral_constant<int, 2>(), c);
    if constexpr (sizeof(S) == sizeof(A)) for (; c < channels; c += v) function(std::integral_constant<int, 1>(), c);
}

template <class S, class A> inline void store_run(const A* from, char* to, int64_t n, bool accumulate, bool streaming) {
    constexpr int64_t item = sizeof(S);
    if (!accumulate) return write_sum<S, A>(to, &from, 1, n, 1, streaming);
    for (int64_t k = 0; k < n; ++k) {
        S s;
        narrow(widen(read<S>(to + k * item)) + from[k], s);
        write(to + k * item, s);
    }
}

template <class S, class A> inline void store_row(const A* from, char* to, const Place& p, bool accumulate, bool streaming) {
    if (p.packed()) return store_run<S>(from, to, p.n * p.c, accumulate, streaming);
    for (int64_t i = 0; i < p.n; ++i) {
        char* q = to + i * p.step;
        if (p.channels_packed() && p.c > 1) store_run<S>(from + i * p.c, q, p.c, accumulate, streaming);
        else for (int64_t j = 0; j < p.c; ++j) {
            A old = accumulate ? A(widen(read<S>(q + j * p.channel_step))) : A(0);
            S s;
            narrow(accumulate ? old + from[i * p.c + j] : from[i * p.c + j], s);
            write(q + j * p.channel_step, s);
        }
    }
}

// out[k] = function(in[k], k) by vectors, from storage S; the last one overlaps its neighbour. Arrays must lie apart. What lies
// `ahead` bytes further on is asked for.
template <class S, class A, class F> inline void map_vectors(const char* in, A* out, int64_t n, int64_t ahead, F function) {
    constexpr int64_t v = LANES<A>, item = sizeof(S);
    int64_t k = 0;
    for (; k + v <= n; k += v) {
        insist<v * item>(in + k * item + ahead);
        store(out + k, function(load_wide<S, A>(in + k * item), k));
    }
    if (k == n) return;
    if (n >= v) return store(out + n - v, function(load_wide<S, A>(in + (n - v) * item), n - v));
    A part[LANES<A>] = {};
    for (int64_t j = 0; j < n; ++j) part[j] = widen(read<S>(in + j * item));
    const Vec<A> result = function(load(part), 0);
    std::memcpy(part, &result, sizeof result);
    for (int64_t j = 0; j < n; ++j) out[j] = part[j];
}

// out = in / d, correctly rounded; a power of two has an exact reciprocal.
template <class S, class A> inline void divide_run(const char* in, A* out, int64_t n, int64_t d, int64_t ahead) {
    if (is_power_of_two(d)) {
        const Vec<A> by = splat(A(1) / A(d));
        map_vectors<S>(in, out, n, ahead, [&](Vec<A> x, int64_t) { return x * by; });
    } else {
        const Vec<A> by = splat(A(d)), r = splat(reciprocal(A(d)));
        map_vectors<S>(in, out, n, ahead, [&](Vec<A> x, int64_t) { return quotient(x, by, r); });
    }
}

// Divides rows by the counts of the last axis times the product of the others. Where counts differ from one position to the next,
// or along a row of few channels, the plan has them and their reciprocals as accumulators, for each channel if those are few:
// a product of two integers that the accumulator holds exactly is rounded once, as the contract asks.
template <class A> class Divider {
public:
    // The counts are those of n positions of the last axis, from its count `at` on, which is the plan's `first`.
    void begin(const Plan& plan, const Axis& last, int64_t at, int64_t first, int64_t n, int64_t channels) {
        plan_ = &plan; count_ = last.count.data() + at; alike_ = last.alike.data() + at; n_ = n; c_ = channels;
        wide_ = plan.channels < FEW_CHANNELS ? channels : 1;
        counts_ = plan.divisors.empty() ? nullptr : Plan::table<A>(plan.divisors) + first * wide_;
        inverse_ = counts_ + plan.divisors_half;
    }

    // Positions w ... w+n-1 of a row, which lie packed at `in`; `out` lies apart.
    template <class S> PG_INLINE void divide(const char* in, A* out, int64_t product, int64_t w, int64_t n, int64_t ahead) const {
        if (plan_->constant_divisor) return divide_run<S>(in, out, n * c_, plan_->divisor, ahead);
        if (counts_ && product <= EXACT) return divide_by_table<S>(in, out, product, w, n, ahead);
        for (int64_t i = 0, shared; i < n; i += shared) {
            const int64_t d = divisor_at(product, w + i, n - i, shared);
            divide_run<S>(in + i * c_ * int64_t(sizeof(S)), out + i * c_, shared * c_, d, ahead);
        }
    }

    // The divisor of positions w, w+1, ... and how many of the n positions share it.
    int64_t divisor_at(int64_t product, int64_t w, int64_t n, int64_t& shared) const {
        shared = n;
        if (plan_->constant_divisor) return plan_->divisor;
        const int64_t at = w < n_ ? w : w % n_;
        shared = least(n, least(alike_[at], n_ - at));
        return product * count_[at];
    }

    // The counts of positions w, w+1, ... as a row to divide by, where the product may be multiplied with them.
    const A* row(int64_t product, int64_t w) const { return by_row() && product <= EXACT ? counts_ + w * c_ : nullptr; }

    // The reciprocals of the counts of all positions, where there is such a row.
    const A* inverse_row() const { return inverse_; }

    bool by_row() const { return counts_ && wide_ == c_; }

private:
    static constexpr int64_t EXACT = EXACT_COUNT<A>;

    template <class S> PG_INLINE void divide_by_table(const char* in, A* out, int64_t product, int64_t w, int64_t n, int64_t ahead) const {
        const A *counts = counts_ + w * wide_, *inverse = inverse_ + w * wide_, by = A(product);
        const A r = reciprocal(A(product <= WHOLE / plan_->most_count ? product : 0));
        const Vec<A> bys = splat(by), rs = splat(r);
        if (wide_ == c_) return map_vectors<S>(in, out, n * c_, ahead, [&](Vec<A> x, int64_t k) { return quotient(x, bys * load(counts + k), rs * load(inverse + k)); });
        constexpr int64_t v = LANES<A>, item = sizeof(S);
        if (c_ % v == 0) {
            for (const A* end = counts + n; counts != end; ++counts, ++inverse) {
                const Vec<A> d = bys * splat(*counts), over = rs * splat(*inverse);
                for (int64_t k = c_; k > 0; k -= v, in += v * item, out += v) {
                    prefetch(in + ahead, v * item);
                    store(out, quotient(load_wide<S, A>(in), d, over));
                }
            }
            return;
        }
        for (int64_t i = 0; i < n; ++i) {
            const Vec<A> d = splat(by * counts[i]), over = splat(r * inverse[i]);
            map_vectors<S>(in + i * c_ * int64_t(sizeof(S)), out + i * c_, c_, ahead, [&](Vec<A> x, int64_t) { return quotient(x, d, over); });
        }
    }

    const Plan* plan_; const int64_t *count_, *alike_; int64_t n_, c_, wide_; const A *counts_, *inverse_;
};

}  // namespace PG_ISA
}  // namespace poolgrad
