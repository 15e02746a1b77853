// Memory for large results.
//
// A fresh large array costs more in page faults than its gradient costs to compute. Blocks come in huge pages where
// the system has them, and a few freed ones are kept for the next call; the system may take their pages back when it
// runs short of memory.
#pragma once

#include <cstddef>

namespace poolgrad {

constexpr size_t LARGE_RESULT = 1 << 20;

// At least `bytes`, aligned to a cache line; nullptr if there is none to be had.
void* take_block(size_t bytes);
void give_block(void* block);

// Ask for huge pages where a large block of somebody else's has no pages yet: its first touch is what a result costs most.
void ask_for_huge_pages(void* block, size_t bytes);

// Bytes held for reuse; release() hands them back.
size_t held_bytes();
void release_held();

}  // namespace poolgrad
