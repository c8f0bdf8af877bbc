// epl.hpp with exceptions; cpp_returning.cc is the same program's other half, without.
//
//   bindings_cpp FOLDER
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <epl.hpp>
#include <stdexcept>
#include <thread>

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
  std::vector<epl::tensor> outputs = session.predict(inputs, call);
  EXPECT(outputs.size() == 1 && outputs[0].shape() == (std::vector<std::int64_t>{2, 2}));
  const std::span<float> scores = outputs[0].as<float>();
  EXPECT(scores.size() == 4 && std::isfinite(scores[0] + scores[3]));
  try {
    outputs[0].as<double>();
    EXPECT(false);
  } catch (const epl::error& error) {
    EXPECT(error.code() == epl::code::invalid_argument && error.message().find("f32") != std::string::npos);
  }
  auto predictor = epl::predictor::of(session);
  EXPECT(predictor.predict(inputs)[0].as<float>()[3] == scores[3]);
  EXPECT(outputs[0].dtype() == epl::dtype::f32 && outputs[0].dtype() == EPL_DTYPE_F32 && !outputs[0].is_read_only());
  EXPECT(session.state_count(epl::state::parameter) == session.state_count(EPL_STATE_PARAMETER));
  EXPECT(session.hash() != 0 && epl::dtype_name(epl::dtype::bf16) == "bf16" && epl::dtype_name(-1).empty());
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

// Whether the library has done with a function of the program: it is copied and moved, and the last one says so.
struct Witness {
  explicit Witness(int* alive) : alive(alive) { ++*alive; }
  Witness(const Witness& other) : alive(other.alive) { ++*alive; }
  ~Witness() { --*alive; }
  int* alive;
};

void test_functions(const std::string& folder) {
  int alive = 0;
  std::vector<std::string> lines;
  {
    epl::engine_options options;
    options.threads = 1;
    options.log_level = EPL_LOG_DEBUG;
    options.set_log([&lines, witness = Witness(&alive)](epl::log_level level, std::string_view text) {
      lines.push_back((level == epl::log_level::warning ? "warning " : "") + std::string(text));
    });
    auto engine = epl::engine::create(options);
    EXPECT(alive == 1);
    const std::string path = folder + "/cpp_functions.onnx";
    epl::x_template_write(engine, "mlp", R"({"sizes":[4,8,2],"seed":1})", path);
    auto model = epl::model::load(engine, path);
    auto trainer = epl::trainer::create(engine);
    trainer.bind_symbol("batch", 2);
    auto plan = epl::plan::create(model, trainer);
    auto session = epl::session::create(plan);

    // Samples of the program's.
    epl::tensor_info fields[2];
    fields[0].set("x", epl::dtype::f32, {4});
    fields[1].set("target", EPL_DTYPE_I64, {});
    const auto read = [witness = Witness(&alive)](std::int32_t field, std::span<const std::int64_t> samples,
                                                  std::span<std::byte> target) {
      if (samples[0] == 8) throw std::runtime_error("sample 8 is broken");
      if (samples[0] == 10) throw epl::error(epl::code::data_loss, "sample 10 is lost");
      for (std::size_t i = 0; i < samples.size(); ++i) {
        if (field == 0) {
          for (int j = 0; j < 4; ++j) reinterpret_cast<float*>(target.data())[i * 4 + j] = float(samples[i] + j);
        } else {
          reinterpret_cast<std::int64_t*>(target.data())[i] = samples[i] % 2;
        }
      }
    };
    const int before = alive;
    auto dataset = epl::dataset::create(engine, fields, 12, read, R"({"batch":2})");
    EXPECT(alive == before + 1);
    EXPECT(dataset.next().size() == 2);
    dataset.bind(plan, epl::entry::train);
    for (int i = 0; i < 3; ++i) EXPECT(session.step(dataset.next()).step == i + 1);
    for (const auto& [code, said] :
         {std::pair(epl::code::internal, "sample 8 is broken"), std::pair(epl::code::data_loss, "sample 10 is lost")}) {
      try {
        if (code == epl::code::data_loss) dataset.seek(5);
        dataset.next();
        EXPECT(false);
      } catch (const epl::error& error) {
        EXPECT(error.code() == code && error.message().find(said) != std::string::npos);
      }
    }
    try {  // a call that fails keeps nothing
      epl::dataset::create(engine, fields, 12, read, R"({"bach":2})");
      EXPECT(false);
    } catch (const epl::error&) {
      EXPECT(alive == before + 1);
    }

    // Streams and sources.
    std::string checkpoint;
    session.save_to([&](std::span<const std::byte> data) {
      checkpoint.append(reinterpret_cast<const char*>(data.data()), data.size());
    });
    epl::source source;
    source.bytes = checkpoint.size();
    source.set_functions([&checkpoint, witness = Witness(&alive)](std::uint64_t offset, std::span<std::byte> target) {
      std::memcpy(target.data(), checkpoint.data() + offset, target.size());
    });
    auto other = epl::session::create(plan);
    other.load_from(source);
    EXPECT(other.hash() == session.hash());
    source = epl::source();
    EXPECT(alive == before + 1);  // neither the options nor the library has it any more
    try {
      session.save_to([](std::span<const std::byte>) { throw epl::error(epl::code::exhausted, "the disk is full"); });
      EXPECT(false);
    } catch (const epl::error& error) {
      EXPECT(error.code() == epl::code::exhausted && error.message().find("the disk is full") != std::string::npos);
    }

    // Events.
    std::atomic<int> ready = 0;
    auto x = epl::tensor::of(engine, {2, 4}, std::vector<float>(8, 1.0f));
    auto target = epl::tensor::of(engine, {2}, std::vector<std::int64_t>{0, 1});
    auto event = session.step_async({x, target});
    event.on_ready([&ready, witness = Witness(&alive)] { ++ready; });
    EXPECT(event.wait().step == 4 && event.ready());
    for (int i = 0; i < 1000 && ready == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT(ready == 1);
  }
  EXPECT(alive == 0 && !lines.empty());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : ".";
  test_training(folder);
  test_functions(folder);
  test_errors();
  test_results(folder);
  EXPECT(epl::live_handles() == 0);
  std::puts("trained");
}
