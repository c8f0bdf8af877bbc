#include "core/data/open.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/base/options.h"
#include "core/base/shown.h"
#include "core/data/files.h"
#include "core/data/split.h"

namespace epl {
namespace {

const std::vector<Option>& common_options() {
  static const std::vector<Option> options = {
      {.name = "batch", .value = int64_t{0}, .doc = "samples of a batch; 0: a sample is a batch"},
      {.name = "order",
       .value = "sequential",
       .doc = "`shuffled`: another order in each epoch",
       .words = {"sequential", "shuffled"}},
      {.name = "seed", .value = int64_t{0}, .doc = "of that order"},
      {.name = "prefetch", .value = int64_t{0}, .doc = "batches read ahead"},
      {.name = "partial", .value = false, .doc = "an epoch ends with what is left over after its last full batch"},
      {.name = "target_name",
       .value = "target",
       .doc = "the name of the target's field, where a reader makes one: for a model that has an input called target"},
      {.name = "reader", .value = "", .doc = "the reader's name, where the file does not tell"}};
  return options;
}

// Of readers that do not draw parts of their own.
const std::vector<Option>& split_options() {
  static const std::vector<Option> options = {
      {.name = "split", .value = "all", .doc = "`all`, `train` or `held_out`"},
      {.name = "held_out", .value = 0.2, .doc = "the share of the samples that is the split held_out"},
      {.name = "split_seed", .value = int64_t{0}, .doc = "by which they are drawn"}};
  return options;
}

bool has_split(const ReaderRow& row) {
  return std::ranges::find(row.options, "split", &Option::name) != row.options.end();
}

std::vector<Option> options_with(const ReaderRow& row) {
  std::vector<Option> all = common_options();
  all.insert(all.end(), row.options.begin(), row.options.end());
  if (!has_split(row)) all.insert(all.end(), split_options().begin(), split_options().end());
  return all;
}

}  // namespace

std::string OpenedDataset::options_alike() const {
  const std::string found = dataset->reader().options_alike();
  const Json own = parse_json(given).value();
  Json options = found.empty() ? own : parse_json(found).value();
  for (const auto& [key, value] : own.items()) {
    if (!options.contains(key)) options[key] = value;
  }
  options["reader"] = reader->name;
  return print_json(options);
}

namespace {

// The files after the first are read to the meaning that the first one has given: the classes that it has, say.
Result<std::unique_ptr<Reader>> open_files(const ReaderRow& row, const std::vector<std::string>& paths,
                                           Attributes options, const std::string& packs, const Stop& stop,
                                           const std::string& root) {
  const std::string target_name = options.text("target_name");
  std::vector<std::unique_ptr<Reader>> files;
  for (const std::string& path : paths) {
    EPL_TRY(stop.check());
    EPL_ASSIGN(
        std::unique_ptr<Reader> file,
        open_reader(row, {.path = path, .options = options, .packs = packs, .stop = stop, .target_name = target_name},
                    root));
    if (files.empty() && paths.size() > 1) {
      if (const std::string alike = file->options_alike(); !alike.empty()) {
        EPL_ASSIGN(const Attributes found, parse_options(alike, row.options, cat("reader ", row.name)));
        for (const Attributes::Entry& entry : found.entries()) options.set(entry.name, entry.value);
      }
    }
    files.push_back(std::move(file));
  }
  return join_files(std::move(files), paths);
}

// An input of a model may have the name that the target has.
Status check_names(const Reader& reader, const std::string& target_name) {
  const auto& fields = reader.fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (fields[i].first != fields[k].first) continue;
      const std::string& name = fields[i].first;
      return invalid("two fields of the data are called ", shown(name, 200),
                     name == target_name ? ", one for an input and the target; {\"target_name\": \"label\"} calls the "
                                           "target otherwise, as the loss then does (loss.target, --loss-target label)"
                                         : "; give them different names");
    }
  }
  return {};
}

// Draws the part that is asked for, and makes batches of it.
Status finish_dataset(std::unique_ptr<Reader> reader, const Attributes& options, OpenedDataset& out) {
  if (!has_split(*out.reader)) {
    EPL_ASSIGN(reader, split_reader(std::move(reader), options.text("split"), options.number("held_out"),
                                    static_cast<uint64_t>(options.integer("split_seed"))));
  }
  EPL_ASSIGN(out.dataset, Dataset::create(std::move(reader), {.batch = options.integer("batch"),
                                                              .shuffled = options.text("order") == "shuffled",
                                                              .seed = static_cast<uint64_t>(options.integer("seed")),
                                                              .prefetch = options.integer("prefetch"),
                                                              .partial = options.flag("partial")}));
  return {};
}

}  // namespace

Result<OpenedDataset> open_dataset(const std::string& path, std::string_view text, const std::string& packs,
                                   const Stop& stop, const std::string& root) {
  // The reader's name comes first, because it says which other options there are.
  const auto json = parse_json(text);
  const Json* named = json.ok() ? json->find("reader") : nullptr;
  OpenedDataset out;
  EPL_ASSIGN(const std::vector<std::string> paths, matching_files(path));
  EPL_ASSIGN(out.reader, find_reader(named && named->is_string() ? named->text() : "", paths.front()));
  const ReaderRow& row = *out.reader;
  EPL_ASSIGN(Attributes options, parse_options(text, options_with(row), cat("dataset (reader ", row.name, ")")));
  Json own = Json::object();
  for (const Option& option : row.options) {
    const Json* value = json.ok() ? json->find(option.name) : nullptr;
    if (value != nullptr) own[option.name] = *value;
  }
  if (options.text("target_name") != "target") own["target_name"] = options.text("target_name");
  out.given = print_json(own);
  EPL_ASSIGN(std::unique_ptr<Reader> reader, open_files(row, paths, options, packs, stop, root));
  EPL_TRY(check_names(*reader, options.text("target_name")).at(path));
  EPL_TRY(finish_dataset(std::move(reader), options, out));
  return out;
}

Result<OpenedDataset> dataset_of(std::unique_ptr<Reader> reader, const ReaderRow& row, std::string_view text) {
  OpenedDataset out;
  out.reader = &row;
  out.given = "{}";
  EPL_ASSIGN(const Attributes options, parse_options(text, options_with(row), cat("dataset (", row.doc, ")")));
  if (reader->samples() >= endless_samples && (options.text("order") == "shuffled" || options.text("split") != "all"))
    return invalid("samples are drawn only where it is known how many there are");
  EPL_TRY(finish_dataset(std::move(reader), options, out));
  return out;
}

}  // namespace epl
