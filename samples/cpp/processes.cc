// A training in several processes, started by `epl launch -n 2 -- ./processes`. Each gets the full batch, and works on
// its part.
#include <cstdio>
#include <epl.hpp>
#include <epl_launch.hpp>

int main() {
  const auto launch = epl::launch::from_environment();  // what epl launch says; another launcher has other means
  if (!launch.wrong.empty()) return std::fprintf(stderr, "%s\n", launch.wrong.c_str()), 1;
  epl::engine_options one_thread;
  one_thread.threads = 1;
  auto engine = epl::engine::create(one_thread);
  const std::string file = "model-" + std::to_string(launch.rank) + ".onnx";
  epl::x_template_write(engine, "mlp", R"({"sizes":[4,16,2],"seed":1})", file);
  auto model = epl::model::load(engine, file);
  auto trainer = epl::trainer::create(engine);
  trainer.set("optimizer", "adamw");
  trainer.set("optimizer.lr", "0.05");
  trainer.bind_symbol("batch", 8);

  auto plan = epl::plan::create(model, trainer, nullptr, launch.plan_options());
  auto session = epl::session::create(plan, launch.session_options());

  float numbers[8][4];
  std::int64_t classes[8];
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 4; ++j) numbers[i][j] = static_cast<float>((i * 7 + j * j * 3) % 5 - 2);
    classes[i] = numbers[i][0] < numbers[i][3] ? 1 : 0;
  }
  const std::int64_t dims[2] = {8, 4};
  auto x = epl::tensor::create_copy(engine, EPL_DTYPE_F32, dims, epl::bytes_of(numbers));
  auto target = epl::tensor::create_copy(engine, EPL_DTYPE_I64, std::span(dims, 1), epl::bytes_of(classes));
  double loss = 0;
  for (int step = 0; step < 50; ++step) loss = session.step({x, target}).loss;
  std::printf("loss %.4f  weights %016llx\n", loss, static_cast<unsigned long long>(session.hash()));
}
