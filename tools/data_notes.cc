#include "tools/data_notes.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "tools/output_folder.h"
#include "tools/text.h"

namespace epl::tools {
namespace {

bool is_real(int32_t dtype) {
  return dtype == EPL_DTYPE_F32 || dtype == EPL_DTYPE_F64 || dtype == EPL_DTYPE_F16 || dtype == EPL_DTYPE_BF16;
}

// "a, b, c and 12 more".
std::string short_list(const Json& names, size_t most) {
  std::string out;
  for (size_t i = 0; i < std::min(most, names.size()); ++i) out += (i ? ", " : "") + names[i].get<std::string>();
  return names.size() > most ? out + " and " + std::to_string(names.size() - most) + " more" : out;
}

}  // namespace

void bind_target(const Trainer& trainer, const Port& field, const std::string& loss) {
  if (loss != "softmax_cross_entropy") return;  // the target is like the output
  std::vector<int64_t> dims = field.dims;
  int32_t dtype = field.dtype;
  if (is_real(dtype)) {  // a column of a table: [batch, 1]
    dtype = EPL_DTYPE_I64;
    if (dims.size() == 2 && dims[1] == 1) dims.pop_back();
  } else if (dtype != EPL_DTYPE_I32) {
    dtype = EPL_DTYPE_I64;
  }
  check(epl_trainer_bind_input(trainer.get(), field.name.data(), field.name.size(), dtype, dims.data(),
                               static_cast<int32_t>(dims.size())));
}

std::string data_text(const Json& told) {
  const Json description = printable_json(told);
  std::string out = with_thousands(description.at("samples").get<int64_t>()) + " samples, read as " +
                    description.at("reader").get<std::string>();
  for (const Json& field : description.at("fields")) {
    std::string dims;
    for (const Json& dim : field.at("dims")) dims += (dims.empty() ? "" : ",") + print_json(dim);
    out +=
        "\n  " + field.at("name").get<std::string>() + ": " + field.at("dtype").get<std::string>() + "[" + dims + "]";
    if (field.contains("columns")) out += " from " + short_list(field.at("columns"), 8);
    if (!field.contains("classes")) continue;
    for (const Json& one : field.at("classes")) {
      const Json& names = one.at("names");
      out += "\n    " +
             (one.at("column").get<std::string>().empty() ? "" : one.at("column").get<std::string>() + ": ") +
             std::to_string(names.size()) + " classes, in this order: " + short_list(names, 20);
    }
  }
  return out;
}

void tell_data(const Dataset& data, const std::string& out, Listener& listener) {
  const std::string text = text_of(epl_dataset_describe, data.get());
  Json event = parse_json(text);
  write_file(out + "/data.json", text + "\n");
  const std::string line = "data: " + data_text(event);
  event["event"] = "data";
  listener.notice(event, line);
}

Json reader_options(const char* flag, const std::string& argument) {
  if (argument.empty()) return Json::object();
  Json own = parse_json(json_argument(argument), flag);
  if (own.is_object() && own.contains("fields") && own.contains("options"))
    own = own.at("options");  // the data.json of a run
  if (!own.is_object()) throw UsageError(std::string(flag) + " is not a JSON object, as {\"classes\": true}");
  return own;
}

Json options_alike(Json options, const std::string& path, const std::string& other) {
  namespace fs = std::filesystem;
  if (fs::path(path).extension() != fs::path(other).extension()) options.erase("reader");
  return options;
}

Json options_of_run(const std::string& path, const std::string& data) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (fs::path folder = fs::weakly_canonical(path, ignored).parent_path(); !folder.empty();
       folder = folder.parent_path()) {
    const fs::path file = folder / "data.json";
    if (fs::exists(file, ignored)) {
      const Json told = try_parse_json(read_file(file.string()));
      if (!told.is_object() || !told.contains("options") || text_at(told, "reader") == "npy")
        return {};  // an array's targets are a file beside it
      return options_alike(told.at("options"), text_at(told, "path"), data);
    }
    if (folder.filename() != "checkpoints") break;
  }
  return {};
}

bool is_data(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return false;
  if (S_ISDIR(info.st_mode)) {  // a checkpoint, and the folder of a run, are none
    const std::string checkpoint = find_checkpoint(path);
    return checkpoint == path && ::stat((path + "/manifest.epl").c_str(), &info) != 0;
  }
  std::string small = path;
  std::transform(small.begin(), small.end(), small.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return !small.ends_with(".onnx");
}

}  // namespace epl::tools
