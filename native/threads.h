// A pool of threads that share the tasks of one call.
//
// Which thread runs a task never shows in the result. Threads start on first use, sleep between calls, and are started
// anew after a fork. A call that finds the pool busy (another Python thread is in it) runs on its own thread alone.
#pragma once

#include <cstddef>
#include <cstdint>

namespace poolgrad {

// Runs tasks begin ... end-1.
using TaskFunction = void (*)(const void* context, int64_t begin, int64_t end, char* scratch);

// Run tasks 0 ... count-1 on up to `threads` threads, each with `scratch` bytes aligned to a cache line. All memory is
// had before the first task runs; std::bad_alloc otherwise.
void run_tasks(TaskFunction function, const void* context, int64_t count, int64_t threads, size_t scratch);

}  // namespace poolgrad
