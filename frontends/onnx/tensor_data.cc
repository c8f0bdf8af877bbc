// The elements of an ONNX tensor, in whichever of the wire's five ways they are stored.
#include <cstring>
#include <map>
#include <mutex>
#include <protozero/pbf_reader.hpp>
#include <type_traits>

#include "core/base/shown.h"
#include "frontends/onnx/model_bytes.h"
#include "frontends/onnx/proto.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx {
namespace {

namespace codes = schema::TensorProto;

struct TypeRow {
  int32_t code;
  DType dtype;
};
constexpr TypeRow type_rows[] = {{codes::DataType_FLOAT, DType::f32},   {codes::DataType_DOUBLE, DType::f64},
                                 {codes::DataType_FLOAT16, DType::f16}, {codes::DataType_BFLOAT16, DType::bf16},
                                 {codes::DataType_INT8, DType::i8},     {codes::DataType_INT16, DType::i16},
                                 {codes::DataType_INT32, DType::i32},   {codes::DataType_INT64, DType::i64},
                                 {codes::DataType_UINT8, DType::u8},    {codes::DataType_UINT16, DType::u16},
                                 {codes::DataType_UINT32, DType::u32},  {codes::DataType_UINT64, DType::u64},
                                 {codes::DataType_BOOL, DType::boolean}};

Status bad(const Tensor& tensor, std::string what) {
  return Status(Code::invalid_model, cat("tensor ", shown(tensor.name, 200), ": ", what), cat("byte ", tensor.at));
}

// Half types travel as the bits of an int32.
void store_bits(DType dtype, void* data, int64_t index, int64_t value) {
  if (dtype == DType::f16 || dtype == DType::bf16) {
    static_cast<uint16_t*>(data)[index] = static_cast<uint16_t>(value);
  } else {
    store_int(dtype, data, index, value);
  }
}

// The path of external data is relative and does not leave the model's folder, wherever that is.
Status check_location(const Tensor& tensor) {
  const std::string_view location = tensor.location;
  bool escapes = location.empty() || location[0] == '/' || location.find('\\') != std::string_view::npos ||
                 location.find('\0') != std::string_view::npos;
  for (std::string_view rest = location; !rest.empty();) {
    const size_t slash = rest.find('/');
    escapes = escapes || rest.substr(0, slash) == "..";
    rest = slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
  }
  if (escapes) return bad(tensor, cat("external data at ", shown(location, 200), " would leave the model's folder"));
  return {};
}

Result<epl::Tensor> external_value(const Tensor& tensor, const TensorType& type, const ModelBytes& model) {
  EPL_TRY(check_location(tensor));
  const auto opened = model.beside(std::string(tensor.location));
  if (opened.status().code() == Code::invalid_model) return bad(tensor, opened.status().message());
  EPL_ASSIGN(const std::shared_ptr<const FileReader> file, opened);
  const auto size = static_cast<int64_t>(file->size());
  if (tensor.length >= 0 && tensor.length != type.bytes()) {
    return bad(tensor, cat("external data of ", tensor.length, " bytes for ", type.text()));
  }
  if (tensor.offset > size || type.bytes() > size - tensor.offset) {
    return bad(tensor, cat(shown_path(file->path()), " has ", size, " bytes; offset ", tensor.offset, " and ",
                           type.text(), " need more"));
  }
  return file_tensor(file, type, static_cast<uint64_t>(tensor.offset));
}

// Calls f for every number of the typed fields, in order: a double for those of float_data and double_data, an int64_t
// for the others.
template <class F> void for_each_typed(const Tensor& tensor, F&& f) {
  for (double real : tensor.reals) f(real);
  for (int64_t integer : tensor.integers) f(integer);
  for (std::string_view bytes : tensor.packed) {
    auto fixed = [&]<class T>(T) {
      for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
        T value;
        std::memcpy(&value, bytes.data() + at, sizeof(T));
        f(static_cast<double>(value));
      }
    };
    if (tensor.packed_field == codes::float_data) {
      fixed(float{});
    } else if (tensor.packed_field == codes::double_data) {
      fixed(double{});
    } else {
      const char* at = bytes.data();
      const char* end = at + bytes.size();
      while (at != end) {
        f(static_cast<int64_t>(protozero::decode_varint(&at, end)));
      }
    }
  }
}

Result<epl::Tensor> typed_value(const Tensor& tensor, const TensorType& type) {
  int64_t count = 0, wanted = type.elements(),
          most = static_cast<int64_t>(tensor.reals.size() + tensor.integers.size());
  for (std::string_view bytes : tensor.packed)
    most += static_cast<int64_t>(bytes.size());  // a number takes a byte at least
  if (wanted > most) return bad(tensor, cat("holds fewer numbers than its type ", type.text(), " has"));
  const bool real = tensor.packed_field == codes::float_data || tensor.packed_field == codes::double_data;
  if (tensor.packed_field != 0 && real != (type.dtype == DType::f32 || type.dtype == DType::f64)) {
    return bad(tensor, cat("holds ", real ? "real numbers" : "integers", " (field ", tensor.packed_field, ") for ",
                           type.text()));
  }
  epl::Tensor out(type);
  try {
    for_each_typed(tensor, [&]<class T>(T value) {
      if (count < wanted) {
        if constexpr (std::is_same_v<T, double>) {
          out.set(count, value);
        } else {
          store_bits(type.dtype, out.data(), count, value);
        }
      }
      ++count;
    });
  } catch (const protozero::exception&) {
    return bad(tensor, "damaged packed numbers");
  }
  if (count != wanted) return bad(tensor, cat("holds ", count, " numbers, its type ", type.text(), " has ", wanted));
  return out;
}

}  // namespace

Result<DType> dtype_of(int32_t data_type) {
  for (const TypeRow& row : type_rows) {
    if (row.code == data_type) return row.dtype;
  }
  return unsupported("element type ", data_type_name(data_type),
                     " is not supported; convert it to a float, an integer of 8 to 64 bits, or bool");
}

int32_t data_type_of(DType dtype) {
  for (const TypeRow& row : type_rows) {
    if (row.dtype == dtype) return row.code;
  }
  return 0;
}

std::string data_type_name(int32_t data_type) {
  for (const TypeRow& row : type_rows) {
    if (row.code == data_type) return std::string(dtype_name(row.dtype));
  }
  if (data_type == codes::DataType_STRING) return "string";
  return cat("number ", data_type, " of the ONNX schema");
}

Result<TensorType> tensor_type(const Tensor& tensor) {
  auto dtype = dtype_of(tensor.data_type);
  if (!dtype.ok())
    return unsupported("tensor ", shown(tensor.name, 200), ": ", dtype.status().message()).at(cat("byte ", tensor.at));
  TensorType type{*dtype, {}};
  int64_t elements = static_cast<int64_t>(dtype_bytes(*dtype));
  for (int64_t dim : tensor.dims) {
    if (dim < 0 || (dim > 0 && __builtin_mul_overflow(elements, dim, &elements))) {
      return bad(tensor, cat("impossible dimensions ", tensor.dims));
    }
    type.shape.push_back(dim);
  }
  return type;
}

Result<epl::Tensor> stored_tensor(const Tensor& tensor, const std::shared_ptr<const ModelBytes>& model) {
  EPL_ASSIGN(TensorType type, tensor_type(tensor));
  if (tensor.dense) return *tensor.dense;
  if (tensor.external) return external_value(tensor, type, *model);
  if (!tensor.has_raw) return typed_value(tensor, type);
  if (static_cast<int64_t>(tensor.raw.size()) != type.bytes()) {
    return bad(tensor, cat("holds ", tensor.raw.size(), " bytes, its type ", type.text(), " has ", type.bytes()));
  }
  return ModelBytes::tensor(model, std::move(type), tensor.raw);
}

Result<epl::Tensor> tensor_value(const Tensor& tensor, const std::shared_ptr<const ModelBytes>& model) {
  EPL_ASSIGN(epl::Tensor stored, stored_tensor(tensor, model));
  return stored.load();
}

Result<Tensor> dense_tensor(const SparseTensor& sparse, const std::shared_ptr<const ModelBytes>& model) {
  constexpr int64_t max_elements = int64_t{1} << 28;  // a few bytes may ask for any size
  EPL_ASSIGN(const epl::Tensor values, tensor_value(sparse.values, model));
  EPL_ASSIGN(const epl::Tensor indices, tensor_value(sparse.indices, model));
  Tensor out = sparse.values;
  out.dims = sparse.dims;
  out.external = false;
  EPL_ASSIGN(const TensorType type, tensor_type(out));
  if (type.elements() > max_elements)
    return bad(out, cat("is stored sparse and has ", type.elements(), " numbers; up to ", max_elements, " are read"));
  const int64_t count = values.elements(), each = indices.type().ndim() == 2 ? indices.shape()[1] : 1;
  if (values.type().ndim() != 1 || indices.dtype() != DType::i64 || indices.elements() != count * each ||
      (indices.type().ndim() == 2 ? each != type.ndim() : indices.type().ndim() != 1)) {
    return bad(out, cat("is stored sparse: its values ", values.type().text(), " and indices ", indices.type().text(),
                        " do not fit ", type.text()));
  }
  epl::Tensor dense(type);
  for (int64_t i = 0; i < dense.elements(); ++i) dense.set(i, 0);
  for (int64_t k = 0; k < count; ++k) {
    int64_t at = 0;
    bool inside = true;
    for (int64_t d = 0; d < each; ++d) {
      const int64_t size = indices.type().ndim() == 2 ? type.shape[static_cast<size_t>(d)] : type.elements(),
                    index = indices.get_int(k * each + d);
      inside = inside && index >= 0 && index < size;
      at = inside ? at * size + index : 0;
    }
    if (!inside) return bad(out, cat("is stored sparse: index ", k, " lies outside of ", type.text()));
    if (is_float(type.dtype)) {
      dense.set(at, values.get(k));
    } else {
      dense.set_int(at, values.get_int(k));
    }
  }
  out.dense = std::make_shared<const epl::Tensor>(std::move(dense));
  return out;
}

}  // namespace epl::onnx
