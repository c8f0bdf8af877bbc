#include "core/runtime/entry_data.h"

namespace epl {
namespace {

Status check_field(const Reader& reader, int field, const InputBound& bound) {
  const auto& [name, type] = reader.fields()[static_cast<size_t>(field)];
  if (!is_integer(type.dtype)) return {};
  Tensor sample(type);
  for (int64_t i = 0; i < reader.samples(); ++i) {
    EPL_TRY(reader.read(i, field, sample.data()));
    const int64_t wrong = find_out_of_bounds(bound, sample);
    if (wrong >= 0)
      return invalid("field ", name, ", row ", reader.row(i), " (counted from 0), ",
                     bound_text(bound, sample.get_int(wrong)))
          .at(name);
  }
  return {};
}

}  // namespace

Status bind_dataset(Dataset& dataset, const Entry& entry) {
  std::vector<std::pair<std::string, TensorType>> wanted;
  for (const Port& port : entry.inputs) wanted.emplace_back(port.name, port.global_type);
  return dataset.bind(wanted);
}

Status check_dataset(const Dataset& dataset, const Entry& entry) {
  for (const InputBound& bound : entry.bounds) {
    const int field = dataset.find(entry.inputs[static_cast<size_t>(bound.input)].name);
    if (field >= 0) EPL_TRY(check_field(dataset.reader(), field, bound));
  }
  return {};
}

}  // namespace epl
