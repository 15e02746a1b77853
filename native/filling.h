// A gradient of one channel in which one cell becomes a whole image, as that of a global pooling, channels first. Cells are divided and
// rounded a few at a time and spread side by side, a vector of each; a vector of the result that lies across the seam of two images is read
// across the seam of their two. So the result is written once, in whole aligned vectors, whatever an image's size.
#pragma once

#include "box.h"

namespace poolgrad {
namespace PG_ISA {

template <class S> bool Box<S>::is_filled(const char* result) const {
    return plan_.filled && b_[1] - a_[1] == plan_.axes[1]->positions && to_line(result) % int64_t(sizeof(S)) == 0;
}

// Cells of the result that are spread at a time.
constexpr int64_t SPREAD = 32;

// Cells i and on, and one more for the last seam, a vector of each.
template <class S> void Box<S>::spread_cells(const char* source, int64_t i, char* wide) {
    const int64_t count = least(SPREAD + 1, b_[0] - a_[0] - i);
    alignas(64) A divided[SPREAD + 1 + LANES<A>];
    alignas(64) S cells[SPREAD + 1];
    load_cells(source + i * int64_t(sizeof(S)), 1, 0, count, divided, count);
    narrow_run<S>(divided, reinterpret_cast<char*>(cells), count);
    for (int64_t c = 0; c < count; ++c, wide += VECTOR_BYTES) {
        if constexpr (sizeof(S) == sizeof(A)) {
            store(reinterpret_cast<A*>(wide), splat(cells[c]));
        } else {
            const uint64_t four = cells[c].bits * uint64_t(0x0001000100010001);
            for (int64_t k = 0; k < VECTOR_BYTES; k += int64_t(sizeof four)) std::memcpy(wide + k, &four, sizeof four);
        }
    }
}

// Write images of so many bytes from `first` on, and of the one after them what shares a vector with the last; `to` is the first whole
// vector that is not written. PAST: past the caches.
template <bool PAST> inline void fill_images(char*& to, char* first, const char* end, int64_t image, int64_t images, const char* cells) {
    constexpr int64_t v = VECTOR_BYTES;
    auto put = [&](const char* from) PG_INLINED {
        const Vec<float> x = load(reinterpret_cast<const float*>(from));
        if (PAST) stream(reinterpret_cast<float*>(to), x);
        else store(reinterpret_cast<float*>(to), x);
        to += v;
    };
    for (int64_t c = 0; c < images; ++c, cells += v) {
        const char* next = first + (c + 1) * image;
        while (to + v <= next) put(cells);
        if (to < next && to + v <= end) put(cells + v - (next - to));
    }
}

template <class S> void Box<S>::run_filled(const char* source, char* result) {
    constexpr int64_t v = VECTOR_BYTES;
    alignas(64) char wide[2][(SPREAD + 1) * v];
    const int64_t images = b_[0] - a_[0], image = (b_[1] - a_[1]) * int64_t(sizeof(S));
    char *const end = result + images * image, *to = result + to_line(result) % v;
    const char* cells = wide[0];
    spread_cells(source, 0, wide[0]);
    std::memcpy(result, wide[0], v);
    for (int64_t i = 0; i < images; i += SPREAD) {
        // Cells are spread well before they are used: what was just written can be read across a seam only after all that was written before it.
        cells = wide[i / SPREAD % 2];
        if (i + SPREAD < images) spread_cells(source, i + SPREAD, wide[(i / SPREAD + 1) % 2]);
        const auto fill = streaming_ ? fill_images<true> : fill_images<false>;
        fill(to, result + i * image, end, image, least(SPREAD, images - i), cells);
    }
    if (to < end) std::memcpy(end - v, cells + (images - 1) % SPREAD * v, v);
}

}  // namespace PG_ISA
}  // namespace poolgrad
