// The messages of tensors and of values in an ONNX file.
#pragma once

#include "frontends/onnx/wire.h"

namespace epl::onnx {

class TensorReading : protected Wire {
 public:
  explicit TensorReading(std::span<const std::byte> bytes) : Wire(bytes) {}

  Result<Tensor> one_tensor() {
    Tensor tensor;
    Status status = guard([&] { read(all(), tensor); });
    if (!status.ok()) return status;
    return tensor;
  }

 protected:
  void read(protozero::data_view data, Tensor& tensor);
  void read(protozero::data_view data, ValueInfo& info);
  void read(protozero::data_view data, SparseTensor& sparse);

 private:
  // A number of a typed field that is not packed.
  static void single(pbf_reader& m, Tensor& tensor);
  void external(protozero::data_view data, Tensor& tensor);
  void tensor_type(protozero::data_view data, ValueInfo& info);
  static Dim dim(protozero::data_view data);
};

}  // namespace epl::onnx
