// ONNX files: whatever the bytes, reading, describing, binding and writing again end in a result or an error.
#include <cstdlib>

#include "core/ir/graph.h"
#include "frontends/onnx/model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace epl;
  auto model = onnx::OnnxModel::load_bytes({reinterpret_cast<const std::byte*>(data), size});
  if (!model.ok()) return 0;
  (void)(*model)->description();
  (void)(*model)->op_counts();
  (void)(*model)->findings();
  Binding binding;
  for (const ModelPort& port : (*model)->inputs()) {
    for (const ModelDim& dim : port.dims) binding.symbols[dim.symbol] = 2;
  }
  for (Binding::Mode mode : {Binding::Mode::train, Binding::Mode::evaluate}) {
    binding.mode = mode;
    auto graph = (*model)->bind(binding);
    if (graph.ok() && !verify(*graph).ok()) std::abort();
  }
  return 0;
}
