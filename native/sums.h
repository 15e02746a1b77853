// Sums of rows: out = in[0] + in[1] + ..., one addition after the other, beginning with the first term.
#pragma once

#include "plan.h"
#include "simd.h"

namespace poolgrad {
namespace PG_ISA {

template <class A, int R> inline Vec<A> add_at(const A* const* p, int64_t k) {
    Vec<A> s = load(p[0] + k);
    for (int r = 1; r < R; ++r) s = s + load(p[r] + k);
    return s;
}

// `ahead`, if not 0: how far after each row lies one that is summed soon. It is asked for after the row itself, which is waited for.
template <class A, int R> inline void add_rows(A* out, const A* const* in, int64_t n, int64_t ahead) {
    const A* p[R];
    for (int r = 0; r < R; ++r) p[r] = in[r];
    constexpr int64_t v = LANES<A>;
    int64_t k = 0;
    auto run = [&](auto cache) PG_INLINED {
        for (; k + v <= n; k += v) {
            const Vec<A> s = add_at<A, R>(p, k);
            for (int r = 0; r < R; ++r) prefetch<decltype(cache)::value>(reinterpret_cast<const char*>(p[r] + k + ahead), VECTOR_BYTES);
            store(out + k, s);
        }
    };
    if (ahead * int64_t(sizeof(A)) > HELD_NEAR) run(std::integral_constant<int, SECOND>());
    else if (ahead) run(std::integral_constant<int, NEAREST>());
    for (; k + 2 * v <= n; k += 2 * v) {
        const Vec<A> s = add_at<A, R>(p, k), t = add_at<A, R>(p, k + v);
        store(out + k, s);
        store(out + k + v, t);
    }
    if (k + v <= n) {
        store(out + k, add_at<A, R>(p, k));
        k += v;
    }
    if (k < n && n >= v) return store(out + n - v, add_at<A, R>(p, n - v));
    for (; k < n; ++k) {
        A s = p[0][k];
        for (int r = 1; r < R; ++r) s = s + p[r][k];
        out[k] = s;
    }
}

// `count` rows of n, at most eight.
template <class A> inline void add_rows(A* out, const A* const* in, int count, int64_t n, int64_t ahead = 0) {
    switch (count) {
        case 0: for (int64_t k = 0; k < n; ++k) out[k] = 0; return;
        case 1: return add_rows<A, 1>(out, in, n, ahead);
        case 2: return add_rows<A, 2>(out, in, n, ahead);
        case 3: return add_rows<A, 3>(out, in, n, ahead);
        case 4: return add_rows<A, 4>(out, in, n, ahead);
        case 5: return add_rows<A, 5>(out, in, n, ahead);
        case 6: return add_rows<A, 6>(out, in, n, ahead);
        case 7: return add_rows<A, 7>(out, in, n, ahead);
        default: return add_rows<A, 8>(out, in, n, ahead);
    }
}

// What will be summed after the rows at hand, if that is known: where it lies in the source, in bytes. It is asked for a row at a time as the
// rows at hand are added up: memory is idle then, and must be waited for if it is asked for no sooner than it is needed.
struct Later {
    const char* at = nullptr;
    int64_t stride = 0, gap = 0, item = 0;

    Later from(int64_t column) const { return {at ? at + column * item : nullptr, stride, gap, item}; }
};

// Vectors J, J+1, ... of the columns that a program runs on at once: WIDE of each of LINES lines, in registers (hence a
// list, not an array). Lines lie `gap` apart in memory; in scratch they are packed.
template <class A, int WIDE, int LINES, int J = 0> struct Columns {
    static constexpr int N = WIDE * LINES;
    static constexpr int64_t v = LANES<A>, PACKED = WIDE * v, SIZE = N * v;
    Vec<A> x;
    Columns<A, WIDE, LINES, (J + 1 < WIDE * LINES ? J + 1 : -1)> rest;

    PG_INLINE static int64_t at(int64_t gap) { return J / WIDE * gap + J % WIDE * v; }
    PG_INLINE void read(const A* p, int64_t gap) { x = load(p + at(gap)); rest.read(p, gap); }
    PG_INLINE void add(const A* p, int64_t gap) { x = x + load(p + at(gap)); rest.add(p, gap); }
    PG_INLINE void add(const Columns& c) { x = x + c.x; rest.add(c.rest); }
    PG_INLINE void zero() { x = splat(A(0)); rest.zero(); }
    PG_INLINE void write(A* p, int64_t gap) const { store(p + at(gap), x); rest.write(p, gap); }
    PG_INLINE void pass_on(A* p) const { stream(p + at(0), x); rest.pass_on(p); }
    PG_INLINE static void ask(const Later& later, int64_t row) {
        for (int64_t line = 0; line < LINES; ++line) prefetch(later.at + row * later.stride + line * later.gap, WIDE * v * later.item);
    }
};

template <class A, int WIDE, int LINES> struct Columns<A, WIDE, LINES, -1> {
    PG_INLINE void read(const A*, int64_t) {}
    PG_INLINE void add(const A*, int64_t) {}
    PG_INLINE void add(const Columns&) {}
    PG_INLINE void zero() {}
    PG_INLINE void write(A*, int64_t) const {}
    PG_INLINE void pass_on(A*) const {}
};

// Where rows lie that a program reads and writes; lines are `gap` apart.
template <class A> struct Grid {
    A* at;
    int64_t stride, gap;
};

template <class C, class A> PG_INLINE void read_term(C& x, int32_t term, const Grid<const A>& in, const A* scratch) {
    if (term >= 0) x.read(in.at + term * in.stride, in.gap);
    else x.read(scratch + int64_t(~term) * C::SIZE, C::PACKED);
}

template <class C, class A> PG_INLINE void add_term(C& x, int32_t term, const Grid<const A>& in, const A* scratch) {
    if (term >= 0) x.add(in.at + term * in.stride, in.gap);
    else x.add(scratch + int64_t(~term) * C::SIZE, C::PACKED);
}

template <class C, class A>
PG_INLINE void sum_terms(C& x, int32_t count, const int32_t* terms, const Grid<const A>& in, const A* scratch) {
    if (count) read_term(x, terms[0], in, scratch);
    else x.zero();
    for (int32_t r = 1; r < count; ++r) add_term(x, terms[r], in, scratch);
}

constexpr int64_t AHEAD_VECTORS = 8;  // columns that are asked for ahead, where what a program makes goes past the caches

template <bool PAST, class C, class A> PG_INLINE void step(C& head, int32_t term, bool begins, const Grid<const A>& in, const A* scratch, const Later& later) {
    if (begins) read_term<C, A>(head, term, in, scratch);
    else add_term<C, A>(head, term, in, scratch);
    if (PAST) prefetch(reinterpret_cast<const char*>(in.at + term * in.stride) + AHEAD_VECTORS * VECTOR_BYTES, C::SIZE * int64_t(sizeof(A)));
    else if (later.at) C::ask(later, term);
}

// PAST: one line, past the caches.
template <bool PAST, class C, class A> PG_INLINE void put(const C& x, int32_t position, const Grid<A>& out) {
    if constexpr (PAST) x.pass_on(out.at + position * out.stride);
    else x.write(out.at + position * out.stride, out.gap);
}

template <class A, int WIDE, int LINES, bool PAST>
inline void run_program(const Program& program, const Grid<const A>& in, const Grid<A>& out, A* scratch, const Later& later) {
    using C = Columns<A, WIDE, LINES>;
    const int32_t *c = program.code.data(), *end = c + program.code.size();
    C head, x;
    head.zero();
    while (c < end) switch (*c) {
        case ADD:
            sum_terms<C, A>(x, c[2], c + 3, in, scratch);
            x.write(scratch + int64_t(c[1]) * C::SIZE, C::PACKED);
            c += 3 + c[2];
            break;
        case TAIL: {
            const A* row = in.at + c[2] * in.stride;
            x.read(row + (BLOCK - 1) * in.stride, in.gap);
            for (int64_t i = BLOCK - 2; i >= c[3]; --i) {
                x.add(row + i * in.stride, in.gap);
                x.write(scratch + (c[1] + i) * C::SIZE, C::PACKED);
            }
            c += 4;
            break;
        }
        case HEAD:
            step<PAST, C, A>(head, c[1], c[2], in, scratch, later);
            if (c[3] >= 0) head.write(scratch + int64_t(c[3]) * C::SIZE, C::PACKED);
            c += 4;
            break;
        case PUT:
            sum_terms<C, A>(x, c[2], c + 3, in, scratch);
            put<PAST>(x, c[1], out);
            c += 3 + c[2];
            break;
        default: {  // PUT_HEAD
            if (c[2] >= 0) step<PAST, C, A>(head, c[2], c[3], in, scratch, later);
            if (c[4] == 0) {
                put<PAST>(head, c[1], out);
            } else {
                read_term<C, A>(x, c[5], in, scratch);
                if (c[4] == 2) add_term<C, A>(x, c[6], in, scratch);
                x.add(head);
                put<PAST>(x, c[1], out);
            }
            c += 5 + c[4];
        }
    }
}

// Sums of an axis with long intervals: n columns, at least a vector of them, of each of `lines` lines. PAST: one line of whole
// vectors, written past the caches.
template <class A, bool PAST = false>
inline void sum_long(const Program& program, Grid<const A> in, Grid<A> out, int64_t n, int64_t lines, A* scratch, Later later = {}) {
    constexpr int64_t v = LANES<A>;
    constexpr int MANY = VECTOR_BYTES == 64 ? 8 : 4;  // two sets of these must fit the registers
    while (lines > 0) {
        int64_t c = 0, done = 1;
        auto run = [&](auto columns, int64_t at) {
            constexpr int wide = decltype(columns)::PACKED / v, of = decltype(columns)::N / wide;
            run_program<A, wide, of, PAST && of == 1>(program, {in.at + at, in.stride, in.gap}, {out.at + at, out.stride, out.gap}, scratch, later.from(at));
        };
        if (!PAST && n == v && lines >= MANY) {
            run(Columns<A, 1, MANY>{}, 0);
            done = MANY;
        } else if (!PAST && n == 2 * v && lines >= MANY / 2) {
            run(Columns<A, 2, MANY / 2>{}, 0);
            done = MANY / 2;
        } else {
            for (; c + MANY * v <= n; c += MANY * v) run(Columns<A, MANY, 1>{}, c);
            for (; c + 4 * v <= n; c += 4 * v) run(Columns<A, 4, 1>{}, c);
            for (; c + v <= n; c += v) run(Columns<A, 1, 1>{}, c);
            if (c < n) run(Columns<A, 1, 1>{}, n - v);
        }
        in.at += done * in.gap;
        out.at += done * out.gap;
        if (later.at) later.at += done * later.gap;
        lines -= done;
    }
}

// out[i] = sum of rows lo[i] ... hi[i]-1 for positions [a, b); rows are `inner` long and lie packed from row `first`. What
// lies `ahead` elements after them, if that is not 0, is needed soon.
template <class A>
inline void sum_axis(const Axis& axis, const Program* program, int64_t a, int64_t b, const A* in, int64_t first, int64_t inner,
                     A* out, A* scratch, int64_t ahead = 0, const Later& later = {}) {
    if (program) return sum_long<A>(*program, {in, inner, 0}, {out, inner, 0}, inner, 1, scratch, later);
    const int64_t *lo = axis.lo.data(), *hi = axis.hi.data(), *together = axis.together.data();
    const A* p[BLOCK];
    for (int64_t i = a; i < b;) {
        const int64_t n = least(together[i], b - i), terms = hi[i] - lo[i];
        const A* row = in + (lo[i] - first) * inner;
        for (int64_t r = 0; r < terms; ++r) p[r] = row + r * inner;
        add_rows(out + (i - a) * inner, p, int(terms), n * inner, n == 1 ? ahead : 0);
        i += n;
    }
}

}  // namespace PG_ISA
}  // namespace poolgrad
