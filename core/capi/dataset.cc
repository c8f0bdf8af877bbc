// Datasets: files as batches, in the order that a plan's inputs ask for.
#include <algorithm>

#include "core/capi/json.h"
#include "core/capi/objects.h"
#include "core/data/convert.h"
#include "core/data/split.h"

namespace epl::capi {
namespace {

using Declared = std::vector<AttributeSpec>;

const Declared& own_options() {
  static const Declared options = {{"batch", int64_t{0}}, {"order", std::string("sequential")},
                                   {"seed", int64_t{0}},  {"prefetch", int64_t{0}},
                                   {"partial", false},    {"reader", std::string()}};
  return options;
}

struct Opened {
  std::unique_ptr<Dataset> dataset;
  std::string reader, options;  // the row's name; the reader's own options, as they were given
};

// The options with those that take any JSON as texts, which is how parse_options and readers have them. `own` gets the
// reader's own as they are.
std::string with_texts(Json json, const ReaderRow& row, Json& own) {
  for (const ReaderOption& option : row.options) {
    if (!json.contains(option.name)) continue;
    Json& value = json[option.name];
    own[option.name] = value;
    if (option.json) value = print_json(value);
  }
  return print_json(json);
}

Result<Opened> open_dataset(const Engine& engine, const std::string& path, std::string_view text) {
  // The reader's name comes first, because it says which other options there are.
  std::string name;
  const auto json = parse_json(text);
  if (const Json* reader = json.ok() ? json->find("reader") : nullptr; reader && reader->is_string())
    name = reader->text();
  EPL_ASSIGN(const ReaderRow* row, find_reader(name, path));
  Declared declared = own_options();
  for (const ReaderOption& option : row->options) declared.push_back({option.name, option.value});
  const bool splits = std::ranges::none_of(
      row->options, [](const ReaderOption& option) { return option.name == "split"; });  // else the reader does
  if (splits)
    declared.insert(declared.end(), {{"split", std::string("all")}, {"held_out", 0.0}, {"split_seed", int64_t{0}}});
  Json own = Json::object();
  const bool object = json.ok() && json->is_object();  // parse_options says what is wrong with anything else
  EPL_ASSIGN(Attributes options, parse_options(object ? with_texts(*json, *row, own) : std::string(text), declared,
                                               cat("dataset (reader ", row->name, ")")));
  DatasetOptions wanted;
  wanted.batch = options.integer("batch");
  wanted.seed = static_cast<uint64_t>(options.integer("seed"));
  wanted.prefetch = options.integer("prefetch");
  wanted.partial = options.flag("partial");
  const std::string& order = options.text("order");
  if (order != "sequential" && order != "shuffled")
    return invalid("order is \"", order, "\"; there are sequential and shuffled");
  wanted.shuffled = order == "shuffled";
  Opened out;
  out.reader = row->name;
  out.options = print_json(own);
  EPL_ASSIGN(std::unique_ptr<Reader> reader, row->open({path, options, engine.host.packs}));
  if (splits) {
    EPL_ASSIGN(reader, split_reader(std::move(reader), options.text("split"), options.number("held_out"),
                                    static_cast<uint64_t>(options.integer("split_seed"))));
  }
  EPL_ASSIGN(out.dataset, Dataset::create(std::move(reader), wanted));
  return out;
}

// Gives fields `selected`, in that order, from now on.
void select(epl_dataset& dataset, std::vector<int> selected) {
  std::vector<std::unique_ptr<epl_tensor>> tensors;
  for (int field : selected) {
    auto tensor = std::make_unique<epl_tensor>();
    tensor->engine = dataset.engine;
    tensor->tensor = Tensor(dataset.dataset->fields()[static_cast<size_t>(field)].second, nullptr, nullptr);
    tensor->read_only = true;
    tensors.push_back(std::move(tensor));
  }
  dataset.tensors = std::move(tensors);
  dataset.selected = std::move(selected);
}

int find_field(const Dataset& dataset, const std::string& name) {
  for (size_t i = 0; i < dataset.fields().size(); ++i) {
    if (dataset.fields()[i].first == name) return static_cast<int>(i);
  }
  return -1;
}

std::string fields_text(const Dataset& dataset) {
  std::string out;
  for (const auto& [name, type] : dataset.fields()) out += cat(out.empty() ? "" : ", ", name, ": ", type.text());
  return out;
}

// The field for each input of an entry, given in the input's type from now on.
Result<std::vector<int>> match_fields(Dataset& dataset, const Entry& entry) {
  std::vector<int> selected;
  std::vector<TensorType> types;
  for (const auto& [name, type] : dataset.fields()) types.push_back(type);
  for (const Port& port : entry.inputs) {
    int field = find_field(dataset, port.name);
    if (field < 0) field = find_field(dataset, cat("input.", port.name));
    if (field < 0)
      return error(Code::not_found, "no field of the dataset is called ", port.name, " or input.", port.name,
                   "; there are ", fields_text(dataset))
          .at(port.name);
    TensorType& type = types[static_cast<size_t>(field)];
    if (!can_stand_for(type, port.global_type)) {
      return invalid("input ", port.name, " is ", port.global_type.text(), " in the plan, the dataset's field is ",
                     type.text())
          .at(port.name);
    }
    type = port.global_type;
    selected.push_back(field);
  }
  EPL_TRY(dataset.retype(types));
  return selected;
}

// What was read and how, for people and for programs that read another file alike.
std::string describe_dataset(const epl_dataset& dataset) {
  const Reader& reader = dataset.dataset->reader();
  Json out = {{"path", dataset.path},
              {"reader", dataset.reader},
              {"samples", dataset.dataset->samples()},
              {"batches", dataset.dataset->batches()}};
  const std::vector<ClassNames> classes = reader.classes();
  Json fields = Json::array();
  for (size_t i = 0; i < dataset.dataset->fields().size(); ++i) {
    const auto& [name, type] = dataset.dataset->fields()[i];
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
  const std::string alike = reader.options_alike();
  // What the reader found out, and the rest as it was given.
  const Json given = parse_json(dataset.options).value();
  Json options = alike.empty() ? given : parse_json(alike).value();
  for (const auto& [key, value] : given.items()) {
    if (!options.contains(key)) options[key] = value;
  }
  options["reader"] = dataset.reader;
  out["options"] = options;
  return print_json(out, 2);
}

// Every sample of a field against what the plan knows of the input that takes it.
Status check_field(const Reader& reader, int field, const InputBound& bound) {
  const auto& [name, type] = reader.fields()[static_cast<size_t>(field)];
  if (!is_integer(type.dtype)) return {};  // converted, and looked at, batch by batch
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

template <class F> epl_error* with_dataset(epl_dataset* dataset, F&& f, const char* call = __builtin_FUNCTION()) {
  return guarded([&] { return with_caller(dataset, "dataset", f); }, call);
}

}  // namespace
}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

epl_error* epl_dataset_open(const epl_engine* engine, const char* path, size_t path_length, const char* options,
                            size_t options_length, epl_dataset** dataset) {
  return giving(dataset, "dataset", [&]() -> Result<std::unique_ptr<epl_dataset>> {
    EPL_REQUIRE(engine);
    EPL_TEXT_ARGUMENT(path);
    EPL_TEXT_ARGUMENT(options);
    auto made = std::make_unique<epl_dataset>();
    made->engine = engine->engine;
    made->path = std::string(path_text);
    EPL_ASSIGN(Opened opened, open_dataset(*engine->engine, made->path, options_text));
    made->dataset = std::move(opened.dataset);
    made->reader = std::move(opened.reader);
    made->options = std::move(opened.options);
    std::vector<int> all(made->dataset->fields().size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    select(*made, std::move(all));
    log(engine->engine->host, LogLevel::info, "dataset ", path_text, ": ", made->dataset->samples(), " samples of ",
        made->dataset->fields().size(), " fields, ", made->dataset->batches(), " batches an epoch");
    return made;
  });
}

void epl_dataset_destroy(epl_dataset* dataset) { destroy(dataset); }
int64_t epl_dataset_field_count(const epl_dataset* dataset) {
  return alive(dataset) ? static_cast<int64_t>(dataset->dataset->fields().size()) : 0;
}

epl_error* epl_dataset_field(const epl_dataset* dataset, int64_t index, epl_port* port) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(dataset);
    EPL_REQUIRE(port);
    const auto& fields = dataset->dataset->fields();
    if (index < 0 || index >= static_cast<int64_t>(fields.size()))
      return invalid("there is no field ", index, "; there are ", fields.size());
    const auto& [name, type] = fields[static_cast<size_t>(index)];
    return write_port(name, type.dtype, type.shape, port);
  });
}

int64_t epl_dataset_samples(const epl_dataset* dataset) { return alive(dataset) ? dataset->dataset->samples() : 0; }
int64_t epl_dataset_batches(const epl_dataset* dataset) { return alive(dataset) ? dataset->dataset->batches() : 0; }
int64_t epl_dataset_position(const epl_dataset* dataset) { return alive(dataset) ? dataset->dataset->position() : 0; }

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
    EPL_ASSIGN(std::vector<int> selected, match_fields(*dataset->dataset, *found));
    select(*dataset, std::move(selected));
    return {};
  });
}

epl_error* epl_dataset_next(epl_dataset* dataset, const epl_tensor** tensors, size_t count) {
  if (tensors != nullptr) std::fill_n(tensors, count, nullptr);
  return with_dataset(dataset, [&]() -> Status {
    if (count != dataset->selected.size())
      return invalid("count is ", count, ", a batch has ", dataset->selected.size(), " tensors");
    if (count > 0) EPL_REQUIRE(tensors);
    auto next = dataset->dataset->next();
    if (!next.ok()) return next.status().at(dataset->path);
    const std::span<const Tensor> batch = *next;
    for (size_t i = 0; i < count; ++i) {
      dataset->tensors[i]->tensor = batch[static_cast<size_t>(dataset->selected[i])];
      tensors[i] = dataset->tensors[i].get();
    }
    return {};
  });
}

epl_error* epl_dataset_seek(epl_dataset* dataset, int64_t position) {
  return with_dataset(dataset, [&] { return dataset->dataset->seek(position); });
}

epl_error* epl_dataset_check(epl_dataset* dataset, const epl_plan* plan, int32_t entry) {
  return with_dataset(dataset, [&]() -> Status {
    EPL_REQUIRE(plan);
    EPL_ASSIGN(const Entry* found, entry_argument(*plan->plan, entry));
    for (const InputBound& bound : found->bounds) {
      const std::string& input = found->inputs[static_cast<size_t>(bound.input)].name;
      int field = find_field(*dataset->dataset, input);
      if (field < 0) field = find_field(*dataset->dataset, cat("input.", input));
      if (field >= 0) EPL_TRY(check_field(dataset->dataset->reader(), field, bound));
    }
    return {};
  });
}
