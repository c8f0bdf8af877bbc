// The shortest useful program in C++: an ONNX file goes in, a trained one comes out.
#include <cstdio>
#include <epl.hpp>

int main() {
  auto engine = epl::engine::create();
  epl::x_template_write(engine, "mlp", R"({"sizes":[4,16,2],"seed":1})", "first.onnx");  // or any model of yours
  auto model = epl::model::load(engine, "first.onnx");
  auto trainer = epl::trainer::create(engine);  // cross-entropy is the default loss
  trainer.set("optimizer", "adamw");
  trainer.set("optimizer.lr", "0.05");
  trainer.bind_symbol("batch", 4);
  auto session = epl::session::create(epl::plan::create(model, trainer));

  const float numbers[4][4] = {{2, 1, 0, 1}, {0, 1, 1, 3}, {4, 0, 2, 1}, {1, 1, 1, 2}};
  const std::int64_t classes[4] = {0, 1, 0, 1}, dims[2] = {4, 4};  // is the first number larger than the last?
  auto x = epl::tensor::create_copy(engine, EPL_DTYPE_F32, dims, epl::bytes_of(numbers));
  auto target = epl::tensor::create_copy(engine, EPL_DTYPE_I64, std::span(dims, 1), epl::bytes_of(classes));
  for (int step = 0; step < 50; ++step) std::printf("loss %.4f\n", session.step({x, target}).loss);
  session.export_onnx("trained.onnx");
}
