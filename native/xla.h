// Average pooling as a custom call of XLA on the CPU.
#pragma once

#include <cstdint>

namespace poolgrad {

// The handler that XLA's foreign-function interface is given: an XLA_FFI_Handler*.
void* xla_handler();

// Threads that a call may use from now on; never seen in the result.
void set_xla_threads(int64_t threads);

}  // namespace poolgrad
