// What every kernel here shares: storage types, vectors of accumulators, and the correctly rounded division.
//
// The text is put before each kernel and compiled at run time with fused multiply-add off. The same text compiles as plain
// C++ (POOLGRAD_HOST), where tests run every kernel without a device.
//
// -0.0 is the identity of addition in every case (x + -0.0 is x, also for x = -0.0), so a term that is absent is -0.0.

typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;

struct F16 { unsigned short bits; };
struct B16 { unsigned short bits; };

#ifndef POOLGRAD_HOST
#define SHARED(name, type) extern __shared__ __align__(16) unsigned char shared_[]; type* const name = reinterpret_cast<type*>(shared_)
#define CONST_FN __device__ __forceinline__
#define MEMBER __device__ __forceinline__
CONST_FN float bits_to_float(u32 u) { return __uint_as_float(u); }
CONST_FN u32 float_to_bits(float f) { return __float_as_uint(f); }
CONST_FN float div_rn(float a, float b) { return __fdiv_rn(a, b); }
CONST_FN double div_rn(double a, double b) { return __ddiv_rn(a, b); }
CONST_FN float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }
CONST_FN float near_reciprocal(float d) { float r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d)); return r; }
CONST_FN float widen(F16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h.bits)); return f; }
CONST_FN F16 narrow(float f, F16*) { F16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(f)); return h; }
#endif

CONST_FN float widen(float x) { return x; }
CONST_FN double widen(double x) { return x; }
CONST_FN float widen(B16 b) { return bits_to_float((u32)b.bits << 16); }
CONST_FN float narrow(float x, float*) { return x; }
CONST_FN double narrow(double x, double*) { return x; }
CONST_FN double narrow(float x, double*) { return x; }

CONST_FN B16 narrow(float f, B16*) {
#if !defined(POOLGRAD_HOST) && __CUDA_ARCH__ >= 800
    B16 b;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b.bits) : "f"(f));
    return b;
#else
    const u32 u = float_to_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return B16{(unsigned short)0x7fc0};
    return B16{(unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
#endif
}

template <class T, int V> struct alignas(sizeof(T) * V) Pack { T v[V]; };
template <class A, int V> struct Acc { A v[V]; };

template <class A> CONST_FN Acc<A, 1> one_of(A value) { return Acc<A, 1>{{value}}; }

template <class A, int V> CONST_FN Acc<A, V> filled(A value) {
    Acc<A, V> t;
#pragma unroll
    for (int k = 0; k < V; ++k) t.v[k] = value;
    return t;
}

template <class A, int V> CONST_FN Acc<A, V> operator+(const Acc<A, V>& a, const Acc<A, V>& b) {
    Acc<A, V> t;
#pragma unroll
    for (int k = 0; k < V; ++k) t.v[k] = a.v[k] + b.v[k];
    return t;
}

template <class A, int V, class T> CONST_FN Acc<A, V> widened(const Pack<T, V>& raw) {
    Acc<A, V> t;
#pragma unroll
    for (int k = 0; k < V; ++k) t.v[k] = widen(raw.v[k]);
    return t;
}

#ifndef POOLGRAD_HOST
// A load under a predicate.
template <int BYTES> struct Bytes;
template <> struct Bytes<2> { unsigned short a; };
template <> struct Bytes<4> { u32 a; };
template <> struct Bytes<8> { u32 a, b; };
template <> struct Bytes<16> { u32 a, b, c, d; };
#define UNDER "{ .reg .pred q; setp.ne.u32 q, %"
CONST_FN void read_if(Bytes<2>& x, u32 there, const void* p) {
    asm(UNDER "1, 0; @q ld.global.nc.b16 %0, [%2]; }" : "+h"(x.a) : "r"(there), "l"(p));
}
CONST_FN void read_if(Bytes<4>& x, u32 there, const void* p) {
    asm(UNDER "1, 0; @q ld.global.nc.b32 %0, [%2]; }" : "+r"(x.a) : "r"(there), "l"(p));
}
CONST_FN void read_if(Bytes<8>& x, u32 there, const void* p) {
    asm(UNDER "2, 0; @q ld.global.nc.v2.b32 {%0, %1}, [%3]; }" : "+r"(x.a), "+r"(x.b) : "r"(there), "l"(p));
}
CONST_FN void read_if(Bytes<16>& x, u32 there, const void* p) {
    asm(UNDER "4, 0; @q ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%5]; }"
        : "+r"(x.a), "+r"(x.b), "+r"(x.c), "+r"(x.d) : "r"(there), "l"(p));
}
template <class T> CONST_FN void fetch_if(T& raw, bool there, const void* p) {
    Bytes<sizeof(T)> bytes;
    memcpy(&bytes, &raw, sizeof(T));
    read_if(bytes, there, p);
    memcpy(&raw, &bytes, sizeof(T));
}
// Brings what lies at p nearer, for later.
CONST_FN void soon(bool there, const void* p) {
    asm volatile(UNDER "0, 0; @q prefetch.global.L2 [%1]; }" : : "r"((u32)there), "l"(p));
}
#else
CONST_FN void soon(bool, const void*) {}
template <class T> CONST_FN void fetch_if(T& raw, bool there, const void* p) {
    if (there) memcpy(&raw, p, sizeof(T));
}
#endif

template <int V, class T> CONST_FN Pack<T, V> absent() {
    Pack<T, V> raw;
#pragma unroll
    for (int k = 0; k < V; ++k) raw.v[k] = narrow(-0.0f, (T*)0);
    return raw;
}

// What lies at p, or -0.0. The first jumps around the load; the second has it under a predicate, so that many loads of a thread
// are on their way at once. Which is faster depends on the kernel; both were measured.
template <int V, class T> CONST_FN Pack<T, V> raw_if(bool there, const T* p) {
    Pack<T, V> raw = absent<V, T>();
    if (there) raw = *reinterpret_cast<const Pack<T, V>*>(p);
    return raw;
}
template <int V, class T> CONST_FN Pack<T, V> raw_under(bool there, const T* p) {
    Pack<T, V> raw = absent<V, T>();
    fetch_if(raw, there, p);
    return raw;
}

template <class A, int V, class T> CONST_FN Acc<A, V> load(const T* p) {
    return widened<A, V>(*reinterpret_cast<const Pack<T, V>*>(p));
}

template <class A, int V, class T> CONST_FN Acc<A, V> load_if(bool there, const T* p) {
    return widened<A, V>(raw_if<V>(there, p));
}

template <class T, class A, int V> CONST_FN Pack<T, V> narrowed(const Acc<A, V>& t) {
    Pack<T, V> raw;
#pragma unroll
    for (int k = 0; k < V; ++k) raw.v[k] = narrow(t.v[k], (T*)0);
    return raw;
}

template <class A, int V, class T> CONST_FN void store(T* p, const Acc<A, V>& t) {
    *reinterpret_cast<Pack<T, V>*>(p) = narrowed<T>(t);
}

template <class A, int V> CONST_FN Acc<A, V> divided(const Acc<A, V>& a, A d) {
    Acc<A, V> q;
#pragma unroll
    for (int k = 0; k < V; ++k) q.v[k] = div_rn(a.v[k], d);
    return q;
}

#define LEAST 1.40129846e-45f  // the least subnormal number

// a / d for an integer 1 <= d < 2^21, by r, the reciprocal of d, and one correction. `over`, what the first try times d exceeds a
// by, is exact: a multiple of the last place of `near`, and less than 2^23 of them. So the corrected quotient is off by less than
// 2^-22 of a last place before it is rounded, and quotients of 24 bits by 21 bits lie further than that from where rounding
// turns, or upon it. Only subnormal ones can lie upon it, half-way between two numbers. EXACT takes the even one of those, and lets
// infinities through; without it `rare` is set where either may be needed, for less work. Which is faster depends on the kernel.
template <bool EXACT, int V> CONST_FN Acc<float, V> quotient(const Acc<float, V>& a, float d, float r, bool& rare) {
    Acc<float, V> q, near, over;
    bool tiny = false;
#pragma unroll
    for (int k = 0; k < V; ++k) {
        near.v[k] = a.v[k] * r;
        over.v[k] = fma_rn(near.v[k], d, -a.v[k]);
        if (EXACT) over.v[k] = fminf(over.v[k], 3.4e38f);  // where it is no number: the infinity remains
        q.v[k] = fma_rn(over.v[k], -r, near.v[k]);
        if (EXACT) tiny |= (float_to_bits(q.v[k]) << 1) - 1 < 0x01000000u;  // not zero, up to the least normal number
        else rare |= !(fabsf(q.v[k]) >= 7.888609e-31f) && a.v[k] != 0;
    }
    if (EXACT && tiny) {
#pragma unroll
        for (int k = 0; k < V; ++k) {
            if (2 * fabsf(over.v[k]) != d * LEAST) continue;  // true half-way: elsewhere a would need more than 24 bits
            const bool odd = float_to_bits(near.v[k]) & 1;
            const float even = !odd ? near.v[k] : over.v[k] > 0 ? near.v[k] - LEAST : near.v[k] + LEAST;
            q.v[k] = copysignf(even, a.v[k]);  // of zeros too
        }
    }
    return q;
}
template <bool EXACT, int V> CONST_FN Acc<double, V> quotient(const Acc<double, V>& a, double d, double, bool&) { return divided(a, d); }

template <class A, int V> CONST_FN Acc<A, V> exact(const Acc<A, V>& a, A d, A r) {
    bool rare;
    return quotient<true>(a, d, r, rare);
}
template <class A, int V> CONST_FN Acc<A, V> checked(const Acc<A, V>& a, A d, A r) {
    bool rare = false;
    const Acc<A, V> q = quotient<false>(a, d, r, rare);
    return rare ? exact(a, d, r) : q;
}

// The reciprocal of d to within 2^-46 of a rounding error: enough for the correction above.
CONST_FN float reciprocal(float d) {
    const float near = near_reciprocal(d);
    return fma_rn(fma_rn(-d, near, 1.0f), near, near);
}
CONST_FN double reciprocal(double d) { return d; }

template <class A, int V> CONST_FN Acc<A, V> scaled(const Acc<A, V>& a, A r) {
    Acc<A, V> q;
#pragma unroll
    for (int k = 0; k < V; ++k) q.v[k] = a.v[k] * r;
    return q;
}
