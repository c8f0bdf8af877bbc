// Ops of the host's own: its functions as those of a record.
#include "core/ir/host_op.h"

#include "core/capi/objects.h"
#include "core/capi/streams.h"

namespace epl::capi {
namespace {

epl_op_tensor op_tensor(const TensorType* type, void* data) {
  epl_op_tensor out = {};
  if (type == nullptr) return out;
  out.data = data;
  out.bytes = static_cast<uint64_t>(type->bytes());
  out.dtype = dtype_constant(type->dtype);
  out.ndim = static_cast<int32_t>(type->shape.size());
  std::copy(type->shape.begin(), type->shape.end(), out.dims);
  return out;
}

std::vector<epl_op_tensor> op_tensors(std::span<const HostTensor> tensors) {
  std::vector<epl_op_tensor> out;
  for (const HostTensor& one : tensors) out.push_back(op_tensor(one.type, one.data));
  return out;
}

// The host's functions and what they are called with.
struct Functions {
  epl_op_options options = EPL_OP_OPTIONS_INIT;
  bool kept = false;
  ~Functions() {
    if (kept && options.destroy) options.destroy(options.userdata);
  }

  Result<OutputTypes> shape(const std::string& attributes, std::span<const TensorType* const> inputs,
                            size_t count) const {
    std::vector<epl_op_tensor> in, out(count);
    for (const TensorType* type : inputs) {
      if (type != nullptr && type->shape.size() > EPL_MAX_NDIM)
        return unsupported("an op of the host's takes ", EPL_MAX_NDIM, " dimensions, not ", type->shape.size());
      in.push_back(op_tensor(type, nullptr));
    }
    EPL_TRY(callback_status(options.shape(options.userdata, attributes.data(), attributes.size(), in.data(), in.size(),
                                          out.data(), out.size())));
    OutputTypes types;
    for (size_t o = 0; o < count; ++o) {
      auto type = type_argument(out[o].dtype, out[o].dims, out[o].ndim);
      if (!type.ok()) return type.status().with_context(cat("output ", o));
      types.push_back(*std::move(type));
    }
    return types;
  }

  Status run(const std::string& attributes, std::span<const HostTensor> inputs,
             std::span<const HostTensor> outputs) const {
    const std::vector<epl_op_tensor> in = op_tensors(inputs), out = op_tensors(outputs);
    return callback_status(options.run(options.userdata, attributes.data(), attributes.size(), in.data(), in.size(),
                                       out.data(), out.size()));
  }

  Status gradient(const std::string& attributes, std::span<const HostTensor> inputs,
                  std::span<const HostTensor> outputs, std::span<const HostTensor> upstream,
                  std::span<const HostTensor> gradients) const {
    const std::vector<epl_op_tensor> in = op_tensors(inputs), out = op_tensors(outputs), up = op_tensors(upstream),
                                     made = op_tensors(gradients);
    return callback_status(options.gradient(options.userdata, attributes.data(), attributes.size(), in.data(),
                                            in.size(), out.data(), up.data(), out.size(), made.data()));
  }
};

}  // namespace
}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

void epl_op_options_init(epl_op_options* options) {
  if (options) *options = EPL_OP_OPTIONS_INIT;
}

epl_error* epl_engine_add_op(const epl_engine* engine, const epl_op_options* options) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(engine);
    EPL_REQUIRE(options);
    const auto functions = std::make_shared<Functions>();
    epl_op_options& known = functions->options;
    EPL_TRY(copy_options(options, known, "epl_op_options"));
    if (known.shape == nullptr || known.run == nullptr)
      return invalid("the op has no function for ", known.shape == nullptr ? "shapes" : "running");
    const auto text = [](const char* data, uint64_t length, std::string_view name) -> Result<std::string> {
      EPL_ASSIGN(const std::string_view given, text_argument(data, length, name));
      return std::string(given);
    };
    HostOp op;
    EPL_ASSIGN(op.domain, text(known.domain, known.domain_length, "op option domain"));
    EPL_ASSIGN(op.type, text(known.name, known.name_length, "op option name"));
    EPL_ASSIGN(op.sharding, text(known.sharding, known.sharding_length, "op option sharding"));
    if (known.output_count < 0 || known.output_count > 64)
      return invalid("op option output_count is ", known.output_count, "; 1 to 64 are possible");
    op.outputs = known.output_count == 0 ? 1 : static_cast<int>(known.output_count);
    op.infer = [functions, count = op.outputs](const std::string& attributes,
                                               std::span<const TensorType* const> inputs) {
      return functions->shape(attributes, inputs, static_cast<size_t>(count));
    };
    op.run = [functions](const std::string& attributes, std::span<const HostTensor> inputs,
                         std::span<const HostTensor> outputs) { return functions->run(attributes, inputs, outputs); };
    if (known.gradient != nullptr)
      op.gradient = [functions](const std::string& attributes, std::span<const HostTensor> inputs,
                                std::span<const HostTensor> outputs, std::span<const HostTensor> upstream,
                                std::span<const HostTensor> gradients) {
        return functions->gradient(attributes, inputs, outputs, upstream, gradients);
      };
    EPL_TRY(engine->engine->ops->add(std::move(op)));
    functions->kept = true;
    return {};
  });
}
