// ONNX's official node tests: `onnx_node_tests FOLDER [--failed] [--case NAME]`, where FOLDER is what
// generate_node_tests.py wrote. Each model is imported, computed by the reference interpreter and held against the
// official outputs. The last line is `N passed, N failed, N not supported`; tests/python/node_test.py holds it against
// the floor.
//
// Shapes are fixed when a model is bound, so that an input which decides a shape (the target of a Reshape) cannot come
// with the data: such a case is tried again with its integer inputs as initialisers, then with all of them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <protozero/pbf_writer.hpp>

#include "core/base/check.h"
#include "core/ir/evaluate.h"
#include "frontends/onnx/model.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct NamedValue {
  std::string name, bytes;
  epl::Tensor value;
};

Result<std::vector<NamedValue>> values(const fs::path& folder, const std::string& kind) {
  std::vector<NamedValue> all;
  for (int n = 0; fs::exists(folder / cat(kind, "_", n, ".pb")); ++n) {
    NamedValue v;
    v.bytes = read(folder / cat(kind, "_", n, ".pb"));
    const auto keep = ModelBytes::copy(std::as_bytes(std::span(v.bytes.data(), v.bytes.size())));
    EPL_ASSIGN(Tensor tensor, read_tensor(keep->bytes()));
    v.name = tensor.name;
    EPL_ASSIGN(v.value, tensor_value(tensor, keep));
    all.push_back(std::move(v));
  }
  return all;
}

// The model with some inputs as initialisers: messages of one file add up, so they are written behind it.
std::string with_initializers(std::string model, const std::vector<NamedValue>& inputs, bool all) {
  std::string graph;
  for (const NamedValue& input : inputs) {
    if (all || !is_float(input.value.dtype()))
      protozero::pbf_writer(graph).add_message(schema::GraphProto::initializer, input.bytes);
  }
  if (!graph.empty()) protozero::pbf_writer(model).add_message(schema::ModelProto::graph, graph);
  return model;
}

Status compare(const std::string& name, const epl::Tensor& got, const epl::Tensor& wanted, double rtol, double atol) {
  auto wrong = [&](auto&&... parts) { return Status(Code::data_loss, cat("wrong result: ", parts...)); };
  if (got.type() != wanted.type()) return wrong(name, " is ", got.type().text(), ", should be ", wanted.type().text());
  for (int64_t i = 0; i < got.elements(); ++i) {
    if (!is_float(got.dtype())) {
      if (got.get_int(i) != wanted.get_int(i))
        return wrong(name, "[", i, "] is ", got.get_int(i), ", should be ", wanted.get_int(i));
      continue;
    }
    const double a = got.get(i), b = wanted.get(i);
    const bool same = a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= atol + rtol * std::fabs(b);
    if (!same) return wrong(name, "[", i, "] is ", a, ", should be ", b);
  }
  return {};
}

Status run_set(const std::string& bytes, const std::vector<NamedValue>& inputs, const std::vector<NamedValue>& outputs,
               double rtol, double atol) {
  EPL_ASSIGN(auto model, OnnxModel::load_bytes(std::as_bytes(std::span(bytes.data(), bytes.size()))));
  Binding binding;
  for (const ModelPort& port : model->inputs()) {
    for (const NamedValue& input : inputs) {
      if (input.name == port.name) binding.input_shapes[port.name] = input.value.shape();
    }
  }
  EPL_ASSIGN(epl::Graph graph, model->bind(binding));
  std::map<Value, epl::Tensor> leaves;
  for (const NamedValue& input : inputs) {
    Value v = graph.find(input.name);
    if (v && graph.value(v).kind == ValueKind::input) leaves[v] = input.value;
  }
  EPL_ASSIGN(auto results, evaluate_graph(graph, leaves, 1));
  for (size_t k = 0; k < graph.outputs.size() && k < outputs.size(); ++k) {
    EPL_TRY(compare(graph.outputs[k].name, results[graph.outputs[k].value.index], outputs[k].value, rtol, atol));
  }
  return graph.outputs.size() <= outputs.size() ? Status() : unsupported("the case has outputs that are not tensors");
}

Status run_case(const fs::path& folder) {
  double rtol = 1e-3, atol = 1e-7;
  std::ifstream(folder / "tolerance.txt") >> rtol >> atol;
  std::string bytes = read(folder / "model.onnx");
  if (!fs::exists(folder / "set_0")) return unsupported("the case has no data");
  for (int k = 0; fs::exists(folder / cat("set_", k)); ++k) {
    EPL_ASSIGN(auto inputs, values(folder / cat("set_", k), "input"));
    EPL_ASSIGN(auto outputs, values(folder / cat("set_", k), "output"));
    Status status = run_set(bytes, inputs, outputs, rtol, atol);
    for (bool all : {false, true}) {
      if (status.ok() || status.message().find("must be known when the model is bound") == std::string::npos) break;
      status = run_set(with_initializers(bytes, inputs, all), inputs, outputs, rtol, atol);
    }
    EPL_TRY(status);
  }
  return {};
}

Status guarded(const fs::path& folder) {
  try {
    return run_case(folder);
  } catch (const InternalError& e) {
    return Status(Code::internal, e.what());
  }
}

int main(int argc, char** argv) {
  fs::path folder;
  std::string only;
  bool list = false;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--failed"))
      list = true;
    else if (!std::strcmp(argv[i], "--case") && i + 1 < argc)
      only = argv[++i];
    else
      folder = argv[i];
  }
  std::vector<fs::path> cases;
  if (fs::is_directory(folder)) {
    for (const auto& entry : fs::directory_iterator(folder)) cases.push_back(entry.path());
  }
  if (cases.empty()) {
    std::fprintf(
        stderr, "usage: onnx_node_tests FOLDER [--failed] [--case NAME]; FOLDER as generate_node_tests.py writes it\n");
    return 2;
  }
  std::sort(cases.begin(), cases.end());
  int passed = 0, failed = 0, missing = 0;
  for (const fs::path& path : cases) {
    const std::string name = path.filename();
    if (!only.empty() && name != only) continue;
    const Status status = guarded(path);
    const bool is_missing = status.code() == Code::unsupported;
    (status.ok() ? passed : is_missing ? missing : failed)++;
    if (!status.ok() && (list || !only.empty()))
      std::printf("%s %s: %s\n", is_missing ? "unsupported" : "FAILED", name.c_str(), status.to_string().c_str());
  }
  std::printf("%d passed, %d failed, %d not supported\n", passed, failed, missing);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace epl::onnx

int main(int argc, char** argv) { return epl::onnx::main(argc, argv); }
