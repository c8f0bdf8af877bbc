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
#include <epl_settings.hpp>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "cpp_settings.h"

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

void test_job(const std::string& folder) {
  auto engine = epl::engine::create();
  const std::string model_path = folder + "/cpp_job.onnx", table = folder + "/rows.csv", run = folder + "/cpp_run";
  std::filesystem::remove_all(run);
  epl::x_template_write(engine, "mlp", R"({"sizes":[2,4,2],"seed":1})", model_path);
  std::FILE* file = std::fopen(table.c_str(), "w");
  EXPECT(file != nullptr);
  std::fputs("a,b,y\n", file);
  for (int i = 0; i < 32; ++i) std::fprintf(file, "%d,%d,%d\n", i % 2, i % 5, i % 2);
  std::fclose(file);
  auto model = epl::model::load(engine, model_path);
  auto trainer = epl::trainer::create(engine);
  auto open = [&] { return epl::dataset::open(engine, table, R"({"batch":4,"classes":true,"order":"shuffled"})"); };
  auto data = open();
  trainer.bind_dataset(model, data);
  auto plan = epl::plan::create(model, trainer);
  auto whole = epl::session::create(plan);
  int steps = 0;
  const auto count = [&](const epl::job_event& event) { return steps += event.type() == epl::job_kind::step, true; };
  EXPECT(epl::fit(engine, whole, data, nullptr, R"({"epochs":2})", count).ended == EPL_JOB_ENDED_STEPS && steps == 16);
  // Whatever ends the loop, a checkpoint is written.
  const std::string goes_on = R"({"steps":16,"resume":"auto","folder":")" + run + "\"}";
  for (int last : {3, 6, 16}) {
    auto session = epl::session::create(plan);
    auto again = open();
    try {
      const auto end = epl::fit(engine, session, again, nullptr, goes_on, [&](const epl::job_event& event) {
        if (last == 6 && event.step == 6) throw 6;
        return event.step < last || last == 16;
      });
      EXPECT(end.step == last && end.ended == (last == 16 ? EPL_JOB_ENDED_STEPS : EPL_JOB_ENDED_STOPPED));
    } catch (int thrown) {
      EXPECT(thrown == last);
    }
    EXPECT(session.steps() == last);
    EXPECT(last < 16 || session.hash() == whole.hash());
  }
  // A last save that fails loses nothing.
  auto kept = epl::session::create(plan);
  auto once_more = open();
  try {
    epl::fit(engine, kept, once_more, nullptr, R"({"steps":16,"folder":")" + folder + R"(/cpp_full","overwrite":true})",
             [&](const epl::job_event& event) {
               if (event.step < 16) return true;
               std::filesystem::remove_all(folder + "/cpp_full/checkpoints");
               std::fclose(std::fopen((folder + "/cpp_full/checkpoints").c_str(), "w"));
               return true;
             });
    EXPECT(false);
  } catch (const epl::error&) {
    EXPECT(kept.steps() == 16 && kept.hash() == whole.hash());
    kept.save(folder + "/cpp_elsewhere");
  }
  std::filesystem::remove_all(folder + "/cpp_full");
  epl::call_options soon;  // the time of the whole job
  soon.timeout_nanoseconds = 100'000'000;
  auto timed = epl::session::create(plan);
  try {
    epl::fit(engine, timed, data, nullptr, R"({"steps":1000000000})", [](const auto&) { return true; }, soon);
    EXPECT(false);
  } catch (const epl::error& error) {
    EXPECT(error.code() == epl::code::deadline_exceeded && timed.steps() > 0);
  }
  {
    const std::string run = folder + "/cpp_page";
    std::filesystem::remove_all(run);
    const std::string options = R"({"batch": 8, "classes": true, "held_out": 0.2, )";
    auto data = epl::dataset::open(engine, table, options + R"("split": "train", "order": "shuffled"})");
    auto held_out = epl::dataset::open(engine, table, options + R"("split": "held_out", "partial": true})");
    const epl::trainer_settings how{.optimizer = epl::optimizers::adamw{.lr = 0.05}, .clip_norm = 1};
    auto trainer = epl::trainer::parse(engine, how.json());
    trainer.bind_dataset(model, data);
    auto session = epl::session::create(epl::plan::create(model, trainer));
    const epl::job_settings job{.epochs = 10, .folder = run, .resume = "auto", .metrics = "accuracy", .patience = 3};
    const auto last = epl::fit(engine, session, data, held_out, job.json(), [](const epl::job_event& event) {
      if (event.type() == epl::job_kind::measured) std::printf("step %lld: %s\n", (long long)event.step, event.text);
      return true;  // false ends the job
    });
    std::printf("ended by %s after %lld steps\n", epl::name(last.end()), (long long)last.step);
    EXPECT(last.best_step > 0);
    EXPECT(last.type() == epl::job_kind::done && last.end() == epl::job_end::steps && last.end() == last.ended);
    EXPECT(std::string_view(epl::name(last.end())) == "steps");
  }
  const epl::trainer_settings how{
      .loss = epl::losses::softmax_cross_entropy{.ignore_index = -1},
      .optimizer = epl::optimizers::adamw{.lr = 0.05, .betas = {{0.8, 0.99}}, .weight_decay = 0},
      .schedule = epl::schedules::step{.step_size = 5},
      .clip_norm = 1,
      .precision = "f32"};
  const std::string told = epl::trainer::parse(engine, how.json()).describe();
  for (const char* want : {"\"optimizer\": \"adamw\"", "\"optimizer.lr\": 0.05", "\"loss.ignore_index\": -1",
                           "\"schedule.step_size\": 5", "\"clip_norm\": 1"})
    EXPECT(told.find(want) != std::string::npos);
  for (const char* key : every_trainer_key)
    EXPECT(every_trainer_setting.json().find('"' + std::string(key) + "\":") != std::string::npos);
  for (const char* key : every_job_key)
    EXPECT(every_job_setting.json().find('"' + std::string(key) + "\":") != std::string::npos);
  const epl::trainer_settings bound{.symbols = {{"batch", 4}, {"length", 3}}, .train_only = {"*.bias", "head.*"}};
  EXPECT(bound.json() == R"({"symbols":{"batch":4,"length":3},"train_only":["*.bias","head.*"]})");
  const epl::job_settings job{.epochs = 2, .folder = "a \"b\" \\ c", .keep = 3, .check = false};
  EXPECT(epl::job::create(engine, job.json()).describe().find("\"keep\": 3") != std::string::npos);
  // By name, in any order.
  const std::vector<float> zeros(8);
  const std::int64_t classes[] = {0, 1, 0, 1}, dims[] = {4, 2};
  auto x = epl::tensor::create_copy(engine, EPL_DTYPE_F32, dims, epl::bytes_of(zeros));
  auto target = epl::tensor::create_copy(engine, EPL_DTYPE_I64, std::span(dims, 1), epl::bytes_of(classes));
  auto one = epl::session::create(plan), other = epl::session::create(plan);
  const double loss = other.step(epl::named(plan, EPL_ENTRY_TRAIN, {{"target", target}, {"x", x}})).loss;
  EXPECT(loss == one.step({x, target}).loss);
  try {
    epl::named(plan, EPL_ENTRY_TRAIN, {{"y", x}, {"target", target}});
    EXPECT(false);
  } catch (const epl::error& error) {
    EXPECT(error.code() == EPL_ERROR_INVALID_ARGUMENT && error.message().find("there is no input y") == 0);
  }
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
  test_job(folder);
  test_functions(folder);
  test_errors();
  test_results(folder);
  EXPECT(epl::live_handles() == 0);
  std::puts("trained");
}
