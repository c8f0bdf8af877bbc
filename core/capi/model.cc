// Models and the templates that write them.
#include "core/base/json.h"
#include "core/base/stop_hook.h"
#include "core/capi/describe.h"
#include "core/capi/objects.h"
#include "core/capi/streams.h"
#include "core/frontend/template.h"

namespace epl::capi {
namespace {

std::unique_ptr<epl_model> make_model(const epl_engine* engine, const epl_model_options& options,
                                      std::shared_ptr<const Model> loaded, std::string_view from) {
  auto made = std::make_unique<epl_model>();
  made->engine = engine->engine;
  made->model = std::move(loaded);
  made->rewrites = options.no_rewrites == 0;
  int64_t bytes = 0;
  for (const ModelInitializer& one : made->model->initializers()) bytes += one.type.bytes();
  log(engine->engine->host, LogLevel::info, "model from ", from, ": ", made->model->description(), ", ",
      made->model->inputs().size(), " inputs, ", made->model->initializers().size(), " initialisers of ", bytes,
      " bytes");
  return made;
}

Status check_model_options(const epl_model_options* options, epl_model_options& known) {
  EPL_TRY(copy_options(options, known, "epl_model_options"));
  if (known.reserved != 0) return unsupported("model option reserved is ", known.reserved, "; leave it zero");
  return {};
}

Status write_model_info(const ModelPort& from, epl_tensor_info* info) {
  Shape dims;
  for (const ModelDim& dim : from.dims) dims.push_back(dim.size);
  return write_info(from.name, from.dtype, dims, info);
}

}  // namespace
}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

void epl_model_options_init(epl_model_options* options) {
  if (options) *options = EPL_MODEL_OPTIONS_INIT;
}

epl_error* epl_model_load(const epl_engine* engine, const char* path, size_t path_length,
                          const epl_model_options* options, const epl_call_options* call, epl_model** model) {
  return giving(model, "model", [&]() -> Result<std::unique_ptr<epl_model>> {
    EPL_REQUIRE(engine);
    EPL_TEXT_ARGUMENT(path);
    epl_model_options known = EPL_MODEL_OPTIONS_INIT;
    EPL_TRY(check_model_options(options, known));
    EPL_ASSIGN(const Call begun, begin_call(*engine->engine, call));
    EPL_ASSIGN(auto loaded, load_model(std::string(path_text), engine->engine->ops, begun.stop));
    return make_model(engine, known, std::move(loaded), path_text);
  });
}

epl_error* epl_model_load_bytes(const epl_engine* engine, const void* data, size_t bytes,
                                const epl_model_options* options, const epl_call_options* call, epl_model** model) {
  return giving(model, "model", [&]() -> Result<std::unique_ptr<epl_model>> {
    EPL_REQUIRE(engine);
    EPL_REQUIRE(data);
    epl_model_options known = EPL_MODEL_OPTIONS_INIT;
    EPL_TRY(check_model_options(options, known));
    EPL_ASSIGN(const Call begun, begin_call(*engine->engine, call));
    for (const Frontend& row : frontend_table().rows) {
      if (row.load_bytes == nullptr) continue;
      EPL_ASSIGN(auto loaded,
                 row.load_bytes({static_cast<const std::byte*>(data), bytes},
                                {.file = {}, .beside = {}, .ops = engine->engine->ops, .stop = begun.stop}));
      return make_model(engine, known, std::move(loaded), "memory");
    }
    return unsupported("no frontend of this build reads models from memory");
  });
}

epl_error* epl_model_load_from(const epl_engine* engine, const epl_source* source, const epl_model_options* options,
                               const epl_call_options* call, epl_model** model) {
  return giving(model, "model", [&]() -> Result<std::unique_ptr<epl_model>> {
    EPL_REQUIRE(engine);
    epl_model_options known = EPL_MODEL_OPTIONS_INIT;
    EPL_TRY(check_model_options(options, known));
    EPL_ASSIGN(HostSource from, HostSource::of(source, "source"));
    EPL_ASSIGN(const Call begun, begin_call(*engine->engine, call));
    ModelSource files = from.files();
    files.ops = engine->engine->ops;
    files.stop = begun.stop;
    EPL_ASSIGN(auto loaded, load_model(files));
    auto made = make_model(engine, known, std::move(loaded), from.files().file->path());
    from.keep();
    return made;
  });
}

void epl_model_destroy(epl_model* model) { destroy(model); }

int64_t epl_model_port_count(const epl_model* model, int32_t kind) {
  if (!alive(model)) return 0;
  switch (kind) {
    case EPL_PORT_INPUT:
      return static_cast<int64_t>(model->model->inputs().size());
    case EPL_PORT_OUTPUT:
      return static_cast<int64_t>(model->model->outputs().size());
    case EPL_PORT_INITIALIZER:
      return static_cast<int64_t>(model->model->initializers().size());
    default:
      return 0;
  }
}

epl_error* epl_model_port(const epl_model* model, int32_t kind, int64_t index, epl_tensor_info* info) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(model);
    EPL_REQUIRE(info);
    int64_t count = epl_model_port_count(model, kind);
    if (index < 0 || index >= count)
      return invalid("there is no port ", index, " of kind ", kind, "; there are ", count);
    size_t i = static_cast<size_t>(index);
    if (kind == EPL_PORT_INPUT) return write_model_info(model->model->inputs()[i], info);
    if (kind == EPL_PORT_OUTPUT) return write_model_info(model->model->outputs()[i], info);
    const ModelInitializer& from = model->model->initializers()[i];
    return write_info(from.name, from.type.dtype, from.type.shape, info);
  });
}

const char* epl_model_dim_symbol(const epl_model* model, int32_t kind, int64_t index, int32_t dim, size_t* length) {
  static const std::string none;
  const std::string* symbol = &none;
  if (model != nullptr && (kind == EPL_PORT_INPUT || kind == EPL_PORT_OUTPUT) && index >= 0 &&
      index < epl_model_port_count(model, kind)) {
    const ModelPort& port =
        (kind == EPL_PORT_INPUT ? model->model->inputs() : model->model->outputs())[static_cast<size_t>(index)];
    if (dim >= 0 && static_cast<size_t>(dim) < port.dims.size()) symbol = &port.dims[static_cast<size_t>(dim)].symbol;
  }
  if (length != nullptr) *length = symbol->size();
  return symbol->c_str();
}

epl_error* epl_model_findings(const epl_model* model, epl_text** json) {
  return giving_text(json, "json", [&]() -> Result<std::string> {
    EPL_REQUIRE(model);
    return print_json(describe_findings(*model->model));
  });
}

epl_error* epl_model_describe(const epl_model* model, epl_text** json) {
  return giving_text(json, "json", [&]() -> Result<std::string> {
    EPL_REQUIRE(model);
    return describe_model(*model->model, model->rewrites);
  });
}

epl_error* epl_x_template_write(const epl_engine* engine, const char* family, size_t family_length, const char* options,
                                size_t options_length, const char* path, size_t path_length,
                                const epl_call_options* call) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(engine);
    EPL_TEXT_ARGUMENT(family);
    EPL_TEXT_ARGUMENT(options);
    EPL_TEXT_ARGUMENT(path);
    EPL_ASSIGN(const ModelTemplate* row, find_named(template_table(), family_text, "template"));
    EPL_ASSIGN(Attributes read, parse_options(options_text, row->options, cat("template ", row->name)));
    EPL_ASSIGN(const Call begun, begin_call(*engine->engine, call));
    return row->write(read, std::string(path_text), stop_hook(begun.stop));
  });
}
