// The binding: NumPy arrays in, NumPy arrays out.
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
#include <mutex>
#include <stdexcept>

#include "isa.h"
#include "memory.h"
#include "plan.h"
#include "threads.h"

namespace nb = nanobind;
using namespace poolgrad;

namespace {

const std::vector<Isa> isas = available_isas();
size_t chosen_isa = 0;
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

struct Call { const Plan* plan; const char* source; char* result; RunTask run; };

void run_call_task(const void* context, int64_t task, char* scratch) {
    const Call& c = *static_cast<const Call*>(context);
    c.run(*c.plan, c.source, c.result, task, scratch);
}

// One piece of work of an engine: tables bound to the shapes of its arrays. Plans are kept per strides and dtype.
class Operation {
public:
    Operation(nb::list tables, bool divide_first, std::optional<int64_t> divisor, std::vector<int> spatial,
              std::vector<int64_t> source_shape, std::vector<int64_t> result_shape)
        : divide_first_(divide_first), divisor_(divisor), spatial_(std::move(spatial)),
          source_shape_(std::move(source_shape)), result_shape_(std::move(result_shape)) {
        const size_t rank = source_shape_.size();
        if (result_shape_.size() != rank || rank > MAX_AXES - 2 || spatial_.size() != nb::len(tables) || spatial_.empty())
            throw nb::value_error("ranks do not agree");
        for (size_t k = 0; k < spatial_.size(); ++k) axes_.push_back(read_axis(nb::borrow<nb::tuple>(tables[k]), spatial_[k]));
        for (size_t d = 0; d < rank; ++d)
            if (!is_spatial(int(d)) && source_shape_[d] != result_shape_[d]) throw nb::value_error("batch shapes do not agree");
    }

    nb::object run(nb::handle source, nb::handle out, bool accumulate, int64_t threads) {
        PyArrayObject* src = array(source, source_shape_);
        const Dtype dtype = dtype_of(src);
        nb::object result = out.is_none() ? make_result(PyArray_DESCR(src)) : nb::borrow(out);
        PyArrayObject* dst = array(result, result_shape_);
        if (PyArray_TYPE(dst) != PyArray_TYPE(src) || PyArray_ISBYTESWAPPED(dst)) throw nb::type_error("out has another dtype");
        if (!PyArray_ISWRITEABLE(dst)) throw nb::value_error("out is read-only");
        if (PyArray_SIZE(dst) == 0) return result;
        if (threads > 1 && PyArray_SIZE(dst) + PyArray_SIZE(src) < SERIAL_ELEMENTS) threads = 1;
        auto plan = plan_for(dtype, accumulate && !out.is_none(), threads, src, dst);
        Call call{plan.get(), PyArray_BYTES(src), PyArray_BYTES(dst), isas[chosen_isa].run_task};
        if (PyArray_SIZE(dst) + PyArray_SIZE(src) < QUICK_ELEMENTS) {
            run_tasks(run_call_task, &call, plan->tasks, 1, plan->scratch.total);
        } else {
            nb::gil_scoped_release release;
            run_tasks(run_call_task, &call, plan->tasks, threads, plan->scratch.total);
        }
        return result;
    }

    // How a call on these arrays would be cut up.
    nb::dict plan(nb::handle source, nb::handle out, int64_t threads) {
        PyArrayObject *src = array(source, source_shape_), *dst = array(out, result_shape_);
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
    static constexpr int64_t SERIAL_ELEMENTS = 1 << 15, QUICK_ELEMENTS = 1 << 11;
    static constexpr size_t KEPT_PLANS = 8, MOST_LEVELS = 22;
    static constexpr int64_t STREAMING_BYTES = int64_t(32) << 20;

    struct Kept { std::vector<int64_t> key; std::shared_ptr<const Plan> plan; };

    bool is_spatial(int d) const { return std::find(spatial_.begin(), spatial_.end(), d) != spatial_.end(); }

    std::unique_ptr<Axis> read_axis(nb::tuple table, int position) {
        auto axis = std::make_unique<Axis>();
        axis->lo = ints(table[0]);
        axis->hi = ints(table[1]);
        axis->base = nb::cast<int64_t>(table[2]);
        axis->rows = nb::cast<int64_t>(table[3]);
        axis->count = ints(table[4]);
        axis->reach = nb::cast<std::vector<int64_t>>(table[5]);
        axis->positions = int64_t(axis->lo.size());
        if (position < 0 || size_t(position) >= source_shape_.size()) throw nb::value_error("no such spatial axis");
        bool sound = axis->hi.size() == axis->lo.size() && axis->positions == result_shape_[size_t(position)] &&
                     axis->rows == source_shape_[size_t(position)] && axis->base >= 0 && !axis->reach.empty() &&
                     axis->reach.size() <= size_t(MOST_LEVELS) &&
                     int64_t(axis->count.size()) == (divide_first_ ? axis->rows : axis->positions);
        for (size_t i = 0; sound && i < axis->lo.size(); ++i) {
            const int64_t lo = axis->lo[i], hi = axis->hi[i];
            sound = lo >= 0 && (lo >= hi || (lo >= axis->base && hi <= axis->base + axis->rows && hi - lo <= axis->reach[0])) &&
                    (i == 0 || (lo >= axis->lo[i - 1] && hi >= axis->hi[i - 1]));
        }
        sound = sound && deep_enough(*axis);
        if (!sound) throw nb::value_error("a table does not fit its arrays");
        axis->find_together();
        return axis;
    }

    // Every level above must be marked long while runs of blocks can exceed eight.
    static bool deep_enough(const Axis& axis) {
        for (size_t k = 0; k < axis.reach.size(); ++k)
            if ((axis.reach[k] > BLOCK) == (k + 1 == axis.reach.size())) return false;
        int64_t longest = axis.reach[0];
        for (size_t k = 1; k < axis.reach.size(); ++k) {
            longest /= BLOCK;
            if (axis.reach[k] < 0 || axis.reach[k] > longest || axis.reach[k] < longest - 1) return false;
            longest = axis.reach[k];
        }
        return true;
    }

    static PyArrayObject* array(nb::handle h, const std::vector<int64_t>& shape) {
        if (!PyArray_Check(h.ptr())) throw nb::type_error("expected a NumPy array");
        PyArrayObject* a = reinterpret_cast<PyArrayObject*>(h.ptr());
        if (size_t(PyArray_NDIM(a)) != shape.size() || !std::equal(shape.begin(), shape.end(), PyArray_DIMS(a)))
            throw nb::value_error("an array's shape does not fit the tables");
        return a;
    }

    nb::object make_result(PyArray_Descr* descr) {
        int64_t bytes = PyDataType_ELSIZE(descr);
        for (int64_t n : result_shape_) bytes *= n;
        std::vector<npy_intp> shape(result_shape_.begin(), result_shape_.end());
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

    std::shared_ptr<const Plan> plan_for(Dtype dtype, bool accumulate, int64_t threads, PyArrayObject* src, PyArrayObject* dst) {
        const int n = PyArray_NDIM(src);
        int64_t key[2 * MAX_AXES + 4] = {int64_t(dtype), accumulate, threads, int64_t(chosen_isa)};
        std::copy(PyArray_STRIDES(src), PyArray_STRIDES(src) + n, key + 4);
        std::copy(PyArray_STRIDES(dst), PyArray_STRIDES(dst) + n, key + 4 + n);
        std::lock_guard<std::mutex> lock(mutex_);
        for (const Kept& k : kept_)
            if (std::equal(k.key.begin(), k.key.end(), key)) return k.plan;
        if (kept_.size() == KEPT_PLANS) kept_.erase(kept_.begin());
        kept_.push_back({std::vector<int64_t>(key, key + 4 + 2 * n), make_plan(dtype, accumulate, threads, src, dst)});
        return kept_.back().plan;
    }

    std::shared_ptr<const Plan> make_plan(Dtype dtype, bool accumulate, int64_t threads, PyArrayObject* src, PyArrayObject* dst) {
        auto plan = std::make_shared<Plan>();
        plan->dtype = dtype;
        plan->divide_first = divide_first_;
        plan->accumulate = accumulate;
        plan->streaming = PyArray_NBYTES(dst) >= STREAMING_BYTES;
        plan->constant_divisor = divisor_.has_value();
        plan->divisor = divisor_.value_or(1);
        for (size_t k = 0; k < axes_.size(); ++k) {
            const int d = spatial_[k];
            plan->axes.push_back(axes_[k].get());
            plan->steps.push_back({0, PyArray_STRIDE(src, d), PyArray_STRIDE(dst, d)});
        }
        for (int d = 0; d < PyArray_NDIM(src); ++d)
            if (!is_spatial(d)) plan->outer.push_back({PyArray_DIM(src, d), PyArray_STRIDE(src, d), PyArray_STRIDE(dst, d)});
        bool forward = true;
        int64_t bytes = size_of(dtype);
        for (int d = 0; d < PyArray_NDIM(src); ++d) {
            forward = forward && PyArray_STRIDE(src, d) >= 0;
            bytes += (PyArray_DIM(src, d) - 1) * PyArray_STRIDE(src, d);
        }
        plan->source_bytes = forward ? bytes : 0;
        finish_plan(*plan, threads, isas[chosen_isa].vector_bytes);
        return plan;
    }

    bool divide_first_;
    std::optional<int64_t> divisor_;
    std::vector<int> spatial_;
    std::vector<int64_t> source_shape_, result_shape_;
    std::vector<std::unique_ptr<Axis>> axes_;
    std::mutex mutex_;
    std::vector<Kept> kept_;
};

struct Moved { const char* from; int64_t read; char* to; int64_t written; bool streaming; int64_t parts; Move move; };

void move_part(const void* context, int64_t part, char*) {
    const Moved& m = *static_cast<const Moved*>(context);
    const int64_t read = m.read / m.parts / 64 * 64, written = m.written / m.parts / 64 * 64;
    m.move(m.from + part * read, read, m.to + part * written, written, m.streaming);
}

// Reads the bytes of `source` once and writes those of `out` once, in `parts` equal parts, on `threads` threads.
void move_arrays(nb::handle source, nb::handle out, bool streaming, int64_t parts, int64_t threads) {
    if (!PyArray_Check(source.ptr()) || !PyArray_Check(out.ptr())) throw nb::type_error("expected NumPy arrays");
    PyArrayObject *src = reinterpret_cast<PyArrayObject*>(source.ptr()), *dst = reinterpret_cast<PyArrayObject*>(out.ptr());
    if (!PyArray_IS_C_CONTIGUOUS(src) || !PyArray_IS_C_CONTIGUOUS(dst) || !PyArray_ISWRITEABLE(dst))
        throw nb::value_error("arrays must be contiguous and out writeable");
    if (reinterpret_cast<uintptr_t>(PyArray_DATA(dst)) % 64) streaming = false;
    Moved m{PyArray_BYTES(src), PyArray_NBYTES(src), PyArray_BYTES(dst), PyArray_NBYTES(dst), streaming, parts, isas[chosen_isa].move};
    nb::gil_scoped_release release;
    run_tasks(move_part, &m, parts, threads, 64);
}

int import_numpy() {
    import_array1(-1);
    return 0;
}

}  // namespace

NB_MODULE(_native, m) {
    if (import_numpy() < 0) throw nb::python_error();
    nb::set_leak_warnings(false);  // frameworks keep operations alive to the very end
    nb::class_<Operation>(m, "Operation")
        .def(nb::init<nb::list, bool, std::optional<int64_t>, std::vector<int>, std::vector<int64_t>, std::vector<int64_t>>(),
             nb::arg("tables"), nb::arg("divide_first"), nb::arg("divisor").none(), nb::arg("spatial"), nb::arg("source_shape"),
             nb::arg("result_shape"))
        .def("run", &Operation::run, nb::arg("source"), nb::arg("out").none(), nb::arg("accumulate"), nb::arg("threads"))
        .def("plan", &Operation::plan, nb::arg("source"), nb::arg("out"), nb::arg("threads"));
    m.def("set_bfloat16", [](nb::handle dtype) {
        if (!PyArray_DescrCheck(dtype.ptr())) throw nb::type_error("expected a NumPy dtype");
        bfloat16_number = reinterpret_cast<PyArray_Descr*>(dtype.ptr())->type_num;
    });
    m.def("isas", [] { std::vector<std::string> names; for (const Isa& i : isas) names.emplace_back(i.name); return names; });
    m.def("isa", [] { return std::string(isas[chosen_isa].name); });
    m.def("set_isa", [](const std::string& name) {
        for (size_t k = 0; k < isas.size(); ++k)
            if (name == isas[k].name) { chosen_isa = k; return; }
        throw nb::value_error("this machine has no such instruction set");
    });
    m.def("move", &move_arrays, nb::arg("source"), nb::arg("out"), nb::arg("streaming"), nb::arg("parts"), nb::arg("threads"));
    m.def("held_bytes", &held_bytes);
    m.def("release_held", &release_held);
}
