#include "isa.h"

#if defined(POOLGRAD_X86) && defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#endif

namespace poolgrad {

std::vector<Isa> available_isas() {
    std::vector<Isa> found;
#if defined(POOLGRAD_X86) && (defined(__GNUC__) || defined(__clang__))
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        found.push_back({"avx512", 64, avx512::run_boxes, avx512::move});
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) found.push_back({"avx2", 32, avx2::run_boxes, avx2::move});
#elif defined(POOLGRAD_X86)
    int r[4];
    __cpuid(r, 1);
    const bool saves = (r[2] >> 27) & 1, half = (r[2] >> 29) & 1;
    __cpuidex(r, 7, 0);
    if (saves && half && ((r[1] >> 5) & 1) && (_xgetbv(0) & 6) == 6) found.push_back({"avx2", 32, avx2::run_boxes, avx2::move});
#endif
    found.push_back({"baseline", 16, baseline::run_boxes, baseline::move});
    return found;
}

}  // namespace poolgrad
