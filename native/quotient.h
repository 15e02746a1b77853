// x / d, correctly rounded, without the division instruction, which takes as long as six additions.
//
// d is a whole number from 1 to WHOLE = 2^16, r is 1/d within four units of the last place. q = x*r is then within 5 ulp of
// x/d, so q*d - x is a multiple of q's ulp below 2^20 of them: one fused operation gives it exactly. Subtracting r times that
// from q, in one rounding, errs by less than 2^-19 ulp before it is rounded. x/d is never half-way between two numbers, nor
// nearer to that than 1/2d >= 2^-17 ulp: the rounding is the right one. Zeros keep their signs. What remains, a q that is
// subnormal (its ulp is not its own), infinite or not a number, is divided plainly.
#pragma once

#include <limits>

#include "convert.h"
#include "plan.h"

namespace poolgrad {
namespace PG_ISA {

// What `quotient` multiplies with: 1/d, or, where d is not from 1 to WHOLE, what makes it divide plainly.
template <class A> inline A reciprocal(A d) {
    constexpr A none = std::numeric_limits<A>::quiet_NaN();
    return d > 0 && d <= A(WHOLE) ? 1 / d : none;
}

template <class V> PG_INLINE V quotient(V x, V d, V) { return x / d; }

#if defined(__AVX512DQ__)  // and for double nothing is gained
PG_INLINE Vec<float> quotient(Vec<float> x, Vec<float> d, Vec<float> r) {
    constexpr int NOT_NORMAL = 0xb9;  // any NaN, either infinity, subnormal
    const Vec<float> q = x * r;
    if (_mm512_fpclass_ps_mask((__m512)q, NOT_NORMAL)) return x / d;
    return (Vec<float>)_mm512_fnmadd_ps(_mm512_fmsub_ps((__m512)q, (__m512)d, (__m512)x), (__m512)r, (__m512)q);
}
#endif

// The same where d is known to be from 1 to WHOLE and x to come from storage S, or to be a sum of such.
template <class S, class V> PG_INLINE V whole_quotient(V x, V d, V r, S) { return quotient(x, d, r); }

#if defined(__AVX512DQ__)
// Sums of halves, however divided, are no subnormals: only infinities go another way, and they are their own quotient.
PG_INLINE Vec<float> whole_quotient(Vec<float> x, Vec<float> d, Vec<float> r, Half) {
    const __m512i infinities = _mm512_set1_epi32(0x110000);
    const __m512 q = (__m512)(x * r), near = _mm512_fnmadd_ps(_mm512_fmsub_ps(q, (__m512)d, (__m512)x), (__m512)r, q);
    return (Vec<float>)_mm512_fixupimm_ps(near, q, infinities, 0);
}
#endif

}  // namespace PG_ISA
}  // namespace poolgrad
