// Which build of the kernels this machine can run, and which one is chosen.
#pragma once

#include "plan.h"

namespace poolgrad {

struct Isa { const char* name; RunTask run_task; };

// Best first; the last is always the baseline.
std::vector<Isa> available_isas();

}  // namespace poolgrad
