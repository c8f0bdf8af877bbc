// A trainer whose inputs are bound as a dataset gives them.
#include "core/base/shown.h"
#include "core/base/suggestion.h"
#include "core/capi/objects.h"

namespace epl::capi {
namespace {

const std::pair<std::string, TensorType>* field_called(const Dataset& data, const std::string& name) {
  const int index = data.find(name);
  return index < 0 ? nullptr : &data.fields()[static_cast<size_t>(index)];
}

// The field's shape with as many dimensions as the input has, where those of 1 alone make the difference: a column
// [8,1] for kind[batch].
Shape shape_for(const ModelPort& input, Shape dims, int64_t samples_in) {
  if (!input.ranked) return dims;
  for (size_t d = dims.size(); d-- > 0 && dims.size() > input.dims.size();) {
    if (dims[d] == 1 && static_cast<int64_t>(d) != samples_in)
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(d));
  }
  for (size_t d = 0; d < input.dims.size() && dims.size() < input.dims.size(); ++d) {
    if (d == dims.size() || (input.dims[d].size == 1 && dims[d] != 1))
      dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(d), 1);
  }
  return dims;
}

int64_t samples_dim(const epl_trainer& trainer, const ModelPort& input) {
  const auto named = trainer.binding.batch_dims.find(input.name);
  const int64_t dim = named == trainer.binding.batch_dims.end() ? 0 : named->second;
  return dim < static_cast<int64_t>(input.dims.size()) ? dim : -1;
}

Status bind_to(epl_trainer& trainer, const std::string& name, int32_t dtype, const Shape& dims) {
  return bind_input(trainer, name, dtype, dims.data(), static_cast<int32_t>(dims.size()));
}

// Targets that are classes have a type of their own; others are like what they are compared with.
Status bind_target_of(epl_trainer& trainer, const Dataset& data) {
  const auto* field = field_called(data, trainer.settings.loss_target);
  const Result<const LossRow*> row = find_named(loss_table(), trainer.settings.loss, "loss", {});
  if (field == nullptr || !row.ok() || (*row)->task != Task::classes) return {};
  Shape dims = field->second.shape;
  const DType given = field->second.dtype;
  if (is_float(given) && dims.size() == 2 && dims[1] == 1) dims.pop_back();  // a column of a table
  return bind_to(trainer, trainer.settings.loss_target, given == DType::i32 ? EPL_DTYPE_I32 : EPL_DTYPE_I64, dims);
}

Status bind_dataset_to(epl_trainer& trainer, const Model& model, const Dataset& data) {
  for (const ModelPort& input : model.inputs()) {
    if (trainer.binding.values.contains(input.name)) continue;
    const auto* field = field_called(data, input.name);
    if (field == nullptr) {
      std::vector<std::string> names;
      for (const auto& one : data.fields()) names.push_back(one.first);
      return error(Code::not_found, "the data has no field for input ", shown(input.name, 200),
                   choices(input.name, names));
    }
    EPL_TRY(bind_to(trainer, input.name, EPL_DTYPE_NONE,
                    shape_for(input, field->second.shape, samples_dim(trainer, input))));
  }
  return bind_target_of(trainer, data);
}

}  // namespace
}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

epl_error* epl_trainer_bind_dataset(epl_trainer* trainer, const epl_model* model, const epl_dataset* dataset) {
  return guarded([&] {
    return with_caller(trainer, "trainer", [&]() -> Status {
      EPL_REQUIRE(model);
      return with_caller(const_cast<epl_dataset*>(dataset), "dataset", [&]() -> Status {
        // All of it or nothing.
        Binding binding = trainer->binding;
        auto types = trainer->input_types;
        const Status status = bind_dataset_to(*trainer, *model->model, *dataset->opened.dataset);
        if (status.ok()) return status;
        trainer->binding = std::move(binding);
        trainer->input_types = std::move(types);
        return status;
      });
    });
  });
}
