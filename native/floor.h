// The floor that speed is measured against: read so many bytes once, write so many once, do nothing else.
#pragma once

#include "simd.h"

namespace poolgrad {
namespace PG_ISA {

// What is written depends on what was read: some memories are quicker with zeros.
template <bool PAST> inline void move_bytes(const char* from, int64_t read, char* to, int64_t written) {
    constexpr int64_t piece = 2048;
    const int64_t pieces = written / piece, lines = read / LINE;
    Vec<float> sum[4] = {splat(1.0f), splat(2.0f), splat(3.0f), splat(4.0f)};
    for (int64_t p = 0, next = 0; p < pieces; ++p) {
        const int64_t until = lines * (p + 1) / pieces;
        const float* in = reinterpret_cast<const float*>(from + next * LINE);
        for (int64_t k = 0; k < (until - next) * LINE / VECTOR_BYTES; ++k) sum[k & 3] = sum[k & 3] + load(in + k * LANES<float>);
        next = until;
        for (int64_t k = 0; k < piece; k += VECTOR_BYTES) {
            float* out = reinterpret_cast<float*>(to + p * piece + k);
            const Vec<float> v = sum[k / VECTOR_BYTES & 3];
            if (PAST) stream(out, v); else store(out, v);
        }
    }
    if (PAST) stream_fence();
}

}  // namespace PG_ISA
}  // namespace poolgrad
