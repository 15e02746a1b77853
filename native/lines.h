// Rows of any length that follow each other in the result, written past the caches: what does not fill a line waits for the next row.
#pragma once

#include "plan.h"
#include "simd.h"

namespace poolgrad {
namespace PG_ISA {

template <class A> constexpr int WIDEST = strip_vectors(sizeof(A));

#if defined(__AVX512BW__)
// 0, 1, 2, ... in elements of so many bytes, for two vectors.
template <int64_t ITEM> struct Counting;
template <> struct Counting<8> { alignas(64) static constexpr uint64_t from[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; };
template <> struct Counting<4> {
    alignas(64) static constexpr uint32_t from[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                                      16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
};
template <> struct Counting<2> {
    alignas(64) static constexpr uint16_t from[64] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                                      22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
                                                      44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
};

// A vector of the elements k, k+1, ... of two vectors in a row.
template <int64_t ITEM, class V> PG_INLINE V joined(V a, V b, int64_t k) {
    const __m512i index = _mm512_loadu_si512(Counting<ITEM>::from + k);
    if constexpr (ITEM == 8) return (V)_mm512_permutex2var_epi64((__m512i)a, index, (__m512i)b);
    else if constexpr (ITEM == 4) return (V)_mm512_permutex2var_epi32((__m512i)a, index, (__m512i)b);
    else return (V)_mm512_permutex2var_epi16((__m512i)a, index, (__m512i)b);
}
#endif

template <class S, class A> class Lines {
    static constexpr int64_t item = sizeof(S), per = LINE / item;

public:
    void begin(char* to) {
        head_ = held_ = (LINE - to_line(to)) % LINE / item;
        line_ = to - held_ * item;
        open_ = true;
    }
    bool open() const { return open_; }

    // The first n elements of M vectors, which are more than M-1 vectors have.
    template <int M> PG_INLINE void put(const Vec<A>* x, int64_t n);

    void end() {
        Vec<A> rest[LINE / VECTOR_BYTES];
        std::memcpy(rest, waiting(), sizeof rest);
        if (held_ > head_) std::memcpy(line_ + head_ * item, reinterpret_cast<const char*>(rest) + head_ * item, size_t((held_ - head_) * item));
        open_ = false;
    }

private:
    char* line_ = nullptr;         // the next one to be written
    int64_t head_ = 0, held_ = 0;  // elements of it that are not ours; that are not ours or are here already
    bool open_ = false;
#if defined(__AVX512BW__)
    Vec<A> last_{};                // the last elements, up to the last one that is here

    const void* waiting() { last_ = joined<item>(last_, last_, per - held_); return &last_; }
    PG_INLINE void write(Vec<A> line) {
        if (head_) _mm512_mask_storeu_epi8(line_, ~uint64_t(0) << (head_ * item), (__m512i)line);
        else stream(reinterpret_cast<A*>(line_), line);
        head_ = 0;
        line_ += LINE;
    }
#else
    alignas(LINE) char here_[WIDEST<A> * VECTOR_BYTES + LINE] = {};

    const void* waiting() const { return here_; }
    void write(const char* line) {
        if (head_) std::memcpy(line_ + head_ * item, line + head_ * item, size_t((per - head_) * item));
        else stream_lines(line_, line, LINE);
        head_ = 0;
        line_ += LINE;
    }
#endif
};

#if defined(__AVX512BW__)
template <class S, class A> template <int M> PG_INLINE void Lines<S, A>::put(const Vec<A>* x, int64_t n) {
    each<M>([&](auto j) PG_INLINED {
        if (j + 1 < M || held_ + n >= M * per) write(joined<item>(j ? x[j ? j - 1 : 0] : last_, x[j], per - held_));
    });
    last_ = joined<item>(M > 1 ? x[M > 1 ? M - 2 : 0] : last_, x[M - 1], n - (M - 1) * per);
    held_ = (held_ + n) % per;
}
#else
template <class S, class A> template <int M> PG_INLINE void Lines<S, A>::put(const Vec<A>* x, int64_t n) {
    std::memcpy(here_ + held_ * item, x, M * sizeof *x);
    held_ += n;
    const char* from = here_;
    for (; held_ >= per; held_ -= per, from += LINE) write(from);
    if (from != here_) std::memmove(here_, from, size_t(held_ * item));
}
#endif

}  // namespace PG_ISA
}  // namespace poolgrad
