// A gradient in which one cell becomes all positions, as that of a global pooling: it is divided and rounded once, and copied.
#pragma once

#include "box.h"

namespace poolgrad {
namespace PG_ISA {

// Where the cell lies, in the last 12 bits of its address, beyond what is written. A processor compares these bits of what it reads with
// those of what it has yet to write, and waits where they are the same.
constexpr int64_t BEYOND = 1024;
constexpr int64_t WORTH_REPEATING = 64 << 10;  // bytes

// What begins with a part of so many bytes is made of that part alone. A long copy need not read what it replaces, as stores do.
inline void repeat(char* to, int64_t part, int64_t bytes) {
    for (int64_t done = part, n; done < bytes; done += n) {
        n = least(done, bytes - done);
        std::memcpy(to + done, to, size_t(n));
    }
}

template <class S> void Box<S>::run_cell(const char* source, char* result) {
    const int64_t bytes = channels_ * int64_t(sizeof(S)), step = plan_.steps[K - 1].result_stride, n = b_[K - 1] - a_[K - 1];
    const int64_t all = step == bytes ? run_bytes(0) : 0;
    const bool past = streaming_ && bytes % LINE == 0 && step == bytes, repeats = !past && all >= WORTH_REPEATING && is_aligned(result);
    char* cell = result;
    if (!repeats) {
        cell = reinterpret_cast<char*>(spread_);
        cell += (result - cell + BEYOND) & (PAGE - LINE);
    }
    int64_t product = 1;
    for (int k = 0; k < K - 1; ++k) product *= count_of_row(k, need_[k].a);
    if constexpr (sizeof(S) == sizeof(A)) {
        load_cells(source, product, 0, 1, reinterpret_cast<A*>(cell));
    } else {
        load_cells(source, product, 0, 1, row_in_);
        narrow_run<S>(row_in_, cell, channels_);
    }
    if (repeats) return repeat(result, bytes, all);
    if (past) std::memcpy(cell + bytes, cell, LINE);
    int64_t rows = 1;
    for (int k = 1; k < K - 1; ++k) rows *= b_[k] - a_[k];
    for (int64_t i = a_[0]; i < b_[0]; ++i, result += plan_.steps[0].result_stride)
        for (int64_t r = 0; r < rows; ++r) {
            char* to = row_place(r, result, product);
            if (!past) {
                for (int64_t w = 0; w < n; ++w) copy_vectors(to + w * step, cell, bytes);
                continue;
            }
            // Whole lines of the result; one that begins in a cell ends in the next.
            const int64_t head = to_line(to), tail = (LINE - head) % LINE;
            ask_for_line(to + n * bytes);
            std::memcpy(to, cell, size_t(head));
            for (int64_t w = 0; w < n; ++w) stream_lines(to + head + w * bytes, cell + head, bytes - (w + 1 < n || tail == 0 ? 0 : LINE));
            std::memcpy(to + n * bytes - tail, cell + bytes - tail, size_t(tail));
        }
}

}  // namespace PG_ISA
}  // namespace poolgrad
