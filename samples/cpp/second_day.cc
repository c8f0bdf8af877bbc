// The second day: what follows the first training, each a few lines. docs/cpp.md explains them.
#include <algorithm>
#include <cstdio>
#include <epl.hpp>
#include <fstream>
#include <iostream>
#include <span>
#include <string_view>
#include <vector>

int main() {
  epl::engine_options options;
  options.threads = 2;
  options.set_log([](epl::log_level, std::string_view text) { std::clog << text << '\n'; });
  auto engine = epl::engine::create(options);
  epl::x_template_write(engine, "mlp", R"({"sizes":[4,16,2],"seed":1})", "second.onnx");
  auto model = epl::model::load(engine, "second.onnx");

  // --- Data of your own
  epl::tensor_info fields[2];
  fields[0].set("x", epl::dtype::f32, {4});
  fields[1].set("target", epl::dtype::i64, {});  // is the first number larger than the last?
  const auto number = [](std::int64_t sample, int i) { return static_cast<float>((sample * 7 + i * i * 3) % 5); };
  const auto read = [number](std::int32_t field, std::span<const std::int64_t> samples, std::span<std::byte> target) {
    auto* x = reinterpret_cast<float*>(target.data());
    auto* right = reinterpret_cast<std::int64_t*>(target.data());
    for (std::size_t s = 0; s < samples.size(); ++s) {
      if (field == 1) right[s] = number(samples[s], 0) > number(samples[s], 3);
      for (int i = 0; i < 4 && field == 0; ++i) x[s * 4 + i] = number(samples[s], i);
    }
  };  // what it throws is the error of the call that asked
  auto data = epl::dataset::create(engine, fields, 64, read, R"({"batch":8,"order":"shuffled","split":"train"})");
  auto held_out = epl::dataset::create(engine, fields, 64, read, R"({"batch":8,"split":"held_out"})");

  // --- Train, validate, keep the best
  auto trainer = epl::trainer::parse(engine, R"({"optimizer":"adamw","optimizer.lr":0.05,"symbols":{"batch":8}})");
  auto plan = epl::plan::create(model, trainer);
  auto session = epl::session::create(plan);
  auto evaluation = epl::evaluation::create(plan, "accuracy");
  data.bind(plan, epl::entry::train);
  held_out.bind(plan, epl::entry::evaluate);
  double best = -1;
  for (int epoch = 0; epoch < 20; ++epoch) {
    for (std::int64_t i = 0; i < data.batches(); ++i) session.step(data.next());
    evaluation.reset();
    evaluation.add_dataset(session, held_out, 0);
    if (const double accuracy = evaluation.result("accuracy"); accuracy > best) {
      best = accuracy;
      session.save("best", data);  // with the position in the data
    }
  }
  std::printf("held out: %.0f %% right\n", best * 100);

  // --- Go on later, to the bit
  auto later = epl::session::create(plan);
  later.load("best", data);
  std::printf("goes on after step %lld\n", static_cast<long long>(later.steps()));

  // --- Predict, and read the numbers
  auto x = epl::tensor::of(engine, {2, 4}, std::vector<float>{1, 0, 0, 2, 2, 0, 0, 1});
  for (const epl::tensor& scores : session.predict({x})) {  // as many samples as the batch has, or fewer
    const std::span<float> numbers = scores.as<float>();    // shape() is 2, 2
    for (std::size_t row = 0; row < numbers.size(); row += 2)
      std::printf("%.2f %.2f\n", numbers[row], numbers[row + 1]);
  }
  std::printf("%zu weights\n", later.get("net.0.weight").as<float>().size());

  // --- Predict while it trains
  auto predictor = epl::predictor::of(session);
  auto event = session.step_async(data.next());
  event.on_ready([] { std::puts("a step is done"); });  // on the session's thread
  predictor.predict({x});                               // with the weights before that step
  std::printf("step %lld\n", static_cast<long long>(event.wait().step));
  predictor.refresh();

  // --- Into memory, a socket, an object store
  std::vector<std::byte> kept;
  session.save_to([&](std::span<const std::byte> bytes) { kept.insert(kept.end(), bytes.begin(), bytes.end()); });
  epl::source source;
  source.bytes = kept.size();
  source.set_functions([&](std::uint64_t offset, std::span<std::byte> target) {
    std::copy_n(kept.begin() + static_cast<std::ptrdiff_t>(offset), target.size(), target.begin());
  });
  later.load_from(source);

  // --- Batches of several shapes
  auto several = epl::trainer::parse(engine, trainer.describe());
  several.add_shape(R"({"symbols":{"batch":3}})");  // the last batch of an epoch, say
  auto any_size = epl::session::create(epl::plan::create(model, several));
  auto rest = epl::dataset::create(engine, fields, 11, read, R"({"batch":8,"partial":true})");
  for (int i = 0; i < 2; ++i) any_size.step(rest.next());  // of 8 samples, and of 3

  // --- Adapters beside frozen weights
  trainer.add_adapter("*");
  auto tuned = epl::session::create(epl::plan::create(model, trainer));
  tuned.step(data.next());
  tuned.export_adapters("adapters");
  tuned.export_onnx("tuned.onnx");  // the adapters are in its weights
}
