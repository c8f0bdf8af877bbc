#include "core/backend/pack_query.h"

#include <utility>
#include <variant>

namespace epl {
namespace {

constexpr int32_t pack_dtype(DType dtype) { return static_cast<int32_t>(dtype) + 1; }
static_assert(pack_dtype(DType::f32) == EPL_PACK_F32 && pack_dtype(DType::f64) == EPL_PACK_F64 &&
              pack_dtype(DType::f16) == EPL_PACK_F16 && pack_dtype(DType::bf16) == EPL_PACK_BF16 &&
              pack_dtype(DType::i64) == EPL_PACK_I64);

epl_pack_type pack_type(const TensorType& t, bool present = true) {
  if (!present) return {.dtype = 0, .ndim = 0, .dims = nullptr};
  return {.dtype = pack_dtype(t.dtype), .ndim = t.ndim(), .dims = t.shape.data()};
}

static_assert(static_cast<int>(BitsLevel::exact) == EPL_PACK_BITS_EXACT &&
              static_cast<int>(BitsLevel::data) == EPL_PACK_BITS_DATA &&
              static_cast<int>(BitsLevel::run) == EPL_PACK_BITS_RUN);

}  // namespace

PackQuery::PackQuery(const KernelQuery& q, void* device) {
  for (int i = 0; i < q.inputs(); ++i) inputs_.push_back(pack_type(q.in(i), q.has(i)));
  for (int o = 0; o < q.outputs(); ++o) outputs_.push_back(pack_type(q.out(o), q.has_output(o)));
  for (const Attributes::Entry& entry : q.attributes.entries()) add(entry);
  query_ = {.struct_size = sizeof query_,
            .op = q.op.c_str(),
            .inputs = inputs_.data(),
            .outputs = outputs_.data(),
            .attributes = attributes_.data(),
            .input_count = static_cast<int32_t>(inputs_.size()),
            .output_count = static_cast<int32_t>(outputs_.size()),
            .attribute_count = static_cast<int32_t>(attributes_.size()),
            .threads = q.threads,
            .units = q.units.count,
            .node = q.node.c_str(),
            .key = q.key.c_str(),
            .units_outer = q.units.outer,
            .splits_keep_bits = q.splits_keep_bits,
            .level = static_cast<int32_t>(q.level),
            .device = device};
}

void PackQuery::add(const Attributes::Entry& entry) {
  epl_pack_attribute made = {};
  made.name = entry.name.c_str();
  const auto values = [&](int32_t kind, const int64_t* data, size_t count) {
    made.kind = kind;
    made.values = data;
    made.count = static_cast<int64_t>(count);
  };
  const auto numbers = [&](int32_t kind, const double* data, size_t count) {
    made.kind = kind;
    made.numbers = data;
    made.count = static_cast<int64_t>(count);
  };
  const auto one = [&](int32_t kind, int64_t value) { values(kind, integers_.emplace_back(1, value).data(), 1); };
  if (const Ints* list = std::get_if<Ints>(&entry.value)) {
    values(EPL_PACK_INTEGERS, list->data(), list->size());
  } else if (const Doubles* list_of_numbers = std::get_if<Doubles>(&entry.value)) {
    numbers(EPL_PACK_NUMBERS, list_of_numbers->data(), list_of_numbers->size());
  } else if (const int64_t* integer = std::get_if<int64_t>(&entry.value)) {
    values(EPL_PACK_INTEGER, integer, 1);
  } else if (const double* number = std::get_if<double>(&entry.value)) {
    numbers(EPL_PACK_NUMBER, number, 1);
  } else if (const bool* flag = std::get_if<bool>(&entry.value)) {
    one(EPL_PACK_FLAG, *flag);
  } else if (const DType* dtype = std::get_if<DType>(&entry.value)) {
    one(EPL_PACK_DTYPE, pack_dtype(*dtype));
  } else if (const std::string* text = std::get_if<std::string>(&entry.value)) {
    made.kind = EPL_PACK_TEXT;
    made.text = text->c_str();
  } else if (const Tensor* tensor = std::get_if<Tensor>(&entry.value)) {
    const int64_t n = tensor->elements();
    if (is_float(tensor->dtype())) {
      std::vector<double>& all = numbers_.emplace_back();
      for (int64_t i = 0; i < n; ++i) all.push_back(tensor->get(i));
      numbers(EPL_PACK_TENSOR, all.data(), all.size());
    } else {
      std::vector<int64_t>& all = integers_.emplace_back();
      for (int64_t i = 0; i < n; ++i) all.push_back(tensor->get_int(i));
      values(EPL_PACK_TENSOR, all.data(), all.size());
    }
    made.type = pack_type(tensor->type());
  }
  attributes_.push_back(made);
}

Result<Prepared> prepare_in_pack(const epl_pack_kernel& kernel, const KernelQuery& q, void* device,
                                 std::shared_ptr<const void> keeps) {
  PackReason reason;
  epl_pack_needs needs = {.struct_size = sizeof needs, .workspace_bytes = 0, .aliases = nullptr, .alias_count = 0};
  void* made = kernel.prepare(&kernel, PackQuery(q, device).get(), &needs, &reason.to);
  EPL_TRY(require(made != nullptr, reason.text));
  Prepared prepared{
      .state = {made, [&kernel, keeps = std::move(keeps)](const void* p) { kernel.destroy(const_cast<void*>(p)); }},
      .workspace_bytes = needs.workspace_bytes,
      .aliases = {}};
  for (int64_t i = 0; i < needs.alias_count; ++i)
    prepared.aliases.push_back({.input = needs.aliases[i].input, .output = needs.aliases[i].output});
  return prepared;
}

epl_pack_call pack_call_of(const KernelCall& call, const PackReason& reason) {
  return {.struct_size = sizeof(epl_pack_call),
          .inputs = call.inputs,
          .outputs = call.outputs,
          .workspace = call.workspace,
          .threads = nullptr,
          .stream = nullptr,
          .seed = call.context.seed,
          .step = call.context.step,
          .first_unit = call.context.first_unit,
          .units = call.context.units,
          .runs = call.context.runs,
          .run_stride = call.context.run_stride,
          .failure = &reason.to,
          .numbers = call.context.on_device};
}

KernelRow named_row(const epl_pack_kernel& kernel) {
  KernelRow row;
  row.op = kernel.op;
  row.name = kernel.name;
  for (uint64_t i = 0; i < kernel.dtype_count; ++i) row.dtypes.push_back(static_cast<DType>(kernel.dtypes[i] - 1));
  return row;
}

}  // namespace epl
