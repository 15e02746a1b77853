// Sums over two axes, or three, in one pass through shared memory: `sheet`.
//
// A block takes LANES lanes (channels; whole images where channels come first) of all cells along the last axis and streams
// down the first axis, CHUNK rows at a time; with a middle axis, one plane of HIGH rows at a time. Every cell is read and
// divided once and laid down in shared memory; sums along the last axis (ACROSS) are taken from there, sums along the first
// (STREAM) stay open in registers. Windows longer than eight: along the last axis a block of eight cells is laid down as its
// running sums up and down; along the first, those of the last DEPTH blocks stay in registers.
//
// All axes slide: position i sums cells i + offset … i + offset + window - 1, and cells beyond the edge are -0.0. Steps are
// constants of the text, so that the address of a row is a constant away from the address of the chunk.

struct Sheet {
    int lanes, begin0, end0, begin1, rows0, rows1, positions1;
    A common, one, r;
    const A *counts0, *counts1, *counts2;
};

// The divisor of a cell (forwards: of a position), and its reciprocal.
struct Divisor {
    A d, r;
    MEMBER void set(A now) {
        if (DIVIDE != COUNTS) return;
        d = now;
        r = reciprocal(d);
    }
    template <bool EXACT> MEMBER Acc<A, V> of(const Acc<A, V>& a, bool& rare) const {
        return DIVIDE == NO ? a : DIVIDE == SCALE ? scaled(a, r) : quotient<EXACT>(a, d, r, rare);
    }
};

// Where cell x of a line lies in shared memory; long windows keep the cells of a block apart, so that no banks collide.
CONST_FN int cell_at(int x) { return LONG_ACROSS ? (x & 7) * J_STEP + (x >> 3) * X_STEP : (x + BEFORE) * X_STEP; }

// V elements of V lanes: one vector where lanes are contiguous, else one by one.
CONST_FN Pack<SRC, V> lanes_if(bool there, const SRC* p, int lanes) {
    if (CHANNELS) return raw_under<V>(there, p);
    Pack<SRC, V> raw;
#pragma unroll
    for (int v = 0; v < V; ++v) raw.v[v] = raw_under<1>(there && v < lanes, p + v * FROM_LANE).v[0];
    return raw;
}

// What a thread reads of one chunk, and lays down: HERE rows of its own column, or one block of eight cells of its own row.
struct Fetch {
    enum { HERE = LONG_ACROSS ? 1 : (CHUNK * HIGH + GROUPS - 1) / GROUPS, EACH = LONG_ACROSS && !CHANNELS };
    Pack<SRC, V> raw[LONG_ACROSS ? 8 : HERE];
    const SRC* s;
    int x, lane, first, lanes;
    bool mine;

    MEMBER void place(int t, const SRC* source, const Sheet& sheet, int row0) {
        const int wide = LONG_ACROSS ? LINE / 8 : LINE, per = LANES / V;
        x = (CHANNELS ? t / per % wide : t % wide) * (LONG_ACROSS ? 8 : 1);
        lane = (CHANNELS ? t % per : t / wide % per) * V;
        lanes = sheet.lanes - lane;
        first = t / (wide * per) * HERE;
        mine = x < CELLS && lanes > 0 && first < CHUNK * HIGH;
        s = source + (lane * FROM_LANE + x * FROM_ACROSS + (row0 + first / HIGH) * FROM_STREAM + (sheet.begin1 + first % HIGH) * FROM_MIDDLE);
    }
    MEMBER void read(const Sheet& sheet, int row0) {
#pragma unroll
        for (int u = 0; u < HERE; ++u) {
            const int row = HIGH > 1 ? row0 : row0 + first + u, high = HIGH > 1 ? sheet.begin1 + first + u : 0;
            const bool there = mine && first + u < CHUNK * HIGH && (u32)row < (u32)sheet.rows0 && (u32)high < (u32)sheet.rows1;
            const SRC* const p = s + u * (HIGH > 1 ? FROM_MIDDLE : FROM_STREAM);
            if (AHEAD) soon(there && row + CHUNK < sheet.rows0, p + CHUNK * FROM_STREAM);
            if (EACH) {
#pragma unroll
                for (int k = 0; k < 8 * V; k += WIDTH) {
                    const Pack<SRC, WIDTH> some = raw_under<WIDTH>(there && k / 8 < lanes && x + k % 8 < CELLS, p + (k / 8 * FROM_LANE + k % 8));
#pragma unroll
                    for (int w = 0; w < WIDTH; ++w) raw[EACH ? (k + w) % 8 : 0].v[(k + w) / 8] = some.v[w];
                }
            } else {
#pragma unroll
                for (int j = 0; j < (LONG_ACROSS ? 8 : 1); ++j)
                {
                    raw[u + j] = lanes_if(there && (!LONG_ACROSS || x + j < CELLS), p + j * FROM_ACROSS, lanes);
                    if (AHEAD && j) soon(there && x + j < CELLS && row + CHUNK < sheet.rows0, p + j * FROM_ACROSS + CHUNK * FROM_STREAM);
                }
            }
        }
        s += CHUNK * FROM_STREAM;
    }
    // `count0` begins with this chunk's rows, `count1` with this block's rows of the middle axis.
    template <bool EXACT> MEMBER bool lay(A* cells, const Sheet& sheet, Divisor by, const A* count0, const A* count1, const A* count2) const {
        bool rare = false;
        if (!mine) return false;
        A* const at = cells + first * ROW_STEP + lane * L_STEP + cell_at(x);
        if (LONG_ACROSS) {
            Acc<A, V> value[8];
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                value[j] = widened<A, V>(raw[LONG_ACROSS ? j : 0]);
                if (!FIRST) continue;
                by.set(sheet.common * count0[first] * count2[x + j]);
                value[j] = by.of<EXACT>(value[j], rare);
            }
            Acc<A, V> up = value[0], down = value[7];
            store(at, up);
#pragma unroll
            for (int j = 1; j < 8; ++j) {
                store(at + j * J_STEP, up = up + value[j]);
                store(at + DOWN + (8 - j) * J_STEP, down = j > 1 ? down + value[8 - j] : down);
            }
            return rare;
        }
        const A around = sheet.common * count2[x] * (HIGH > 1 ? count0[0] : count1[0]);
#pragma unroll
        for (int u = 0; u < HERE; ++u) {
            if (first + u >= CHUNK * HIGH) break;
            Acc<A, V> value = widened<A, V>(raw[u]);
            if (FIRST) {
                by.set(around * (HIGH > 1 ? count1[first + u] : count0[first + u]));
                value = by.of<EXACT>(value, rare);
            }
            store(at + u * ROW_STEP, value);
        }
        return rare;
    }
};

// The sum along the last axis at position x, from any row.
struct Across {
    int at[LONG_ACROSS ? TOTALS + 2 : 1];

    MEMBER void place(int x, int lane) {
        at[0] = lane * L_STEP + cell_at(x + OFFSET);
        if (!LONG_ACROSS) return;
        const int lo = x + OFFSET > 0 ? x + OFFSET : 0, hi = x + OFFSET + ACROSS < CELLS ? x + OFFSET + ACROSS : CELLS;
        const int begin = (lo + 7) / 8, end = hi / 8;
        at[0] = lo % 8 ? DOWN + cell_at(lo) : NOTHING;
#pragma unroll
        for (int j = 0; j < TOTALS; ++j) at[1 + j] = begin + j < end ? cell_at(8 * (begin + j) + 7) : NOTHING;
        at[LONG_ACROSS ? TOTALS + 1 : 0] = hi % 8 && begin <= end ? cell_at(hi - 1) : NOTHING;
#pragma unroll
        for (int j = 0; j < TOTALS + 2; ++j) at[LONG_ACROSS ? j : 0] += lane * L_STEP;
    }
    MEMBER Acc<A, V> of(const A* row) const {
        Acc<A, V> sum = load<A, V>(row + at[0]);
        if (!LONG_ACROSS) {
#pragma unroll
            for (int j = 1; j < ACROSS; ++j) sum = sum + load<A, V>(row + at[0] + j * X_STEP);
            return sum;
        }
        if (TOTALS) {
            Acc<A, V> totals = load<A, V>(row + at[LONG_ACROSS ? 1 : 0]);
#pragma unroll
            for (int j = 1; j < TOTALS; ++j) totals = totals + load<A, V>(row + at[LONG_ACROSS ? 1 + j : 0]);
            sum = sum + totals;
        }
        return sum + load<A, V>(row + at[LONG_ACROSS ? TOTALS + 1 : 0]);
    }
};

// Sums along the first axis that wait for their next row.
struct Open {
    Acc<A, V> sums[STREAM > 1 ? STREAM - 1 : 1];

    MEMBER void begin() {
#pragma unroll
        for (int j = 0; j < STREAM - 1; ++j) sums[j] = filled<A, V>((A)-0.0);
    }
    MEMBER Acc<A, V> push(const Acc<A, V>& term) {
        if (STREAM == 1) return term;
        const Acc<A, V> done = sums[STREAM > 1 ? STREAM - 2 : 0] + term;
#pragma unroll
        for (int j = STREAM - 2; j > 0; --j) sums[j] = sums[j - 1] + term;
        sums[0] = term;
        return done;
    }
};

// The same for long windows, a block of eight rows at a time: sums down the last blocks, and their totals.
struct Blocks {
    Acc<A, V> down[DEPTH][8], total;  // the total of the last block: no window of 16 holds an earlier one whole

    MEMBER void begin() {
#pragma unroll
        for (int k = 0; k < 8 * DEPTH; ++k) down[k / 8][k % 8] = filled<A, V>((A)-0.0);
        total = filled<A, V>((A)-0.0);
    }
    // The interval that ends after `h` rows of this block, whose sum is `up`.
    MEMBER Acc<A, V> ending(int h, const Acc<A, V>& up) const {
        const int lo = h - STREAM + 8 * DEPTH, block = lo / 8 - DEPTH, rest = lo % 8;
        Acc<A, V> sum = filled<A, V>((A)-0.0), totals = sum;
        if (rest) sum = down[-1 - block][rest];
        if (block + (rest > 0) < 0) totals = total;
        if (h == 8) totals = totals + up;
        sum = sum + totals;
        return h < 8 ? sum + up : sum;
    }
    MEMBER void keep(const Acc<A, V>* term, const Acc<A, V>& all) {
#pragma unroll
        for (int k = 8 * DEPTH - 1; k > 8; --k) down[k / 8][k % 8] = down[k / 8 - 1][k % 8];
        total = all;
        down[0][7] = term[7];
#pragma unroll
        for (int j = 6; j > 0; --j) down[0][j] = down[0][j + 1] + term[j];
    }
};

struct Result {
    DST* d;
    int x, lane, tile;
    bool mine;
    A across;
    Divisor by;

    MEMBER void place(int t, DST* out, const Sheet& sheet, int z0) {
        const int per = LANES / V, group = t / (LINE * per);
        x = CHANNELS ? t / per % LINE : t % LINE;
        lane = (CHANNELS ? t % per : t / LINE % per) * V;
        tile = group * TILE;
        mine = x < POSITIONS && lane < sheet.lanes && group < GROUPS;
        if (!mine) x = lane = tile = 0;
        d = out + (lane * TO_LANE + x * TO_ACROSS + z0 * TO_STREAM + (sheet.begin1 - MIDDLE_OFFSET + tile) * TO_MIDDLE);
    }
    // Row k of this chunk, position j of this tile; `d` is the place of the first.
    MEMBER void write(const Sheet& sheet, int z0, int k, int j, Acc<A, V> value, const A* count0, const A* count1) {
        const int z1 = sheet.begin1 - MIDDLE_OFFSET + tile + j;
        const bool there = mine && (u32)(z0 + k - sheet.begin0) < (u32)(sheet.end0 - sheet.begin0) && z1 < sheet.positions1;
        DST* const place = d + (k * TO_STREAM + j * TO_MIDDLE);
        if (!FIRST) {
            bool rare = false;
            by.set(across * count0[k] * count1[tile + j]);
            const Acc<A, V> sum = value;
            value = by.of<false>(sum, rare);
            if (rare) value = by.of<true>(sum, rare);
        }
        if (CHANNELS) return put(place, value, there);
#pragma unroll
        for (int v = 0; v < V; ++v) put(place + v * TO_LANE, one_of(value.v[v]), there && lane + v < sheet.lanes);
    }
    // Rounded before it is known whether there is a place for it: a lone store needs no jump.
    template <int W> MEMBER void put(DST* place, Acc<A, W> value, bool there) const {
        if (ACCUMULATE && there) value = load<A, W>(place) + value;
        const Pack<DST, W> raw = narrowed<DST>(value);
        if (there) *reinterpret_cast<Pack<DST, W>*>(place) = raw;
    }
};

// The counts of an axis from number `begin` on, as many as `n`, in shared memory; 1 where there is no such number.
CONST_FN void lay_counts(A* place, const A* counts, int begin, int n, int there) {
    for (int k = (int)threadIdx.x; k < n; k += THREADS) place[k] = counts && (u32)(begin + k) < (u32)there ? counts[begin + k] : (A)1;
}

CONST_FN void sheet_work(A* cells, const SRC* source, DST* out, const Sheet& sheet) {
    const int t = (int)threadIdx.x;
    // Behind the cells of a chunk lie the counts: those of cells (the gradient) or of positions, of which a chunk lags behind.
    A* const count0 = cells + CHUNK * HIGH * ROW_STEP;
    A* const count1 = count0 + COUNTS0;
    A* const count2 = count1 + HIGH;
    for (int k = t; k < CHUNK * HIGH * ROW_STEP; k += THREADS) cells[k] = (A)-0.0;
    int row0 = sheet.begin0 + STREAM_OFFSET;
    if (LONG_STREAM) row0 = (row0 + 8 * STREAM) / 8 * 8 - 8 * STREAM;
    if (row0 < 0) row0 = 0;
    const int lag = STREAM_OFFSET + STREAM - 1, rows = sheet.end0 + lag;
    lay_counts(count0, sheet.counts0, FIRST ? row0 : row0 - lag, COUNTS0, FIRST ? sheet.rows0 : sheet.end0);
    lay_counts(count1, sheet.counts1, FIRST ? sheet.begin1 : sheet.begin1 - MIDDLE_OFFSET, HIGH, FIRST ? sheet.rows1 : sheet.positions1);
    lay_counts(count2, sheet.counts2, 0, LINE, FIRST ? CELLS : POSITIONS);
    Fetch fetch;
    fetch.place(t, source, sheet, row0);
    fetch.read(sheet, row0);
    Result result;
    result.place(t, out, sheet, row0 - lag);
    Across across;
    across.place(result.x, result.lane);
    Divisor by;
    by.d = sheet.one;
    by.r = sheet.r;
    result.by = by;
#if LONG_STREAM
    Blocks open;
    open.begin();
#else
    Open open[TILE];
#pragma unroll
    for (int j = 0; j < TILE; ++j) open[j].begin();
#endif
    const A* now0 = count0;
    __syncthreads();
    result.across = sheet.common * count2[result.x];
    for (; row0 < rows; row0 += CHUNK) {
        const bool inside = row0 < sheet.rows0;  // else this chunk only lets sums end that are open
        if (inside && fetch.lay<false>(cells, sheet, by, now0, count1, count2)) fetch.lay<true>(cells, sheet, by, now0, count1, count2);
        __syncthreads();
        fetch.read(sheet, row0 + CHUNK);
        const A* const mine = cells + result.tile * ROW_STEP;
        const int z0 = row0 - lag;
#if LONG_STREAM
        Acc<A, V> term[8], up;
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            term[k] = inside ? across.of(mine + k * ROW_STEP) : filled<A, V>((A)-0.0);
            up = k ? up + term[k] : term[k];
            result.write(sheet, z0, k, 0, open.ending(k + 1, up), now0, count1);
        }
        open.keep(term, up);
#elif HIGH > 1
        Acc<A, V> term[TILE + MIDDLE - 1];
#pragma unroll
        for (int k = 0; k < TILE + MIDDLE - 1; ++k) term[k] = inside ? across.of(mine + k * ROW_STEP) : filled<A, V>((A)-0.0);
#pragma unroll
        for (int j = 0; j < TILE; ++j) {
            Acc<A, V> sum = term[j];
#pragma unroll
            for (int k = 1; k < MIDDLE; ++k) sum = sum + term[j + k];
            result.write(sheet, z0, 0, j, open[j].push(sum), now0, count1);
        }
#else
#pragma unroll
        for (int k = 0; k < CHUNK; ++k) {
            const Acc<A, V> term = inside ? across.of(mine + k * ROW_STEP) : filled<A, V>((A)-0.0);
            result.write(sheet, z0, k, 0, open[0].push(term), now0, count1);
        }
#endif
        now0 += CHUNK;
        result.d += CHUNK * TO_STREAM;
        __syncthreads();
    }
}
