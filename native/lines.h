// Rows that follow each other in the result, of any length and from any address on, written past the caches: what does not fill a line
// waits for the next row. Joined in registers (Lines) or in scratch (Gathered).
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

constexpr int64_t WORTH_PASSING = 256;                  // bytes
constexpr int64_t WIDE_RUN = 2048;                      // bytes that begin and end within lines, which hardly matters
constexpr int64_t MOST_GATHERED = GATHERED - 2 * LINE;  // of a run
constexpr int64_t GATHERED_NEAR = 8 << 10;              // after so many the scratch begins anew, and stays in the nearest cache

// Runs of any kind, finished in scratch and passed on in whole lines. What was just written cannot be read again at once but where it
// was written: a run is passed on when the one after it is complete.
class Gathered {
public:
    // What will be placed ends at `end`, or before. Runs of whole lines are made from a line's beginning on, others as far from one as in
    // the result.
    void begin(char* scratch, bool whole_lines, const char* end) {
        ask_for_line(end);
        first_ = scratch + LINE;
        end_ = first_ + MOST_GATHERED;
        whole_lines_ = whole_lines;
        open_ = false;
    }

    // Where the run of so many bytes that will lie at `to` is made. All runs before it are complete.
    PG_APART char* place(char* to, int64_t bytes) {
        if (bytes > end_ - first_) {
            end();
            return to;
        }
        if (!open_ || to != next_ + apart_) {
            end();
            open_ = true;
            go_on(to);
            passed_ = next_;
        } else if (bytes > end_ - next_ || next_ - first_ >= GATHERED_NEAR) {
            pass(next_);
            const int64_t rest = next_ - passed_;
            char* from = passed_;
            go_on(to);
            passed_ = next_ - rest;
            std::memmove(passed_, from, size_t(rest));
        } else {
            if (ready_ - passed_ >= WORTH_PASSING) pass(ready_);
            ready_ = next_;
        }
        next_ += bytes;
        return next_ - bytes;
    }

    PG_APART void end() {
        if (!open_) return;
        pass(next_);
        std::memcpy(passed_ + apart_, passed_, size_t(next_ - passed_));
        open_ = false;
    }

private:
    void go_on(char* to) {
        next_ = ready_ = first_ + (whole_lines_ ? 0 : to_line(to));
        apart_ = to - next_;
    }

    // Whole lines; before the first one what is left of the line that the result begins in.
    void pass(char* until) {
        if (const int64_t head = to_line(passed_ + apart_)) {
            if (until - passed_ < head) return;
            std::memcpy(passed_ + apart_, passed_, size_t(head));
            passed_ += head;
        }
        const int64_t lines = (until - passed_) / LINE * LINE;
        stream_lines(passed_ + apart_, passed_, lines);
        passed_ += lines;
    }

    char *first_ = nullptr, *end_ = nullptr;    // of the scratch; before the first there is room for part of a line
    char *passed_ = nullptr, *next_ = nullptr;  // what was passed on, and what was placed, ends here
    char* ready_ = nullptr;                     // what can be passed on ends here
    int64_t apart_ = 0;                         // from scratch to the result
    bool whole_lines_ = false, open_ = false;
};

}  // namespace PG_ISA
}  // namespace poolgrad
