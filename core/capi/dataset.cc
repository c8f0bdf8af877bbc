// Datasets: files as batches, in the order that a plan's inputs ask for.
#include "core/capi/dataset.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/runtime/entry_data.h"

namespace epl::capi {

void add_tensor(Tensors& tensors, const epl_dataset& dataset, const TensorType& type) {
  auto tensor = std::make_unique<epl_tensor>();
  tensor->engine = dataset.engine;
  tensor->tensor = Tensor(type, nullptr, nullptr);
  tensor->read_only = true;
  tensors.push_back(std::move(tensor));
}

namespace {

// What was read and how, for people and for programs that read another file alike.
std::string describe_dataset(const epl_dataset& dataset) {
  const Dataset& opened = *dataset.opened.dataset;
  const Reader& reader = opened.reader();
  Json out = {{"schema", 1},
              {"path", dataset.path},
              {"reader", dataset.opened.reader->name},
              {"samples", opened.endless() ? -1 : opened.samples()},
              {"batches", opened.endless() ? -1 : opened.batches()}};
  const std::vector<ClassNames> classes = reader.classes();
  Json fields = Json::array();
  for (size_t i = 0; i < opened.fields().size(); ++i) {
    const auto& [name, type] = opened.fields()[i];
    Json field = {{"name", name}, {"dtype", std::string(dtype_name(type.dtype))}, {"dims", type.shape}};
    const std::vector<std::string> columns = reader.columns(static_cast<int>(i));
    if (!columns.empty()) field["columns"] = columns;
    for (const ClassNames& one : classes) {
      if (one.field != name) continue;
      if (!field.contains("classes")) field["classes"] = Json::array();
      field["classes"].push_back({{"column", one.column}, {"names", one.names}});
    }
    fields.push_back(std::move(field));
  }
  out["fields"] = fields;
  if (const std::vector<int64_t> rows = opened.rows_given(); !rows.empty()) out["rows_given"] = rows;
  out["options"] = parse_json(dataset.opened.options_alike()).value();
  return print_json(out, 2);
}

// `bind` ties the dataset to the entry.
template <class F>
Status bind_tensors(epl_dataset& dataset, const std::shared_ptr<const CompiledPlan>& plan, const Entry& entry,
                    F&& bind) {
  Tensors tensors;  // first, so that nothing can fail once the dataset is bound
  for (const Port& port : entry.inputs) add_tensor(tensors, dataset, port.global_type);
  EPL_ASSIGN(const std::string told, shard_files(*dataset.opened.dataset, entry));
  EPL_TRY(bind());
  if (!told.empty()) log(dataset.engine->host, LogLevel::warning, LoggedPath{dataset.path}, ": ", told);
  dataset.tensors = std::move(tensors);
  dataset.bound = plan;
  return {};
}

Result<std::unique_ptr<epl_dataset>> open_file(const epl_engine& engine, std::string_view path, std::string_view folder,
                                               std::string_view options, const epl_call_options* call) {
  EPL_ASSIGN(const Call begun, begin_call(*engine.engine, call));
  auto made = std::make_unique<epl_dataset>();
  made->engine = engine.engine;
  made->path = std::string(path);
  EPL_ASSIGN(made->opened,
             open_dataset(made->path, options, engine.engine->host.packs, begun.stop, std::string(folder)));
  const Dataset& dataset = *made->opened.dataset;
  for (const auto& [name, type] : dataset.fields()) add_tensor(made->tensors, *made, type);
  log(engine.engine->host, LogLevel::info, "dataset ", LoggedPath{path}, ": ", dataset.samples(), " samples of ",
      dataset.fields().size(), " fields, ", dataset.batches(), " batches an epoch");
  return made;
}

Status bind_full(epl_dataset& dataset, const std::shared_ptr<const CompiledPlan>& plan, const Entry& entry) {
  return bind_tensors(dataset, plan, entry, [&] { return bind_dataset(*dataset.opened.dataset, entry); });
}

Status bind_part(epl_dataset& dataset, const std::shared_ptr<const CompiledPlan>& plan, const Entry& entry, int first,
                 int ranks) {
  return bind_tensors(dataset, plan, entry,
                      [&] { return bind_slice(*dataset.opened.dataset, *plan, entry, first, ranks); });
}

template <class F> epl_error* with_dataset(epl_dataset* dataset, F&& f, const char* call = __builtin_FUNCTION()) {
  return guarded([&] { return with_caller(dataset, "dataset", f); }, call);
}

}  // namespace

Status bind_for(epl_dataset& dataset, const Session& session, EntryKind kind) {
  const std::shared_ptr<const CompiledPlan>& plan = session.shared_plan();
  const Entry* entry = plan->entry(kind);
  if (dataset.bound == plan || entry == nullptr) return {};
  const SessionOptions& options = session.world().options();
  if (!options.slices) return bind_full(dataset, plan, *entry);
  return bind_part(dataset, plan, *entry, options.first_rank,
                   options.ranks > 0 ? options.ranks : plan->options().ranks);
}

}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

epl_error* epl_dataset_open(const epl_engine* engine, const char* path, size_t path_length, const char* options,
                            size_t options_length, const epl_call_options* call, epl_dataset** dataset) {
  return giving(dataset, "dataset", [&]() -> Result<std::unique_ptr<epl_dataset>> {
    EPL_REQUIRE(engine);
    EPL_TEXT_ARGUMENT(path);
    EPL_TEXT_ARGUMENT(options);
    return open_file(*engine, path_text, "", options_text, call);
  });
}

epl_error* epl_dataset_open_within(const epl_engine* engine, const char* path, size_t path_length, const char* folder,
                                   size_t folder_length, const char* options, size_t options_length,
                                   const epl_call_options* call, epl_dataset** dataset) {
  return giving(dataset, "dataset", [&]() -> Result<std::unique_ptr<epl_dataset>> {
    EPL_REQUIRE(engine);
    EPL_TEXT_ARGUMENT(path);
    EPL_TEXT_ARGUMENT(folder);
    EPL_TEXT_ARGUMENT(options);
    if (folder_text.empty()) return invalid("folder is empty; \"/\" is the folder of all files");
    return open_file(*engine, path_text, folder_text, options_text, call);
  });
}

void epl_dataset_destroy(epl_dataset* dataset) { destroy(dataset); }
int64_t epl_dataset_field_count(const epl_dataset* dataset) {
  return alive(dataset) ? static_cast<int64_t>(dataset->opened.dataset->fields().size()) : 0;
}

epl_error* epl_dataset_field(const epl_dataset* dataset, int64_t index, epl_tensor_info* info) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(dataset);
    EPL_REQUIRE(info);
    const auto& fields = dataset->opened.dataset->fields();
    if (index < 0 || index >= static_cast<int64_t>(fields.size()))
      return invalid("there is no field ", index, "; there are ", fields.size());
    const auto& [name, type] = fields[static_cast<size_t>(index)];
    return write_info(name, type.dtype, type.shape, info);
  });
}

int64_t epl_dataset_samples(const epl_dataset* dataset) {
  return !alive(dataset) ? 0 : dataset->opened.dataset->endless() ? -1 : dataset->opened.dataset->samples();
}
int64_t epl_dataset_batches(const epl_dataset* dataset) {
  return !alive(dataset) ? 0 : dataset->opened.dataset->endless() ? -1 : dataset->opened.dataset->batches();
}
int64_t epl_dataset_position(const epl_dataset* dataset) {
  return alive(dataset) ? dataset->opened.dataset->position() : 0;
}

epl_error* epl_dataset_describe(const epl_dataset* dataset, epl_text** json) {
  return giving_text(json, "json", [&]() -> Result<std::string> {
    EPL_REQUIRE(dataset);
    return describe_dataset(*dataset);
  });
}

epl_error* epl_dataset_bind(epl_dataset* dataset, const epl_plan* plan, int32_t entry) {
  return with_dataset(dataset, [&]() -> Status {
    EPL_REQUIRE(plan);
    EPL_ASSIGN(const Entry* found, entry_argument(*plan->plan, entry));
    return bind_full(*dataset, plan->plan, *found);
  });
}

epl_error* epl_dataset_bind_slice(epl_dataset* dataset, const epl_plan* plan, int32_t entry, int64_t first_rank,
                                  int64_t ranks) {
  return with_dataset(dataset, [&]() -> Status {
    EPL_REQUIRE(plan);
    EPL_ASSIGN(const Entry* found, entry_argument(*plan->plan, entry));
    EPL_TRY(check_ranks(*plan->plan, first_rank, ranks));
    return bind_part(*dataset, plan->plan, *found, static_cast<int>(first_rank), static_cast<int>(ranks));
  });
}

epl_error* epl_dataset_next(epl_dataset* dataset, const epl_call_options* call, const epl_tensor** tensors,
                            size_t count) {
  if (tensors != nullptr) std::fill_n(tensors, count, nullptr);
  return with_dataset(dataset, [&]() -> Status {
    if (count != dataset->tensors.size())
      return invalid("count is ", count, ", a batch has ", dataset->tensors.size(), " tensors");
    if (count > 0) EPL_REQUIRE(tensors);
    EPL_ASSIGN(const Call begun, begin_call(*dataset->engine, call));
    auto next = dataset->opened.dataset->next(begun.stop);
    if (!next.ok()) return next.status().at(dataset->path);
    const std::span<const Tensor> batch = *next;
    for (size_t i = 0; i < count; ++i) {
      dataset->tensors[i]->tensor = batch[i];
      dataset->tensors[i]->source = dataset->opened.dataset.get();
      dataset->tensors[i]->asked = i;
      tensors[i] = batch[i].empty() ? nullptr : dataset->tensors[i].get();  // nothing of it is read in this process
    }
    return {};
  });
}

epl_error* epl_dataset_seek(epl_dataset* dataset, int64_t position) {
  return with_dataset(dataset, [&] { return dataset->opened.dataset->seek(position); });
}

epl_error* epl_dataset_check(epl_dataset* dataset, const epl_plan* plan, int32_t entry, const epl_call_options* call) {
  return with_dataset(dataset, [&]() -> Status {
    EPL_REQUIRE(plan);
    EPL_ASSIGN(const Entry* found, entry_argument(*plan->plan, entry));
    EPL_ASSIGN(const Call begun, begin_call(*dataset->engine, call));
    if (dataset->opened.dataset->endless()) return invalid("nobody knows how many samples this dataset has");
    return check_dataset(*dataset->opened.dataset, *found, begun.stop);
  });
}
