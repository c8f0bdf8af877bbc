// Who likes what: a vector for each user and each item, and the dot product of two as their score (Koren, Bell and
// Volinsky 2009).
#include <cmath>

#include "core/frontend/template.h"
#include "frontends/onnx/templates/initial_weights.h"

namespace epl::onnx {
namespace {

Status write_two_tower(const Attributes& options, const std::string& path, const FileHook& hook) {
  EPL_ASSIGN(const int64_t users, size_option(options, "users"));
  EPL_ASSIGN(const int64_t items, size_option(options, "items"));
  EPL_ASSIGN(const int64_t width, size_option(options, "width"));
  EPL_TRY(check_template_size(static_cast<double>(users + items) * static_cast<double>(width), 2));
  const auto seed = static_cast<uint64_t>(options.integer("seed"));
  ModelWriter model("two_tower");
  const double deviation = 1 / std::sqrt(static_cast<double>(width));
  const auto tower = [&](const std::string& name, int64_t count) {
    const std::string weight = name + ".weight";
    model.initializer(weight, {DType::f32, {count, width}}, normal_weights(seed, weight, deviation));
    return model.node(name, "Gather", {weight, model.input(name + "_id", DType::i64, {"batch"})});
  };
  const std::string user = tower("user", users), item = tower("item", items);
  const std::string products = model.node("products", "Mul", {user, item});
  const std::string score = model.node("score", "ReduceSum", {products, model.ints({1})}, {{"keepdims", int64_t{0}}});
  model.output(score, DType::f32, {"batch"});
  model.metadata("epl.template", cat("two_tower users=", users, " items=", items, " width=", width, " seed=", seed));
  return model.write(path, hook);
}

}  // namespace
}  // namespace epl::onnx

namespace epl {

EPL_TEMPLATE(two_tower) {
  return {.doc =
              "Two embeddings and their dot product, user_id and item_id i64[batch] to score f32[batch]. Train it with "
              "loss mse or bce_with_logits.",
          .options = {{"users", int64_t{1000}}, {"items", int64_t{1000}}, {"width", int64_t{32}}, {"seed", int64_t{1}}},
          .write = onnx::write_two_tower};
}

}  // namespace epl
