// DLPack, the way in which frameworks hand each other tensors: its public layout, and results that are given away in it.
//
// A result is one block from malloc, so that whoever drops it last may free it, with the GIL or without.
#pragma once

#include <Python.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include "plan.h"

namespace poolgrad::dlpack {

struct Device { int32_t type, id; };
struct Type { uint8_t code, bits; uint16_t lanes; };
struct Tensor { void* data; Device device; int32_t ndim; Type type; int64_t *shape, *strides; uint64_t byte_offset; };
struct Managed { Tensor tensor; void* context; void (*deleter)(Managed*); };

constexpr int32_t CPU = 1;
constexpr uint8_t FLOAT = 2, BFLOAT = 4;
constexpr const char* NAME = "dltensor";

// Whether there is a dtype of ours for `type`; it is left in `found`.
inline bool dtype_of(Type type, Dtype& found) {
    if (type.lanes != 1) return false;
    if (type.code == BFLOAT && type.bits == 16) return found = Dtype::bfloat16, true;
    if (type.code != FLOAT) return false;
    if (type.bits == 32) return found = Dtype::float32, true;
    if (type.bits == 64) return found = Dtype::float64, true;
    if (type.bits == 16) return found = Dtype::float16, true;
    return false;
}

struct Result {
    Managed managed;  // first: a pointer to it is one to the block
    int64_t shape[MAX_AXES], strides[MAX_AXES];
};

// A contiguous tensor of no values yet, aligned to a cache line.
inline Result* make(const std::vector<int64_t>& shape, Type type) {
    int64_t elements = 1;
    for (int64_t n : shape) elements *= n;
    void* block = std::malloc(sizeof(Result) + 64 + size_t(elements) * (type.bits / 8));
    if (!block) throw std::bad_alloc();
    Result* made = new (block) Result{};
    const uintptr_t after = reinterpret_cast<uintptr_t>(made + 1);
    void* data = reinterpret_cast<void*>((after + 63) / 64 * 64);
    int64_t step = 1;
    for (size_t k = shape.size(); k-- > 0;) {
        made->shape[k] = shape[k];
        made->strides[k] = step;
        step *= shape[k] > 0 ? shape[k] : 1;  // as frameworks number the axes of an empty tensor
    }
    made->managed = {{data, {CPU, 0}, int32_t(shape.size()), type, made->shape, made->strides, 0}, nullptr,
                     [](Managed* m) { std::free(m); }};
    return made;
}

// As a capsule, which frees it unless somebody has taken it out.
inline PyObject* give(Result* made) {
    PyObject* capsule = PyCapsule_New(&made->managed, NAME, [](PyObject* c) {
        if (!PyCapsule_IsValid(c, NAME)) return;
        Managed* m = static_cast<Managed*>(PyCapsule_GetPointer(c, NAME));
        m->deleter(m);
    });
    if (!capsule) std::free(made);
    return capsule;
}

}  // namespace poolgrad::dlpack
