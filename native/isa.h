// Which build of the kernels this machine can run, and which one is chosen.
#pragma once

#include "plan.h"

namespace poolgrad {

struct Isa { const char* name; int64_t vector_bytes; RunBoxes run_boxes; Move move; };

// Best first; the last is always the baseline.
std::vector<Isa> available_isas();

}  // namespace poolgrad
