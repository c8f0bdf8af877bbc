#include "frontends/onnx/proto_tensor.h"

#include <charconv>

#include "core/base/shown.h"

namespace epl::onnx {

void TensorReading::read(protozero::data_view data, Tensor& tensor) {
  namespace f = schema::TensorProto;
  tensor.at = begin(data);
  for (pbf_reader m(data); m.next();) {
    switch (m.tag()) {
      case f::dims:
        numbers(m, tensor.dims);
        break;
      case f::data_type:
        tensor.data_type = static_cast<int32_t>(number(m));
        break;
      case f::name:
        tensor.name = text(m);
        break;
      case f::raw_data:
        tensor.raw = text(m);
        tensor.has_raw = true;
        break;
      case f::data_location:
        tensor.external = number(m) == 1;
        break;
      case f::external_data:
        external(message(m), tensor);
        break;
      case f::float_data:
      case f::int32_data:
      case f::int64_data:
      case f::double_data:
      case f::uint64_data:
        if (tensor.packed_field != 0 && tensor.packed_field != m.tag())
          throw Refused{"a tensor has data in two fields"};
        tensor.packed_field = m.tag();
        if (m.wire_type() == pbf_wire_type::length_delimited) {
          tensor.packed.push_back(view(m.get_view()));
        } else {
          single(m, tensor);
        }
        // Kept apart, their order would be lost; no writer mixes them.
        if (!tensor.packed.empty() && !(tensor.reals.empty() && tensor.integers.empty())) {
          throw Refused{"a tensor has numbers both packed and not"};
        }
        break;
      default:
        m.skip();
    }
  }
}

void TensorReading::single(pbf_reader& m, Tensor& tensor) {
  namespace f = schema::TensorProto;
  if (m.tag() == f::float_data) {
    want(m, pbf_wire_type::fixed32);
    tensor.reals.push_back(m.get_float());
  } else if (m.tag() == f::double_data) {
    want(m, pbf_wire_type::fixed64);
    tensor.reals.push_back(m.get_double());
  } else {
    tensor.integers.push_back(number(m));
  }
}

void TensorReading::external(protozero::data_view data, Tensor& tensor) {
  const auto [key, read] = entry(data);
  const std::string_view value = read;
  auto read_size = [&](int64_t& out) {
    auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), out);
    if (failure != std::errc{} || end != value.data() + value.size() || out < 0) {
      throw Refused{cat("external ", key, " ", shown(value, 200), " is not a size")};
    }
  };
  if (key == "location") tensor.location = value;
  if (key == "offset") read_size(tensor.offset);
  if (key == "length") read_size(tensor.length);
}

void TensorReading::read(protozero::data_view data, ValueInfo& info) {
  begin(data);
  for (pbf_reader m(data); m.next();) {
    switch (m.tag()) {
      case schema::ValueInfoProto::name:
        info.name = text(m);
        break;
      case schema::ValueInfoProto::type:
        for (pbf_reader type(message(m)); type.next();) {
          if (type.tag() == schema::TypeProto::tensor_type) {
            tensor_type(message(type), info);
          } else {
            type.skip();
          }
        }
        break;
      default:
        m.skip();
    }
  }
}

void TensorReading::tensor_type(protozero::data_view data, ValueInfo& info) {
  for (pbf_reader m(data); m.next();) {
    switch (m.tag()) {
      case schema::TypeProto_Tensor::elem_type:
        info.elem_type = static_cast<int32_t>(number(m));
        break;
      case schema::TypeProto_Tensor::shape:
        info.has_shape = true;
        for (pbf_reader shape(message(m)); shape.next();) {
          if (shape.tag() == schema::TensorShapeProto::dim) {
            info.dims.push_back(dim(message(shape)));
          } else {
            shape.skip();
          }
        }
        break;
      default:
        m.skip();
    }
  }
}

Dim TensorReading::dim(protozero::data_view data) {
  Dim dim;
  for (pbf_reader m(data); m.next();) {
    switch (m.tag()) {
      case schema::TensorShapeProto_Dimension::dim_value:
        dim.value = number(m);
        break;
      case schema::TensorShapeProto_Dimension::dim_param:
        dim.symbol = text(m);
        break;
      default:
        m.skip();
    }
  }
  return dim;
}

void TensorReading::read(protozero::data_view data, SparseTensor& sparse) {
  namespace f = schema::SparseTensorProto;
  begin(data);
  for (pbf_reader m(data); m.next();) {
    if (m.tag() == f::values || m.tag() == f::indices) {
      Tensor& part = m.tag() == f::values ? sparse.values : sparse.indices;
      read(message(m), part);
    } else if (m.tag() == f::dims) {
      numbers(m, sparse.dims);
    } else {
      m.skip();
    }
  }
}

Result<Tensor> read_tensor(std::span<const std::byte> bytes) { return TensorReading(bytes).one_tensor(); }

}  // namespace epl::onnx
