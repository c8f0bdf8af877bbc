// What a person writes about training: the first line is a list of metrics, each other one KEY=VALUE of a trainer (loss
// options, class weights, schedules, optimizers), or GROUP:PATTERN:KEY=VALUE. What makes a plan trains a step and is
// measured, at any step number.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/capi/objects.h"
#include "core/compile/compiled_plan.h"
#include "tests/temporary_folder.h"

namespace {

void must(epl_error* error) {
  if (error != nullptr) std::abort();
}
// Any error will do but a bug of ours; it says something.
bool fine(epl_error* error) {
  if (error == nullptr) return true;
  size_t length = 0;
  epl_error_message(error, &length);
  if (length == 0 || epl_error_code(error) == EPL_ERROR_INTERNAL) std::abort();
  epl_error_destroy(error);
  return false;
}

struct World {
  World() {
    const epl::TemporaryFolder folder;
    const std::string path = folder / "mlp.onnx";
    epl_engine_options options = EPL_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    must(epl_engine_create(&options, &engine));
    must(epl_x_template_write(engine, EPL_STR("mlp"), EPL_STR("{\"sizes\":[4,6,3],\"seed\":3}"), path.data(),
                              path.size(), nullptr));
    must(epl_model_load(engine, path.data(), path.size(), nullptr, nullptr, &model));
    const float x[16] = {0, 1, -1, 2, 3, -2, 0.5f, 1, 1, 1, -3, 0, 0, 2, 2, -1};
    const int64_t target[4] = {0, 2, 1, -100}, x_dims[2] = {4, 4}, target_dims[1] = {4};
    must(epl_tensor_create_copy(engine, EPL_DTYPE_F32, x_dims, 2, x, sizeof x, &inputs[0]));
    must(epl_tensor_create_copy(engine, EPL_DTYPE_I64, target_dims, 1, target, sizeof target, &inputs[1]));
  }
  epl_engine* engine = nullptr;
  epl_model* model = nullptr;
  epl_tensor* inputs[2] = {};
};

std::string_view next(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

void set(epl_trainer* trainer, std::string_view line) {
  if (line.starts_with("GROUP:")) {
    line.remove_prefix(6);
    const std::string_view pattern = next(line, ':'), key = next(line, '=');
    int64_t group = 0;
    if (fine(epl_trainer_add_group(trainer, pattern.data(), pattern.size(), &group)))
      fine(epl_trainer_group_set(trainer, group, key.data(), key.size(), line.data(), line.size()));
    return;
  }
  const std::string_view key = next(line, '=');
  fine(epl_trainer_set(trainer, key.data(), key.size(), line.data(), line.size()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const World world;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view metrics = next(text, '\n');
  epl_trainer* trainer = nullptr;
  epl_plan* plan = nullptr;
  epl_session* session = nullptr;
  epl_evaluation* evaluation = nullptr;
  must(epl_trainer_create(world.engine, &trainer));
  must(epl_trainer_bind_symbol(trainer, EPL_STR("batch"), 4));
  while (!text.empty()) set(trainer, next(text, '\n'));
  if (fine(epl_plan_create(world.model, trainer, nullptr, nullptr, nullptr, &plan))) {
    for (const int64_t step : {int64_t{0}, int64_t{1}, int64_t{999}, int64_t{1} << 40, INT64_MAX - 1})
      static_cast<void>(plan->plan->learning_rate({.step = step}));
    const bool takes = epl_plan_port_count(plan, EPL_ENTRY_TRAIN, EPL_PORT_INPUT) == 2;
    if (fine(epl_session_create(plan, nullptr, nullptr, &session)) && takes) {
      const epl_tensor* inputs[2] = {world.inputs[0], world.inputs[1]};
      fine(epl_session_step(session, inputs, 2, nullptr, nullptr));
      fine(epl_session_observe(session, 0.5, 0));
      if (fine(epl_evaluation_create(plan, metrics.data(), metrics.size(), &evaluation))) {
        fine(epl_evaluation_add(evaluation, session, inputs, 2, nullptr));
        epl_text* json = nullptr;
        if (fine(epl_evaluation_describe(evaluation, &json))) epl_text_destroy(json);
      }
    }
  }
  epl_evaluation_destroy(evaluation);
  epl_session_destroy(session);
  epl_plan_destroy(plan);
  epl_trainer_destroy(trainer);
  return 0;
}
