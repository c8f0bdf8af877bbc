// Reads credibility.json and its tables. A value of a row is in its cell, else with its model, else with its set.
#include "bench/credibility/rows.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/backend/sheet.h"
#include "core/base/file.h"
#include "core/base/json.h"

namespace epl::credibility {
namespace {

Result<std::string> text_of(const std::string& path) {
  EPL_ASSIGN(const auto file, FileReader::open(path));
  EPL_ASSIGN(const std::vector<std::byte> bytes, file->read_all());
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Columns of vTrain's tables, by which other rows of them can be read as they are.
std::string known_column(std::string_view name) {
  static const std::map<std::string_view, const char*> names = {{"# GPUs", "gpus"},
                                                                {"global batch", "batch"},
                                                                {"micro batch", "micro"},
                                                                {"hidden size", "hidden"},
                                                                {"attention heads", "heads"},
                                                                {"# layers", "layers"},
                                                                {"sequence length", "sequence"},
                                                                {"tensor parallelism", "tensor"},
                                                                {"data parallelism", "copies"},
                                                                {"pipeline parallelism", "stages"},
                                                                {"iteration time (ms)", "milliseconds"}};
  const auto found = names.find(name);
  return found == names.end() ? std::string(name) : found->second;
}

std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells;
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  for (size_t at = 0; at <= line.size();) {
    const size_t end = std::min(line.find(',', at), line.size());
    cells.emplace_back(line.substr(at, end - at));
    at = end + 1;
  }
  return cells;
}

using Values = std::map<std::string, std::string>;

Values values_of(const Json& object) {
  Values values;
  for (const Json::Member& one : object.items())
    values[one.key] = one.value.is_string() ? one.value.text() : number_text(one.value.get<double>());
  return values;
}

// The values of one row.
class Reader {
 public:
  Reader(std::string where, std::vector<const Values*> from) : where_(std::move(where)), from_(std::move(from)) {}

  std::string text(const std::string& key, const std::string& otherwise = {}) const {
    for (const Values* values : from_) {
      const auto found = values->find(key);
      if (found != values->end() && !found->second.empty()) return found->second;
    }
    return otherwise;
  }
  double number(const std::string& key, std::optional<double> otherwise = {}) {
    const std::string cell = text(key);
    if (cell.empty() && otherwise) return *otherwise;
    double value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc() || end != cell.data() + cell.size() || !(value >= 0)) wrong(key, cell);
    return value;
  }
  int64_t whole(const std::string& key, std::optional<double> otherwise = {}) {
    return static_cast<int64_t>(std::lround(number(key, otherwise)));
  }
  void wrong(const std::string& key, const std::string& cell) {
    if (status_.ok()) status_ = invalid(where_, ": ", key, " is ", cell.empty() ? "missing" : cell);
  }
  Status status() const { return status_; }

 private:
  const std::string where_;
  const std::vector<const Values*> from_;
  Status status_;
};

void read_sizes(Reader& from, Row& row) {
  row.sizes = {.hidden = from.whole("hidden"),
               .layers = from.whole("layers"),
               .heads = from.whole("heads"),
               .sequence = from.whole("sequence"),
               .vocabulary = from.whole("vocabulary"),
               .shared_heads = from.whole("shared_heads", 0),
               .inner = from.whole("inner", 0),
               .gated = from.number("gated", 0) > 0,
               .tied = from.number("tied", 1) > 0};
}

void read_training(Reader& from, Row& row) {
  row.training = {.rate = from.number("rate", 1),
                  .again = from.number("again", 0),
                  .weight = from.number("weight", 2),
                  .gradient = from.number("gradient", 2),
                  .states = from.number("states", 12),
                  .buckets = from.number("buckets", 1)};
  const std::string type = from.text("dtype", "f16"), shards = from.text("shards", "nothing");
  if (const auto dtype = parse_dtype(type)) {
    row.training.dtype = *dtype;
  } else {
    from.wrong("dtype", type);
  }
  static const std::map<std::string, SearchShards> levels = {{"nothing", SearchShards::nothing},
                                                             {"states", SearchShards::states},
                                                             {"gradients", SearchShards::gradients},
                                                             {"weights", SearchShards::weights}};
  if (const auto found = levels.find(shards); found != levels.end()) {
    row.shards = found->second;
  } else {
    from.wrong("shards", shards);
  }
}

void read_layout(Reader& from, Row& row) {
  row.ranks = from.whole("gpus");
  row.batch = from.whole("batch");
  row.samples = from.number("micro");
  row.tensor = from.whole("tensor", 1);
  row.stages = from.whole("stages", 1);
  row.chunks = from.whole("chunks", 1);
  row.copies = from.whole("copies", static_cast<double>(row.ranks / std::max<int64_t>(row.tensor * row.stages, 1)));
  row.network = from.number("network", 0);
  row.memory = from.number("bandwidth", 0);
  row.peak = from.number("peak", 0);
  if (row.tensor * row.stages * row.copies != row.ranks) from.wrong("gpus", number_text(double(row.ranks)));
  const double calls = static_cast<double>(row.batch) / static_cast<double>(row.copies) / row.samples;
  if (!(row.samples > 0) || std::abs(calls - std::round(calls)) > 1e-9 || calls < 1)
    from.wrong("micro", number_text(row.samples));
  const double milliseconds = from.number("milliseconds", 0), tokens = from.number("tokens_per_gpu", 0);
  row.seconds = milliseconds / 1e3;
  if (tokens > 0)
    row.seconds = static_cast<double>(row.batch * row.sizes.sequence) / tokens / static_cast<double>(row.ranks);
  if (!(row.seconds > 0)) from.wrong("milliseconds", from.text("milliseconds"));
}

bool is_in(const Json* list, const std::string& word) {
  if (list == nullptr) return false;
  return std::ranges::any_of(*list, [&](const Json& one) { return one.text() == word; });
}

// Why rows like this one are marked.
std::string mark_of(const Json* marks, Reader& from) {
  if (marks == nullptr) return {};
  for (const Json& mark : *marks) {
    const bool all = std::ranges::all_of(mark.items(), [&](const Json::Member& one) {
      return one.key == "why" || from.number(one.key, -1) == one.value.get<double>();
    });
    if (all) return mark.at("why").text();
  }
  return {};
}

Status add_table(const std::string& path, const Json& set, const Json& models, Book& book) {
  EPL_ASSIGN(const std::string text, text_of(path));
  std::string_view rest = text;
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);  // a byte order mark
  const Values defaults = set.contains("values") ? values_of(set.at("values")) : Values();
  std::vector<std::string> columns;
  for (int line = 1; !rest.empty(); ++line) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::vector<std::string> cells = cells_of(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (columns.empty()) {
      for (const std::string& cell : cells) columns.push_back(known_column(cell));
      continue;
    }
    if (cells.size() == 1 && cells[0].empty()) continue;
    const std::string where = cat(path, ", line ", line);
    if (cells.size() != columns.size()) return invalid(where, " has ", cells.size(), " cells");
    Values own, of_model;
    for (size_t c = 0; c < cells.size(); ++c) own[columns[c]] = cells[c];
    if (const Json* model = models.find(own["model"])) of_model = values_of(*model);
    Reader from(where, {&own, &of_model, &defaults});
    Row row{.set = set.at("name").text(), .machine = from.text("machine"), .software = from.text("software")};
    read_sizes(from, row);
    read_training(from, row);
    read_layout(from, row);
    row.model = from.text("model", cat(row.sizes.hidden, "x", row.sizes.layers));
    row.name = from.text("name", cat(row.model, " ", row.ranks, " ", row.tensor, "*", row.copies, "*", row.stages, " b",
                                     from.text("micro"), " B", row.batch));
    row.mark = from.text("mark");
    if (row.mark.empty()) row.mark = mark_of(set.find("marked"), from);
    row.fitted = row.mark.empty() && (is_in(set.find("fitted"), row.model) || is_in(set.find("fitted"), row.name));
    EPL_TRY(from.status());
    if (!book.machines.contains(row.machine)) return invalid(where, ": no machine ", row.machine);
    if (!book.software.contains(row.software)) return invalid(where, ": no software ", row.software);
    book.rows.push_back(std::move(row));
  }
  return {};
}

void name_constants(Book& book) {
  for (auto& [name, machine] : book.machines) {
    for (Machine::Rate& rate : machine.rates)
      if (rate.kind == WorkKind::product) book.constants[cat(name, " ", dtype_name(rate.dtype))] = &rate.per_second;
    book.constants[name + " launch"] = &machine.launch_seconds;
    book.constants[name + " fill"] = &machine.tiles.fill;
    book.constants[name + " depth"] = &machine.tiles.depth;
    for (Machine::Memory& memory : machine.memories)
      if (memory.kind == MemoryKind::device) book.constants[name + " memory"] = &memory.bandwidth;
  }
  for (auto& [name, software] : book.software) {
    book.constants[name + " passes"] = &software.passes;
    book.constants[name + " scores"] = &software.scores;
    book.constants[name + " logits"] = &software.logits;
    book.constants[name + " attention"] = &software.attention;
  }
}

}  // namespace

int64_t Row::micro_batches() const {
  return std::lround(static_cast<double>(batch) / static_cast<double>(copies) / samples);
}

Result<Book> read_book(const std::string& folder, const std::string& more, const std::string& like) {
  const std::string path = folder + "/credibility.json";
  EPL_ASSIGN(const std::string text, text_of(path));
  EPL_ASSIGN(const Json json, parse_json(text));
  Book book;
  for (const Json::Member& one : json.at("machines").items()) {
    EPL_ASSIGN(const DeviceSheet sheet, read_device_sheet(folder + "/" + one.value.at("sheet").text()));
    book.machines[one.key] = sheet.machine;
  }
  for (const Json::Member& one : json.at("software").items()) {
    const Values values = values_of(one.value);
    Reader from(cat(path, ": ", one.key), {&values});
    book.software[one.key] = {.name = one.key,
                              .forward_kernels = from.number("forward_kernels"),
                              .backward_kernels = from.number("backward_kernels"),
                              .passes = from.number("passes"),
                              .scores = from.number("scores"),
                              .logits = from.number("logits"),
                              .attention = from.number("attention")};
    EPL_TRY(from.status());
  }
  bool found = more.empty();
  for (const Json& set : json.at("sets")) {
    if (more.empty()) {
      for (const Json& table : set.at("tables"))
        EPL_TRY(add_table(folder + "/" + table.text(), set, json.at("models"), book));
    } else if (set.at("name").text() == like) {
      found = true;
      EPL_TRY(add_table(more, set, json.at("models"), book));
    }
  }
  if (!found) return invalid("no set ", like, " in ", path);
  name_constants(book);
  return book;
}

}  // namespace epl::credibility
