// Kernels for any table: the tables are read at run time. SRC, DST are storage types, A the accumulator, V the elements a
// thread takes along an axis that is contiguous and not summed.

enum { MOST = 12, LEVELS = 11 };

// Where the elements of a result lie, fastest first. A dimension that is summed has step 0 in the source and a slot.
struct Dims { i64 rank, n[MOST], from[MOST], to[MOST], slot[MOST]; };

// A summed axis: intervals of rows, what each source cell or result position is divided by, the step between rows.
struct Rows { const int *lo, *hi; const i64* count; i64 step; };

struct Place { i64 from, to, at[MOST]; };

template <class I> CONST_FN void locate(const Dims& dims, I index, Place& place) {
    place.from = place.to = 0;
    for (int k = 0; k < dims.rank; ++k) {
        const I n = (I)dims.n[k], q = index / n;
        const i64 x = (i64)(index - q * n);
        index = q;
        place.from += x * dims.from[k];
        place.to += x * dims.to[k];
        if (dims.slot[k] >= 0) place.at[dims.slot[k]] = x;
    }
}

CONST_FN void locate(const Dims& dims, i64 index, i64 total, Place& place) {
    if (total < (1ll << 31)) locate<u32>(dims, (u32)index, place);
    else locate<u64>(dims, (u64)index, place);
}

CONST_FN void finish(DST* out, Acc<A, V> t, i64 divisor, i64 divide, i64 accumulate) {
    if (divide) t = divided(t, (A)divisor);
    if (accumulate) t = load<A, V>(out) + t;
    store(out, t);
}

// One to three axes whose intervals are short: everything at once, every term in ascending order.
extern "C" __global__ void __launch_bounds__(256) gather(
    const SRC* __restrict__ source, DST* out, i64 total, Dims dims, Rows a, Rows b, Rows c, i64 divisor, i64 first, i64 accumulate) {
    for (i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x; index < total; index += (i64)gridDim.x * blockDim.x) {
        Place place;
        place.at[0] = place.at[1] = place.at[2] = 0;
        locate(dims, index, total, place);
        const i64 ia = place.at[0], ib = place.at[1], ic = place.at[2];
        const int alo = a.lo[ia], ahi = a.hi[ia], blo = b.lo[ib], bhi = b.hi[ib], clo = c.lo[ic], chi = c.hi[ic];
        Acc<A, V> t = filled<A, V>((A)-0.0);
        for (int ja = alo; ja < ahi; ++ja) {
            Acc<A, V> tb = filled<A, V>((A)-0.0);
            for (int jb = blo; jb < bhi; ++jb) {
                Acc<A, V> tc = filled<A, V>((A)-0.0);
                for (int jc = clo; jc < chi; ++jc) {
                    Acc<A, V> s = load<A, V>(source + place.from + ja * a.step + jb * b.step + jc * c.step);
                    if (first) s = divided(s, (A)(divisor ? divisor : a.count[ja] * b.count[jb] * c.count[jc]));
                    tc = tc + s;
                }
                tb = tb + tc;
            }
            t = t + tb;
        }
        if (alo >= ahi || blo >= bhi || clo >= chi) t = filled<A, V>((A)0);
        const i64 last = first || divisor ? divisor : a.count[ia] * b.count[ib] * c.count[ic];
        finish(out + place.to, t, last, !first, accumulate);
    }
}

struct Counts { const i64* count[MOST]; };

// Element by element: widening, with the gradient's division; or the forward's division, `accumulate` and the rounding.
extern "C" __global__ void __launch_bounds__(256) each(
    const SRC* __restrict__ source, DST* out, i64 total, Dims dims, Counts counts, i64 slots, i64 divisor, i64 divide, i64 accumulate) {
    for (i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x; index < total; index += (i64)gridDim.x * blockDim.x) {
        Place place;
        locate(dims, index, total, place);
        i64 d = divisor ? divisor : 1;
        if (divide && !divisor)
            for (int k = 0; k < slots; ++k) d *= counts.count[k][place.at[k]];
        finish(out + place.to, load<A, V>(source + place.from), d, divide, accumulate);
    }
}

// From here on arrays are dense: [outer][rows][inner] accumulators.

// Totals of whole blocks of eight rows; `skip` rows come before the first block edge.
extern "C" __global__ void __launch_bounds__(256) totals(const A* __restrict__ source, A* out, i64 outer, i64 rows, i64 inner, i64 skip, i64 blocks) {
    const i64 total = outer * blocks * inner;
    for (i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x; index < total; index += (i64)gridDim.x * blockDim.x) {
        const i64 c = index % inner, b = index / inner % blocks, o = index / inner / blocks;
        const A* p = source + (o * rows + skip + 8 * b) * inner + c;
        A t = p[0];
        for (int k = 1; k < 8; ++k) t += p[k * inner];
        out[index] = t;
    }
}

// Level 0 is the rows themselves, level k the totals of 8^k of them: `base` is the number of the first one held.
struct Levels { i64 count; const A* cells[LEVELS]; i64 held[LEVELS], base[LEVELS]; };

CONST_FN A run_up(const A* p, i64 lo, i64 hi, i64 step) {
    A t = (A)-0.0;
    for (i64 k = lo; k < hi; ++k) t += p[k * step];
    return t;
}

// Sums over intervals of any length, in the contract's order: (tail + blocks) + head, level by level.
extern "C" __global__ void __launch_bounds__(256) ladder(A* out, Levels levels, const int* lows, const int* highs, i64 outer, i64 positions, i64 inner) {
    const i64 total = outer * positions * inner;
    for (i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x; index < total; index += (i64)gridDim.x * blockDim.x) {
        const i64 c = index % inner, i = index / inner % positions, o = index / inner / positions;
        i64 lo = lows[i], hi = highs[i];
        if (lo >= hi) {
            out[index] = (A)0;
            continue;
        }
        A tail[LEVELS], head[LEVELS];
        int k = 0;
        for (;; ++k) {
            const i64 base = levels.base[k];
            const A* p = levels.cells[k] + (o * levels.held[k] - base) * inner + c;
            const i64 first = (lo + 7) >> 3, last = hi >> 3;
            if (k + 1 == levels.count || first > last) {
                tail[k] = run_up(p, lo, hi, inner);
                break;
            }
            tail[k] = (A)-0.0;
            for (i64 j = 8 * first - 1; j >= lo; --j) tail[k] += p[j * inner];
            head[k] = run_up(p, 8 * last, hi, inner);
            lo = first;
            hi = last;
        }
        A t = tail[k];
        while (k-- > 0) t = (tail[k] + t) + head[k];
        out[index] = t;
    }
}
