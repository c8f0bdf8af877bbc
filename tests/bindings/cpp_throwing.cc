// epl.hpp with exceptions; cpp_returning.cc is the same program's other half, without.
//
//   bindings_cpp FOLDER
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <epl.hpp>

void test_results(const std::string& folder);

namespace {

void expect(bool holds, const char* what, int line) {
  if (holds) return;
  std::fprintf(stderr, "line %d: %s\n", line, what);
  std::exit(1);
}
#define EXPECT(condition) expect(condition, #condition, __LINE__)

void test_training(const std::string& folder) {
  epl::engine_options options;
  options.threads = 1;
  auto engine = epl::engine::create(options);
  const std::string path = folder + "/cpp.onnx";
  epl::x_template_write(engine, "mlp", R"({"sizes":[4,8,2],"seed":1})", path);
  auto model = epl::model::load(engine, path);
  auto trainer = epl::trainer::create(engine);
  trainer.set("optimizer", "adam");
  trainer.set_number("optimizer.lr", 0.05);
  trainer.bind_symbol("batch", 2);
  EXPECT(trainer.describe().find("adam") != std::string::npos);
  auto plan = epl::plan::create(model, trainer);
  const epl::tensor_info info = plan.port(EPL_ENTRY_TRAIN, EPL_PORT_INPUT, 0);
  EXPECT(info.ndim == 2 && info.dims[0] == 2 && info.dims[1] == 4);
  EXPECT(plan.find_port(EPL_ENTRY_TRAIN, EPL_PORT_INPUT, info.name_text()) == 0);
  const auto [first, samples] = plan.slice(EPL_ENTRY_TRAIN, 0, 0, 1);
  EXPECT(first == 0 && samples == 2);
  auto session = epl::session::create(plan);

  const std::vector<float> numbers{1, 2, 3, 4, 4, 3, 2, 1};
  const std::int64_t classes[] = {0, 1}, dims[] = {2, 4};
  auto x = epl::tensor::create_copy(engine, EPL_DTYPE_F32, dims, epl::bytes_of(numbers));
  auto target = epl::tensor::create_copy(engine, EPL_DTYPE_I64, std::span(dims, 1), epl::bytes_of(classes));
  const double before = session.evaluate({x, target}).loss;
  epl::call_options call;
  call.timeout_nanoseconds = 60'000'000'000;
  for (int step = 1; step <= 20; ++step) EXPECT(session.step({x, target}, call).step == step);
  std::vector<epl::tensor> inputs;  // any range of tensors
  inputs.push_back(std::move(x));
  EXPECT(x == nullptr && inputs[0].ndim() == 2);
  inputs.push_back(std::move(target));
  EXPECT(session.evaluate(inputs).loss < before);
  inputs.pop_back();
  std::vector<epl::tensor> outputs = session.predict(inputs, {}, 1);
  EXPECT(outputs.size() == 1 && outputs[0].bytes() == 16);
  const auto* scores = static_cast<const float*>(outputs[0].data());
  EXPECT(std::isfinite(scores[0] + scores[3]));
  EXPECT(session.hash() != 0 && epl::dtype_name(EPL_DTYPE_BF16) == "bf16" && epl::dtype_name(-1).empty());
  engine = epl::engine();  // children keep it
  session.export_onnx(folder + "/cpp_trained.onnx");
}

void test_errors() {
  auto engine = epl::engine::create();
  try {
    epl::model::load(engine, "/no/such/model.onnx");
    EXPECT(false);
  } catch (const epl::error& error) {
    EXPECT(error.code() == EPL_ERROR_NOT_FOUND && error.rank() == -1 && !error.retryable());
    EXPECT(error.message().find("/no/such/model.onnx") != std::string::npos && error.message() == error.what());
  }
  epl::engine other = std::move(engine);
  EXPECT(engine == nullptr && other != nullptr);
  other = epl::engine(other.release());  // what it had is given up, and nothing is destroyed
  epl_engine* owned = other.release();
  EXPECT(other == nullptr);
  epl::engine again(owned);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : ".";
  test_training(folder);
  test_errors();
  test_results(folder);
  EXPECT(epl::live_handles() == 0);
  std::puts("trained");
}
