// The binding: NumPy arrays in, NumPy arrays out; for small calls also DLPack capsules, which PyTorch makes and takes quicker.
//
// Python validates arguments and words the refusals; what is checked here again is what memory safety rests on.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

#include <algorithm>
#include <stdexcept>

#include "dlpack.h"
#include "memory.h"
#include "operation.h"
#include "threads.h"
#if defined(POOLGRAD_XLA)
#include "xla.h"
#endif

namespace nb = nanobind;
using namespace poolgrad;

namespace {

int bfloat16_number = -1;

std::vector<int64_t> ints(nb::handle array) {
    PyArrayObject* a = reinterpret_cast<PyArrayObject*>(
        PyArray_FROMANY(array.ptr(), NPY_INT64, 1, 1, NPY_ARRAY_IN_ARRAY));
    if (!a) throw nb::python_error();
    nb::object keep = nb::steal(reinterpret_cast<PyObject*>(a));
    const int64_t* p = static_cast<const int64_t*>(PyArray_DATA(a));
    return std::vector<int64_t>(p, p + PyArray_SIZE(a));
}

Dtype dtype_of(PyArrayObject* a) {
    const int number = PyArray_TYPE(a);
    if (PyArray_ISBYTESWAPPED(a)) throw nb::type_error("arrays must be in the machine's byte order");
    if (number == NPY_FLOAT) return Dtype::float32;
    if (number == NPY_DOUBLE) return Dtype::float64;
    if (number == NPY_HALF) return Dtype::float16;
    if (number == bfloat16_number) return Dtype::bfloat16;
    throw nb::type_error("dtype must be float16, bfloat16, float32 or float64");
}

// An operation on NumPy arrays.
class Bound {
public:
    Bound(nb::list tables, bool divide_first, std::optional<int64_t> divisor, std::vector<int> spatial,
          std::vector<int64_t> source_shape, std::vector<int64_t> result_shape)
        : operation_(read_axes(tables), divide_first, divisor, std::move(spatial), std::move(source_shape), std::move(result_shape)) {}

    nb::object run(nb::handle source, nb::handle out, bool accumulate, int64_t threads) {
        PyArrayObject* src = array(source, operation_.source_shape());
        const Dtype dtype = dtype_of(src);
        nb::object result = out.is_none() ? make_result(PyArray_DESCR(src)) : nb::borrow(out);
        PyArrayObject* dst = array(result, operation_.result_shape());
        if (PyArray_TYPE(dst) != PyArray_TYPE(src) || PyArray_ISBYTESWAPPED(dst)) throw nb::type_error("out has another dtype");
        if (!PyArray_ISWRITEABLE(dst)) throw nb::value_error("out is read-only");
        if (operation_.is_empty()) return result;
        threads = operation_.useful_threads(threads);
        auto plan = plan_for(dtype, accumulate && !out.is_none(), threads, src, dst);
        if (operation_.is_quick()) {
            operation_.run(*plan, PyArray_BYTES(src), PyArray_BYTES(dst), 1);
        } else {
            nb::gil_scoped_release release;
            operation_.run(*plan, PyArray_BYTES(src), PyArray_BYTES(dst), threads);
        }
        return result;
    }

    // The same of a DLPack capsule, as another: a small tensor on one thread, whose values lie in memory as its strides say.
    nb::object run_tensor(nb::handle source) {
        auto* managed = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(source.ptr(), dlpack::NAME));
        if (!managed) throw nb::python_error();
        const dlpack::Tensor& from = managed->tensor;
        const std::vector<int64_t>& shape = operation_.source_shape();
        Dtype dtype{};
        if (from.device.type != dlpack::CPU || !dlpack::dtype_of(from.type, dtype))
            throw nb::type_error("expected a tensor of float16, bfloat16, float32 or float64 on the CPU");
        if (size_t(from.ndim) != shape.size() || !std::equal(shape.begin(), shape.end(), from.shape))
            throw nb::value_error("a tensor's shape does not fit the tables");
        const bool has_values = std::find(shape.begin(), shape.end(), 0) == shape.end();
        if (!from.strides || (!from.data && has_values)) throw nb::type_error("expected a tensor with its values in memory");
        dlpack::Result* made = dlpack::make(operation_.result_shape(), from.type);
        nb::object result = nb::steal(dlpack::give(made));
        if (!result) throw nb::python_error();
        if (operation_.is_empty()) return result;
        const int64_t size = from.type.bits / 8;
        int64_t read[MAX_AXES], written[MAX_AXES];
        for (size_t k = 0; k < shape.size(); ++k) {
            read[k] = size * from.strides[k];
            written[k] = size * made->strides[k];
        }
        const char* values = static_cast<const char*>(from.data) + from.byte_offset;
        auto plan = operation_.plan_for(dtype, false, 1, read, written);
        operation_.run(*plan, values, static_cast<char*>(made->managed.tensor.data), 1);
        return result;
    }

    // How a call on these arrays would be cut up.
    nb::dict plan(nb::handle source, nb::handle out, int64_t threads) {
        PyArrayObject *src = array(source, operation_.source_shape()), *dst = array(out, operation_.result_shape());
        auto plan = plan_for(dtype_of(src), false, threads, src, dst);
        nb::dict d;
        d["box"] = plan->box;
        d["box_channels"] = plan->box_channels;
        d["rows"] = plan->rows == Rows::packed ? "packed" : plan->rows == Rows::woven ? "woven" : "turned";
        d["spread_late"] = plan->spread_late;
        d["batch"] = plan->batch;
        d["run_rows"] = plan->run_rows;
        d["tasks"] = plan->tasks;
        d["scratch"] = plan->scratch.total;
        d["streaming"] = plan->streaming;
        return d;
    }

private:
    static std::vector<std::unique_ptr<Axis>> read_axes(nb::list tables) {
        std::vector<std::unique_ptr<Axis>> axes;
        for (nb::handle row : tables) {
            nb::tuple table = nb::borrow<nb::tuple>(row);
            auto axis = std::make_unique<Axis>();
            axis->lo = ints(table[0]);
            axis->hi = ints(table[1]);
            axis->base = nb::cast<int64_t>(table[2]);
            axis->rows = nb::cast<int64_t>(table[3]);
            axis->count = ints(table[4]);
            axis->reach = nb::cast<std::vector<int64_t>>(table[5]);
            axis->positions = int64_t(axis->lo.size());
            axes.push_back(std::move(axis));
        }
        return axes;
    }

    static PyArrayObject* array(nb::handle h, const std::vector<int64_t>& shape) {
        if (!PyArray_Check(h.ptr())) throw nb::type_error("expected a NumPy array");
        PyArrayObject* a = reinterpret_cast<PyArrayObject*>(h.ptr());
        if (size_t(PyArray_NDIM(a)) != shape.size() || !std::equal(shape.begin(), shape.end(), PyArray_DIMS(a)))
            throw nb::value_error("an array's shape does not fit the tables");
        return a;
    }

    std::shared_ptr<const Plan> plan_for(Dtype dtype, bool accumulate, int64_t threads, PyArrayObject* src, PyArrayObject* dst) {
        int64_t from[MAX_AXES], to[MAX_AXES];
        std::copy(PyArray_STRIDES(src), PyArray_STRIDES(src) + PyArray_NDIM(src), from);
        std::copy(PyArray_STRIDES(dst), PyArray_STRIDES(dst) + PyArray_NDIM(dst), to);
        return operation_.plan_for(dtype, accumulate, threads, from, to);
    }

    nb::object make_result(PyArray_Descr* descr) {
        int64_t bytes = PyDataType_ELSIZE(descr);
        for (int64_t n : operation_.result_shape()) bytes *= n;
        std::vector<npy_intp> shape(operation_.result_shape().begin(), operation_.result_shape().end());
        Py_INCREF(descr);
        PyObject* made = nullptr;
        if (size_t(bytes) < LARGE_RESULT) {
            made = PyArray_Empty(int(shape.size()), shape.data(), descr, 0);
        } else {
            void* block = take_block(size_t(bytes));
            if (!block) { Py_DECREF(descr); throw std::bad_alloc(); }
            nb::capsule owner(block, [](void* p) noexcept { give_block(p); });
            made = PyArray_NewFromDescr(&PyArray_Type, descr, int(shape.size()), shape.data(), nullptr, block, NPY_ARRAY_CARRAY, nullptr);
            if (made) PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(made), owner.release().ptr());
        }
        if (!made) throw nb::python_error();
        return nb::steal(made);
    }

    Operation operation_;
};

constexpr int64_t LEAST_MOVED = 1 << 15;  // bytes written by a part, but that every thread has one

struct Moved { const char* from; int64_t read; char* to; int64_t written; bool streaming; int64_t parts; Move move; };

void move_parts(const void* context, int64_t begin, int64_t end, char*) {
    const Moved& m = *static_cast<const Moved*>(context);
    const int64_t read = m.read / m.parts / 64 * 64, written = m.written / m.parts / 64 * 64;
    for (int64_t part = begin; part < end; ++part) m.move(m.from + part * read, read, m.to + part * written, written, m.streaming);
}

// Reads the bytes of `source` once and writes those of `out` once, in `parts` equal parts at most, on `threads` threads.
void move_arrays(nb::handle source, nb::handle out, bool streaming, int64_t parts, int64_t threads) {
    if (!PyArray_Check(source.ptr()) || !PyArray_Check(out.ptr())) throw nb::type_error("expected NumPy arrays");
    PyArrayObject *src = reinterpret_cast<PyArrayObject*>(source.ptr()), *dst = reinterpret_cast<PyArrayObject*>(out.ptr());
    if (!PyArray_IS_C_CONTIGUOUS(src) || !PyArray_IS_C_CONTIGUOUS(dst) || !PyArray_ISWRITEABLE(dst))
        throw nb::value_error("arrays must be contiguous and out writeable");
    if (reinterpret_cast<uintptr_t>(PyArray_DATA(dst)) % 64) streaming = false;
    parts = std::max(std::min(parts, threads), std::min<int64_t>(parts, PyArray_NBYTES(dst) / LEAST_MOVED));
    Moved m{PyArray_BYTES(src), PyArray_NBYTES(src), PyArray_BYTES(dst), PyArray_NBYTES(dst), streaming, parts, chosen_isa().move};
    nb::gil_scoped_release release;
    run_tasks(move_parts, &m, parts, threads, 64);
}

int import_numpy() {
    import_array1(-1);
    return 0;
}

}  // namespace

NB_MODULE(_native, m) {
    if (import_numpy() < 0) throw nb::python_error();
    nb::set_leak_warnings(false);  // frameworks keep operations alive to the very end
    nb::class_<Bound>(m, "Operation")
        .def(nb::init<nb::list, bool, std::optional<int64_t>, std::vector<int>, std::vector<int64_t>, std::vector<int64_t>>(),
             nb::arg("tables"), nb::arg("divide_first"), nb::arg("divisor").none(), nb::arg("spatial"), nb::arg("source_shape"),
             nb::arg("result_shape"))
        .def("run", &Bound::run, nb::arg("source"), nb::arg("out").none(), nb::arg("accumulate"), nb::arg("threads"))
        .def("run_tensor", &Bound::run_tensor, nb::arg("source"))
        .def("plan", &Bound::plan, nb::arg("source"), nb::arg("out"), nb::arg("threads"));
    m.def("set_bfloat16", [](nb::handle dtype) {
        if (!PyArray_DescrCheck(dtype.ptr())) throw nb::type_error("expected a NumPy dtype");
        bfloat16_number = reinterpret_cast<PyArray_Descr*>(dtype.ptr())->type_num;
    });
    m.def("isas", [] { std::vector<std::string> names; for (const Isa& i : isas()) names.emplace_back(i.name); return names; });
    m.def("isa", [] { return std::string(chosen_isa().name); });
    m.def("set_isa", [](const std::string& name) {
        for (size_t k = 0; k < isas().size(); ++k)
            if (name == isas()[k].name) return choose_isa(k);
        throw nb::value_error("this machine has no such instruction set");
    });
    m.def("streaming_bytes", &streaming_bytes);
    m.def("set_streaming_bytes", &set_streaming_bytes, nb::arg("bytes"));
    m.def("move", &move_arrays, nb::arg("source"), nb::arg("out"), nb::arg("streaming"), nb::arg("parts"), nb::arg("threads"));
    m.def("held_bytes", &held_bytes);
#if defined(POOLGRAD_XLA)
    m.def("xla_handler", [] { return nb::capsule(xla_handler()); });
    m.def("set_xla_threads", &set_xla_threads, nb::arg("threads"));
#endif
    m.def("release_held", &release_held);
}
