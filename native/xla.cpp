// The custom call `poolgrad_avg_pool`: operands are the source and, per spatial axis, which part of a cut axis is meant; the
// attribute `tables` is everything else. It is plain numbers, so a program that was saved runs in another process.
//
//   tables: version, divide first, has a divisor, divisor, axes, then per axis
//           position in the array, parts, then per part
//           residue classes, then per class
//           take first, take step, rows, put first, put step, positions, base, levels, reach per level, lo, hi, counts
//   a column (lo, hi, counts): runs, then per run its first number, the step from one to the next, how many, each how often
//
// The numbers may come from anywhere: nothing is believed before it is checked against the buffers. What they mean for
// buffers of one shape is worked out once and kept.
//
// The interface is spoken in its plain C form, of which only what every version 0.x has is used: one binary serves older
// and newer jaxlibs alike, whichever one's headers it was built with.
#include "xla.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "memory.h"
#include "operation.h"
#include "xla/ffi/api/c_api.h"

namespace poolgrad {

namespace {

constexpr int64_t VERSION = 1, MOST = int64_t(1) << 40;
constexpr int64_t FAR = 1 << 14;  // rows of the longest interval that is sent here: scratch grows with it
constexpr size_t KEPT_CALLS = 256, KEPT_NUMBERS = 1 << 22;

std::atomic<int64_t> threads_allowed{1};

using Shape = std::vector<int64_t>;

template <class T> struct Numbers {
    const T* data;
    size_t size;
};

// Reads the attribute from front to back.
class Reader {
public:
    explicit Reader(Numbers<int64_t> numbers) : next_(numbers.data), left_(numbers.size) {}

    int64_t number(int64_t least, int64_t most) {
        if (left_ == 0) throw std::invalid_argument("the tables end too soon");
        --left_;
        const int64_t n = *next_++;
        if (n < least || n > most) throw std::invalid_argument("a number of the tables is out of range");
        return n;
    }

    std::vector<int64_t> column(int64_t length) {
        std::vector<int64_t> made;
        made.reserve(size_t(length));
        for (int64_t runs = number(0, length); runs > 0; --runs) {
            const int64_t first = number(0, INT64_MAX), step = number(INT64_MIN, INT64_MAX), count = number(1, length - int64_t(made.size()));
            const int64_t repeat = number(1, (length - int64_t(made.size())) / count);
            for (int64_t k = 0; k < count; ++k) made.insert(made.end(), size_t(repeat), int64_t(uint64_t(first) + uint64_t(k) * uint64_t(step)));
        }
        if (int64_t(made.size()) != length) throw std::invalid_argument("a column of the tables has another length");
        return made;
    }

    bool at_end() const { return left_ == 0; }

private:
    const int64_t* next_;
    size_t left_;
};

// Every so many positions of an axis.
struct Every { int64_t first, step, count; };

// Positions that no class has named yet: those of one part of an axis, of which a class may take or make each but once. That
// bounds how many classes there are, and so the pieces, by the buffers.
class Unnamed {
public:
    explicit Unnamed(int64_t extent) : named_(size_t(extent), false), left_(extent) {}

    void name(const Every& every) {
        for (int64_t k = 0; k < every.count; ++k, --left_) {
            const size_t at = size_t(every.first + k * every.step);
            if (named_[at]) throw std::invalid_argument("two classes of the tables share a position");
            named_[at] = true;
        }
    }

    int64_t left() const { return left_; }

private:
    std::vector<bool> named_;
    int64_t left_;
};

// One residue class of a part of an axis.
struct Class { Every take, put; Axis table; };

Every read_every(Reader& in, int64_t extent) {
    const int64_t first = in.number(0, extent), step = in.number(1, MOST);
    const int64_t count = in.number(0, first < extent ? (extent - first - 1) / step + 1 : 0);
    return {first, step, count};
}

Class read_class(Reader& in, int64_t source, int64_t result, bool divide_first) {
    Class c;
    c.take = read_every(in, source);
    c.put = read_every(in, result);
    c.table.rows = c.take.count;
    c.table.positions = c.put.count;
    c.table.base = in.number(0, MOST);
    c.table.reach.resize(size_t(in.number(1, 64)));
    for (int64_t& r : c.table.reach) r = in.number(0, FAR);
    c.table.lo = in.column(c.put.count);
    c.table.hi = in.column(c.put.count);
    c.table.count = in.column(divide_first ? c.take.count : c.put.count);
    return c;
}

// An operation on parts of the buffers.
struct Piece {
    std::unique_ptr<Operation> operation;
    int64_t source_first = 0, result_first = 0;  // elements
    Shape source_strides, result_strides;        // elements
};

Shape packed_strides(const Shape& shape) {
    Shape strides(shape.size(), 1);
    for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
    return strides;
}

// What the tables mean for buffers of these shapes: one piece for each choice of a class on every axis.
class Work {
public:
    Work(Numbers<int64_t> tables, Numbers<int32_t> places, const Shape& source, const Shape& result)
        : source_(source), result_(result), spatial_() {
        if (source.size() != result.size()) throw std::invalid_argument("ranks do not agree");
        Reader in(tables);
        in.number(VERSION, VERSION);
        divide_first_ = in.number(0, 1) == 1;
        const bool constant = in.number(0, 1) == 1;
        const int64_t divisor = in.number(INT64_MIN + 1, INT64_MAX);
        if (constant) divisor_ = divisor;
        const int64_t axes = in.number(1, MAX_AXES);
        if (places.size != size_t(axes)) throw std::invalid_argument("places and axes do not agree");
        for (int64_t k = 0; k < axes; ++k) read_axis(in, places.data[k]);
        if (!in.at_end()) throw std::invalid_argument("the tables do not end where they should");
        std::vector<size_t> choice(classes_.size(), 0);
        add_pieces(choice, 0);
    }

    void run(Dtype dtype, const char* source, char* result, int64_t threads) const {
        const int64_t item = size_of(dtype);
        int64_t from[MAX_AXES], to[MAX_AXES];
        for (const Piece& piece : pieces_) {
            if (piece.operation->is_empty()) continue;
            for (size_t d = 0; d < source_.size(); ++d) {
                from[d] = piece.source_strides[d] * item;
                to[d] = piece.result_strides[d] * item;
            }
            const int64_t useful = piece.operation->useful_threads(threads);
            auto plan = piece.operation->plan_for(dtype, false, useful, from, to);
            piece.operation->run(*plan, source + piece.source_first * item, result + piece.result_first * item, useful);
        }
    }

private:
    void read_axis(Reader& in, int64_t place) {
        const int64_t position = in.number(0, int64_t(source_.size()) - 1), parts = in.number(1, MOST);
        if (place < 0 || place >= parts) throw std::invalid_argument("an axis has no such part");
        spatial_.push_back(int(position));
        classes_.emplace_back();
        const int64_t rows = source_[size_t(position)], positions = result_[size_t(position)];
        Unnamed to_take(rows), to_make(positions);
        for (int64_t part = 0; part < parts; ++part)
            for (int64_t classes = in.number(0, MOST); classes > 0; --classes) {
                Class c = read_class(in, rows, positions, divide_first_);
                if (part != place) continue;
                to_take.name(c.take);
                to_make.name(c.put);
                if (c.put.count > 0) classes_.back().push_back(std::move(c));
            }
        if (to_make.left() > 0) throw std::invalid_argument("the tables leave a position out");
    }

    void add_pieces(std::vector<size_t>& choice, size_t k) {
        if (k < classes_.size()) {
            for (choice[k] = 0; choice[k] < classes_[k].size(); ++choice[k]) add_pieces(choice, k + 1);
            return;
        }
        Piece piece;
        piece.source_strides = packed_strides(source_);
        piece.result_strides = packed_strides(result_);
        Shape source = source_, result = result_;
        std::vector<std::unique_ptr<Axis>> axes;
        for (size_t a = 0; a < classes_.size(); ++a) {
            const Class& c = classes_[a][choice[a]];
            const size_t d = size_t(spatial_[a]);
            source[d] = c.take.count;
            result[d] = c.put.count;
            piece.source_first += c.take.first * piece.source_strides[d];
            piece.result_first += c.put.first * piece.result_strides[d];
            axes.push_back(std::make_unique<Axis>(c.table));
        }
        for (size_t a = 0; a < classes_.size(); ++a) {
            const Class& c = classes_[a][choice[a]];
            piece.source_strides[size_t(spatial_[a])] *= c.take.count > 1 ? c.take.step : 1;
            piece.result_strides[size_t(spatial_[a])] *= c.put.count > 1 ? c.put.step : 1;
        }
        piece.operation = std::make_unique<Operation>(std::move(axes), divide_first_, divisor_, spatial_, source, result);
        pieces_.push_back(std::move(piece));
    }

    Shape source_, result_;
    std::vector<int> spatial_;
    bool divide_first_ = false;
    std::optional<int64_t> divisor_;
    std::vector<std::vector<Class>> classes_;
    std::vector<Piece> pieces_;
};

// Work by everything it was made of.
class Kept {
public:
    std::shared_ptr<const Work> find(Numbers<int64_t> tables, Numbers<int32_t> places, const Shape& source,
                                     const Shape& result) {
        std::string key(reinterpret_cast<const char*>(tables.data), tables.size * sizeof(int64_t));
        key.append(reinterpret_cast<const char*>(places.data), places.size * sizeof(int32_t));
        key.append(reinterpret_cast<const char*>(source.data()), source.size() * sizeof(int64_t));
        key.append(reinterpret_cast<const char*>(result.data()), result.size() * sizeof(int64_t));
        {
            std::lock_guard<std::mutex> lock(mutex_);
            const auto found = works_.find(key);
            if (found != works_.end()) return found->second;
        }
        auto made = std::make_shared<const Work>(tables, places, source, result);
        size_t numbers = key.size() / sizeof(int64_t);
        for (int64_t n : source) numbers += size_t(n);
        std::lock_guard<std::mutex> lock(mutex_);
        if (works_.size() >= KEPT_CALLS || numbers_ + numbers > KEPT_NUMBERS) {
            works_.clear();
            numbers_ = 0;
        }
        numbers_ += numbers;
        works_[std::move(key)] = made;
        return made;
    }

private:
    std::mutex mutex_;
    std::unordered_map<std::string, std::shared_ptr<const Work>> works_;
    size_t numbers_ = 0;
};

Kept& kept() {
    static Kept* const works = new Kept;  // XLA's threads may outlive static objects
    return *works;
}

Dtype dtype_of(XLA_FFI_DataType type) {
    switch (type) {
        case XLA_FFI_DataType_F16: return Dtype::float16;
        case XLA_FFI_DataType_BF16: return Dtype::bfloat16;
        case XLA_FFI_DataType_F32: return Dtype::float32;
        case XLA_FFI_DataType_F64: return Dtype::float64;
        default: throw std::invalid_argument("the dtype must be float16, bfloat16, float32 or float64");
    }
}

Shape shape_of(const XLA_FFI_Buffer& buffer) { return Shape(buffer.dims, buffer.dims + buffer.rank); }

int64_t elements(const XLA_FFI_Buffer& buffer) {
    int64_t product = 1;
    for (int64_t d = 0; d < buffer.rank; ++d) product *= buffer.dims[d];
    return product;
}

Numbers<int64_t> tables_of(const XLA_FFI_Attrs& attrs) {
    for (int64_t k = 0; k < attrs.size; ++k) {
        if (std::string(attrs.names[k]->ptr, attrs.names[k]->len) != "tables" || attrs.types[k] != XLA_FFI_AttrType_ARRAY) continue;
        const auto& array = *static_cast<const XLA_FFI_Array*>(attrs.attrs[k]);
        if (array.dtype == XLA_FFI_DataType_S64) return {static_cast<const int64_t*>(array.data), array.size};
    }
    throw std::invalid_argument("there are no tables");
}

void run(const XLA_FFI_CallFrame& call) {
    if (call.args.size != 2 || call.rets.size != 1) throw std::invalid_argument("two operands and one result are expected");
    const auto& source = *static_cast<const XLA_FFI_Buffer*>(call.args.args[0]);
    const auto& places = *static_cast<const XLA_FFI_Buffer*>(call.args.args[1]);
    const auto& result = *static_cast<const XLA_FFI_Buffer*>(call.rets.rets[0]);
    const Dtype dtype = dtype_of(source.dtype);
    if (result.dtype != source.dtype) throw std::invalid_argument("the result has another dtype");
    if (places.dtype != XLA_FFI_DataType_S32) throw std::invalid_argument("the places must be int32");
    if (elements(result) == 0) return;
    const size_t bytes = size_t(elements(result) * size_of(dtype));
    ask_for_huge_pages(result.data, bytes);
    if (elements(source) == 0) {  // sums of nothing; such a shape bounds no table
        std::memset(result.data, 0, bytes);
        return;
    }
    const Numbers<int32_t> parts{static_cast<const int32_t*>(places.data), size_t(elements(places))};
    const auto work = kept().find(tables_of(call.attrs), parts, shape_of(source), shape_of(result));
    work->run(dtype, static_cast<const char*>(source.data), static_cast<char*>(result.data), threads_allowed);
}

XLA_FFI_Error* refuse(const XLA_FFI_Api& api, XLA_FFI_Error_Code code, const char* words) {
    const std::string message = std::string("poolgrad: ") + words;
    XLA_FFI_Error_Create_Args args{};
    args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
    args.message = message.c_str();
    args.errc = code;
    return api.XLA_FFI_Error_Create(&args);
}

// Which version this handler speaks: that of an older XLA, or else that of the headers it was built with. The oldest do not say
// which one they are.
void describe(const XLA_FFI_Api* api, XLA_FFI_Metadata& metadata) {
    metadata.api_version.major_version = XLA_FFI_API_MAJOR;
    metadata.api_version.minor_version = std::min(XLA_FFI_API_MINOR, api ? api->api_version.minor_version : 1);
    metadata.traits = 0;
}

XLA_FFI_Error* handle(XLA_FFI_CallFrame* call) {
    for (XLA_FFI_Extension_Base* more = call->extension_start; more; more = more->next)
        if (more->type == XLA_FFI_Extension_Metadata) {
            describe(call->api, *reinterpret_cast<XLA_FFI_Metadata_Extension*>(more)->metadata);
            return nullptr;
        }
    if (call->stage != XLA_FFI_ExecutionStage_EXECUTE) return nullptr;
    try {
        run(*call);
        return nullptr;
    } catch (const std::bad_alloc&) {
        return refuse(*call->api, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "there is no memory for this pooling");
    } catch (const std::exception& refusal) {
        return refuse(*call->api, XLA_FFI_Error_Code_INVALID_ARGUMENT, refusal.what());
    }
}

}  // namespace

void* xla_handler() { return reinterpret_cast<void*>(&handle); }
void set_xla_threads(int64_t threads) { threads_allowed = threads; }

}  // namespace poolgrad
